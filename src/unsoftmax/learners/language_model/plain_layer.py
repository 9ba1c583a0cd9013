"""The whole of a one-layer decoder of GPT-2's shape: LayerNorm, learned positions, a plain network,
biases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from unsoftmax.arrays import EPS, Array, rms
from unsoftmax.families import Family
from unsoftmax.learners.encoder_block.pre_norm_rows import centre_row
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState, head_factors
from unsoftmax.learners.language_model.parts import PartCertificate
from unsoftmax.learners.language_model.plain_fit import Answered, LastPositionFit, PlainFit, PlainState
from unsoftmax.learners.language_model.plain_rows import COPIES, read_plain_rows
from unsoftmax.learners.language_model.plain_start import find_plain_heads, find_plain_network, rows_of_state
from unsoftmax.learners.language_model.small_states import rows_before_small_states
from unsoftmax.learners.language_model.stages import LayerStages
from unsoftmax.meters.language_model.last_stream import LastStream, measure_last_eps
from unsoftmax.meters.language_model.position_rows import PRECISE_SIZES, ROUGH_SIZES, measure_position
from unsoftmax.meters.language_model.precision import rows_are_rounded
from unsoftmax.meters.language_model.seen_rows import SeenRows
from unsoftmax.models.language_model import (
    Attention,
    DecoderLayer,
    FeedForward,
    LanguageModel,
    LearnedPositions,
)
from unsoftmax.outcomes import NotIdentifiable, OutsideClass, Test, Unresolved
from unsoftmax.solvers.least_squares.joint_refinement import LeastSquares, RefinementOptions, refine

__all__ = ["PlainLayer"]

State = TypeVar("State")

_DEPTH_TEST = Test("one layer of attention and a network", frozenset({Family.LANGUAGE_MODEL}))
_PLACES = 9  # positions that the fit of all parameters holds: heads are found with prompts of nine rows
_LENGTHS = (1, 2, 4, _PLACES)
_SPARE = 1.7  # answers over unknowns
_TINY = 0.2  # of all rows: small enough to show eps
_UNTOLD_LENGTH = 32  # positions that are read where the longest prompt is not known
_LARGE_LAST = 5.0  # size of a row beside which its position is a small change, so that Newton finds it
_ATTEMPTS = 3  # starts of the network and of the heads, from other random rows
_POSITION_PROMPTS = 2  # prompts for every further position: k numbers each, for k unknowns
_SMALL = 16  # single rows with small streams before the network
_FOUND = 16  # rows with small states behind everything, at most
# relative singular values of a head that count as none: after the fit, and after its first steps, which take
# the errors of a start from 1e-2 to 1e-4
_RANK, _ROUGH_RANK = 1e-7, 1e-3
_CHECKS = 3  # with fresh prompts, each of which doubles what is fitted where it fails
_OTHER_MODEL = "the model may have another network, or several layers"
_SHORT_SIGHT = (
    "attention may not look back so far, or longer prompts may be cut off or answered in another way"
)
_FITTED = 1e-9  # largest misfit of a state, whose size is one; float64 leaves 1e-13
_SETTLED = 1e-11  # misfit that only rounding leaves: 1e-14 of most states, 1e-12 of the smallest ones
_WORST_CONDITION = 1e8  # of the unembedding
_ROUNDED = 1e-11  # misfit of the unembedding relative to the logits; float64 leaves 1e-15
_NO_POSITION = 1e-9  # positions below are none
_SAFETY = 20.0  # of a step to fresh prompts alone, as a bound on the error
# unknowns up to which the normal matrix is an array: at 2,900 a step takes 2 s, and as long by conjugate
# gradients where the network is badly conditioned; at 8,400 (d=32) forty times as long
_DENSE = 4000
_OPTIONS = RefinementOptions(
    iterations=30,
    damping=1e-6,
    least_damping=1e-14,
    improvement=0.5,
    dense_limit=_DENSE,
    inner_iterations=300,
    inner_tolerance=1e-6,
)
_SETTLING = replace(_OPTIONS, iterations=3)
# for fits that end far from rounding: 300 products leave a network with four times as many neurons as columns
# at 1e-8, where steps that gain too little are the last
_STUBBORN = replace(_OPTIONS, inner_iterations=2000)
_ONE_STEP = replace(_OPTIONS, iterations=1, damping=1e-12, improvement=0.0, inner_iterations=1000)


class PlainLayer(LayerStages):
    """The stages after the unembedding."""

    def learn(self) -> tuple[LanguageModel, float]:
        state = SeenRows(self.prompts, self.unembedding.matrix, self.unembedding.norm)
        if state.conditioning > _WORST_CONDITION:
            raise NotIdentifiable("the unembedding has no full rank, so hidden states are seen in part only")
        if self.first.certificate.relative > _ROUNDED:
            raise Unresolved(
                f"logits carry errors of {self.first.certificate.relative:.1g}; a layer behind a LayerNorm "
                "is recovered from float64 answers, which show the lengths of hidden states"
            )
        with self.prompts.phase("precision"):
            rounded = rows_are_rounded(self.prompts, self.rng)
        if rounded:
            raise Unresolved(
                "rows are rounded to float32 on their way; a layer behind a LayerNorm is recovered where "
                "they arrive in float64"
            )
        longest = self.prompts.max_length
        if longest is not None and longest <= _PLACES:
            raise Unresolved(f"prompts of {_PLACES + 1} rows are needed, and the target takes {longest}")
        shape, first = self._one_row(state)
        fit, found = self._all_heads(state, shape, first)
        found, bound, certificate = self._checked(state, fit, found)
        found = self._further_positions(state, shape, found)
        model = self._model(state, shape, found)
        self._keep(model, bound, certificate)
        return model, bound

    def _one_row(self, state: SeenRows) -> tuple[BlockShape, PlainState]:
        """Everything that prompts of one row show, heads as one."""
        with self.prompts.phase("positions"):
            stream = LastStream(state, measure_last_eps(state, self.rng))
            positions = self._positions(state, range(COPIES))
        return _insist(lambda: self._one_row_from(stream, positions))

    def _one_row_from(self, stream: LastStream, positions: Array) -> tuple[BlockShape, PlainState]:
        state, k = stream.state, stream.state.width
        with self.prompts.phase("value path"):
            rows = read_plain_rows(stream, positions, self.rng)
        with self.prompts.phase("network"):
            network = find_plain_network(stream, rows, positions[0], self.rng)
        shape = BlockShape(True, False, network.activation, k)
        block = BlockState(
            np.zeros((1, k, k + 1)),
            np.zeros((1, k, k)),
            rows.path[None],
            np.column_stack([np.eye(k), rows.constant]),
            np.column_stack([network.A, network.b]),
            np.column_stack([network.U.T, np.asarray(network.c)]),
            np.log([rows.eps, rows.second_eps]),
            np.empty((3, 0)),
        )
        start = PlainState(block, positions[:1], float(np.log(stream.eps)))
        unknowns = start.unknowns - block.queries.size - block.keys.size - k * k
        with self.prompts.phase("fit of single rows"):
            fit = PlainFit(shape, [self._answered(state, start, unknowns, 1)])
        return shape, self._refined(fit, start, "single rows")

    def _all_heads(
        self, state: SeenRows, shape: BlockShape, first: PlainState
    ) -> tuple[PlainFit, PlainState]:
        """What all parameters but further positions were fitted to, and the fit."""
        with self.prompts.phase("positions"):
            more = self._positions(state, range(1, _PLACES))
        known = replace(first, positions=np.concatenate([first.positions, more]))
        return _insist(lambda: self._all_heads_from(state, shape, known))

    def _all_heads_from(
        self, state: SeenRows, shape: BlockShape, known: PlainState
    ) -> tuple[PlainFit, PlainState]:
        stream = LastStream(state, float(np.exp(known.log_last_eps)))
        with self.prompts.phase("heads"):
            heads = find_plain_heads(
                stream, rows_of_state(shape, known), known.block, known.positions, self.rng
            )
        start = replace(known, block=_with_heads(known.block, heads.values, heads.scores, heads.rank))
        with self.prompts.phase("fit of all"):
            fit = PlainFit(shape, self._all_lengths(state, start))
        # the rank of rough heads shows too large
        settled = _without_spare_rank(refine(fit, start, _SETTLING).state, _ROUGH_RANK)
        found = _without_spare_rank(self._refined(fit, settled, "all parameters"), _RANK)
        with self.prompts.phase("fit of all"):
            small = self._small_streams(state, shape, found)
        fit = PlainFit(shape, [*fit.data, small])
        return fit, self._refined(fit, found, "all parameters")

    def _small_streams(self, state: SeenRows, shape: BlockShape, at: PlainState) -> Answered:
        """Single rows behind which attention, or the whole layer, leaves little, so that the eps of the norm
        that follows shows."""
        rows = rows_of_state(shape, at)
        centre = centre_row(rows, self.rng)
        sizes = np.exp(0.5 * at.block.log_eps[1]) * np.exp(self.rng.uniform(-1.0, 3.0, (_SMALL, 1)))
        y = sizes * self.rng.standard_normal((_SMALL, state.width))
        before = rows.rows_of(y, np.broadcast_to(centre, y.shape))[0]
        found = np.concatenate([before, rows_before_small_states(shape, at, _FOUND, self.rng)])
        return self._asked(state, at, (found - at.positions[0])[:, None])

    def _positions(self, state: SeenRows, places: range) -> Array:
        found = []
        for place in places:  # near rows of zeros the first norm enlarges errors of the first one by 1/√eps
            sizes = ROUGH_SIZES if place else PRECISE_SIZES
            found.append(measure_position(state, place, self.rng, _DEPTH_TEST, sizes))
        return np.array(found)

    def _all_lengths(self, state: SeenRows, at: PlainState) -> list[Answered]:
        return [self._answered(state, at, at.unknowns / len(_LENGTHS), length) for length in _LENGTHS]

    def _answered(self, state: SeenRows, at: PlainState, unknowns: float, length: int) -> Answered:
        """Rows from where eps rules the norms to where it does not matter."""
        count = int(_SPARE * unknowns / state.width) + 8
        root = float(np.exp(0.5 * at.block.log_eps[0]))
        sizes = np.exp(self.rng.uniform(np.log(0.2), np.log(5.0), (count, length, 1)))
        tiny = root * np.exp(self.rng.uniform(np.log(0.5), np.log(15.0), (count, length, 1)))
        sizes = np.where(self.rng.uniform(size=sizes.shape) < _TINY, tiny, sizes)
        rows = sizes * self.rng.standard_normal((count, length, state.width)) - at.positions[:length]
        return self._asked(state, at, rows)

    @staticmethod
    def _asked(state: SeenRows, at: PlainState, rows: Array) -> Answered:
        return Answered(rows, state(rows), float(np.exp(at.log_last_eps)))

    def _refined(
        self, fit: LeastSquares[State], start: State, what: str, otherwise: str = _OTHER_MODEL
    ) -> State:
        found = start
        for options in (_OPTIONS, _STUBBORN):
            found = refine(fit, found, options).state
            off = float(np.abs(fit.residual(found)).max())
            if off < _SETTLED:
                break
        if not off < _FITTED:
            raise Unresolved(
                f"the fit of {what} leaves {off:.2g} of a state, where {_FITTED:.0g} is allowed; {otherwise}"
            )
        return found

    def _further_positions(self, state: SeenRows, shape: BlockShape, found: PlainState) -> PlainState:
        """Every position beyond those of the fit, from prompts that end there."""
        longest = self.prompts.max_length or _UNTOLD_LENGTH
        with self.prompts.phase("positions"):
            for place in range(_PLACES, longest):
                rows = self.rng.standard_normal((_POSITION_PROMPTS, place + 1, state.width))
                rows[:, -1] *= _LARGE_LAST
                fit = LastPositionFit(shape, found, self._asked(state, found, rows))
                position = self._refined(fit, np.zeros(state.width), f"position {place + 1}", _SHORT_SIGHT)
                found = fit.with_position(position)
        return found

    def _checked(
        self, state: SeenRows, fit: PlainFit, found: PlainState
    ) -> tuple[PlainState, float, PartCertificate]:
        """The state that predicts fresh prompts, an error bound and a certificate. Prompts that are not
        predicted are fitted too: a ReLU that few of the first ones woke is known too little."""
        off = float("inf")
        for _ in range(_CHECKS):
            with self.prompts.phase("error bound"):
                data = [*self._all_lengths(state, found), self._small_streams(state, fit.shape, found)]
            fresh = PlainFit(fit.shape, data)
            off = float(np.abs(fresh.residual(found)).max())
            if off < _FITTED:
                count = sum(len(part.rows) for part in data)
                return found, self._bound(state, fresh, found), PartCertificate(off, count, 1.0)
            fit = PlainFit(fit.shape, [*fit.data, *data])
            found = self._refined(fit, found, "all parameters")
        raise Unresolved(
            f"fresh states are {off:.1g} off, where {_FITTED:.0g} is allowed, after {_CHECKS} fits"
        )

    def _bound(self, state: SeenRows, fresh: PlainFit, found: PlainState) -> float:
        """From how far one step on fresh prompts alone moves the model."""
        moved = refine(fresh, found, _ONE_STEP).state
        distance = self._model(state, fresh.shape, found).distance(self._model(state, fresh.shape, moved))
        # by chance a step may leave one number where it is: the final eps, which shows least, by its scatter
        scatter = rms(fresh.residual(found)) / float(np.sqrt(fresh.linearise(found).diagonal()[-1]))
        return _SAFETY * max(distance, scatter, EPS)

    def _model(self, state: SeenRows, shape: BlockShape, found: PlainState) -> LanguageModel:
        """In the coordinates of rows: a norm of the model is `stretch` times that of the k coordinates."""
        block, basis, d = found.block, state.basis, self.prompts.width
        heads, width = block.heads, block.keys.shape[1]
        read = basis / state.stretch
        root = np.sqrt(width)  # scores of the model are divided by it
        attention = Attention(
            root * block.queries[:, :, :-1].reshape(heads * width, -1) @ read.T,
            block.keys.reshape(heads * width, -1) @ read.T,
            block.values.reshape(heads * width, -1) @ read.T,
            basis @ block.outputs[:, :-1],
            heads,
            heads,
            query_bias=root * block.queries[:, :, -1].ravel(),
            output_bias=basis @ block.outputs[:, -1],
        )
        network = FeedForward(
            block.inner[:, :-1] @ read.T,
            block.inner[:, -1],
            basis @ block.outer[:, :-1],
            basis @ block.outer[:, -1],
            shape.activation,
        )
        kind, ones = type(self.unembedding.norm), np.ones(d)
        eps = np.exp([*block.log_eps, found.log_last_eps]) / state.stretch**2
        norms = [kind(ones, None, float(each)) for each in eps[:2]]
        final = kind(ones, self.unembedding.norm.bias, float(eps[2]))
        table = found.positions @ basis.T
        positions = LearnedPositions(table) if float(np.abs(table).max()) > _NO_POSITION else None
        layer = DecoderLayer(norms[0], attention, norms[1], network)
        return LanguageModel([layer], final, self.unembedding.matrix, positions)

    def _keep(self, model: LanguageModel, bound: float, certificate: PartCertificate) -> None:
        layer, d = model.layers[0], self.prompts.width
        eps = np.array([layer.attention_norm.eps, layer.network_norm.eps, model.final_norm.eps])
        lost = "; gains and biases of norms are folded in, and what is written along the mean is lost"
        found: dict[str, tuple[object, str]] = {
            "heads": (
                layer.attention,
                f"order of heads; an invertible matrix between the two factors of scores and of values{lost}",
            ),
            "network": (layer.network, f"order of neurons{lost}"),
            "eps": (eps, "none"),
        }
        table = model.positions.table if isinstance(model.positions, LearnedPositions) else np.zeros((1, d))
        found["positions"] = (table, "the mean of a row, which no norm sees")
        for name, (value, gauge) in found.items():
            self.keep(name, value, bound, gauge, certificate)


def _insist(attempt: Callable[[], State]) -> State:
    """What the first attempt finds that ends well. Rows that a start sends are a little off, so what looks
    like another network from one of them rules nothing out."""
    reasons = []
    for _ in range(_ATTEMPTS):
        try:
            return attempt()
        except (Unresolved, OutsideClass) as stop:
            reasons.append(stop.reason)
    raise Unresolved(f"begun {_ATTEMPTS} times: {'; '.join(dict.fromkeys(reasons))}")


def _with_heads(block: BlockState, values: Array, scores: Array, rank: int) -> BlockState:
    """The block with heads V (H, k, k) and [W w0] (H, k, k + 1) as factors of one rank."""
    queries, keys, inner, outputs = head_factors(values, scores, rank)
    return replace(
        block,
        queries=queries,
        keys=keys,
        values=inner,
        outputs=np.column_stack([outputs, block.outputs[:, -1]]),
    )


def _without_spare_rank(state: PlainState, negligible: float) -> PlainState:
    """The state with heads of the largest rank of any, relative singular values up to `negligible` left
    out."""
    block = state.block
    heads, r, k = block.keys.shape
    outputs = block.outputs[:, :-1].reshape(-1, heads, r).transpose(1, 0, 2)
    values, scores = outputs @ block.values, block.keys.transpose(0, 2, 1) @ block.queries
    sizes = np.linalg.svd(np.concatenate([values, scores[:, :, :k]]), compute_uv=False)
    rank = max(1, int((sizes > negligible * sizes[:, :1]).sum(axis=1).max()))
    return state if rank == r else replace(state, block=_with_heads(block, values, scores, rank))
