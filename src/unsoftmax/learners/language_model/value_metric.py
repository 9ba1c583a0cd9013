"""How much changes of the value and outputs of one group of heads count in a fit, on average over prompts.

A head adds O·V·r, with r the mean of the rows that it looks at, so a change counts as |dO·V + O·dV|², where
outputs are measured by what reaches the answers, and heads of one group by how alike their r are. In bases of
the row space of V and the column space of O, the coupled part of the two is a Sylvester equation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["ValueMetric"]

_FLOOR = 1e-10  # of a mean eigenvalue, added to all


class ValueMetric:
    """value (d_h, d), output (d, heads, d_h). reach (d, d), alike (heads, heads): the metrics of outputs."""

    def __init__(self, value: Array, output: Array, reach: Array, alike: Array) -> None:
        self.shape = output.shape
        d, heads, width = output.shape
        self.reach, self.alike = _root(reach), _root(alike)
        lengths = (value * value).sum(axis=1)
        self.output_squares = np.einsum("i,h,e->ihe", np.diag(reach), np.diag(alike), lengths).reshape(d, -1)
        reached = (self.reach.T @ output.reshape(d, -1)).reshape(d, heads, width)
        seen = (self.alike.T @ reached).reshape(-1, width)
        self.value_squares = (seen * seen).sum(axis=0)
        self.columns, sizes, turn = np.linalg.svd(seen, full_matrices=False)  # (d·heads, d_h)
        self.outside = sizes[:, None] * turn
        left, sizes, self.rows = np.linalg.svd(value, full_matrices=False)
        self.inside = left * sizes

    def inverse(self, of_value: float, of_output: float) -> Callable[[Array, Array], tuple[Array, Array]]:
        """The inverse for value and outputs together. Each is damped by its own amount."""
        d, heads, width = self.shape
        scale = float(np.trace(self.reach @ self.reach.T)) / d  # at least a floor
        by_value, turn = np.linalg.eigh(self.inside.T @ self.inside)
        by_output, lean = np.linalg.eigh(self.outside @ self.outside.T)
        both = by_output[:, None] + by_value
        floor = _FLOOR * float(both.mean()) or 1.0
        both, added = np.maximum(both, floor), of_value + of_output / scale + floor
        free_value = np.linalg.inv(self.outside.T @ self.outside + added * np.eye(width))
        free_output = np.linalg.inv(self.inside @ self.inside.T + added * np.eye(width))
        back_alike, back_reach = np.linalg.inv(self.alike), np.linalg.inv(self.reach)
        symmetric = 1.0 / (float(both.mean()) + added)  # where nothing changes: any positive number serves

        def solve(value: Array, output: Array) -> tuple[Array, Array]:
            seen = back_alike @ (back_reach @ output.reshape(d, -1)).reshape(d, heads, width)
            seen = seen.reshape(-1, width)
            of_columns, of_rows = self.columns.T @ seen, value @ self.rows.T
            image = lean.T @ (of_columns @ self.inside + self.outside @ of_rows) @ turn
            # (AᵀA + added)⁻¹ on what A sees, and a number on what it does not
            share = lean @ (image * (1.0 / (both + added) - symmetric) / both) @ turn.T
            new_columns = share @ self.inside.T + symmetric * of_columns
            new_rows = self.outside.T @ share + symmetric * of_rows
            solved = self.columns @ new_columns + (seen - self.columns @ of_columns) @ free_output
            moved = back_alike.T @ solved.reshape(d, heads, width)
            moved = (back_reach.T @ moved.reshape(d, -1)).reshape(d, heads, width)
            rest = value - of_rows @ self.rows
            return new_rows @ self.rows + free_value @ rest, moved

        return solve


def _root(metric: Array) -> Array:
    """L with L·Lᵀ = metric."""
    floor = _FLOOR * float(np.trace(metric)) / len(metric) or 1.0
    return np.asarray(np.linalg.cholesky(metric + floor * np.eye(len(metric))))
