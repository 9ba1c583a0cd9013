"""Answers become linear measurements of W."""

from unsoftmax.meters.base import Answers, BoundedMeter, FormMeter, Meter
from unsoftmax.meters.one_head.exact import SigmoidMeter
from unsoftmax.meters.one_head.within_tolerance import ToleranceMeter
from unsoftmax.meters.readout import MeasuredReadout
from unsoftmax.meters.transformer.antisymmetric import AntisymmetricPairs, antisymmetric_meter
from unsoftmax.meters.transformer.linear_piece_meter import ConeMeter

__all__ = [
    "Answers",
    "AntisymmetricPairs",
    "BoundedMeter",
    "ConeMeter",
    "FormMeter",
    "MeasuredReadout",
    "Meter",
    "SigmoidMeter",
    "ToleranceMeter",
    "antisymmetric_meter",
]
