"""Answers become linear measurements of W."""

from unsoftmax.meters.base import Meter
from unsoftmax.meters.sigmoid import SigmoidMeter

__all__ = ["Meter", "SigmoidMeter"]
