"""The house rules that a reader of the code may rely on, read off the source itself."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
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
KIND_NAMES = {"kind", "answers", "precision", "_precision"}
ASKING = {
    "ask", "forms", "project", "measure", "once", "query_bias", "resolution", "identify", "first_look",
    "oracle", "median_answers",
}  # fmt: skip
ASKERS = {"ledger", "_ledger", "asker", "_asker", "books"}
SETTERS = {"setattr", "delattr", "__setattr__"}
SENTENCES = {"reason", "evidence", "sentence", "statement"}  # what is told to people
ERRORS = {"error", "fault", "reason", "stop", "exception", "cause"}
SEARCHES = {"startswith", "endswith", "find", "index", "count"}
WIDEST, MOST_BRANCHES, MOST_PARAMETERS = 110, 15, 7
Nodes = tuple[ast.AST, ...]
Guard = Callable[[Nodes], Iterator[ast.AST]]


def _sources(*rooms: str) -> Iterator[tuple[str, Nodes]]:
    """Every file of the rooms (none: of the house) by its path inside the package, with all that is in it."""
    return ((name, nodes) for name, nodes in _parsed() if not rooms or _room(name) in rooms)


@cache
def _parsed() -> list[tuple[str, Nodes]]:
    paths = sorted(SOURCE.rglob("*.py"))
    return [
        (path.relative_to(SOURCE).as_posix(), tuple(ast.walk(ast.parse(path.read_text())))) for path in paths
    ]


def _module(nodes: Nodes) -> ast.Module:
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


def _wrong(guard: Guard, *rooms: str) -> list[str]:
    """Where in these rooms (none: in the house) something stands that the guard forbids."""
    return [
        f"{name}:{getattr(node, 'lineno', '')}: {ast.unparse(node)[:80]}"
        for name, nodes in _sources(*rooms)
        for node in guard(nodes)
    ]


def _last(node: ast.AST) -> str:
    """The last part of a dotted name; nothing for any other expression."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _words(*nodes: ast.AST) -> set[str]:
    """All strings that are written in them."""
    parts = [part for node in nodes for part in ast.walk(node)]
    return {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def _kinds_by_string(nodes: Nodes) -> Iterator[ast.AST]:
    """Names of kinds of answers that something called kind is compared with, or that a match is about."""
    for node in nodes:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if {_last(side) for side in sides} & KIND_NAMES and _words(*sides) & ANSWER_KINDS:
                yield node
        if isinstance(node, ast.MatchValue) and _words(node) & ANSWER_KINDS:
            yield node


def _sentences_that_steer(nodes: Nodes) -> Iterator[ast.AST]:
    """Sentences that are compared with words, or searched for them."""
    for node in nodes:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if _words(*sides) and any(_is_sentence(part) for side in sides for part in ast.walk(side)):
                yield node
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in SEARCHES and _is_sentence(called.value):
            yield node


def _is_sentence(node: ast.AST) -> bool:
    """Whether it is the text of an error, or what is told to people, as far as names tell."""
    if isinstance(node, ast.Call) and _last(node.func) == "str":
        return any(_last(each) in ERRORS for each in node.args)
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


def _facts_on_the_ledger(nodes: Nodes) -> Iterator[ast.AST]:
    """What is kept with something that asks: under a name of its own, or as an entry of what it holds."""
    for node in nodes:
        entry = isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)
        kept = node.value if isinstance(node, ast.Subscript) and entry else node
        if not isinstance(kept, ast.Attribute) or _last(kept.value) not in ASKERS:
            continue
        if entry or kept.attr == "known" or not isinstance(kept.ctx, ast.Load):
            yield node


