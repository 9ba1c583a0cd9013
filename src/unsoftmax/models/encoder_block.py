"""A whole encoder block: attention, residual connections, norms and a two-layer network; the last row is
answered. Norms and residual connections may be missing, and a linear readout may follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import ClassVar, Self, TypeAlias, TypeVar

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.models.asking_row import AskingRow
from unsoftmax.models.base import Model, as_batch, check_finite
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.networks.gated_network import GatedNetwork
from unsoftmax.models.networks.network import Network
from unsoftmax.models.parts.norms import LayerNorm, Norm, RMSNorm

__all__ = ["BlockNetwork", "EncoderBlock"]

BlockNetwork: TypeAlias = Network | GatedNetwork
# tensors of a file that belong to no part
_FLAGS = ("norm_first", "norm_last", "no_skip", "first_row", "mean_row", "readout")
Part = TypeVar("Part")


class EncoderBlock(Model):
    """Pre-norm: y = x + attention(first(x)), f = y + network(second(y)). Post-norm: y = first(x +
    attention(x)), f = second(y + network(y)).

    x is the last row, and attention mixes all rows. A norm may be None. Many parameters give one function:
    `canonical` and `distance` know which.

    skip: whether x is added to the attention's output. readout: where norms come first, what stands for y in
    the answer: y·readout, (d, m), and a network with m outputs. None: y itself. A linear classifier behind a
    block is a readout; zeros are a network without a residual connection. asking: the row that asks (see
    `asked_by`), the last one unless told; the first one stands behind a class token, and behind mean pooling
    answers are the mean over all rows, with each of them as x once.

    >>> from unsoftmax.models.random import random_multi_head
    >>> network = Network(np.eye(4), np.eye(4))
    >>> norms = LayerNorm(np.ones(4)), LayerNorm(np.ones(4))
    >>> block = EncoderBlock(random_multi_head(4, 2, outputs=4), network, *norms)
    >>> block(np.ones((2, 3, 4))).shape, block.distance(block)
    ((2, 4), 0.0)
    """

    family: ClassVar[str] = "encoder-block"
    exact_at: float = 1e-8

    def __init__(
        self,
        attention: MultiHead,
        network: BlockNetwork,
        first: Norm | None = None,
        second: Norm | None = None,
        *,
        norm_first: bool = True,
        skip: bool = True,
        readout: object = None,
    ) -> None:
        d = attention.width
        matrix = None if readout is None else np.array(readout, dtype=np.float64)
        if matrix is not None and (not norm_first or matrix.ndim != 2 or len(matrix) != d):
            raise UsageError(
                f"a readout is ({d}, m) for a block of width {d} whose norms come first, not {matrix.shape}"
            )
        answers = d if matrix is None else matrix.shape[1]
        if attention.outputs != d:
            raise UsageError(
                f"the attention of a block of width {d} answers with {d} numbers, not {attention.outputs}"
            )
        if network.width != d or network.outputs != answers:
            raise UsageError(
                f"the network of this block maps {d} numbers to {answers}, not {network.width} to "
                f"{network.outputs}"
            )
        check_finite(readout=matrix)
        for norm in (first, second):
            if norm is not None and norm.width != d:
                raise UsageError(f"the norms of a block of width {d} have {d} gains, not {norm.width}")
        self.attention = attention
        self.network = network
        self.first = first
        self.second = second
        self.norm_first = bool(norm_first)
        self.skip = bool(skip)
        self.readout = matrix
        self.asking = AskingRow.LAST

    @property
    def first_row(self) -> bool:
        """Whether the first row asks."""
        return self.asking is AskingRow.FIRST

    @property
    def width(self) -> int:
        return self.attention.width

    @property
    def outputs(self) -> int | None:
        return self.width if self.readout is None else int(self.readout.shape[1])

    @property
    def ranks(self) -> list[int]:
        return self.attention.ranks

    @property
    def parameters(self) -> int:
        """Numbers of the canonical form's parts."""
        form = self.canonical()
        count = form.attention.parameters + form.network.parameters
        if form.second is not None and form.readout is not None:
            count += form.readout.size
        for norm, free in ((form.first, not self.norm_first), (form.second, not self.norm_first)):
            if norm is not None:
                count += 1 + (self.width if free else 0)
        if not self.norm_first and form.second is not None and form.second.bias is not None:
            count += self.width
        return count

    def _asking_last(self, batch: Array) -> Array:
        """The sequences with the row that asks at their end."""
        X = as_batch(batch, self.width)
        return X[:, ::-1] if self.first_row else X

    def after_attention(self, batch: Array) -> Array:
        """(B, d): x + attention before anything that follows it; without x where there is no skip. Where the
        mean over rows is answered, that of the last one."""
        X = self._asking_last(batch)
        tokens = self.first(X) if self.norm_first and self.first is not None else X
        mixed = self.attention(tokens)
        return np.asarray(X[:, -1] + mixed if self.skip else mixed)

    def after_network(self, y: Array) -> Array:
        """The answer, from x + attention."""
        if self.norm_first:
            passed = y if self.readout is None else y @ self.readout
            return np.asarray(passed + self.network(y if self.second is None else self.second(y)))
        middle = y if self.first is None else self.first(y)
        out = middle + self.network(middle)
        return np.asarray(out if self.second is None else self.second(out))

    def __call__(self, batch: Array, /) -> Array:
        return self._mean_of(lambda X: self.after_network(self.after_attention(X)), batch)

    def _mean_of(self, of_last: Callable[[Array], Array], batch: Array) -> Array:
        """What holds for the row that asks; where all rows ask, the mean over them."""
        X = as_batch(batch, self.width)
        if self.asking is not AskingRow.MEAN:
            return of_last(X)
        N = X.shape[1]
        return np.asarray(sum(of_last(np.roll(X, shift, axis=1)) for shift in range(N)) / N)

    def sensitivity(self, batch: Array) -> Array:
        """What an answer could show at most: behind a last norm its gain and bias, else all that adds up to
        it."""
        return self._mean_of(self._sensitivity, batch)

    def _sensitivity(self, batch: Array) -> Array:
        X = self._asking_last(batch)
        if not self.norm_first and self.second is not None:
            bias = 0.0 if self.second.bias is None else float(np.abs(self.second.bias).max())
            spread = self._score_spread(X)
            return np.asarray(spread * (np.sqrt(self.width) * float(np.abs(self.second.gain).max()) + bias))
        tokens = self.first(X) if self.norm_first and self.first is not None else X
        y = self.after_attention(batch)
        middle = self.second if self.norm_first else self.first
        seen = y if middle is None else middle(y)
        added = self.attention.sensitivity(tokens)
        if self.skip:
            added = added + np.linalg.norm(X[:, -1], axis=1)
        if self.readout is not None:
            added = added * float(np.linalg.norm(self.readout, 2))
        if middle is None:  # nothing bounds what the network sees
            added = added + _steepness(self.network) * self.attention.sensitivity(tokens)
        return np.asarray(added + self.network.sensitivity(seen))

    def _score_spread(self, X: Array) -> Array:
        """One plus the largest difference of scores in each sequence: their rounding grows with it."""
        scores = self.attention.scores(X)
        return np.asarray(1.0 + np.ptp(scores, axis=1).max(axis=-1))

    def asked_by(self, row: AskingRow) -> Self:
        """The same block, asked by another row of a sequence, or by all of them."""
        block = copy(self)
        block.asking = row
        return block

    def score_strength(self) -> float:
        return 1.0 if self.norm_first and self.first is not None else self.attention.score_strength()

    def canonical(self) -> Self:
        """See `block_symmetries`: norms without what can be moved into their neighbours, then the parts' own
        canonical forms."""
        from unsoftmax.models.block_symmetries import canonical_block

        return canonical_block(self)

    def distance(self, other: Self) -> float:
        """Largest of the distances of attention, network and norms, in canonical form; 1 where the shapes of
        the blocks differ."""
        from unsoftmax.models.block_symmetries import canonical_block, network_distance, norm_distance

        self._same_family(other)
        kinds = [
            [type(part) for part in (block.first, block.second, block.network)] for block in (self, other)
        ]
        plain = [(block.norm_first, block.skip, block.asking, block.outputs) for block in (self, other)]
        if plain[0] != plain[1] or kinds[0] != kinds[1]:
            return 1.0
        mine, theirs = canonical_block(self), canonical_block(other)
        parts = [mine.attention.distance(theirs.attention), _readout_distance(mine, theirs)]
        parts.append(network_distance(mine, theirs))
        parts += [norm_distance(mine.first, theirs.first), norm_distance(mine.second, theirs.second)]
        return max(parts)

    def tensors(self) -> dict[str, Array]:
        parts = {f"attention.{name}": part for name, part in self.attention.tensors().items()}
        kind = "gated" if isinstance(self.network, GatedNetwork) else "network"
        parts |= {f"{kind}.{name}": part for name, part in self.network.tensors().items()}
        for place, norm in (("first", self.first), ("second", self.second)):
            if norm is not None:
                named = "layer" if isinstance(norm, LayerNorm) else "rms"
                parts[f"{place}.{named}.gain"] = norm.gain
                parts[f"{place}.{named}.eps"] = np.array(norm.eps)
                if norm.bias is not None:
                    parts[f"{place}.{named}.bias"] = norm.bias
        parts["norm_first" if self.norm_first else "norm_last"] = np.zeros(0)
        if not self.skip:
            parts["no_skip"] = np.zeros(0)
        if self.asking is not AskingRow.LAST:
            parts[f"{self.asking}_row"] = np.zeros(0)
        if self.readout is not None:
            parts["readout"] = self.readout
        return parts

    @classmethod
    def check_shapes(cls, shapes: dict[str, tuple[int, ...]]) -> None:
        """Refuses shapes that do not fit together, before any array is read."""
        groups = _grouped(shapes)
        MultiHead.check_shapes(groups["attention"])
        network = GatedNetwork if groups["gated"] else Network
        network.check_shapes(groups["gated"] or groups["network"])
        width = next(
            (
                shape[-1]
                for name, shape in (groups["gated"] or groups["network"]).items()
                if name in ("A", "gate")
            ),
            0,
        )
        if "readout" in shapes and (len(shapes["readout"]) != 2 or shapes["readout"][0] != width):
            raise ModelFileError(
                f"tensor 'readout' has shape {shapes['readout']}, which does not fit width {width}"
            )
        for place in ("first", "second"):
            for name, shape in groups[place].items():
                if shape != (() if name.endswith(".eps") else (width,)):
                    raise ModelFileError(
                        f"tensor '{place}.{name}' has shape {shape}, which does not fit width {width}"
                    )

    @classmethod
    def from_tensors(cls, tensors: dict[str, Array]) -> Self:
        groups = _grouped(tensors)
        network: BlockNetwork = (
            GatedNetwork.from_tensors(groups["gated"])
            if groups["gated"]
            else Network.from_tensors(groups["network"])
        )
        attention = MultiHead.from_tensors(groups["attention"])
        first, second = _norm(groups["first"]), _norm(groups["second"])
        block = cls(
            attention,
            network,
            first,
            second,
            norm_first="norm_first" in tensors,
            skip="no_skip" not in tensors,
            readout=tensors.get("readout"),
        )
        asking = [row for row in (AskingRow.FIRST, AskingRow.MEAN) if f"{row}_row" in tensors]
        if len(asking) > 1:
            raise ModelFileError("an encoder-block file names one row that asks, not the first and the mean")
        return block.asked_by(asking[0]) if asking else block

    def __repr__(self) -> str:
        normed = self.first is not None or self.second is not None
        order = ("pre-norm" if self.norm_first else "post-norm") if normed else "no norms"
        return (
            f"EncoderBlock(width={self.width}, heads={len(self.attention.heads)}, {order}, {self.network!r})"
        )


