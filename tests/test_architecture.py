"""The house rules that a reader of the code may rely on, read off the source itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import unsoftmax

SOURCE = Path(unsoftmax.__file__).parent
ROOMS = [
    "arrays",
    "closing",
    "late_scipy",
    "float_formats",
    "errors",
    "foreign_code",
    "replaced_names",
    "importing",
    "text_files",
    "html_tables",
    "schemas",
    "child_processes",
    "families",
    "outcomes",
    "oracles",
    "models",
    "serve",
    "ledger",
    "answers",
    "meters",
    "solvers",
    "first_look",
    "learners",
    "certify",
    "recovery",
    "testing",
    "audit",
    "lab",
    "cli",
]
ENTRANCES = {"__init__", "__main__"}  # they import whatever they offer
LATE = {("oracles/separate_process.py", "recovery")}  # the child process resolves its own target
ANSWER_KINDS = {
    "exact", "constant", "decimals", "rounded", "stored", "computed", "tolerance", "within", "noise", "noisy",
    "labels", "flipped labels", "clipped", "unsteady", "float32", "float16", "bfloat16",
}  # fmt: skip
ASKING = {"ask", "forms", "project", "measure", "once", "query_bias", "resolution", "identify", "first_look"}
SENTENCES = {"reason", "evidence", "sentence", "statement"}  # what is told to people
SEARCHES = {"startswith", "endswith", "find", "index", "count"}
WIDEST = 110
PRAGMA = re.compile(r"  # (type: ignore|noqa)")  # what tools are told about a line may stand beyond its end


def _sources(*rooms: str) -> Iterator[tuple[str, tuple[ast.AST, ...]]]:
    """Every file of the rooms (none: of the house) by its path inside the package, with all that is in it."""
    return ((name, nodes) for name, nodes in _parsed() if not rooms or _room(name) in rooms)


@cache
def _parsed() -> list[tuple[str, tuple[ast.AST, ...]]]:
    paths = sorted(SOURCE.rglob("*.py"))
    return [
        (path.relative_to(SOURCE).as_posix(), tuple(ast.walk(ast.parse(path.read_text())))) for path in paths
    ]


def _module(nodes: tuple[ast.AST, ...]) -> ast.Module:
    assert isinstance(nodes[0], ast.Module)
    return nodes[0]


def _room(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


def _imports(nodes: Iterable[ast.AST]) -> set[str]:
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("unsoftmax."):
            found.add(node.module.split(".")[1])
        if isinstance(node, ast.Import):
            found.update(
                alias.name.split(".")[1] for alias in node.names if alias.name.startswith("unsoftmax.")
            )
    return found


def test_every_room_has_its_place() -> None:
    there = {_room(path.relative_to(SOURCE).as_posix()) for path in SOURCE.rglob("*.py")}
    assert there - ENTRANCES == set(ROOMS)


def test_no_room_imports_downstream() -> None:
    wrong = []
    for name, nodes in _sources():
        if _room(name) in ENTRANCES:
            continue
        place = ROOMS.index(_room(name))
        wrong += [
            f"{name} imports {imported}"
            for imported in _imports(nodes)
            if ROOMS.index(imported) > place and (name, imported) not in LATE
        ]
    assert wrong == []


def test_solvers_never_see_an_oracle_and_meters_no_solver() -> None:
    for name, nodes in _sources("solvers"):
        assert not _imports(nodes) & {"ledger", "learners", "certify"}, name
    for name, nodes in _sources("meters"):
        assert not _imports(nodes) & {"solvers", "learners", "certify"}, name


def _told_by_string(node: ast.AST) -> bool:
    """Whether something called kind is compared with the name of a kind of answers."""
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    names = {_last(side) for side in sides if isinstance(side, ast.Attribute | ast.Name)}
    constants = {
        part.value
        for side in sides
        for part in ast.walk(side)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }
    return bool(names & {"kind", "answers", "precision", "_precision"}) and bool(constants & ANSWER_KINDS)


def _last(node: ast.Attribute | ast.Name) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def test_kinds_of_answers_are_told_by_type() -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name, nodes in _sources()
        if _room(name) != "answers"
        for node in nodes
        if isinstance(node, ast.Compare) and _told_by_string(node)
    ]
    assert wrong == []


def _is_sentence(node: ast.AST) -> bool:
    """Whether it is the text of an error, or what is told to people, as far as names tell."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str":
        return any(
            _last(each) in {"error", "fault", "reason", "stop", "exception", "cause"}
            for each in node.args
            if isinstance(each, ast.Attribute | ast.Name)
        )
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


def _steered_by(node: ast.AST) -> bool:
    """Whether a sentence is compared with words, or searched for them."""
    if isinstance(node, ast.Compare):
        sides = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
        words = any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in sides)
        return words and any(_is_sentence(part) for part in sides)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in SEARCHES and _is_sentence(node.func.value)


