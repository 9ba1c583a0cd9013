"""Answers become linear measurements of W."""

from unsoftmax.meters.antisymmetric import AntisymmetricPairs, antisymmetric_meter
from unsoftmax.meters.base import Answers, Meter
from unsoftmax.meters.cone import ConeMeter
from unsoftmax.meters.sigmoid import SigmoidMeter

__all__ = ["Answers", "AntisymmetricPairs", "ConeMeter", "Meter", "SigmoidMeter", "antisymmetric_meter"]
