"""Fixed tokens around every sequence, and padding to a fixed length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.errors import UsageError
from unsoftmax.oracles.base import Oracle, OracleSpec
from unsoftmax.oracles.domain import TokenIds
from unsoftmax.oracles.wrappers import LimitedLength

__all__ = ["Framed", "TokenFrame", "framed"]


@dataclass(frozen=True)
class TokenFrame:
    """prefix, suffix: ids before and after every sequence, such as CLS and SEP. padding: the id that fills a
    sequence up to `length` at its end; the target has to ignore it. longest: the most tokens in all.

    The padding id is not a token that can be asked: free ids number the others, 0 to V - 2.

    >>> TokenFrame((1,), (2,)).around(np.array([[7, 8]]))
    array([[1, 7, 8, 2]])
    >>> TokenFrame(padding=0, length=4).sent(np.array([[7, 8]]))
    array([[8, 9, 0, 0]])
    """

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    padding: int | None = None
    length: int | None = None
    longest: int | None = None

    @classmethod
    def of(
        cls,
        prefix: Sequence[int] = (),
        suffix: Sequence[int] = (),
        padding: int | None = None,
        length: int | None = None,
        longest: int | None = None,
    ) -> TokenFrame:
        """A frame from what a user says, checked."""
        frame = cls(_ids("prefix", prefix), _ids("suffix", suffix), padding, length, longest)
        if (padding is None) != (length is None):
            raise UsageError("padding needs the length to fill up to: pass both padding=ID and length=N")
        for name, value in (("length", length), ("longest", longest)):
            if value is not None and (isinstance(value, bool) or value < frame.fixed + 1):
                raise UsageError(
                    f"{name} {value!r} leaves no room for a token beside {frame.fixed} fixed ones; pass at "
                    f"least {frame.fixed + 1}"
                )
        return frame

    @property
    def fixed(self) -> int:
        """Number of fixed tokens."""
        return len(self.prefix) + len(self.suffix)

    @property
    def empty(self) -> bool:
        """Whether nothing changes."""
        return self == TokenFrame()

    def free(self, ids: Ids) -> Ids:
        """Ids of the vocabulary as free ids."""
        return ids if self.padding is None else np.asarray(ids - (ids > self.padding))

    def named(self, ids: Ids) -> Ids:
        """Free ids as ids of the vocabulary."""
        return ids if self.padding is None else np.asarray(ids + (ids >= self.padding))

    @property
    def fixed_ids(self) -> Ids:
        """The fixed tokens as free ids."""
        return self.free(np.array([*self.prefix, *self.suffix], dtype=np.int64))

    def around(self, ids: Ids) -> Ids:
        """Sequences (B, N) of free ids with the fixed tokens, without padding."""
        fixed = np.broadcast_to(self.fixed_ids, (len(ids), self.fixed))
        at = len(self.prefix)
        return np.concatenate([fixed[:, :at], ids, fixed[:, at:]], axis=1)

    def sent(self, ids: Ids) -> Ids:
        """Sequences of free ids as the target gets them."""
        whole = self.named(self.around(ids))
        if self.length is None or self.padding is None:
            return whole
        filled = np.full((len(whole), self.length), self.padding, dtype=np.int64)
        filled[:, : whole.shape[1]] = whole
        return filled

    def limit(self, told: int | None) -> int | None:
        """The most free tokens, where the target takes `told`."""
        limits = [each for each in (told, self.length, self.longest) if each is not None]
        return None if not limits else min(limits) - self.fixed


class Framed:
    """A target inside a frame: the ids that are asked are the free ones.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> inner = FunctionOracle(lambda ids: ids.sum(axis=1), OracleSpec(domain=TokenIds(9)))
    >>> Framed(inner, TokenFrame((1,), (2,)))(np.array([[5, 6]]))
    array([14.])
    """

    def __init__(self, inner: Oracle, frame: TokenFrame) -> None:
        domain = inner.spec.domain
        if not isinstance(domain, TokenIds):
            raise UsageError(
                "prefix, suffix and padding are for targets that take token ids; pass vocabulary=V"
            )
        named = [*frame.prefix, *frame.suffix, *([] if frame.padding is None else [frame.padding])]
        if any(not 0 <= each < domain.vocabulary for each in named):
            raise UsageError(f"fixed tokens must be ids from 0 to {domain.vocabulary - 1}, not {named}")
        if frame.padding in (*frame.prefix, *frame.suffix):
            raise UsageError(f"the padding id {frame.padding} cannot be a fixed token as well")
        self.inner, self.frame = inner, frame
        self.free = domain if frame.padding is None else TokenIds(domain.vocabulary - 1)

    @property
    def spec(self) -> OracleSpec:
        """That of the target, with the room that the frame leaves."""
        limit = self.frame.limit(self.inner.spec.max_length)
        return replace(self.inner.spec, max_length=limit, domain=self.free)

    def __call__(self, batch: Array, /) -> Array:
        return self.inner(cast(Array, self.frame.sent(np.asarray(batch, dtype=np.int64))))


def framed(oracle: Oracle, frame: TokenFrame) -> Oracle:
    """A target inside a frame; of a target that takes rows only the length can be limited."""
    if frame.empty:
        return oracle
    if frame == TokenFrame(longest=frame.longest) and not isinstance(oracle.spec.domain, TokenIds):
        return LimitedLength(oracle, cast(int, frame.longest))
    return Framed(oracle, frame)


def _ids(name: str, ids: Sequence[int]) -> tuple[int, ...]:
    if isinstance(ids, int | np.integer):
        ids = [int(ids)]
    found = list(ids)
    if any(isinstance(each, bool) or not isinstance(each, int | np.integer) for each in found):
        raise UsageError(f"{name} must be token ids, such as {name}=[101], not {ids!r}")
    return tuple(int(each) for each in found)
