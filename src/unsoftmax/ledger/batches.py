"""Memory for batches: used again for the next one, unless somebody still holds the last."""

from __future__ import annotations

from math import prod
from sys import getrefcount

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["BatchMemory"]

_PAGE = 4096  # bytes, of the processors that numpy runs on
_HUGE_PAGE = 2 << 20  # numpy asks for them from 4 MB on; to clear one costs a quarter of its small ones
_OWN_REFERENCES = 2  # our attribute, and getrefcount's argument


class BatchMemory:
    """Lends blank arrays from one block of memory. Fresh memory would cost more than filling it: the system
    clears every page first.

    A target may keep what it was sent: then the block is left to it and the next batch gets a new one.

    >>> memory = BatchMemory()
    >>> first = memory.blank((2, 3))
    >>> first[:] = 1.0
    >>> kept = first[0]
    >>> del first
    >>> memory.blank((2, 3))[:] = 7.0
    >>> kept
    array([1., 1., 1.])
    """

    def __init__(self, place: int = _PAGE // 2 + 16) -> None:
        self._place = place  # bytes after the begin of a page
        self._block = np.empty(0, np.uint8)
        self._start = 0

    def blank(self, shape: tuple[int, ...]) -> Array:
        """An array of that shape with no particular content."""
        array = self.left(shape)
        if array is None:
            size = 8 * prod(shape)
            page = _PAGE if size < _HUGE_PAGE else _HUGE_PAGE
            self._block = np.empty(size + page, np.uint8)
            # Batches lie half a page away from what is copied into them: copying between almost equal places
            # of two pages stalls the processor.
            self._start = (self._place - self._block.__array_interface__["data"][0]) % page
            array = self._view(shape)
        return array

    def left(self, shape: tuple[int, ...]) -> Array | None:
        """The last array's memory with the content that was left in it; None when somebody still holds it, or
        when it is too small."""
        # every view of the block, and every view of a view, refers to the block itself
        held = getrefcount(self._block) > _OWN_REFERENCES
        if held or len(self._block) - self._start < 8 * prod(shape):
            return None
        return self._view(shape)

    def _view(self, shape: tuple[int, ...]) -> Array:
        return np.ndarray(shape, np.float64, self._block, self._start)
