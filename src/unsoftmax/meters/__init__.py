"""Answers become linear measurements of W."""

from unsoftmax.meters.antisymmetric import AntisymmetricPairs, antisymmetric_meter
from unsoftmax.meters.base import Answers, BoundedMeter, Meter
from unsoftmax.meters.cone import ConeMeter
from unsoftmax.meters.sigmoid import SigmoidMeter
from unsoftmax.meters.tolerance import LoudReadout, ToleranceMeter

__all__ = [
    "Answers",
    "AntisymmetricPairs",
    "BoundedMeter",
    "ConeMeter",
    "LoudReadout",
    "Meter",
    "SigmoidMeter",
    "ToleranceMeter",
    "antisymmetric_meter",
]