def _steepness(network: BlockNetwork) -> float:
    """How much of a change of its input a network passes on at most; zero where that has no limit."""
    if not isinstance(network, Network) or not network.neurons:
        return 0.0
    return float(np.linalg.norm(network.A, 2) * np.linalg.norm(network.U, 2))


def _readout_distance(mine: EncoderBlock, theirs: EncoderBlock) -> float:
    """Relative difference of the readouts, of which None is the identity."""
    if mine.readout is None and theirs.readout is None:
        return 0.0
    ours, other = (
        np.eye(block.width) if block.readout is None else block.readout for block in (mine, theirs)
    )
    size = float(np.linalg.norm(ours))
    return float(np.linalg.norm(ours - other)) / (size if size > 0.0 else 1.0)


def _grouped(parts: Mapping[str, Part]) -> dict[str, dict[str, Part]]:
    """A file's names by the part that they belong to."""
    groups: dict[str, dict[str, Part]] = {
        name: {} for name in ("attention", "network", "gated", "first", "second")
    }
    for name, part in parts.items():
        if name in _FLAGS:
            continue
        owner, _, rest = name.partition(".")
        if owner not in groups or not rest:
            raise ModelFileError(f"an encoder-block file has no tensor {name!r}")
        groups[owner][rest] = part
    if bool(groups["network"]) == bool(groups["gated"]) or not groups["attention"]:
        raise ModelFileError("an encoder-block file holds the attention and one network")
    return groups


def _norm(parts: dict[str, Array]) -> Norm | None:
    if not parts:
        return None
    kinds = {name.partition(".")[0] for name in parts}
    if len(kinds) != 1 or kinds - {"layer", "rms"}:
        raise ModelFileError(f"a norm is 'layer' or 'rms', not {', '.join(sorted(kinds))}")
    kind = kinds.pop()
    if not {f"{kind}.gain", f"{kind}.eps"} <= set(parts):
        raise ModelFileError("a norm holds gain and eps")
    build = LayerNorm if kind == "layer" else RMSNorm
    return build(parts[f"{kind}.gain"], parts.get(f"{kind}.bias"), float(parts[f"{kind}.eps"]))
