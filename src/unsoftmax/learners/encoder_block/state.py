"""All parameters of an encoder block in the coordinates that its function shows, as one vector and as a
model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.models import AskingRow, EncoderBlock, MultiHead, Network, SingleHead
from unsoftmax.models.parts import Activation, LayerNorm, Norm, RMSNorm

__all__ = ["BlockShape", "BlockState", "head_factors", "mean_free_basis"]


_SPARE = 1e-4  # of what neurons usually add, or the inverse
_ALIKE = 5e-5  # one less the cosine of two neurons: a hundredth of a radian


@cache  # searches for rows need it hundreds of thousands of times
def mean_free_basis(width: int) -> Array:
    """(d, d - 1) orthonormal columns, all orthogonal to the vector of ones; not to be written to."""
    basis = np.linalg.svd(np.ones((1, width)))[2][1:].T
    basis.setflags(write=False)
    return basis


@cache
def _whole_basis(width: int) -> Array:
    basis = np.eye(width)
    basis.setflags(write=False)
    return basis


@dataclass(frozen=True)
class BlockShape:
    """What stays fixed while parameters move: order of the norms, their kind, and the activation. normed:
    whether there are norms. skip: whether the asking row is added to what the heads add. pooled: whether
    answers are the mean over all rows, each of which asks once."""

    norm_first: bool
    centred: bool
    activation: Activation
    width: int
    normed: bool = True
    skip: bool = True
    pooled: bool = False

    @property
    def basis(self) -> Array:
        """Columns that span what a norm can see: without the mean for LayerNorm, everything for RMSNorm."""
        return mean_free_basis(self.width) if self.centred else _whole_basis(self.width)

    def norm(self, gain: Array, bias: Array | None, eps: float) -> Norm | None:
        """A norm of this kind."""
        if not self.normed:
            return None
        return LayerNorm(gain, bias, eps) if self.centred else RMSNorm(gain, bias, eps)


@dataclass(frozen=True)
class BlockState:
    """Parameters of a block.

    queries (H, r, p + 1), keys and values (H, r, p) of tokens with p coordinates; last columns are biases.
    outputs: (m, H·r + 1), what all heads' values add, and a constant. inner: (J, k + 1) and outer: (m, J +
    1), the network. log_eps: (2,). gains: (3, d), for post-norm only: first gain, second gain, second bias.
    Pre-norm: p = k seen coordinates of normed tokens, m = d. Post-norm: p = d, m = k.
    readout: (answers, d), what of the residual stream is answered beside the network; (0, d) for all of it.
    """

    queries: Array
    keys: Array
    values: Array
    outputs: Array
    inner: Array
    outer: Array
    log_eps: Array
    gains: Array
    readout: Array = field(default_factory=lambda: np.empty((0, 0)))

    def parts(self) -> tuple[Array, ...]:
        """All arrays, in the order of the vector."""
        return (
            self.queries,
            self.keys,
            self.values,
            self.outputs,
            self.inner,
            self.outer,
            self.log_eps,
            self.gains,
            self.readout,
        )

    @property
    def unknowns(self) -> int:
        """Length of the vector."""
        return sum(part.size for part in self.parts())

    def packed(self) -> Array:
        """All numbers as one vector."""
        return np.concatenate([part.ravel() for part in self.parts()])

    def unpacked(self, vector: Array) -> BlockState:
        """A vector (unknowns,) as arrays of this state's shapes."""
        parts, start = [], 0
        for part in self.parts():
            parts.append(vector[start : start + part.size].reshape(part.shape))
            start += part.size
        return BlockState(*parts)

    def moved(self, step: Array) -> BlockState:
        """The state plus a step (unknowns,)."""
        return self.unpacked(self.packed() + step)

    @property
    def heads(self) -> int:
        """Number of heads."""
        return len(self.queries)

    def with_seen_constant(self, shape: BlockShape) -> BlockState:
        """The same function; what the second norm does not see of the heads' constant moves into the
        network's: its digits would hide those of the rest."""
        if not (shape.norm_first and shape.normed and len(self.inner)):
            return self
        outputs, outer = self.outputs.copy(), self.outer.copy()
        unseen = outputs[:, -1] - shape.basis @ (shape.basis.T @ outputs[:, -1])
        outputs[:, -1] = shape.basis @ (shape.basis.T @ outputs[:, -1])
        outer[:, -1] += self.readout @ unseen if self.readout.size else unseen
        return replace(self, outputs=outputs, outer=outer)

    def always_on(self, shape: BlockShape) -> NDArray[np.bool_]:
        """(J,) which neurons do not bend for any input: they stand for a linear part."""
        reach = np.sqrt(shape.width) * np.linalg.norm(self.inner[:, :-1], axis=1)
        on = self.inner[:, -1] >= reach + shape.activation.straight
        return np.asarray(on & shape.normed)

    def added(self) -> Array:
        """(J,) how much each neuron adds: its weights in and out, of which one factor is free."""
        return np.asarray(np.linalg.norm(self.outer[:, :-1], axis=0) * np.linalg.norm(self.inner, axis=1))

    def spare_neurons(self, shape: BlockShape) -> bool:
        """Whether a neuron that bends adds nothing, or an affine function, or two are one: then its weights
        are not fixed by any answers."""
        bends = ~self.always_on(shape)
        inner, added = self.inner[bends], self.added()[bends]
        if len(inner) == 0:
            return False
        rows = inner / np.linalg.norm(inner, axis=1, keepdims=True)
        apart = 1.0 - np.abs(rows @ rows.T) + np.eye(len(rows))
        usual = float(np.median(added))
        extreme = float(added.min()) < _SPARE * usual or float(added.max()) > usual / _SPARE
        return extreme or float(apart.min()) < _ALIKE

    def model(self, shape: BlockShape) -> EncoderBlock:
        """The block of these parameters."""
        basis, r = shape.basis, self.keys.shape[1]
        tokens = basis if shape.norm_first else np.eye(shape.width)
        answers = np.eye(shape.width) if shape.norm_first else basis
        heads = []
        for h in range(self.heads):
            out = self.outputs[:, h * r : (h + 1) * r]
            left, right = tokens @ self.keys[h].T, tokens @ self.queries[h, :, :-1].T
            v = tokens @ self.values[h].T @ out.T @ answers.T
            heads.append(SingleHead((left, right), v, left @ self.queries[h, :, -1]))
        attention = MultiHead(heads, answers @ self.outputs[:, -1])
        eps = np.exp(self.log_eps)
        ones = np.ones(shape.width)
        if shape.norm_first:
            first, second = shape.norm(ones, None, float(eps[0])), shape.norm(ones, None, float(eps[1]))
            rows = self.inner[:, :-1] @ basis.T
        else:
            first = shape.norm(self.gains[0], None, float(eps[0]))
            second = shape.norm(self.gains[1], self.gains[2], float(eps[1]))
            rows = self.inner[:, :-1] @ basis.T / self.gains[0]
        if self.readout.size:
            answers = np.eye(len(self.readout))
        network = Network(
            rows,
            (answers @ self.outer[:, :-1]).T,
            self.inner[:, -1],
            answers @ self.outer[:, -1],
            activation=shape.activation,
        )
        block = EncoderBlock(
            attention,
            network,
            first,
            second,
            norm_first=shape.norm_first,
            skip=shape.skip,
            readout=self.readout.T if self.readout.size else None,
        )
        return block.asked_by(AskingRow.MEAN) if shape.pooled else block


def head_factors(values: Array, scores: Array, rank: int) -> tuple[Array, Array, Array, Array]:
    """queries, keys, values and outputs (m, H·r) of heads V (H, m, p) and [W w0] (H, p, p + 1)."""
    H, m, p = values.shape
    r = min(rank, p)
    queries, keys, inner = np.zeros((H, r, p + 1)), np.zeros((H, r, p)), np.zeros((H, r, p))
    outputs = np.zeros((m, H * r))
    for h in range(H):
        left, sizes, right = np.linalg.svd(scores[h], full_matrices=False)
        keys[h] = (left[:, :r] * np.sqrt(sizes[:r])).T
        queries[h] = right[:r] * np.sqrt(sizes[:r])[:, None]
        left, sizes, right = np.linalg.svd(values[h], full_matrices=False)
        seen = min(r, m)  # a norm behind the heads hides a dimension of their outputs
        outputs[:, h * r : h * r + seen] = left[:, :r] * np.sqrt(sizes[:r])
        inner[h, :seen] = right[:r] * np.sqrt(sizes[:r])[:, None]
    return queries, keys, inner, outputs
