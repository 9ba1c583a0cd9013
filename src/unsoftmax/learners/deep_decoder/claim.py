"""What is promised for a whole decoder of several layers."""

from __future__ import annotations

from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.meters.deep.sphere_curvature import curvature_queries

__all__ = ["DEEP_MODEL"]


def _limit(size: Size) -> int:
    """One-row part as of a stack of gated networks, J neurons or 2d in all; heads: poles 12·12·6, derivatives
    2·4·(d - 1)·(2H + 4)·6, scores 1.4·d²·6; fits of 1.5 times the unknowns."""
    d, J, heads = size.width, max(size.neurons, 2 * size.width), max(size.heads, 4)
    heads_and_fits = 60 * d * (2 * heads + 4) + 9 * d * d + 2000 + 12 * d * heads
    return curvature_queries(6.0 * J, d) + 40 * J + heads_and_fits


DEEP_MODEL = Claim(
    title="a decoder of several layers: unembedding, networks and value paths of all layers, heads",
    source="this library; docs/depth.md",
    assumptions=(
        Assumption("rows of any size may be sent", "huge rows reach the unembedding as they are"),
        Assumption("answers in float64", "the misfit of the unembedding on fresh rows"),
        Assumption("RMSNorm, SwiGLU, rotary positions, no biases", "fits of every stage on fresh prompts"),
        Assumption("at most about 0.15·d² neurons, 6 heads and d/3 heads in all layers", "ranks and poles"),
    ),
    queries=QueryCount("about 12 q⁴/(d - q) + 120 H d + 9 d² + fits, q² = 6 L·m", "upper", _limit),
    recovers="depth, all parameters, eps of all norms and the rotary base",
    symmetry="order of heads, groups and neurons; one factor a gated neuron; one invertible matrix a group "
    "of values; one complex factor a rotary plane of a group; a constant a column of the unembedding",
)
