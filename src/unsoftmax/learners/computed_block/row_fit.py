"""Everything but the heads of a block, fitted to single rows: one head without scores stands for all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array, shortened
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.computed_block.asking import local_rounding
from unsoftmax.learners.computed_block.outer_layer import Layers
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.fit import BlockFit, Sequences
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.least_squares.held_parameters import Held
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine

__all__ = ["RowFit", "row_state"]

_SURPLUS = 3.0  # answers over unknowns
_SMALLEST, _LARGEST = 0.1, 10.0  # entries of rows, from where the constant is large to where it is small
_TINY = 1e-3  # the smallest where answers are exact: there a small eps shows
_LOOKED = 24  # rows at which rounding is measured
_CONSTANT = RefinementOptions(iterations=12, damping=1e-3, improvement=1e-2, dense_limit=9000)
_PATH = RefinementOptions(iterations=60, damping=1e-2, improvement=1e-3, dense_limit=9000)
_ALL = RefinementOptions(iterations=30, damping=1e-4, improvement=2e-2, dense_limit=9000)
_FURTHER = replace(_ALL, iterations=60, damping=1e-6, least_damping=1e-15, improvement=1e-3)
# times the rounding: right fits left 0.9 to 1.3. Heads are found behind what is fitted here, to a hundred
# times the rounding, and the joint fit is judged by a narrower limit
_ARRIVED = 10.0
_EPS = (1e-3, 1e-5, 1e-7, 1e-9)  # a fit finds one that is up to a hundred times off


def row_state(
    shape: BlockShape, path: Array, layers: Layers, norm: tuple[Array, Array], eps: float
) -> BlockState:
    """A block whose single rows are answered with this value path and these layers. norm: gain and bias of
    the last norm, where one comes last."""
    tokens = path.shape[1]
    outputs = np.column_stack([path, np.zeros(len(path))])
    gains = np.empty((3, 0)) if shape.norm_first else np.stack([layers.gain, *norm])
    return BlockState(
        np.zeros((1, tokens, tokens + 1)),
        np.zeros((1, tokens, tokens)),
        np.eye(tokens)[None],
        outputs,
        layers.inner,
        layers.outer,
        np.log(np.full(2, eps)),
        gains,
    )


@dataclass(frozen=True)
class RowFit:
    """Single rows and their answers, weighted so that rounding is one. problem: with both eps held.
    exact: whether answers are float64, and value path and constant known."""

    problem: BlockFit
    exact: bool = False

    @classmethod
    def ask(
        cls,
        asks: AsksSequences,
        state: BlockState,
        shape: BlockShape,
        held: FloatFormat,
        rng: np.random.Generator,
        bound: float | None = None,
        exact: bool = False,
    ) -> RowFit:
        """Rows of many sizes, none longer than the bound; as many as the unknowns need."""
        smallest = _TINY if exact else _SMALLEST
        d = shape.width
        free = state.outputs.size + state.inner.size + state.outer.size + state.gains.size
        count = int(_SURPLUS * free / (len(state.readout) or d)) + 32
        rows = rng.standard_normal((count, 1, d))
        rows *= np.exp(rng.uniform(np.log(smallest), np.log(_LARGEST), (count, 1, 1)))
        rows = held.store(shortened(rows, bound))
        weights = (
            1.0 / np.sqrt(1.0 + np.mean(rows[:, -1] ** 2, axis=1)) if shape.norm_first else np.ones(count)
        )
        weights = weights / local_rounding(asks, rows[:_LOOKED], weights[:_LOOKED], held, rng)
        return cls(BlockFit(shape, (Sequences(rows, asks(rows), weights),), free_eps=False), exact)

    def with_constant(self, state: BlockState) -> BlockState:
        """The constant of the heads, and that of the network which moves against it."""
        return refine(Held(self.problem, _mask(state, constants=True)), state, _CONSTANT).state

    def with_path(self, state: BlockState) -> BlockState:
        """The value path and both constants, with the network held."""
        return refine(Held(self.problem, _mask(state, path=True)), state, _PATH).state

    def fitted(self, state: BlockState) -> BlockState:
        """All but scores; both eps as well, where answers are exact, or those of the start leave more than
        rounding. Raises Unresolved where that does not explain what is left."""
        if self.exact:
            found = refine(self._free(state), self._with_eps(state), _FURTHER)
        else:
            found = refine(Held(self.problem, _mask(state)), state, _ALL)
            if found.rms[-1] > _ARRIVED:
                found = refine(self._free(state), found.state, _ALL)
            if found.rms[-1] > _ARRIVED:
                found = refine(self._free(state), self._with_eps(state), _ALL)
        if found.rms[-1] > _ARRIVED:
            raise Unresolved(
                f"a fit of all but the heads leaves {found.rms[-1]:.1g} times the rounding of single rows"
            )
        return found.state

    def _with_eps(self, state: BlockState) -> BlockState:
        """Both eps and both constants, from the eps of several starts that leaves least; all else held."""
        ends = [
            refine(self._free(state, few=True), replace(state, log_eps=np.log(np.full(2, eps))), _CONSTANT)
            for eps in _EPS
        ]
        return min(ends, key=lambda end: end.rms[-1]).state

    def _free(self, state: BlockState, *, few: bool = False) -> Held[BlockState]:
        """With both eps free, beside all else or beside constants alone."""
        return Held(replace(self.problem, free_eps=True), _mask(state, constants=few, eps=True))


def _mask(
    state: BlockState, *, constants: bool = False, path: bool = False, eps: bool = False
) -> NDArray[np.bool_]:
    """Which entries of the parameter vector move: those behind the heads' values, with both eps or without;
    or constants alone, or these and the value path."""
    moves = [np.zeros(part.shape, dtype=bool) for part in state.parts()]
    _, _, _, outputs, inner, outer, log_eps, gains, _ = moves
    outputs[:, -1] = outer[:, -1] = True
    log_eps[...] = eps
    outputs[...] |= path
    if not constants and not path:
        for part in (outputs, inner, outer, gains):
            part[...] = True
    return np.concatenate([part.ravel() for part in moves])
