"""Networks that are awkward by so many decades: neurons that nearly cancel or coincide, parts that drown
others. Shared by tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.cases.networks import gaussian
from unsoftmax import ReluNetwork
from unsoftmax.arrays import Array

AwkwardMaker = Callable[[int, int, float, np.random.Generator], ReluNetwork]


def _with_twins(
    d: int, m: int, gap: float, rng: np.random.Generator, outputs: Callable[[Array], Array]
) -> ReluNetwork:
    """A third of the neurons get a twin whose hyperplane differs by `gap`, in direction or in offset."""
    base = gaussian(d, m, rng, True)
    assert base.b is not None
    k = max(1, m // 3)
    length = np.linalg.norm(base.A[:k], axis=1)
    turned = rng.random(k) < 0.5
    A = base.A[:k] + gap * (turned * length)[:, None] * rng.standard_normal((k, d))
    b = base.b[:k] + gap * ~turned * length * rng.standard_normal(k)
    return ReluNetwork(
        np.vstack([base.A, A]),
        np.concatenate([base.u, outputs(base.u[:k])]),
        np.concatenate([base.b, b]),
        base.c,
    )


def nearly_cancelling(d: int, m: int, decades: float, rng: np.random.Generator) -> ReluNetwork:
    """Twins of opposite output: outside the gap they cancel."""
    return _with_twins(d, m, 10.0**-decades, rng, lambda u: -u)


def nearly_coinciding(d: int, m: int, decades: float, rng: np.random.Generator) -> ReluNetwork:
    """Twins of any output."""
    return _with_twins(d, m, 10.0**-decades, rng, lambda u: np.asarray(rng.standard_normal(len(u))))


def almost_gone(d: int, m: int, decades: float, rng: np.random.Generator) -> ReluNetwork:
    """Twins on the same hyperplane that cancel but for 10^-decades of their output."""
    return _with_twins(d, m, 0.0, rng, lambda u: np.asarray(-u * (1.0 + 10.0**-decades)))


def through_one_point(d: int, m: int, decades: float, rng: np.random.Generator) -> ReluNetwork:
    """All hyperplanes meet in one point, 10^-decades to 10^decades from the origin."""
    A, u = rng.standard_normal((m, d)), rng.standard_normal(m)
    point = 10.0 ** rng.uniform(-decades, decades) * rng.standard_normal(d)
    return ReluNetwork(A, u, -A @ point, float(rng.standard_normal()))


def beside_a_linear_part(d: int, m: int, decades: float, rng: np.random.Generator) -> ReluNetwork:
    """CanonicalNetwork 10^-decades as steep as the linear part."""
    base = gaussian(d, m, rng, bool(rng.integers(2)))
    return ReluNetwork(base.A, base.u, base.b, base.c, 10.0**decades * rng.standard_normal(d))


def beside_a_constant(d: int, m: int, decades: float, rng: np.random.Generator) -> ReluNetwork:
    """Everything 10^-decades as large as a constant."""
    base = gaussian(d, m, rng, bool(rng.integers(2)))
    return ReluNetwork(base.A, base.u, base.b, 10.0**decades)


def in_other_units(d: int, m: int, decades: float, rng: np.random.Generator) -> ReluNetwork:
    """Inputs and answers in units up to 10^decades from the usual ones."""
    base = gaussian(d, m, rng, True)
    assert base.b is not None
    inputs, answers = 10.0 ** rng.uniform(-decades, decades, 2)
    return ReluNetwork(base.A * inputs, answers * base.u, base.b, answers * base.c)


def one_dimension(d: int, m: int, decades: float, rng: np.random.Generator) -> ReluNetwork:
    """Kinks on a line, at distances and of sizes spread over so many decades."""
    a, u, b = (
        rng.choice([-1.0, 1.0], m) * 10.0 ** rng.uniform(-decades / 2, decades / 2, m) for _ in range(3)
    )
    return ReluNetwork(a[:, None], u, b, float(rng.standard_normal()))


AWKWARD: dict[str, AwkwardMaker] = {
    make.__name__.replace("_", " "): make
    for make in (
        nearly_cancelling, nearly_coinciding, almost_gone, through_one_point, beside_a_linear_part,
        beside_a_constant, in_other_units, one_dimension,
    )
}  # fmt: skip
