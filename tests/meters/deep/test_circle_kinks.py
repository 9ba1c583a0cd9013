"""Kinks of piecewise linear functions of the sphere along great circles."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.arrays import Array
from unsoftmax.meters.deep.circle_kinks import Circle, find_kinks, is_piecewise_linear

_D = 9


class _Network:
    """ReLU neurons beside a linear part; what is along a row is hidden."""

    def __init__(self, neurons: int, seed: int, power: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.inner, self.bias = rng.standard_normal((neurons, _D)), 0.5 * rng.standard_normal(neurons)
        self.outer, self.linear = rng.standard_normal((neurons, _D)), rng.standard_normal((_D, _D))
        self.power, self.asked = power, 0

    def __call__(self, n: Array) -> Array:
        self.asked += len(n)
        values = np.maximum(n @ self.inner.T + self.bias, 0.0) ** self.power @ self.outer + n @ self.linear.T
        return np.asarray(values - n * (values * n).mean(axis=1, keepdims=True))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("neurons", [1, 6, 20])
def test_every_kink_of_a_circle_is_found_with_its_jump(seed: int, neurons: int) -> None:
    network = _Network(neurons, seed)
    circle = Circle.random(_D, np.random.default_rng(seed + 50))
    kinks = find_kinks(network, circle, 1e-14)
    plane = np.sqrt(_D) * network.inner @ circle.frame[:, :2]
    size, middle = np.hypot(*plane.T), np.arctan2(plane[:, 1], plane[:, 0])
    met = np.abs(network.bias) < size
    half = np.arccos(-network.bias[met] / size[met])
    true = np.sort(np.concatenate([middle[met] - half, middle[met] + half]) % (2.0 * np.pi))
    assert np.allclose([kink.place % (2.0 * np.pi) for kink in kinks], true, atol=1e-9)
    slopes = np.sqrt(size[met] ** 2 - network.bias[met] ** 2)
    jumps = circle.outputs(slopes[:, None] * network.outer[met])
    for kink in kinks:
        assert np.linalg.norm(jumps - kink.jump, axis=1).min() < 1e-7
    assert network.asked < 4 * 48 + 40 * len(true)


def test_a_smooth_function_is_told_from_one_with_kinks() -> None:
    rng = np.random.default_rng(0)
    assert is_piecewise_linear(_Network(12, 0), _D, 1e-12, rng)
    assert not is_piecewise_linear(_Network(12, 0, power=3), _D, 1e-12, rng)
