"""What a search for a network found, how well it is known, and what may have been missed."""

from __future__ import annotations

from dataclasses import dataclass

from unsoftmax.models import CanonicalNetwork

__all__ = ["NetworkFound"]


@dataclass(frozen=True)
class NetworkFound:
    """The folds, a bound on their relative error, and the width of the narrowest slab, up to which distance,
    that fresh rows would have met."""

    folds: CanonicalNetwork
    error_bound: float
    blind_spot: float
    searched: float

    faintest: float = 0.0  # the size of a fold below which it may have been missed
    vague: int = 0  # folds known to fewer than three digits
    merged: int = 0  # hyperplanes so close to others that they are given as one with them
    closest: float = 0.0  # how close, as an angle

    @property
    def caveat(self) -> str:
        """The blind spot, and what could not be told apart, in words."""
        parts, largest = [], float(self.folds.sizes.max(initial=0.0))
        if self.merged:
            many = f"{self.merged} hyperplanes lie" if self.merged > 1 else "one hyperplane lies"
            parts.append(
                f"{many} within {self.closest:.1g} of another, too close to tell them apart, and given as "
                "one with it"
            )
        if self.vague:
            many = (
                f"{self.vague} of {self.folds.count} folds are"
                if self.vague > 1
                else f"one of {self.folds.count} folds is"
            )
            parts.append(f"{many} so faint beside the others that fewer than three digits are known")
        if self.faintest > 0.0:
            parts.append(
                f"folds smaller than {self.faintest:.2g} (half the jump of the gradient; the largest is "
                f"{largest:.2g}) may not show, nor gaps between hyperplanes that times their folds are "
                "smaller"
            )
        if self.folds.biased:
            parts.append(
                f"a bump confined to a slab narrower than {self.blind_spot:.2g}, or further than "
                f"{self.searched:.2g} from the origin (hyperplanes lie about {self.folds.reach:.2g} from "
                "it), may have been missed; more thoroughness finds narrower ones"
            )
        return "; ".join(parts)
