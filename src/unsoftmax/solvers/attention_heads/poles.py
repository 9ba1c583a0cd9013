"""Weights of heads from the outputs of one row behind k zero rows: c_k = Σ_h ρ_h/(k + ρ_h)·a_h, a rational
function of k.

ρ_h = exp(own score of the row) and a_h what head h writes for it. The Loewner matrix of the samples has rank
H, and the pencil with the shifted one has the poles -ρ_h.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.late_scipy import least_squares

__all__ = ["HeadPoles", "find_poles"]


@dataclass(frozen=True, eq=False)
class HeadPoles:
    """rho (H,), ascending. residues (H, d): a_h. misfit: relative. condition: of the weights, how well they
    tell the heads apart."""

    rho: Array
    residues: Array
    misfit: float
    condition: float

    def ordered(self, order: NDArray[np.intp]) -> HeadPoles:
        """The same heads in another order."""
        return replace(self, rho=self.rho[order], residues=self.residues[order])

    def with_outputs(self, outputs: Array, zeros: Array) -> HeadPoles:
        """The same poles with the residues of other outputs."""
        design = self.rho / (zeros[:, None] + self.rho)
        return replace(self, residues=np.asarray(np.linalg.lstsq(design, outputs, rcond=None)[0]))


def find_poles(outputs: Array, zeros: Array, heads: int) -> HeadPoles | None:
    """ρ_h and a_h of `heads` heads, or None when the poles are not all negative numbers."""
    plain, shifted = _loewner(outputs, zeros)
    left, values, right = np.linalg.svd(plain, full_matrices=False)
    if len(values) < heads or values[heads - 1] <= 0.0:
        return None
    pencil = (left[:, :heads].T @ shifted @ right[:heads].T) / values[:heads, None]
    roots = -np.linalg.eigvals(pencil)
    if np.abs(roots.imag).max() > 1e-3 * np.abs(roots).max() or roots.real.min() <= 0.0:
        return None

    def weights(log_rho: Array) -> Array:
        rho = np.exp(log_rho)
        return np.asarray(rho / (zeros[:, None] + rho))

    def misfit(log_rho: Array) -> Array:
        basis = np.linalg.qr(weights(log_rho))[0]
        return np.asarray((outputs - basis @ (basis.T @ outputs)).ravel())

    solved = least_squares(misfit, np.log(roots.real), xtol=1e-15, ftol=1e-15, gtol=1e-15)
    log_rho = np.sort(solved.x)
    design = weights(log_rho)
    residues = np.asarray(np.linalg.lstsq(design, outputs, rcond=None)[0], dtype=np.float64)
    relative = float(np.linalg.norm(design @ residues - outputs) / np.linalg.norm(outputs))
    return HeadPoles(np.exp(log_rho), residues, relative, float(np.linalg.cond(design)))


def _loewner(outputs: Array, zeros: Array) -> tuple[Array, Array]:
    """(K/2·d, K/2) divided differences of the samples, and of the samples times their k."""
    one, two = slice(0, None, 2), slice(1, None, 2)
    gap = (zeros[one][:, None] - zeros[two])[:, None, :]
    plain = (outputs[one][:, :, None] - outputs[two].T[None]) / gap
    times = zeros[:, None] * outputs
    shifted = (times[one][:, :, None] - times[two].T[None]) / gap
    columns = plain.shape[2]
    return plain.reshape(-1, columns), shifted.reshape(-1, columns)
