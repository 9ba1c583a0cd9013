"""The places at which stored answers change are where the formats say, beside powers of two as well."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.answers import Stored
from unsoftmax.certify.sharp_sequences import _place
from unsoftmax.float_formats import FloatFormat


@pytest.mark.parametrize("precision", list(FloatFormat))
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_answers_change_there(precision: FloatFormat, sign: float) -> None:
    unit = precision.unit
    values = sign * np.array([0.25, 0.25 * (1 - unit), 0.25 * (1 + 3 * unit), 0.2, 1.0, 1.7, 3.0, 8.0])
    places = _place(Stored(precision), values)
    places, values = places[places != 0.0], values[places != 0.0]
    beside = 0.01 * unit * np.abs(places)
    above, below = precision.store(places + beside), precision.store(places - beside)
    assert (above > below).all()
    assert (np.abs(places - values) <= 4.0 * unit * np.abs(values)).all()
