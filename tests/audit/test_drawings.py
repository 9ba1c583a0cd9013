"""Labels that do not collide; pictures that end where knowledge ends."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.audit.defences.defend import defend
from unsoftmax.audit.drawings.figures import _numbers, draw_curve, draw_defences, draw_phases
from unsoftmax.audit.drawings.labels import Box, place_labels
from unsoftmax.models import random_residual_stack


@pytest.mark.parametrize("seed", range(10))
def test_labels_cover_neither_one_another_nor_points(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = [(float(x), float(y)) for x, y in rng.uniform((30, 30), (470, 270), (18, 2))]
    points += [(250.0, 150.0), (252.0, 151.0), (249.0, 148.0)]  # nearly one
    sizes = [(8.5 * n + 4.0, 15.0) for n in rng.integers(1, 6, len(points))]
    places = place_labels(points, sizes, (500.0, 300.0))
    labels = [Box(*place, wide / 2, high / 2) for place, (wide, high) in zip(places, sizes, strict=True)]
    for index, label in enumerate(labels):
        assert all(label.overlap(other) == 0.0 for other in labels[:index])
        assert all(label.overlap(Box(x, y, 5.0, 5.0)) == 0.0 for x, y in points)
        assert label.x - label.half_width >= 0.0
        assert label.x + label.half_width <= 500.0


def test_runs_of_numbers_are_joined() -> None:
    assert _numbers([9, 11, 12, 13, 14]) == "9, 11–14"
    assert _numbers([1, 2]) == "1, 2"


def test_the_legend_is_inside_the_picture() -> None:
    drawn = draw_phases({f"phase {i}": 10 + i for i in range(9)}, [("parameters", 20)])
    height = float(drawn.split('viewBox="')[1].split('"')[0].split()[3])
    heights = [float(part.split('"')[0]) for part in drawn.split(' y="')[1:]]
    assert heights
    assert max(heights) <= height


def test_the_curve_ends_at_its_bound() -> None:
    drawn = draw_curve([1, 50, 100], [1.0, 1e-3, 1e-20], 1e-9)
    assert "certified bound 1.0e-09" in drawn
    assert "10^{-20}" not in drawn


def test_bounds_on_rows_are_drawn_as_a_curve_and_the_tightest_that_is_free_is_advised() -> None:
    stack = random_residual_stack(8, 2, seed=1)
    longest = 30.0
    table = defend(stack, defences=[f"input-bound={longest * f:.0f}" for f in (1.0, 10.0, 1e6)])
    assert [row.parameter_error is not None for row in table.rows] == [False, False, True]
    assert f"{longest:g}" in table.advice
    drawn = draw_defences(table.ranked, alone=True)
    assert "largest norm of a row that is answered" in drawn
    assert "nothing recovered" in drawn
