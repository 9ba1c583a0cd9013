"""The bar on a terminal while a fit asks nothing, and silence elsewhere."""

from __future__ import annotations

import io
import logging

import numpy as np
import pytest

from unsoftmax.cli.progress import counting_bar, show_progress
from unsoftmax.learners.computed.fit_progress import report_steps
from unsoftmax.ledger import Progress
from unsoftmax.solvers.least_squares.joint_refinement import DenseJacobian, RefinementOptions, refine

OPTIONS = RefinementOptions(iterations=1, dense_limit=0, inner_iterations=30, inner_tolerance=0.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Wide:
    """As many unknowns as conjugate gradients need for twenty products."""

    slopes = np.diag(np.linspace(1.0, 1e3, 60))

    def residual(self, state: np.ndarray) -> np.ndarray:
        return np.asarray(self.slopes @ state - np.ones(60))

    def linearise(self, state: np.ndarray) -> DenseJacobian:
        return DenseJacobian(self.slopes)

    def moved(self, state: np.ndarray, step: np.ndarray) -> np.ndarray:
        return np.asarray(state + step)


def _terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Not a fixture: pytest sets its own stderr once more before the test itself."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    return shown


def test_the_step_of_a_fit_stands_beside_the_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    with show_progress() as told:
        assert told is not None
        told(Progress("learning", 1200, 20000))
        report_steps("fit of all", OPTIONS)(1, 1e-6)
    last = terminal.getvalue().rpartition("\r\x1b[2Kfit")[2]
    assert "fit of all, step 1 of at most 1" in "fit" + last
    assert "1200/20000" in last
    assert "residual" not in last


def test_a_query_takes_the_place_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    with counting_bar("starting", "queries") as told:
        assert told is not None
        report_steps("last fit", OPTIONS)(1, 1e-6)
        told("verification", 5, 9)
    assert "verification" in terminal.getvalue()
    assert not terminal.getvalue().rpartition("verification")[2].count("last fit")


def test_products_inside_a_step_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    with counting_bar("starting", "queries"):
        refine(Wide(), np.zeros(60), OPTIONS)
    assert "fit, product 20 of at most 30" in terminal.getvalue()


def test_pipes_stay_plain_and_logging_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    _terminal(monkeypatch)
    log = logging.getLogger("unsoftmax.progress")
    before = (log.level, log.propagate, list(log.handlers))
    with pytest.raises(KeyError), show_progress():
        raise KeyError
    assert (log.level, log.propagate, list(log.handlers)) == before
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    with show_progress() as told:
        assert told is None
        report_steps("last fit", OPTIONS)(1, 1e-6)
    assert pipe.getvalue() == ""
