"""Where to measure attention in front of a ReLU network: a linear piece, far enough out that scores show and
near enough that they do not saturate."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import EPS, Array, logit, rms
from unsoftmax.ledger import Asker
from unsoftmax.meters.probes.balanced_basis import EvenRows
from unsoftmax.meters.probes.ladder import climb
from unsoftmax.meters.probes.sizes import TARGET_SCORE
from unsoftmax.meters.transformer.linear_piece import Piece, choose_piece
from unsoftmax.models import CanonicalNetwork
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = ["LARGEST_SCORE", "PART", "PIECE_TEST", "STAYS", "Settled", "settle"]

PIECE_TEST = Test("inside a linear piece of the network two rows share by softmax")
STAYS = "a row's weight stays at 0 or 1 however small the row is made; a softmax would share it evenly"

PART = 0.45  # of the room, for b and for a each: together they stay inside
LARGEST_SCORE = 5.5  # dσ/dt = 0.004 there: the inverse sigmoid loses more than two digits beyond
_SNAP = 1e-6  # a residual factor is not taken for 0 or 1 where it is further from it, whatever its error
_ROUNDINGS = 64.0  # of an answer, in the sum of two weights
_WEAKEST = 0.03  # scores below this at the full size of a: go further out
_TRIES = 40  # at an eighth each, sizes fall by 2^-120: any finite score is then readable
_LEVELS = 1e6  # of rounding, by which a row has to change an answer before a strange weight refutes attention
_SMALLEST, _LARGEST = 2.0**-60, 2.0**60  # sizes of rows: products of two stay far from the ends of float64


@dataclass(frozen=True)
class Settled:
    """A piece with its measured value and gradient; the part of the room in it at which scores are about one;
    1 + residual, and how far off that can be."""

    piece: Piece
    shrink: float
    mixing: float
    residual_error: float


def _usual(mixing: float, error: float) -> float | None:
    """1 + residual of no skip connection, or of a plain one, where the measured one is no further away."""
    return next((known for known in (1.0, 2.0) if abs(mixing - known) <= error), None)


@dataclass(frozen=True)
class _Trial:
    """Scores in one piece: their typical size at the full size of a, the part of that size at which it is
    about one, and 1 + residual with its error."""

    piece: Piece
    score: float
    shrink: float
    mixing: float
    error: float


def settle(asker: Asker, folds: CanonicalNetwork, rng: np.random.Generator) -> Settled:
    """A piece at a distance where scores are neither lost nor saturated; its gradient and value measured
    afresh (d + 1 queries)."""
    return _Search(asker, folds, rng).settle()


class _Search:
    def __init__(self, asker: Asker, folds: CanonicalNetwork, rng: np.random.Generator) -> None:
        self._asker, self._folds, self._rng = asker, folds, rng

    def settle(self) -> Settled:
        bound = self._asker.input_bound
        largest = _LARGEST if bound is None else bound / 4.0
        size = self._folds.reach * np.sqrt(self._folds.width)
        size = size if bound is None else min(size, largest)
        piece, size = self._steep_piece(size, largest, bound)
        best = first = self._trial(piece)
        mixing, residual_error = self._mixing(first)
        trial, worse = first, 0
        for _ in range(_TRIES - 1):
            factor = self._farther(trial, best)
            if factor is None or not _SMALLEST < size * factor < _LARGEST or size * factor > largest:
                break
            size *= factor
            piece = choose_piece(self._folds, size, self._rng, bound)
            if self._flat(piece, size):  # all neurons are off so near the origin
                break
            trial = self._trial(piece)
            if self._merit(trial) > self._merit(best):
                best, worse = trial, 0
            elif trial.score > _WEAKEST:
                worse += 1
                if worse > 1:
                    break
        return Settled(self._measured(best.piece), best.shrink, mixing, residual_error)

    def _steep_piece(self, size: float, largest: float, bound: float | None) -> tuple[Piece, float]:
        """The first piece, farther out where all neurons are off around the origin, and its distance."""
        while True:
            piece = choose_piece(self._folds, size, self._rng, bound)
            if not self._flat(piece, size) or 8.0 * size > largest:
                return piece, size
            size *= 8.0

    def _flat(self, piece: Piece, size: float) -> bool:
        """Whether rows of this size change the answer by hardly more than rounding."""
        return size * float(np.linalg.norm(piece.gradient)) <= _LEVELS * EPS * self._magnitude(piece)

    def _farther(self, trial: _Trial, best: _Trial) -> float | None:
        """By how much to change the distance after a trial; None where it is right."""
        homogeneous = not self._folds.biased
        if trial.score < _WEAKEST and trial.shrink == 1.0:
            if best is not trial and not homogeneous:
                return None
            if not homogeneous or trial.score == 0.0:
                return 8.0
            return float(min(np.sqrt(TARGET_SCORE / trial.score), 2.0**10))
        if trial.shrink < 0.1:
            return float(max(np.sqrt(trial.shrink), 2.0**-10)) if homogeneous else 1.0 / 6.0
        return None

    def _mixing(self, trial: _Trial) -> tuple[float, float]:
        """1 + residual and its error: the usual factors exactly, any other from more pairs, whose spread says
        how well it is known."""
        usual = _usual(trial.mixing, min(trial.error, _SNAP))
        if usual is not None:
            return usual, trial.error
        piece = self._measured(trial.piece)
        rows = EvenRows(piece.gradient).rows(0, self._folds.width)
        sent = (trial.shrink * PART * piece.room(rows))[:, None] * rows
        weights, signal = self._pair_weights(piece, sent)
        totals = weights.sum(axis=0)
        rounding = 1e4 * EPS * self._magnitude(piece) / float(signal.min())
        if float(np.ptp(totals)) > 1e-7 + rounding:
            raise OutsideClass(
                PIECE_TEST,
                f"the weights of a row and of its negative add up to {totals.min():.9g} for one row and "
                f"{totals.max():.9g} for another",
            )
        mixing = 1.0 / float(np.median(totals))
        error = mixing**2 * (float(np.ptp(totals)) + 1e-14)
        usual = _usual(mixing, error)  # where rounding hides the difference, the usual factor is meant
        return (mixing if usual is None else usual), error

    def _trial(self, piece: Piece) -> _Trial:
        """A few pairs ±a, shorter until none of them saturates."""
        count = min(3, self._folds.width)
        rows = EvenRows(piece.gradient).rows(0, count)
        full = PART * piece.room(rows)
        typical, mixing, error, settled = 0.0, 1.0, np.inf, False

        def look(shrink: float) -> float:
            nonlocal typical, mixing, error, settled
            sent = shrink * full[:, None] * rows
            weights, signal = self._pair_weights(piece, sent)
            total = float(np.median(weights.sum(axis=0)))
            if not 1e-6 < total < 1e6:
                self._refuse_small_signal(piece, signal)
                raise OutsideClass(
                    PIECE_TEST,
                    f"the weights of a row and of its negative add up to {total:.6g}, which no softmax does",
                )
            mixing = 1.0 / total
            rounding = EPS * self._magnitude(piece) / float(signal.min())
            error = mixing**2 * (float(np.ptp(weights.sum(axis=0))) + _ROUNDINGS * rounding)
            scores = np.abs(logit(weights[0] * mixing))
            settled = bool((scores <= LARGEST_SCORE).all())
            typical = rms(scores)
            return 1.0 if settled else 1.0 / 8.0

        shrink = climb(look, 1.0, tries=_TRIES)
        if not settled:
            raise OutsideClass(PIECE_TEST, STAYS)
        about_one = min(1.0, shrink * TARGET_SCORE / max(typical, 1e-300))
        return _Trial(piece, typical / shrink, about_one, mixing, error)

    def _pair_weights(self, piece: Piece, sent: Array) -> tuple[Array, Array]:
        """The weights (2, n) of rows a and -a beside the centre, over 1 + residual, and |∇h·a| of each."""
        pairs = np.concatenate([sent, -sent])
        answers = self._asker.ask(
            np.stack([pairs + piece.centre, np.broadcast_to(piece.centre, pairs.shape)], axis=1)
        )
        signal = pairs @ piece.gradient
        with np.errstate(divide="ignore", invalid="ignore"):
            return ((answers - piece.value) / signal).reshape(2, -1), np.abs(signal)

    def _refuse_small_signal(self, piece: Piece, signal: Array) -> None:
        """Where a row changes the answer by hardly more than rounding, its weight says nothing."""
        rounding = EPS * self._magnitude(piece)
        if float(signal.min()) < _LEVELS * rounding:
            raise Unresolved(
                "inside the widest linear piece of the network a row changes the answer by "
                f"{float(signal.min()):.1g}, where rounding is {rounding:.1g}: its neurons differ too much "
                "in size for attention to show; larger inputs or another seed would help"
            )

    def _merit(self, trial: _Trial) -> float:
        """Inverse of the error to expect in W: answers' rounding over signal, score size and the step of
        b."""
        piece = trial.piece
        room = PART * float(np.median(piece.room(EvenRows(piece.gradient).rows(0, self._folds.width))))
        signal = float(np.linalg.norm(piece.gradient))
        return signal * (trial.shrink * room) ** 2 * room / self._magnitude(piece)

    def _magnitude(self, piece: Piece) -> float:
        return float(self._folds.magnitude(piece.centre[None])[0])

    def _measured(self, piece: Piece) -> Piece:
        """Gradient and value from answers themselves: the network's folds only have to say where the piece
        ends."""
        basis = EvenRows(piece.gradient).rows(0, self._folds.width)
        steps = 2.0 * PART * piece.room(basis)
        rows = np.concatenate([piece.centre[None], piece.centre + steps[:, None] * basis])
        answers = self._asker.ask(rows[:, None])
        predicted = self._folds(rows)
        if np.abs(answers - predicted).max() > 1e-6 * self._folds.magnitude(rows).max():
            raise OutsideClass(
                Test("one-row answers are piecewise linear"),
                "a piece that the network's kinks enclose is not linear inside",
            )
        return replace(piece, gradient=((answers[1:] - answers[0]) / steps) @ basis, value=float(answers[0]))
