"""What is promised for a whole one-layer decoder."""

from __future__ import annotations

from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size

__all__ = ["PLAIN_MODEL", "WHOLE_MODEL"]

_ATTEMPTS = 3  # rows and heads are learnt anew where a stage fails, at most so often
_LONGEST = 1024  # positions, two queries each


def _limit(size: Size) -> int:
    """Unembedding d; value path 4d + 84; network 4 queries per pair of q directions at P points, q(q - 1)/2
    at least 3m; heads 24 per row of poles, 16d(2H + 2) derivatives, scores of 1.25d askers; fits of twice the
    unknowns, twice; verification."""
    d, m, heads = size.width, max(size.neurons, _d_or_more(size)), max(size.heads, 1)
    q = int(2 + (0.25 + 3.0 * (2 * m + 1)) ** 0.5) + 2
    points = max(5, 2 * m // d + 3)
    network = 2 * points * (1 + q * (q + 1) + 2 * d)
    head_stage = 240 + 8 * d * (2 * heads + 2) + 12 * d + (d + d // 4 + 2) * 2 * (int(1.3 * d) + 2)
    fits = 4 * (d * d + 3 * m * d) // (d - 1) + 4 * (4 * d * d) // (d - 1) + 64
    # a start that goes astray is made again, each on three circles at most
    return d + 4 * d + 86 + 6 * network + head_stage + fits


def _d_or_more(size: Size) -> int:
    """Neurons of a usual network, where none are named: twice the width."""
    return 2 * size.width


WHOLE_MODEL = Claim(
    title="a one-layer decoder: unembedding, value path, SwiGLU, heads with rotary positions",
    source="this library; docs/language-models.md",
    assumptions=(
        Assumption("rows of any size may be sent", "a bound below the size in use ends the run"),
        Assumption(
            "answers in float64 or float32", "the misfit of the unembedding, and rounding along short lines"
        ),
        Assumption("RMSNorm, one layer", "two ways to the size of the value path agree"),
        Assumption("SwiGLU", "profiles of all neurons over a circle fit the derivative of silu"),
        Assumption("fewer than about d²/6 neurons and at most 6 heads", "ranks that show, poles that fit"),
    ),
    queries=QueryCount(
        "d + 4d + network (about 30 m) + heads (about 3.3 d² + 16 H d) + fits", "upper", _limit
    ),
    recovers="all parameters, eps of all norms and the rotary base",
    symmetry="order of heads, groups and neurons; one factor a gated neuron; one invertible matrix a group "
    "of values; one complex factor a rotary plane of a group; a constant a column of the unembedding",
)


def _plain_limit(size: Size) -> int:
    """Unembedding d; positions 8d for each of 12, and two for every further one; then, three times at most:
    value path 75d, network about 60 a neuron and a column, heads 4d for every product of two of them and at
    least 64d, d² scores; fits of 1.7 times the unknowns, and the error bound."""
    d, m, heads = size.width, max(size.neurons, _d_or_more(size)), max(size.heads, 1)
    rows = 75 * d + 100 * (m + d) + 2 * (d + 2 * m)
    all_heads = 4 * max(16, heads * (heads + 3)) * d + d * d + 4 * (4 * d + 2 * m) + 128
    return d + 97 * d + 2 * _LONGEST + _ATTEMPTS * (rows + all_heads)


PLAIN_MODEL = Claim(
    title="a one-layer decoder of GPT-2's shape: unembedding, positions, heads with biases, network",
    source="this library; docs/language-models.md",
    assumptions=(
        Assumption("rows of any size may be sent", "a bound below the size in use ends the run"),
        Assumption("answers in float64", "the misfit of the unembedding on fresh rows"),
        Assumption("LayerNorm, one layer", "answers do not change where a row grows in its own direction"),
        Assumption(
            "all norms have about one eps, large enough for lengths to show", "fits, and the scatter of eps"
        ),
        Assumption("a plain network with fewer than about d²/3 neurons", "ranks that show, and fits"),
    ),
    queries=QueryCount(
        "positions (96 d) + value path (75 d) + network (60 m) + heads", "upper", _plain_limit
    ),
    recovers="all parameters, positions, the activation and eps of all norms",
    symmetry="order of heads and neurons; one invertible matrix a head for scores, one for values; what "
    "norms absorb, and what is written along the mean; a constant a column of the unembedding",
)
