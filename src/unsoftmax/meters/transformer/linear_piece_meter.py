"""Attention in front of a ReLU network, measured inside one linear piece: one query per measurement, whatever
the network is."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array, logit, rms
from unsoftmax.ledger import Asker
from unsoftmax.meters.base import Meter
from unsoftmax.meters.probes.balanced_basis import EvenRows, even_rows_for
from unsoftmax.meters.probes.sizes import TARGET_SCORE
from unsoftmax.meters.transformer.linear_piece import Piece
from unsoftmax.meters.transformer.piece_search import LARGEST_SCORE, PART, PIECE_TEST, STAYS, settle
from unsoftmax.models import CanonicalNetwork
from unsoftmax.outcomes import OutsideClass

__all__ = ["PIECE_TEST", "ConeMeter"]

_TRIES = 40  # shrinking by at least 4 each, sizes fall by 2^-80: any finite score is then readable


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
    >>> ledger = Ledger(FunctionOracle(model), width=4)
    >>> meter = ConeMeter(ledger, model.network.folds, np.random.default_rng(0))
    >>> bool(np.allclose(meter.project(None, np.eye(4)), model.W, atol=1e-9))
    True
    """

    def __init__(self, ledger: Asker, folds: CanonicalNetwork, rng: np.random.Generator) -> None:
        self._ledger, self._folds = ledger, folds
        self._settled = settle(ledger, folds, rng)
        self._piece, self._mixing = self._settled.piece, self._settled.mixing
        self._whole = EvenRows(self._piece.gradient)
        self._cached: tuple[Array, bool, EvenRows] | None = None
        self._typical = 0.0  # score of a unit row beside b0, as far as it was seen
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

    @property
    def residual_error(self) -> float:
        """How far the residual factor may be off."""
        return self._settled.residual_error

    def base(self) -> Array:
        """W b0 + w0, measured when first called: d queries."""
        if self._base is None:
            self._base = np.zeros(self.width)
            known = self._scores(self._whole, np.zeros((1, self.width)))
            self._base = np.asarray(self._whole.coordinates(known)[0])
        return self._base

    def resolution(self) -> float:
        usual = float(np.median(self._sizes(self._whole)))
        reach = PART * float(np.median(self._piece.room(self._whole.rows(0, self.width))))
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
        sizes = PART * self._piece.room(B.T)
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
        largest = PART * self._mixing * self._piece.room(rows)
        if self._base is None or not (self._base.any() or self._typical):
            return self._settled.shrink * largest
        usual = np.abs(rows @ self._base) + self._typical * np.linalg.norm(rows, axis=1)
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
            lengths = float(np.sqrt(np.mean(np.square(rows).sum(axis=1))))
            self._typical = max(0.5 * self._typical, 1.5 * rms(moved) / lengths)
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
            again = ~(np.abs(score) <= LARGEST_SCORE)
            if not again.any():
                return out
            where = where[again]
            factor = np.where(
                np.isfinite(score[again]),
                np.minimum(TARGET_SCORE / np.maximum(np.abs(score[again]), 1.0), 0.25),
                2.0**-6,
            )
            gamma[where[:, 0], where[:, 1]] *= factor
        raise OutsideClass(PIECE_TEST, STAYS)

    def _weights(self, A: Array, X: Array, signal: Array) -> Array:
        """The attention weight of the first row of [a + b; b], b = b0 + x."""
        b = self._piece.centre + X
        answers = self._ledger.ask(np.stack([A + b, b], axis=1))
        weights = self._mixing * (answers - self._piece.value - X @ self._piece.gradient) / signal
        rounding = EPS * self._mixing * float(self._folds.magnitude(self._piece.centre[None])[0])
        slack = 1e-6 + self.residual_error / self._mixing + 1e4 * rounding / np.abs(signal)
        strange = ~((weights >= -slack) & (weights <= 1.0 + slack))
        if strange.any():
            worst = float(weights[strange][0])
            raise OutsideClass(
                PIECE_TEST, f"a row's weight would be {worst:.6g}, and a weight lies between 0 and 1"
            )
        return np.asarray(weights)
