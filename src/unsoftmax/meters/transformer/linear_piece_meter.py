"""Attention in front of a ReLU network, measured inside one linear piece: one query a measurement, whatever
the network is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import EPS, Array, logit
from unsoftmax.ledger import Asker
from unsoftmax.meters.base import Meter
from unsoftmax.meters.probes.balanced_basis import EvenRows, even_rows_for
from unsoftmax.meters.probes.sizes import TARGET_SCORE
from unsoftmax.meters.transformer.linear_piece import Piece, choose_piece
from unsoftmax.models import CanonicalNetwork
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = ["PIECE_TEST", "ConeMeter"]

PIECE_TEST = Test("inside a linear piece of the network two rows share by softmax")

_PART = 0.45  # of the room, for b and for a each: together they stay inside
_LARGEST_SCORE = 5.5
_SNAP = 1e-6  # a residual factor this close to 0 or 1 is that
_WEAKEST = 0.03  # scores below this at the full size of a: go further out
_TRIES = 40
_AUDIBLE = (
    1e6  # rounding levels by which a row has to change an answer before a strange weight refutes attention
)
_SMALLEST, _LARGEST = 2.0**-60, 2.0**60


class ConeMeter(Meter):
    """Exact value queries on f(X) = g(Σ α_i x_i + residual·x_N), with h(x) = f([x]) known as `folds`.

    Inside one linear piece of h, f is a single head: with b = b0 + μe and a short enough, y = h(b) + σ(aᵀ(Wb
    + w0))·(∇h·a)/(1 + residual), and by convexity every mixture of the rows stays inside. Differences against
    the column of b0 leave aᵀWe. It does not need Aᵀu ≠ 0, works under biases, and costs one query a
    measurement.

    >>> from unsoftmax import Ledger
    >>> from unsoftmax import random_transformer
    >>> from unsoftmax.oracles import FunctionOracle
    >>> model = random_transformer(4, 6, seed=0)
    >>> meter = ConeMeter(Ledger(FunctionOracle(model), width=4), model.network.folds, np.random.default_rng(
    ...     0))
    >>> bool(np.allclose(meter.project(None, np.eye(4)), model.W, atol=1e-9))
    True
    """

    def __init__(self, ledger: Asker, folds: CanonicalNetwork, rng: np.random.Generator) -> None:
        self._ledger, self._folds, self._rng = ledger, folds, rng
        self._mixing = 1.0  # 1 + residual
        self.residual_error = 0.0  # how far the residual factor may be off
        self._shrink = 1.0  # of a, so that scores stay moderate
        self._piece = self._settle()
        self._whole = EvenRows(self._piece.gradient)
        self._cached: tuple[Array, bool, EvenRows] | None = None
        self._strength = 0.0
        self._base: Array | None = None

    @property
    def width(self) -> int:
        return self._folds.width

    @property
    def piece(self) -> Piece:
        """Where it measures."""
        return self._piece

    @property
    def residual(self) -> float:
        """The factor of the skip connection; found with a pair of queries, because the weights of a and of -a
        add up to 1/(1 + residual)."""
        return self._mixing - 1.0

    def base(self) -> Array:
        """W b0 + w0, measured when first called: d queries."""
        if self._base is None:
            self._base = np.zeros(self.width)
            known = self._scores(self._whole, np.zeros((1, self.width)))
            self._base = np.asarray(self._whole.coordinates(known)[0])
        return self._base

    def resolution(self) -> float:
        usual = float(np.median(self._sizes(self._whole)))
        reach = _PART * float(np.median(self._piece.room(self._whole.rows(0, self.width))))
        rounding = EPS * float(self._folds.magnitude(self._piece.centre[None])[0])
        return float(16.0 * rounding * self._mixing / (usual * abs(self._whole.readout)) / (usual * reach))

    def query_bias(self, W_b0: Array) -> Array | None:
        """w0, once W b0 is known; None when it is nothing but rounding."""
        bias = self.base() - W_b0
        return bias if float(np.linalg.norm(bias)) > 1e3 * self.query_bias_error(W_b0) else None

    def query_bias_error(self, W_b0: Array) -> float:
        """How far w0 may be off: the rounding of the column of b0, which is far out."""
        noise = self.resolution() * float(np.linalg.norm(self._piece.centre)) + 64 * EPS * float(
            np.linalg.norm(W_b0)
        )
        return float(np.sqrt(self.width) * noise)

    def project(self, basis: Array | None, B: Array, *, rest_is_zero: bool = False) -> Array:
        probes = self._probes_for(basis, rest_is_zero)
        sizes = _PART * self._piece.room(B.T)
        return np.asarray(
            probes.coordinates(self._forms_of(probes, sizes[:, None] * B.T, rest_is_zero)).T / sizes
        )

    def _forms_of(self, probes: EvenRows, asking: Array, rest_is_zero: bool) -> Array:
        """h_iᵀ basisᵀ W x for every probe and every x."""
        carried: Array | float = 0.0
        if probes.carrier is not None and not rest_is_zero:
            carried = self._W_part(EvenRows(self._piece.gradient, probes.carrier[:, None]), asking)
        return self._W_part(probes, asking) - carried

    def _W_part(self, probes: EvenRows, asking: Array) -> Array:
        return self._scores(probes, asking) - probes.forms_of(self.base())

    def _probes_for(self, basis: Array | None, rest_is_zero: bool) -> EvenRows:
        if basis is None:
            return self._whole
        if self._cached is not None and self._cached[0] is basis and self._cached[1] == rest_is_zero:
            return self._cached[2]
        probes = even_rows_for(self._piece.gradient, basis, rest_is_zero=rest_is_zero)
        self._cached = (basis, rest_is_zero, probes)
        return probes

    def _sizes(self, probes: EvenRows) -> Array:
        """How long each probe is sent: within its room, and with a score of about one as far as is known."""
        rows = probes.rows(0, probes.count)
        largest = _PART * self._mixing * self._piece.room(rows)
        if self._base is None or not (self._base.any() or self._strength):
            return self._shrink * largest
        usual = np.abs(rows @ self._base) + self._strength * np.linalg.norm(rows, axis=1)
        return np.asarray(np.minimum(largest, TARGET_SCORE / np.maximum(usual, np.finfo(float).tiny)))

    def _scores(self, probes: EvenRows, asking: Array) -> Array:
        """a_iᵀ(W(b0 + x) + w0) for every probe (as it is, unscaled) and every x, shape (n, k)."""
        sizes = self._sizes(probes)
        out = np.empty((len(asking), probes.count))
        step = max(1, self._ledger.batch_size(2) // probes.count)
        rows = probes.rows(0, probes.count)
        for start in range(0, len(asking), step):
            block = asking[start : start + step]
            out[start : start + step] = self._block(rows, sizes, block, probes.readout)
        if self._base is not None and len(asking) and asking.any():
            moved = out - probes.forms_of(self._base)
            self._strength = max(
                0.5 * self._strength,
                1.5
                * float(np.sqrt(np.mean(moved**2)))
                / float(np.sqrt(np.mean(np.square(rows).sum(axis=1)))),
            )
        return out

    def _block(self, rows: Array, sizes: Array, asking: Array, readout: float) -> Array:
        n, k = len(asking), len(rows)
        where = np.stack(np.meshgrid(np.arange(n), np.arange(k), indexing="ij"), axis=-1).reshape(-1, 2)
        gamma = np.broadcast_to(sizes, (n, k)).copy()
        out = np.empty((n, k))
        for _ in range(_TRIES):
            j, i = where.T
            weight = self._weights(gamma[j, i, None] * rows[i], asking[j], gamma[j, i] * readout)
            score = logit(weight)
            out[j, i] = score / gamma[j, i]
            again = ~(np.abs(score) <= _LARGEST_SCORE)
            if not again.any():
                return out
            where = where[again]
            factor = np.where(
                np.isfinite(score[again]),
                np.minimum(TARGET_SCORE / np.maximum(np.abs(score[again]), 1.0), 0.25),
                2.0**-6,
            )
            gamma[where[:, 0], where[:, 1]] *= factor
        raise OutsideClass(
            PIECE_TEST,
            "a row's weight stays at 0 or 1 however small the row is made; a softmax would share it evenly",
        )

    def _weights(self, A: Array, X: Array, signal: Array) -> Array:
        """The attention weight of the first row of [a + b; b], b = b0 + x."""
        b = self._piece.centre + X
        answers = self._ledger.ask(np.stack([A + b, b], axis=1))
        weights = self._mixing * (answers - self._piece.value - X @ self._piece.gradient) / signal
        slack = 1e-6 + 1e4 * EPS * self._mixing * float(
            self._folds.magnitude(self._piece.centre[None])[0]
        ) / np.abs(signal)
        strange = ~((weights >= -slack) & (weights <= 1.0 + slack))
        if strange.any():
            worst = float(weights[strange][0])
            raise OutsideClass(
                PIECE_TEST, f"a row's weight would be {worst:.6g}, and a weight lies between 0 and 1"
            )
        return np.asarray(weights)

    def _settle(self) -> Piece:
        """A piece at a distance where scores are neither lost nor saturated; its gradient and value measured
        afresh (d + 1 queries)."""
        bound = self._ledger.input_bound
        size = self._folds.reach * np.sqrt(self.width)
        if bound is not None:
            size = min(size, bound / 4.0)
        best: tuple[float, float, Piece] | None = None
        worse = 0
        for attempt in range(_TRIES):
            piece = choose_piece(self._folds, size, self._rng, bound)
            score, shrink, mixing = self._trial(piece)
            merit = self._merit(piece, shrink)
            if attempt == 0:
                self._set_mixing(mixing, piece, shrink)
            if best is None or merit > best[0]:
                best, worse = (merit, shrink, piece), 0
            elif score > _WEAKEST:
                worse += 1
                if worse > 1:
                    break
            homogeneous = not self._folds.biased
            if score < _WEAKEST and shrink == 1.0:
                factor = (
                    8.0 if not homogeneous or score == 0.0 else min(np.sqrt(TARGET_SCORE / score), 2.0**10)
                )
                if best[2] is not piece and not homogeneous:
                    break
            elif shrink < 0.1:
                factor = max(np.sqrt(shrink), 2.0**-10) if homogeneous else 1.0 / 6.0
            else:
                break
            if not _SMALLEST < size * factor < _LARGEST or (
                bound is not None and size * factor > bound / 4.0
            ):
                break
            size *= factor
        assert best is not None
        _, self._shrink, piece = best
        return self._measured(piece)

    def _set_mixing(self, mixing: float, piece: Piece, shrink: float) -> None:
        """The usual factors exactly; any other from more pairs, whose spread says how well it is known."""
        usual = next((float(known) for known in (1, 2) if abs(mixing - known) < _SNAP), None)
        if usual is not None:
            self._mixing = usual
            return
        piece = self._measured(piece)
        rows = EvenRows(piece.gradient).rows(0, self.width)
        sent = (shrink * _PART * piece.room(rows))[:, None] * rows
        pairs = np.concatenate([sent, -sent])
        answers = self._ledger.ask(
            np.stack([pairs + piece.centre, np.broadcast_to(piece.centre, pairs.shape)], axis=1)
        )
        totals = ((answers - piece.value) / (pairs @ piece.gradient)).reshape(2, -1).sum(axis=0)
        rounding = (
            1e4
            * EPS
            * float(self._folds.magnitude(piece.centre[None])[0])
            / float(np.abs(pairs @ piece.gradient).min())
        )
        if float(np.ptp(totals)) > 1e-7 + rounding:
            raise OutsideClass(
                PIECE_TEST,
                f"the weights of a row and of its negative add up to {totals.min():.9g} for one row and "
                f"{totals.max():.9g} for another",
            )
        self._mixing = 1.0 / float(np.median(totals))
        self.residual_error = self._mixing**2 * (float(np.ptp(totals)) + 1e-14)

    def _trial(self, piece: Piece) -> tuple[float, float, float]:
        """(typical score at the full size of a, the part of that size at which it is about one, 1 + residual)
        from a few pairs ±a."""
        probes = EvenRows(piece.gradient)
        count = min(3, self.width)
        rows = probes.rows(0, count)
        full = _PART * piece.room(rows)
        shrink = 1.0
        for _ in range(_TRIES):
            sent = shrink * full[:, None] * rows
            pairs = np.concatenate([sent, -sent])
            answers = self._ledger.ask(
                np.stack([pairs + piece.centre, np.broadcast_to(piece.centre, pairs.shape)], axis=1)
            )
            with np.errstate(divide="ignore", invalid="ignore"):
                weights = ((answers - piece.value) / (pairs @ piece.gradient)).reshape(2, count)
            total = float(np.median(weights.sum(axis=0)))
            if not 1e-6 < total < 1e6:
                self._refuse_silence(piece, np.abs(pairs @ piece.gradient))
                raise OutsideClass(
                    PIECE_TEST,
                    f"the weights of a row and of its negative add up to {total:.6g}, which no softmax does",
                )
            mixing = 1.0 / total
            score = np.abs(logit(weights[0] * mixing))
            if (score <= _LARGEST_SCORE).all():
                typical = float(np.sqrt(np.mean(score**2)))
                return typical / shrink, min(1.0, shrink * TARGET_SCORE / max(typical, 1e-300)), mixing
            shrink /= 8.0
        raise OutsideClass(
            PIECE_TEST,
            "a row's weight stays at 0 or 1 however small the row is made; a softmax would share it evenly",
        )

    def _refuse_silence(self, piece: Piece, signal: Array) -> None:
        """Where a row changes the answer by hardly more than rounding, its weight says nothing."""
        rounding = EPS * float(self._folds.magnitude(piece.centre[None])[0])
        if float(signal.min()) < _AUDIBLE * rounding:
            raise Unresolved(
                "inside the widest linear piece of the network a row changes the answer by "
                f"{float(signal.min()):.1g}, where rounding is "
                f"{rounding:.1g}: its neurons differ too much in size for attention to show; larger inputs "
                "or another seed would help"
            )

    def _merit(self, piece: Piece, shrink: float) -> float:
        """Inverse of the error to expect in W: answers' rounding over signal, score size and the step of
        b."""
        room = _PART * float(np.median(piece.room(EvenRows(piece.gradient).rows(0, self.width))))
        magnitude = float(self._folds.magnitude(piece.centre[None])[0])
        return float(np.linalg.norm(piece.gradient) * (shrink * room) ** 2 * room / magnitude)

    def _measured(self, piece: Piece) -> Piece:
        """Gradient and value from answers themselves: the network's folds only have to say where the piece
        ends."""
        basis = EvenRows(piece.gradient).rows(0, self.width)
        steps = 2.0 * _PART * piece.room(basis)
        rows = np.concatenate([piece.centre[None], piece.centre + steps[:, None] * basis])
        answers = self._ledger.ask(rows[:, None])
        predicted = self._folds(rows)
        if np.abs(answers - predicted).max() > 1e-6 * self._folds.magnitude(rows).max():
            raise OutsideClass(
                Test("one-row answers are piecewise linear"),
                "a piece that the network's kinks enclose is not linear inside",
            )
        return replace(piece, gradient=((answers[1:] - answers[0]) / steps) @ basis, value=float(answers[0]))