def _foreign_assignments(nodes: Nodes) -> Iterator[ast.AST]:
    """Attributes of other objects that a statement of any kind sets or deletes, and calls of setattr."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and not _own(node.value):
            yield node
        if isinstance(node, ast.Call):
            own = bool(node.args) and _own(node.args[0])  # a frozen dataclass in its own __post_init__
            if _last(node.func) in SETTERS - ({"__setattr__"} if own else set()):
                yield node


def _own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _hidden_queries(nodes: Nodes) -> Iterator[ast.AST]:
    """Assertions and properties in which a query is made, by themselves or by a method of their class."""
    for node in nodes:
        if isinstance(node, ast.Assert) and _asks(node):
            yield node
        if isinstance(node, ast.ClassDef):
            methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
            asking = {name for name, method in methods.items() if _asks(method)}
            while more := {name for name in methods if _of_self(methods[name]) & asking} - asking:
                asking |= more
            yield from (methods[name] for name in asking if _is_property(methods[name]))
            asserted = [part for part in ast.walk(node) if isinstance(part, ast.Assert)]
            yield from (each for each in asserted if _of_self(each) & asking)


def _asks(node: ast.AST) -> bool:
    """Whether a call in it reaches the oracle, as far as names tell."""
    return any(isinstance(part, ast.Call) and _last(part.func) in ASKING for part in ast.walk(node))


def _of_self(node: ast.AST) -> set[str]:
    """The attributes of self that it uses."""
    return {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute) and _own(part.value)}


def _is_property(function: ast.FunctionDef) -> bool:
    return bool({_last(each) for each in function.decorator_list} & {"property", "cached_property"})


def _crowded_signatures(nodes: Nodes) -> Iterator[ast.AST]:
    """Functions with more than seven parameters that are no public entry point, nor a method of one."""
    public = set(unsoftmax.__all__)
    entrances = {part for node in nodes if getattr(node, "name", "") in public for part in ast.walk(node)}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node not in entrances:
            every = node.args
            names = [each.arg for each in (*every.posonlyargs, *every.args, *every.kwonlyargs)]
            if len([name for name in names if name not in ("self", "cls")]) > MOST_PARAMETERS:
                yield node


def test_kinds_of_answers_are_told_by_type() -> None:
    assert _wrong(_kinds_by_string, *(room for room in ROOMS if room != "answers")) == []


def test_sentences_steer_nothing() -> None:
    assert _wrong(_sentences_that_steer) == []


def test_nobody_keeps_facts_on_the_ledger() -> None:
    assert _wrong(_facts_on_the_ledger) == []


def test_from_the_ledger_to_the_audit_nobody_assigns_to_another_object() -> None:
    assert _wrong(_foreign_assignments, *ROOMS[ROOMS.index("ledger") : ROOMS.index("lab")]) == []


def test_no_query_hides_in_an_assertion_or_a_property() -> None:
    assert _wrong(_hidden_queries, *ROOMS[ROOMS.index("ledger") :]) == []


def test_only_entry_points_have_many_parameters() -> None:
    """Options of a command are one argument each, too."""
    assert _wrong(_crowded_signatures, *(room for room in ROOMS if room != "cli")) == []


def test_no_function_is_excused_from_the_limit_on_branches() -> None:
    """The linter counts them; this is about exceptions from it."""
    assert [str(path) for path in SOURCE.rglob("*.py") if "C901" in path.read_text()] == []
    settings = tomllib.loads((SOURCE.parent.parent / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert settings["mccabe"]["max-complexity"] == MOST_BRANCHES
    assert "C901" in settings["select"]
    assert not any("C901" in each for each in (settings["ignore"], *settings["per-file-ignores"].values()))


@pytest.mark.parametrize(
    ("guard", "code"),
    [
        (_kinds_by_string, 'answers.kind == "labels"'),
        (_kinds_by_string, 'kind in ("rounded", "noisy")'),
        (_kinds_by_string, 'match kind:\n    case "labels" | "other":\n        pass'),
        (_sentences_that_steer, '"full" in str(error)'),
        (_sentences_that_steer, 'result.reason == "spent"'),
        (_sentences_that_steer, 'stop.reason.startswith("no")'),
        (_facts_on_the_ledger, 'self.ledger.known["rank"]'),
        (_facts_on_the_ledger, 'asker.facts["rank"] = 3'),
        (_facts_on_the_ledger, "ledger.rank = 3"),
        (_foreign_assignments, "other.rank = 3"),
        (_foreign_assignments, "self.meter.rank += 3"),
        (_foreign_assignments, "a, (b, other.rank) = found"),
        (_foreign_assignments, "for other.rank in ranks:\n    pass"),
        (_foreign_assignments, "del other.rank"),
        (_foreign_assignments, 'setattr(other, "rank", 3)'),
        (_foreign_assignments, 'object.__setattr__(other, "rank", 3)'),
        (_hidden_queries, "assert meter.measure(a, b) > 0.0"),
        (
            _hidden_queries,
            "class A:\n    @property\n    def size(self):\n        return self._asker.ask(rows)",
        ),
        (
            _hidden_queries,
            "class A:\n    @cached_property\n    def size(self):\n        return self._look()\n"
            "    def _look(self):\n        return self._asker.ask(rows)",
        ),
        (
            _hidden_queries,
            "class A:\n    def see(self):\n        assert self._look()\n"
            "    def _look(self):\n        return self._asker.ask(rows)",
        ),
        (_crowded_signatures, "def f(a, b, c, d, /, e, f, *, g, h):\n    pass"),
    ],
)
def test_what_a_guard_forbids_is_found(guard: Guard, code: str) -> None:
    assert list(guard(tuple(ast.walk(ast.parse(code)))))


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks"])
def test_lines_fit(folder: str) -> None:
    root = SOURCE.parent.parent / folder
    wrong = [
        f"{path.relative_to(root)}:{number}"
        for path in sorted(root.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > WIDEST
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
