"""Does a model keep what `Model` promises: answers, canonical form, distance, file?"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models import Model, load
from unsoftmax.testing.violations import raise_if_any

__all__ = ["check_model"]

_LENGTHS = (1, 2, 7)  # one row, a pair, and several
_QUERIES = 5  # of each length

MakeBatch = Callable[[np.random.Generator, int, int], Array]
"""A batch of so many sequences of so many rows."""


def check_model(
    model: Model,
    *,
    same: Sequence[Model] = (),
    others: Sequence[Model] = (),
    batch: MakeBatch | None = None,
    rounding: float = 1e-11,
    seed: int = 0,
) -> None:
    """Runs the promises of a model; raises `NonConformance` with all that are broken.

    same: models with other parameters and the same function, such as permuted heads. others: models of the
    same shape with another function. batch: makes sequences that the model takes (None: Gaussian rows).
    rounding: how far answers of equal functions, and distances that should be zero, may be off.

    >>> import unsoftmax
    >>> head = unsoftmax.random_single_head(4, 2, seed=0)
    >>> check_model(head, others=[unsoftmax.random_single_head(4, 2, seed=1)])
    """
    suite = _Suite(batch or _gaussian_rows(model.width), rounding, seed)
    broken = suite.calls(model)
    raise_if_any("the model", broken)
    broken += suite.numbers(model) + suite.canonical(model) + suite.file(model)
    for twin in same:
        broken += suite.twin(model, twin)
    for other in others:
        broken += suite.other(model, other)
    raise_if_any("the model", broken)


def _gaussian_rows(width: int) -> MakeBatch:
    def make(rng: np.random.Generator, count: int, length: int) -> Array:
        return rng.standard_normal((count, length, width))

    return make


class _Suite:
    """The sequences to try, and the checks of one model after another."""

    def __init__(self, batch: MakeBatch, rounding: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._batches = [batch(rng, _QUERIES, length) for length in _LENGTHS]
        self._rounding = rounding

    def calls(self, model: Model) -> list[str]:
        """Shapes, and a batch that stays as it was."""
        broken = []
        for rows in self._batches:
            before = rows.copy()
            answers = model(rows)
            expected = (len(rows),) if model.outputs is None else (len(rows), model.outputs)
            if np.shape(answers) != expected or np.asarray(answers).dtype != np.float64:
                broken.append(
                    f"answers to a batch {rows.shape} are {np.asarray(answers).dtype} of shape "
                    f"{np.shape(answers)} instead of float64 of shape {expected}"
                )
                continue
            if not np.isfinite(answers).all():
                broken.append(f"answers to a batch {rows.shape} are not finite")
            if not np.array_equal(rows, before):
                broken.append("a call writes into its batch")
            if not np.array_equal(model(rows), answers):
                broken.append("the same batch gets another answer when asked again")
        return broken

    def numbers(self, model: Model) -> list[str]:
        """Counts that others rely on."""
        broken = []
        if not isinstance(model.parameters, int) or model.parameters < 1:
            broken.append(f"parameters is {model.parameters!r} instead of a whole number >= 1")
        if not isinstance(getattr(model, "family", None), str):
            broken.append("family is not a string")
        if any(not isinstance(rank, int | np.integer) or rank < 0 for rank in model.ranks):
            broken.append(f"ranks are {model.ranks!r} instead of whole numbers >= 0")
        return broken

    def canonical(self, model: Model) -> list[str]:
        """One representative: itself again, the same function, at distance zero."""
        form = model.canonical()
        broken = []
        if type(form) is not type(model):
            return [f"canonical() of a {type(model).__name__} is a {type(form).__name__}"]
        again = form.canonical()
        if not _alike(form.tensors(), again.tensors(), self._rounding):
            broken.append("canonical() of a canonical form changes it")
        if self._deviation(model, form) > self._rounding:
            broken.append(f"canonical() has another function: off by {self._deviation(model, form):.2g}")
        for name, distance in (
            ("itself", model.distance(model)),
            ("its canonical form", model.distance(form)),
        ):
            if not 0.0 <= distance <= self._rounding:
                broken.append(f"the distance to {name} is {distance:.2g} instead of zero")
        return broken

    def file(self, model: Model) -> list[str]:
        """Saved and loaded, bit for bit."""
        with tempfile.TemporaryDirectory() as folder:
            again = load(model.save(Path(folder) / "model.safetensors"))
        if type(again) is not type(model):
            return [f"a saved {type(model).__name__} is loaded as a {type(again).__name__}"]
        before, after = model.tensors(), again.tensors()
        if set(before) != set(after) or any(not _same_bits(before[name], after[name]) for name in before):
            return ["a saved and loaded model has other arrays"]
        if any(not np.array_equal(model(rows), again(rows)) for rows in self._batches):
            return ["a saved and loaded model gives other answers"]
        return []

    def twin(self, model: Model, twin: Model) -> list[str]:
        """Other parameters, one function."""
        broken = []
        if self._deviation(model, twin) > self._rounding:
            broken.append("a model in `same` has another function")
        for distance in (model.distance(twin), twin.distance(model)):
            if not 0.0 <= distance <= self._rounding:
                broken.append(f"the distance to a model of the same function is {distance:.2g}")
        return broken

    def other(self, model: Model, other: Model) -> list[str]:
        """Two functions, a distance above zero from both sides."""
        there, back = model.distance(other), other.distance(model)
        if not (there > self._rounding and back > self._rounding):
            return [f"the distance to a model of another function is {there:.2g}, and {back:.2g} from there"]
        return []

    def _deviation(self, model: Model, other: Model) -> float:
        worst = 0.0
        for rows in self._batches:
            answers = model(rows)
            size = 1.0 + float(np.abs(answers).max())
            worst = max(worst, float(np.abs(other(rows) - answers).max()) / size)
        return worst


def _same_bits(one: Array, two: Array) -> bool:
    return one.shape == two.shape and one.dtype == two.dtype and one.tobytes() == two.tobytes()


def _alike(one: dict[str, Array], two: dict[str, Array], rounding: float) -> bool:
    """Equal arrays up to rounding, in the same order."""
    if set(one) != set(two):
        return False
    return all(
        one[name].shape == two[name].shape
        and np.allclose(
            one[name], two[name], rtol=rounding, atol=rounding * (1.0 + np.abs(one[name]).max(initial=0.0))
        )
        for name in one
    )
