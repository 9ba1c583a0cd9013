"""Boxes for the honesty fuzzer whose answers depend on what was asked before, or on chance, as services are:
caches that forget, models that are replaced, drifts, averages over calls, two versions behind one address."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

import unsoftmax
from tests.cases.honesty_case import Case, Function, Maker
from tests.cases.honesty_engines import case_of, drawn, of_kind
from tests.cases.honesty_twists import Rules, column, generator
from unsoftmax.arrays import Array

__all__ = ["KINDS", "SLOW"]

# (the usual function, another one, size, random numbers) -> the service
_Service = Callable[[Function, Function, float, np.random.Generator], Function]


def _digest(row: Array) -> float:
    """A number from 0 to 1 that a sequence always gets."""
    found = hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=8).digest()
    return int.from_bytes(found, "big") / 2.0**64


def _some(usual: Function, other: Function, picked: NDArray[np.bool_], X: Array) -> Array:
    found = np.array(usual(X))
    if picked.any():
        found[picked] = other(X[picked])
    return found


def _forgetful(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """The last 64 sequences are kept by length, first row and last row alone."""
    kept: OrderedDict[bytes, Array] = OrderedDict()

    def answer(X: Array) -> Array:
        found = np.array(usual(X))
        for i, x in enumerate(X):
            key = bytes([len(x)]) + np.ascontiguousarray(x[[0, -1]]).tobytes()
            found[i] = kept.setdefault(key, found[i])
            if len(kept) > 64:
                kept.popitem(last=False)
        return found

    return answer


def _two_versions(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """Every second call goes to another version."""
    calls = [0]

    def answer(X: Array) -> Array:
        calls[0] += 1
        return (other if calls[0] % 2 else usual)(X)

    return answer


def _canary(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """One sequence of ten goes to another version, by chance."""
    return lambda X: _some(usual, other, rng.uniform(size=len(X)) < 0.1, X)


def _by_hash(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """A fifth of all sequences always goes to another version."""
    return lambda X: _some(usual, other, np.array([_digest(x) for x in X]) < 0.2, X)


def _by_asking_row(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """Whether another version answers depends on the last row alone."""
    return lambda X: _some(usual, other, np.array([_digest(x[-1]) for x in X]) < 0.3, X)


def _warms_up(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """Early answers are off, and late ones are not."""
    asked = [0]

    def answer(X: Array) -> Array:
        values = usual(X)
        after = asked[0] + np.arange(len(X))
        asked[0] += len(X)
        return np.asarray(values * (1.0 + size * column(np.exp(-after / 50.0), values)))

    return answer


def _rolled_back(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """Another version for forty queries."""
    asked, first = [0], int(np.exp(rng.uniform(np.log(5.0), np.log(200.0))))

    def answer(X: Array) -> Array:
        now = asked[0] + np.arange(len(X))
        asked[0] += len(X)
        return _some(usual, other, (now >= first) & (now < first + 40), X)

    return answer


def _average(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """A part of the mean of all answers so far is taken away."""
    mean, seen = [0.0], [0]

    def answer(X: Array) -> Array:
        values = usual(X)
        found = values - size * mean[0]
        seen[0] += 1
        mean[0] += (float(np.mean(values)) - mean[0]) / seen[0]
        return np.asarray(found)

    return answer


def _walk(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """The scale of answers walks at random from call to call."""
    scale = [1.0]

    def answer(X: Array) -> Array:
        scale[0] += size * rng.standard_normal() / 10.0
        return np.asarray(usual(X) * scale[0])

    return answer


def _noise_by_hash(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """Noise that a sequence always gets alike, so that asking again does not show it."""

    def answer(X: Array) -> Array:
        values = usual(X)
        noise = np.array([_digest(x) - 0.5 for x in X])
        return np.asarray(values + size * column(noise, values))

    return answer


def _dithered(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """Steps whose place depends on the sequence."""

    def answer(X: Array) -> Array:
        values = usual(X)
        shift = column(np.array([_digest(x) for x in X]), values)
        return np.asarray((np.floor(values / size + shift) - shift + 0.5) * size)

    return answer


def _by_size_of_call(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """Large calls, counted in rows, are answered by a cheaper version."""
    return lambda X: (usual if X.shape[0] * X.shape[1] < 300 else other)(X)


def _place_in_call(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """The last sequence of a call of several is answered by another version."""
    return lambda X: _some(usual, other, (np.arange(len(X)) == len(X) - 1) & (len(X) > 1), X)


def _grid_of_the_call(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """Answers are steps of the largest of the call, as when tensors are sent in eight or more bits."""

    def answer(X: Array) -> Array:
        values = usual(X)
        step = max(float(np.abs(values).max()), 1e-300) * size
        return np.asarray(np.rint(values / step) * step)

    return answer


def _left_out(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """In a tenth of the sequences, by chance, a row other than the last is left out."""

    def answer(X: Array) -> Array:
        found = np.array(usual(X))
        if X.shape[1] > 1:
            fewer = np.delete(X, int(rng.integers(X.shape[1] - 1)), axis=1)
            picked = rng.uniform(size=len(X)) < 0.1
            found[picked] = usual(fewer)[picked]
        return found

    return answer


def _last_but_one(usual: Function, other: Function, size: float, rng: np.random.Generator) -> Function:
    """One answer in ten is that of the sequence before."""
    last: list[Array] = []

    def answer(X: Array) -> Array:
        found = np.array(usual(X))
        for i in range(len(found)):
            now = found[i].copy()
            if last and rng.uniform() < 0.1:
                found[i] = last[0]
            last[:] = [now]
        return found

    return answer


# what depends on the sequence alone; what is the usual function but for some time; what is never a function
_STEADY: dict[str, _Service] = {
    "a fifth by hash": _by_hash,
    "by the asking row": _by_asking_row,
    "noise by hash": _noise_by_hash,
    "dithered steps": _dithered,
}
_PASSING: dict[str, _Service] = {
    "a cache that forgets": _forgetful,
    "warms up": _warms_up,
    "replaced and rolled back": _rolled_back,
}
_UNSTEADY: dict[str, _Service] = {
    "two versions in turns": _two_versions,
    "a tenth by chance": _canary,
    "the mean of all answers": _average,
    "a scale that walks": _walk,
    "large calls, in rows": _by_size_of_call,
    "the last of a call": _place_in_call,
    "steps of a call": _grid_of_the_call,
    "a row left out": _left_out,
    "the answer before": _last_but_one,
}


_PLACES = [*_STEADY.values(), *_PASSING.values(), *_UNSTEADY.values()]


def _two(d: int, seed: int) -> tuple[Function, Function, float, np.random.Generator, dict[str, object]]:
    rng = generator(d, seed, 89)
    size = float(10.0 ** -rng.uniform(0.5, 8.0))
    made, options = drawn(d, seed)
    return made(Rules()), made(Rules(scores=lambda a, X: a * (1.0 + size))), size, rng, options


def _service(make: _Service, steady: bool, passing: bool, d: int, seed: int) -> Case:
    seed = of_kind(_PLACES.index(make), seed)
    usual, other, size, rng, options = _two(d, seed)
    case = case_of(make(usual, other, size, rng), d, seed, options)
    function = _as_shown(case, usual) if passing else case.function
    return replace(case, function=function, steady=steady)


def _as_shown(case: Case, usual: Function) -> Function:
    """The usual function, with the limits that the answers of the case have."""
    clipped = isinstance(case.box, unsoftmax.Clipped)
    return (lambda X: np.clip(usual(X), -20.0, 20.0)) if clipped else usual


def _replaced(d: int, seed: int) -> Case:
    """Another version from some query on; what answers in the end must be what was recovered."""
    usual, other, _, rng, options = _two(d, seed)
    asked, first = [0], int(np.exp(rng.uniform(np.log(20.0), np.log(400.0))))

    def now(X: Array) -> Array:
        return (other if asked[0] >= first else usual)(X)

    def answer(X: Array) -> Array:
        picked = asked[0] + np.arange(len(X)) >= first
        asked[0] += len(X)
        return _some(usual, other, picked, X)

    case = case_of(answer, d, seed, options)
    return replace(case, function=_as_shown(case, now))


KINDS: dict[str, Maker] = {
    "service: replaced": _replaced,
    **{f"service: {name}": partial(_service, make, True, False) for name, make in _STEADY.items()},
    **{f"service: {name}": partial(_service, make, True, True) for name, make in _PASSING.items()},
    **{f"service: {name}": partial(_service, make, False, False) for name, make in _UNSTEADY.items()},
}
SLOW: frozenset[str] = frozenset(KINDS)
