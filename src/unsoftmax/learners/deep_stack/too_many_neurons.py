"""More neurons than can be told apart, seen before all second derivatives that would find them are paid for.

Split R^d = V + B + W: points in B, second derivatives along V, outputs in W. A neuron is one product, or two
where it is gated, of a function of the point and an array over outputs and pairs of directions. So the matrix
of points against these arrays has a rank of at most the number of products. Finding neurons needs as many
pairs of directions as products, which leaves few outputs; counting needs as many pairs times outputs. With
few directions and many outputs that takes a fraction of the queries.

The functions of points on a sphere are smooth, so that singular values fall slowly before they meet the
noise. A count that stops early proves nothing, and one that goes beyond the limit does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.smooth_network.rank_one import as_vectors
from unsoftmax.meters.deep.collapsed_layer import CollapsedLayer, Scales
from unsoftmax.meters.deep.sphere_curvature import SphereStencil, measure_curvature
from unsoftmax.outcomes import Unresolved

__all__ = ["NeuronLimit"]

_BEYOND = 4  # rows and columns over the limit
# of the limit: polynomials of degree up to three on the sphere of B; their share in an activation is clear
_CUBIC = 0.85
_AGAIN = 4  # points that are measured at another scale, to see the error
# of the largest singular value that errors of this size could make: stacks within the limit stayed below
# 0.03, and those 1.5 times beyond it were between 9 and 67
_CLEARLY = 3.0


@dataclass(frozen=True)
class NeuronLimit:
    """most: products, of which a plain neuron is one and a gated one two, that can be told at this width.
    directions, points: dimensions of V and B."""

    width: int
    most: int
    directions: int
    points: int

    @classmethod
    def of(cls, width: int, most: int) -> NeuronLimit | None:
        """The cheapest split; None where the width allows none."""
        r = next(r for r in range(2, width + most) if _cubic(r) >= _CUBIC * most)
        for q in range(2, width - r):
            if (width - r - q) * (q * (q + 1) // 2 - 1) >= most + _BEYOND:
                return cls(width, most, q, r)
        return None

    @property
    def queries(self) -> int:
        """What one count costs."""
        rows = self.most + _BEYOND + _AGAIN
        return rows * (self.directions * (self.directions + 1) + 1)

    def refuse_more(self, layer: CollapsedLayer, stencil: SphereStencil, rng: np.random.Generator) -> None:
        """Ends where there are more products than the limit."""
        d, q, r = self.width, self.directions, self.points
        frame = np.linalg.qr(rng.standard_normal((d, d)))[0]
        points = np.zeros((self.most + _BEYOND, d - q))
        points[:, :r] = rng.standard_normal((len(points), r))
        points *= np.sqrt(d) / np.linalg.norm(points, axis=1, keepdims=True)

        def seen(layer: CollapsedLayer, points: Array) -> Array:
            forms = as_vectors(measure_curvature(layer, frame, points, q, stencil).forms[:, r:])
            one = as_vectors(np.eye(q)) / np.sqrt(q)  # what the sphere adds to every point
            return np.asarray((forms - (forms @ one)[..., None] * one).reshape(len(points), -1))

        matrix = seen(layer, points)
        coarser = replace(layer, scales=Scales(2.0 * layer.scales.top, layer.scales.terms))
        error = rms(seen(coarser, points[:_AGAIN]) - matrix[:_AGAIN])
        sizes = np.linalg.svd(matrix, compute_uv=False)
        clear = _CLEARLY * error * float(np.sqrt(matrix.shape).sum())
        if np.isfinite(sizes).all() and sizes[self.most] > clear:
            raise Unresolved(
                f"there are more neurons than can be told at width {d}: at least {self.most // 2 + 1} gated "
                f"or {self.most + 1} plain ones in all layers together"
            )


def _cubic(r: int) -> int:
    """Dimensions of the polynomials of degree up to three on the sphere in R^r."""
    return (r + 2) * (r + 1) * r // 6 + (r + 1) * r // 2
