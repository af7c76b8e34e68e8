"""Defaults that nothing of a project leaves as they are: every call of a function, or construction of a class, gives its own value."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from mplint.program.lower import IR
from mplint.program.lowered import is_own, last, own_modules, parts, root
from mplint.program.project import Project
from mplint.program.values import Function
from mplint.python.document import is_test_path

MOST_FILES = 60  # of which calls are looked up: where more import a module, its defaults stay as they are
WORDS = 2  # where a lowered module has the words that it mentions


class Calls(NamedTuple):
    """The calls of one name in a project: what each gives by position and by name; None where that can't be told of all."""

    given: tuple[tuple[int, frozenset[str]], ...] | None


def is_replaced(project: Project, function: Function, parameter: str) -> bool:
    """Whether the project calls a function, or makes the class of a constructor, and gives one of its parameters each time."""
    code = function.code
    if function.owner is not None and code.name != "__init__":
        return False
    name = function.owner.name if function.owner is not None else code.name
    calls = calls_of(project, code.path, name).given
    if not calls:
        return False
    names = [parameter[0] for parameter in code.parameters if parameter[1] == "positional"]
    place = names.index(parameter) - (function.owner is not None) if parameter in names else None
    return all(parameter in named or (place is not None and count > place) for count, named in calls)


def calls_of(project: Project, path: str, name: str) -> Calls:
    """The calls by a name of what a file defines, in the file and in those that import it, tests left out."""
    known = project.kept.setdefault("calls by name", {})
    assert isinstance(known, dict)
    if (path, name) not in known:
        known[path, name] = Calls(found_calls(project, path, name))
    found: Calls = known[path, name]
    return found


def found_calls(project: Project, path: str, name: str) -> tuple[tuple[int, frozenset[str]], ...] | None:
    """See `calls_of`."""
    files = [file for file in sorted({path, *project.graph.above([path])}) if not is_test_path(file)]
    if len(files) > MOST_FILES:
        return None
    found: list[tuple[int, frozenset[str]]] = []
    for file in files:
        ir = project.ir(file)
        if ir is None or name not in ir[WORDS]:
            continue
        own, modules = own_names(project, file, ir[1], name), own_modules(project, file, ir[1])
        if file == path:
            own.add(name)
        meant = partial(is_meant, own, modules, name)
        called = 0
        for part in parts(ir[1], "call"):
            positional, named = part[3], part[4]
            if meant(part[2]):
                called += 1
                if any(argument[0] == "star" for argument in positional) or any(key is None for key, _ in named):
                    return None
                found.append((len(positional), frozenset(key for key, _ in named)))
            elif last(part[2]) == "super":
                called += sum(1 for argument in positional if meant(argument))
        if sum(1 for part in parts(ir[1], "name", "attribute") if meant(part)) > called:
            return None  # a base of another class, an entry of a table, an argument: whoever gets it calls it
    return tuple(found)


def own_names(project: Project, path: str, body: object, name: str) -> set[str]:
    """The names by which the imports of a file know a member of one of the project's modules."""
    taken = [pair for part in parts(body, "from") if is_own(project, path, part) for pair in part[4]]
    return {alias or name for known, alias in taken if known in (name, "*")}


def is_meant(own: Collection[str], modules: Collection[str], name: str, ir: IR) -> bool:
    """Whether an expression names a member of one of the project's modules: by one of its `own` names, or as part of a module."""
    return ir[2] in own if ir[0] == "name" else ir[0] == "attribute" and ir[3] == name and root(ir) in modules
