"""Layers of neurons and their paths from c1: memberships that may be anything become 0 or 1.

Unknown are the share p_jl of neuron j in layer l, the path A_l and constant k_l of every layer, and the
multiple λ of 1 by which Σ A_l is unknown. Gauss-Newton on c1, from the division into one layer fewer, whose
shares order the neurons by depth, and from equal shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array, rms
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.deep_stack.neurons import Collapsed, beside
from unsoftmax.solvers.least_squares.factored_jacobian import FactoredJacobian, Factors
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine

__all__ = ["SoftLayers", "separate_layers"]

_OPTIONS = RefinementOptions(
    iterations=60, damping=1e-3, least_damping=1e-9, improvement=1e-3, dense_limit=9000
)
_SURPLUS = 1.5  # answers over unknowns
# starts around equal shares, where the first two fail for every number of layers. With four layers of random
# gated networks the first was right in 16 of 16 cases and the second in 2 of 4; with three in 9 and 10 of 10
_FURTHER_TRIES = 2
_SPREAD = 0.2  # of shares at these
# of the misfit: with a layer more it falls to a half; where it does not, no number of layers fits
_FALLS = 0.9
_CLEAR = 0.2  # distance of a share from 0 or 1 beyond which it is neither
_FITS = 1e-3  # relative misfit of c1 from which a number of layers is right; one too few leaves 1e-1
# the same where c1 is read with a larger error, which is itself uncertain, as are the neurons; the joint fit
# of all layers decides then
_ERRORS, _COARSE = 10.0, 0.05


@dataclass(frozen=True, eq=False)
class SoftLayers:
    """layers: (J,), of every neuron. paths: (L, d, d), or None. constants: (L, d). misfit: of c1."""

    layers: NDArray[np.int64]
    paths: Array | None
    constants: Array
    misfit: float


def separate_layers(
    collapsed: Collapsed, n: Array, c1: Array, rng: np.random.Generator, most: int, *, error: float = 0.0
) -> SoftLayers:
    """The smallest number of layers, up to `most`, that explains c1, which is read with this relative
    error."""
    best, least = 0, np.inf
    for further in range(1 + _FURTHER_TRIES):
        fewer: tuple[_Fit, Array] | None = None
        before = np.inf
        for count in range(1, most + 1):
            enough = int(_SURPLUS * _unknowns(collapsed, count) / (collapsed.width - 1)) + 8
            fit = _Fit(collapsed, n[:enough], c1[:enough], count)
            found = []
            for start in _starts(fit, fewer, rng if further else None):
                state = refine(fit, start, _OPTIONS).state if len(start) else start
                misfit = rms(fit.residual(state)) / rms(fit.c1)
                if misfit < max(_FITS, min(_ERRORS * error, _COARSE)) and fit.clear(state):
                    return fit.result(state, misfit)
                found.append((misfit, state))
            lowest, state = min(found, key=lambda pair: pair[0])
            if lowest < least:
                best, least = count, lowest
            if count > 2 and not lowest < _FALLS * before:
                break
            fewer, before = (fit, state), lowest
    raise Unresolved(
        f"no division of {len(collapsed.neurons)} neurons into up to {most} layers explains their order; "
        f"{best} layers leave {least:.2g} of it"
    )


def _unknowns(collapsed: Collapsed, count: int) -> int:
    """Numbers of a state."""
    return len(_Fit(collapsed, np.zeros((1, collapsed.width)), np.zeros((1, collapsed.width)), count).start())


def _starts(fit: _Fit, fewer: tuple[_Fit, Array] | None, rng: np.random.Generator | None) -> Iterator[Array]:
    """Random shares with `rng`; else those of one layer fewer, and equal ones."""
    if rng is not None:
        yield fit.start(rng)
        return
    if fewer is not None and fit.count > 2:  # one layer tells nothing of depth
        yield fit.deeper(*fewer)
    yield fit.start()


def _spread(depth: Array, count: int) -> Array:
    """Shares (..., count) of what stands at a depth from 0 to 1 in the two layers beside it."""
    places = np.clip(depth, 0.0, 1.0)[..., None] * (count - 1)
    return np.asarray(np.maximum(1.0 - np.abs(places - np.arange(count)), 0.0))


class _Fit:
    """Least squares for c1. State: shares (J, L-1), paths (L-1, d, d), constants (L-1, d), λ, flat."""

    def __init__(self, collapsed: Collapsed, n: Array, c1: Array, count: int) -> None:
        self.collapsed, self.n, self.c1, self.count = collapsed, n, c1, count
        self.J, self.d = collapsed.written.shape
        self.values = collapsed.neurons.values(n)
        self.gradients = collapsed.neurons.gradients(n)
        self.has_paths, self.has_constants = collapsed.path is not None, bool(np.any(collapsed.constant))
        self.whole = collapsed.values(n)

    def start(self, rng: np.random.Generator | None = None) -> Array:
        """Equal shares, or random ones around."""
        L, J = self.count, self.J
        shares = np.full((J, L - 1), 1.0 / L)
        if rng is not None:
            shares = shares + _SPREAD * rng.standard_normal(shares.shape)
        paths, constants = (np.repeat(part[None] / L, L, axis=0) for part in self._totals)
        return self._state(shares, paths, constants, 0.0)

    def deeper(self, fewer: _Fit, state: Array) -> Array:
        """The state of fewer layers spread over these: a neuron's shares tell its depth."""
        shares, paths, constants, multiple = fewer.split(state)
        depth = np.arange(fewer.count) / (fewer.count - 1)
        moved = _spread(depth, self.count)  # (fewer, count)
        paths, constants = (np.einsum("lk,l...->k...", moved, each) for each in (paths, constants))
        return self._state(_spread(shares @ depth, self.count)[:, :-1], paths, constants, multiple)

    @property
    def _totals(self) -> tuple[Array, Array]:
        """Path and constant of all layers together."""
        path = self.collapsed.path
        return np.zeros((self.d, self.d)) if path is None else path, self.collapsed.constant

    def _state(self, shares: Array, paths: Array, constants: Array, multiple: float) -> Array:
        parts = [shares.ravel()]
        if self.has_paths:
            parts.append(paths[:-1].ravel())
        if self.has_constants:
            parts.append(constants[:-1].ravel())
        if self.has_paths:
            parts.append(np.array([multiple]))
        return np.concatenate(parts)

    def split(self, state: Array) -> tuple[Array, Array, Array, float]:
        """Shares (J, L), paths (L, d, d), constants (L, d), λ: the last layer has what is left."""
        L, J, d = self.count, self.J, self.d
        shares = state[: J * (L - 1)].reshape(J, L - 1)
        at = J * (L - 1)
        paths, multiple = np.zeros((L, d, d)), 0.0
        if self.collapsed.path is not None:
            multiple = float(state[-1])
            paths[:-1] = state[at : at + (L - 1) * d * d].reshape(L - 1, d, d)
            paths[-1] = self.collapsed.path - paths[:-1].sum(axis=0) + multiple * np.eye(d)
            at += (L - 1) * d * d
        constants = np.zeros((L, d))
        if self.has_constants:
            constants[:-1] = state[at : at + (L - 1) * d].reshape(L - 1, d)
        constants[-1] = self.collapsed.constant - constants[:-1].sum(axis=0)
        return np.column_stack([shares, 1.0 - shares.sum(axis=1)]), paths, constants, multiple

    def _before(self, shares: Array, paths: Array, constants: Array) -> list[Array]:
        """What is written before every layer, across n, (B, d) each."""
        out, stream = [], np.zeros_like(self.n)
        for at in range(self.count):
            out.append(beside(stream, self.n))
            stream = stream + self.n @ paths[at].T + (self.values * shares[:, at]) @ self.collapsed.written
            stream = stream + constants[at]
        return out

    def residual(self, state: Array, /) -> Array:
        shares, paths, constants, multiple = self.split(state)
        before = self._before(shares, paths, constants)
        out = np.zeros_like(self.n)
        for at in range(self.count):
            after = before[at] + beside(self.n @ paths[at].T, self.n)
            reads = np.einsum("bji,bi->bj", self.gradients, after) * shares[:, at]
            out = out + before[at] @ paths[at].T + reads @ self.collapsed.written
        along = (self.n * self.whole).mean(axis=1, keepdims=True) + multiple
        return np.asarray((beside(out, self.n) - along * beside(self.whole, self.n) - self.c1).ravel())

    def linearise(self, state: Array, /) -> FactoredJacobian:
        shares, paths, constants, _ = self.split(state)
        before = self._before(shares, paths, constants)
        L, J, d, B = self.count, self.J, self.d, len(self.n)
        written = self.collapsed.written
        across = np.eye(d) - self.n[:, :, None] * self.n[:, None] / d
        networks = [
            np.einsum("jo,bji->boi", written * shares[:, at : at + 1], self.gradients) for at in range(L)
        ]
        networks = [beside(each, self.n[:, None]) for each in networks]  # reads what is across n
        readers = [networks[at] + beside(paths[at][None], self.n[:, None]) for at in range(L)]
        later = [np.zeros((B, d, d)) for _ in range(L)]
        for at in range(L - 2, -1, -1):
            later[at] = later[at + 1] + readers[at + 1]
        later = [across @ each for each in later]
        networks = [across @ each for each in networks]
        wrote = np.einsum("bj,ji->bij", self.values, written)
        shared = []
        for at in range(L):
            after = before[at] + beside(self.n @ paths[at].T, self.n)
            reads = np.einsum("bji,bi->bj", self.gradients, after)
            shared.append((across @ written.T) * reads[:, None] + later[at] @ wrote)
        one, last = np.ones((B, 1)), L - 1
        blocks = []
        if last:  # shares are stored neuron by neuron
            shares_of = np.stack([each - shared[last] for each in shared[:last]], axis=3)
            blocks.append(Factors(shares_of.reshape(B, d, J * last), one))
        if self.has_paths:
            seen = [later[at] + networks[at] for at in range(L)]
            for at in range(last):
                own = Factors(across, before[at] - before[last])
                blocks.append(Factors(seen[at] - seen[last], self.n, own))
        if self.has_constants and last:
            constants_of = np.concatenate([later[at] - later[last] for at in range(last)], axis=2)
            blocks.append(Factors(constants_of, one))
        if self.has_paths:
            scaled = (seen[last] @ self.n[..., None])[..., 0] + beside(before[last], self.n)
            blocks.append(Factors((scaled - beside(self.whole, self.n))[..., None], one))
        return FactoredJacobian(sum(block.size for block in blocks), lambda: iter([blocks]))

    def moved(self, state: Array, step: Array, /) -> Array:
        return np.asarray(state + step)

    def clear(self, state: Array) -> bool:
        """Whether every share is near 0 or 1, and no layer is empty."""
        shares = self.split(state)[0]
        off = np.abs(shares - np.eye(self.count)[shares.argmax(axis=1)]).max()
        return bool(off < _CLEAR) and len(set(shares.argmax(axis=1).tolist())) == self.count

    def result(self, state: Array, misfit: float) -> SoftLayers:
        shares, paths, constants, _ = self.split(state)
        return SoftLayers(
            np.asarray(shares.argmax(axis=1), dtype=np.int64),
            paths if self.has_paths else None,
            constants,
            misfit,
        )
