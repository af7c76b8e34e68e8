"""Parts of lowered code, and what the names that its calls begin with are bound to."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mplint.program.lower import IR
from mplint.program.project import Project

SPACES = frozenset({"globals", "locals", "eval"})  # what gives the names of a module to whoever asks for them by name


def parts(ir: object, *kinds: str) -> Iterator[IR]:
    """The statements and expressions of lowered code that are of some kinds."""
    stack = [ir]
    while stack:
        part = stack.pop()
        if isinstance(part, tuple):
            if part and part[0] in kinds and len(part) > 2 and isinstance(part[1], int):
                yield part
            stack += part


def last(ir: IR) -> str:
    """The last name of a dotted one; "" for anything else."""
    return str(ir[-1]) if ir[0] in ("name", "attribute") else ""


def root(ir: IR) -> str:
    """The first name of a dotted one; "" for anything else."""
    while ir[0] == "attribute":
        ir = ir[2]
    return str(ir[2]) if ir[0] == "name" else ""


def imported_names(body: object) -> frozenset[str]:
    """The names that the imports of a module bind."""
    found = {own or name.partition(".")[0] for part in parts(body, "import") for name, own in part[2]}
    found.update(own or name for part in parts(body, "from") for name, own in part[4])
    return frozenset(found)


def own_modules(project: Project, path: str, body: object) -> frozenset[str]:
    """The names by which the imports of a file bind modules of the project, or members of these."""
    given = [(name, own) for part in parts(body, "import") for name, own in part[2]]
    found = {own or name.partition(".")[0] for name, own in given if project.absolute(path, name) is not None}
    found.update(own or name for part in parts(body, "from") if is_own(project, path, part) for name, own in part[4])
    return frozenset(found)


def is_own(project: Project, path: str, statement: IR) -> bool:
    """Whether `from … import …` in a file takes names from a module of the project."""
    return statement[3] > 0 or project.absolute(path, statement[2]) is not None


def takes_by_name(ir: IR, bound: Collection[str]) -> bool:
    """Whether a lowered module takes members of other modules, `bound` to these names, or its own, by names that it works out."""
    words = ir[2]
    if any(f"getattr({name}," in words for name in bound):
        return True
    if "__dict__" in words and any(part[3] == "__dict__" and last(part[2]) in bound for part in parts(ir[1], "attribute")):
        return True
    return not SPACES.isdisjoint(words) and any(part[2][0] == "name" and part[2][2] in SPACES for part in parts(ir[1], "call"))
