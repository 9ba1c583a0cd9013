"""Data flows one way: no room imports from a room downstream of it."""

from __future__ import annotations

import ast
from pathlib import Path

import unsoftmax

SOURCE = Path(unsoftmax.__file__).parent
ROOMS = [
    "arrays",
    "float_formats",
    "errors",
    "child_processes",
    "outcomes",
    "oracles",
    "models",
    "serve",
    "ledger",
    "answers",
    "meters",
    "solvers",
    "learners",
    "certify",
    "recovery",
    "testing",
    "audit",
    "lab",
    "cli",
]
LATE = {("oracles/separate_process.py", "recovery")}  # the child process resolves its own target


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("unsoftmax."):
            found.add(node.module.split(".")[1])
    return found


def test_no_room_imports_downstream() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE)
        room = name.parts[0].removesuffix(".py")
        if room not in ROOMS:
            continue
        for imported in _imports(path):
            if (
                imported in ROOMS
                and ROOMS.index(imported) > ROOMS.index(room)
                and (name.as_posix(), imported) not in LATE
            ):
                wrong.append(f"{name} imports {imported}")
    assert wrong == []


def test_solvers_never_see_an_oracle_and_meters_no_solver() -> None:
    for path in (SOURCE / "solvers").glob("*.py"):
        assert not _imports(path) & {"ledger", "learners", "certify"}, path.name
    for path in (SOURCE / "meters").glob("*.py"):
        assert not _imports(path) & {"solvers", "learners", "certify"}, path.name


def test_public_names_resolve_and_are_documented() -> None:
    for name in dir(unsoftmax):
        assert getattr(unsoftmax, name) is not None
        assert name == "__version__" or getattr(unsoftmax, name).__doc__
