"""Answers become linear measurements of W."""

from unsoftmax.meters.base import BoundedMeter, Meter
from unsoftmax.meters.sigmoid import SigmoidMeter
from unsoftmax.meters.tolerance import LoudReadout, ToleranceMeter

__all__ = ["BoundedMeter", "LoudReadout", "Meter", "SigmoidMeter", "ToleranceMeter"]