def test_sentences_steer_nothing() -> None:
    wrong = [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for name, nodes in _sources()
        for node in nodes
        if isinstance(node, ast.Compare | ast.Call) and _steered_by(node)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "code", ['"full" in str(error)', 'result.reason == "spent"', 'stop.reason.startswith("no")']
)
def test_code_that_a_sentence_steers_is_found(code: str) -> None:
    assert any(_steered_by(node) for node in ast.walk(ast.parse(code)))


def test_nobody_keeps_facts_in_a_dictionary_on_the_ledger() -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name, nodes in _sources()
        for node in nodes
        if isinstance(node, ast.Attribute)
        and node.attr == "known"
        and isinstance(node.value, ast.Attribute | ast.Name)
        and _last(node.value) in ("ledger", "asker", "books")
    ]
    assert wrong == []


def _assigned(node: ast.AST) -> list[ast.expr]:
    """What a statement assigns to."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    else:
        return []
    return [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Attribute)]


def test_from_the_ledger_to_the_audit_nobody_assigns_to_another_object() -> None:
    wrong = []
    for name, nodes in _sources(*ROOMS[ROOMS.index("ledger") : ROOMS.index("lab")]):
        for node in nodes:
            for target in _assigned(node):
                assert isinstance(target, ast.Attribute)
                if isinstance(target.ctx, ast.Store) and not _own(target.value):
                    wrong.append(f"{name}:{target.lineno}: {ast.unparse(target)}")
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
                wrong.append(f"{name}:{node.lineno}: setattr")
    assert wrong == []


def _own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _asks(node: ast.AST) -> bool:
    """Whether a call in it reaches the oracle, as far as names tell."""
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute | ast.Name)
        and _last(part.func) in ASKING
        for part in ast.walk(node)
    )


def _is_property(function: ast.FunctionDef) -> bool:
    names = {_last(each) for each in function.decorator_list if isinstance(each, ast.Attribute | ast.Name)}
    return bool(names & {"property", "cached_property"})


def test_no_query_hides_in_an_assertion_or_a_property() -> None:
    wrong = []
    for name, nodes in _sources(*ROOMS[ROOMS.index("ledger") :]):
        for node in nodes:
            if isinstance(node, ast.Assert) and _asks(node):
                wrong.append(f"{name}:{node.lineno}: in an assertion")
            if isinstance(node, ast.FunctionDef) and _is_property(node) and _asks(node):
                wrong.append(f"{name}:{node.lineno}: in the property {node.name}")
    assert wrong == []


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks"])
def test_lines_fit(folder: str) -> None:
    root = SOURCE.parent.parent / folder
    wrong = [
        f"{path.relative_to(root)}:{number}"
        for path in sorted(root.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(PRAGMA.split(line)[0]) > WIDEST
    ]
    assert wrong == []


def _is_number(node: ast.expr | None) -> bool:
    """Whether it is written as a number, or as a tuple or list of numbers."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.UnaryOp(operand=inner):
            return _is_number(inner)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return bool(parts) and all(_is_number(part) for part in parts)
        case _:
            return False


def test_a_constant_says_where_its_number_comes_from() -> None:
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and _is_number(node.value):
                assert node.end_lineno is not None
                beside = any("#" in line for line in lines[node.lineno - 1 : node.end_lineno])
                if not beside and not lines[node.lineno - 2].startswith("#"):
                    wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno}: {ast.unparse(node)}")
    assert wrong == []


def test_a_file_says_what_others_may_use_of_it() -> None:
    wrong = []
    for name, nodes in _sources():
        listed = {
            part.value
            for node in _module(nodes).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
            for part in ast.walk(node.value)
            if isinstance(part, ast.Constant)
        }
        wrong += [
            f"{name}: {node.name}"
            for node in _module(nodes).body
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            and not node.name.startswith("_")
            and node.name not in listed
            and _room(name) not in ENTRANCES
        ]
    assert wrong == []


def test_public_names_resolve_and_are_documented() -> None:
    assert sorted(unsoftmax.__all__) == dir(unsoftmax)
    for name in unsoftmax.__all__:
        value = getattr(unsoftmax, name)
        assert name == "__version__" or (value.__doc__ and value.__doc__.strip()), name


def test_recovering_a_head_loads_no_scipy() -> None:
    """Loading it would take longer than all the rest."""
    script = (
        "import sys, unsoftmax\n"
        "result = unsoftmax.recover(unsoftmax.random_single_head(6, 2, seed=0, biases=True))\n"
        "print(result.status, [name for name in sys.modules if name.split('.')[0] == 'scipy'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "EXACT []"
