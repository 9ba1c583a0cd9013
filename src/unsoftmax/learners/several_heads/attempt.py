"""What ends one attempt without ending the learning: another base row and another circle are tried."""

from __future__ import annotations

__all__ = ["DependentOutputs", "Restart", "SharedStep", "TooClose", "Unexplained"]


class Restart(Exception):
    """This attempt cannot go on; the reason is told when the last attempt ends so."""


class SharedStep(Restart):
    """A step of the staircase holds several heads at every resolution."""


class TooClose(Restart):
    """Two heads were seen, but their matrices could not be told apart."""


class DependentOutputs(Restart):
    """The outputs of the heads span fewer dimensions than they have together: no attempt tells them apart."""


class Unexplained(Restart):
    """No number of heads explains the answers to copies of rows at any pair that was tried."""
