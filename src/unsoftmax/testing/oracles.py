"""Does an oracle answer as the oracle contract promises?"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault
from unsoftmax.oracles import Oracle, OracleSpec, check_width
from unsoftmax.testing.violations import raise_if_any

__all__ = ["check_oracle"]

_BATCHING = 1e-5  # relative; answers may depend on how queries are batched, in float32 by about 1e-6


def check_oracle(oracle: Oracle, *, width: int | None = None, seed: int = 0) -> None:
    """Runs the rules of the oracle contract, with about 40 queries; raises `NonConformance` with all that are
    broken.

    width: columns of a sequence, where the oracle's spec does not tell.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> check_oracle(FunctionOracle(lambda X: X[:, -1, 0]), width=2)
    >>> from unsoftmax.oracles import OracleSpec
    >>> check_oracle(FunctionOracle(lambda X: X[:, -1, 0], OracleSpec(width=2, input_bound=0.5)))
    Traceback (most recent call last):
        ...
    unsoftmax.testing.violations.NonConformance: the oracle breaks 1 of its promises:
    - a row of norm 0.505 was answered, but spec.input_bound is 0.5
    """
    raise_if_any("the oracle", _violations(oracle, width, seed))


def _violations(oracle: Oracle, width: int | None, seed: int) -> list[str]:
    spec = oracle.spec
    if not isinstance(spec, OracleSpec):
        return ["spec is not an OracleSpec"]
    d = check_width(width if width is not None else spec.width)
    rng = np.random.default_rng(seed)
    broken = (
        [] if spec.width in (None, d) else [f"spec.width is {spec.width}, the oracle was said to have {d}"]
    )
    lengths = [length for length in (1, 2, 7) if spec.max_length is None or length <= spec.max_length]
    for length in lengths:
        broken += _one_length(oracle, _batch(rng, spec, length, d))
    if spec.input_bound is not None:
        broken += _bound_is_kept(oracle, spec.input_bound, d)
    return broken


def _one_length(oracle: Oracle, batch: Array) -> list[str]:
    spec, n = oracle.spec, len(batch)
    before = batch.copy()
    answers = oracle(batch)
    expected = (n,) if spec.outputs is None else (n, spec.outputs)
    if not isinstance(answers, np.ndarray) or answers.dtype != np.float64:
        return [f"answers are {type(answers).__name__} instead of a float64 array"]
    if answers.shape != expected:
        return [f"answers to {n} queries have shape {answers.shape} instead of {expected}"]
    broken = []
    if not np.isfinite(answers).all():
        broken.append("answers hold NaN or infinity")
    if not np.array_equal(batch, before):
        broken.append("the oracle changed the batch that it was given")
    if spec.deterministic:
        allowed = _BATCHING * (1.0 + float(np.abs(answers).max()))
        if np.abs(oracle(batch.copy()) - answers).max() > allowed:
            broken.append("asking again gave another answer, but spec.deterministic is true")
        if np.abs(oracle(np.roll(batch, 1, axis=0)) - np.roll(answers, 1, axis=0)).max() > allowed:
            broken.append("answers do not follow the order of the queries")
        if np.abs(oracle(batch[:1].copy()) - answers[:1]).max() > allowed:
            broken.append("a query asked alone is answered differently than in a batch")
    return broken


def _bound_is_kept(oracle: Oracle, bound: float, width: int) -> list[str]:
    longer = np.zeros((1, 1, width))
    longer[0, 0, 0] = 1.01 * bound
    try:
        oracle(longer)
    except OracleFault:
        return []
    return [f"a row of norm {1.01 * bound:.3g} was answered, but spec.input_bound is {bound:.3g}"]


def _batch(rng: np.random.Generator, spec: OracleSpec, length: int, width: int) -> Array:
    n = 4 if spec.max_batch is None else min(4, spec.max_batch)
    rows = rng.standard_normal((n, length, width))
    size = 1.0 if spec.input_bound is None else min(1.0, spec.input_bound)
    return np.asarray(0.9 * size * rows / np.linalg.norm(rows, axis=2, keepdims=True))
