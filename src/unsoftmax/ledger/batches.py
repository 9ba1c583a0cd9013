"""Memory for batches: used again for the next one, unless somebody still holds the last."""

from __future__ import annotations

from math import prod
from weakref import ReferenceType, ref

import numpy as np

from unsoftmax.oracles import Array

__all__ = ["BatchMemory"]

_PAGE = 4096


class BatchMemory:
    """Lends blank arrays from one block of memory. Fresh memory would cost more than filling it: the system clears every page first.

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
        self._block = bytearray(0)
        self._start = 0
        self._lent: ReferenceType[Array] | None = None

    def blank(self, shape: tuple[int, ...]) -> Array:
        """An array of that shape with no particular content."""
        size = 8 * prod(shape)
        lent = self._lent() if self._lent is not None else None
        if lent is not None or len(self._block) < size + _PAGE:
            self._block = bytearray(size + _PAGE)
            # Batches lie half a page away from what is copied into them: copying between almost equal places of two pages stalls the processor.
            self._start = (self._place - np.frombuffer(self._block, np.uint8).ctypes.data) % _PAGE
        array: Array = np.ndarray(shape, np.float64, self._block, self._start)
        self._lent = ref(array)  # views keep `array` alive, because its own base is no array
        return array
