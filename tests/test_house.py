"""The plan of the house, held against every import in it (those inside functions and for type checkers included)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {"mplint": ROOT / "mplint", "mplint.rules": ROOT / "rules"}
LONGEST = 60  # lines of a function
# Modules with one user in another room all the same, and why they stand where they do. A package's own module is of its room.
ENTRANCES = {
    "mplint.adopt.keras.adopt": "the way into adoption of Keras programs: the front of the house asks each framework's room",
    "mplint.adopt.torch.adopt": "the way into adoption of PyTorch programs, likewise",
    "mplint.conversion.keras.convert": "the way into conversion of Keras files: the front picks one by the format of the model",
    "mplint.conversion.tensorflow.savedmodel": "the way into conversion of SavedModels, likewise",
    "mplint.conversion.torch.to_onnx": "the way from programs of torch to ONNX, which the front takes by the name of the result",
    "mplint.conversion.torch.convert": "the way into conversion of exported programs, likewise",
    "mplint.frameworks.known": "the way into the frameworks: the engine knows none of them",
    "mplint.frameworks.keras.vocabulary": "the way into what Keras means: the list of all vocabularies asks each framework's room",
    "mplint.frameworks.torch.vocabulary": "the way into what torch means, likewise",
    "mplint.frameworks.trainers.vocabulary": "the way into what trainers mean, likewise",
    "mplint.frameworks.options.vocabulary": "the way into what options mean, likewise",
    "mplint.frameworks.torch.contexts": "a way of reading programs that only torch has, run behind the others",
    "mplint.dev.facts": "what the interpreter saw, for who works on mplint by `mplint dev facts` and for who hovers over a line",
    "mplint.server.server": "the way into the editor server: the command that starts it is only a check that pygls is there",
    "mplint.graph.torch.live": "the way into graphs of PyTorch models that run: the front picks one by the framework of the model",
    "mplint.graph.onnx.open_sizes": "it changes messages of ONNX, which no other room knows",
    "mplint.compare.loggers": "the way out of a comparison into the tools that draw curves, each asked for by an option",
    "mplint.report.doctor": "the report of one command, likewise",
    "mplint.report.estimate": "the report of one command, beside the reports of the others",
    "mplint.python.r.chunks": "the way into R Markdown: the loader picks one by the kind of file",
    "mplint.python.r.layout": "R's comments, beside the rest that is known of its text",
    "mplint.python.r.program": "the way into R: the parser picks one by the language",
    "mplint.python.r.spelling": "R's words for what rules write, beside the rest that is known of R",
    "mplint.rules.api.apex.migration": "the fix of the rule on apex, which shares its room with what else is known of apex's calls",
    "mplint.rules.api.trainers.conflicts": "what two settings of trainers rule out, told by means that several rules on trainers share",
    "mplint.rules.api.trainers.plugin_scalers": "a fix by the same means",
    "mplint.rules.api.trainers.plugins": "spellings of Lightning's plugins, told by the same means",
}
NAMELESS = ("adopt", "recipes", "frameworks", "program", "python", "configs", "graph", "rewrite")


@cache
def modules() -> dict[str, Path]:
    """Every module by its dotted name."""
    found = {}
    for package, folder in SOURCES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


def is_package(module: str) -> bool:
    """Whether a module is the `__init__` of a package."""
    return modules()[module].name == "__init__.py"


@cache
def imports() -> dict[str, frozenset[str]]:
    """The modules that each module imports, anywhere in it."""
    return {module: frozenset(imported_by(module)) - {module} for module in modules()}


def imported_by(module: str) -> Iterator[str]:
    known = modules()
    package = module if is_package(module) else module.rpartition(".")[0]
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            named = (f"{base}.{alias.name}" for alias in node.names)
            yield from (name for name in (name if name in known else base for name in named) if name in known)


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_bytes())


def circle(users: Mapping[str, frozenset[str]]) -> list[str]:
    """One circle among imports, or none."""
    try:
        TopologicalSorter(users).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def room_of(module: str) -> str:
    """The package that a module stands in; a package's own module stands in it."""
    return module if is_package(module) else module.rpartition(".")[0]


def test_no_circle_of_modules() -> None:
    assert circle(imports()) == []


def test_no_circle_through_the_packages_that_hold_them() -> None:
    users: dict[str, frozenset[str]] = {}
    for module, used in imports().items():
        run_before = {package for other in used for package in holders(other) if not module.startswith(package)}
        users[module] = used | run_before
    assert circle(users) == []


def holders(module: str) -> Iterator[str]:
    """The packages that hold a module: their own code runs before it."""
    while module := module.rpartition(".")[0]:
        if module in modules():
            yield module


def test_no_circle_of_rooms() -> None:
    rooms: dict[str, set[str]] = {}
    for module, used in imports().items():
        room = top(module)
        rooms.setdefault(room, set()).update({top(other) for other in used} - {room})
    assert circle({room: frozenset(others) for room, others in rooms.items()}) == []


def top(module: str) -> str:
    """The room on the ground floor of `mplint`, or the module that stands there."""
    return ".".join(module.split(".")[:2])


def test_what_has_one_user_stands_beside_it() -> None:
    users: dict[str, set[str]] = {module: set() for module in modules()}
    for user, used in imports().items():
        for module in used:
            users[module].add(user)
    strays = {
        module: user
        for module, (user, *others) in ((module, sorted(found)) for module, found in users.items() if found)
        if not others and not is_package(module) and room_of(user) != room_of(module)
    }
    assert {m: u for m, u in strays.items() if m not in ENTRANCES} == {}
    assert sorted(ENTRANCES) == sorted(ENTRANCES.keys() & strays.keys()), "some are none any more"


def test_rules_are_found_and_not_imported() -> None:
    found = {m: sorted(used) for m, used in imports().items() if not m.startswith("mplint.rules")}
    assert {m: u for m, used in found.items() if (u := [other for other in used if other.startswith("mplint.rules.")])} == {}


@pytest.mark.parametrize("room", NAMELESS)
def test_only_rules_and_the_engine_know_codes(room: str) -> None:
    named = {
        f"{module}:{node.lineno}"
        for module in modules()
        if module.startswith(f"mplint.{room}.")
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\bMP\d{3}\b", node.value)
    }
    assert named == set()


def test_rewriting_alone_sees_libcst() -> None:
    users = {m for m in modules() if any(name.partition(".")[0] == "libcst" for name in foreign(m))}
    assert {module for module in users if not module.startswith("mplint.rewrite")} == set()


def foreign(module: str) -> Iterator[str]:
    """The dotted names that a module imports."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def test_functions_fit_a_screen() -> None:
    long = {
        f"{module}:{node.lineno} {node.name}": length
        for module in modules()
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (length := (node.end_lineno or 0) - node.lineno) > LONGEST
    }
    assert long == {}
