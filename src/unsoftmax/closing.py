"""Things that hold something open: files, threads, processes."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

__all__ = ["Closing"]


class Closing:
    """Closed at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """Gives back what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
