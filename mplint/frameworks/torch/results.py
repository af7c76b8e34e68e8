"""How many results a call is unpacked into, and which classes of those that a program chooses by name give as many."""

from __future__ import annotations

from mplint.frameworks.torch.candidates import Candidates, Shape
from mplint.program.entries import definitions
from mplint.program.lower import IR
from mplint.program.lowered import parts
from mplint.program.project import Project
from mplint.program.values import Place

REDUCTIONS = frozenset({"mean", "sum", "cross_entropy", "mse_loss", "l1_loss", "nll_loss", "kl_div"})
LEVELS = 6  # of names that stand for what other names stand for


def unpacked(project: Project | None, place: Place) -> int:
    """How many names take the results of the call at a place, or 0 where that is not to be seen."""
    ir = project.ir(place.path) if project is not None else None
    for statement in parts(ir[1], "assign") if ir is not None else ():
        if statement[3][:2] == ("call", place.position) and len(statement[2]) == 1 and statement[2][0][0] == "tuple":
            names = statement[2][0][2]
            return 0 if any(name[0] == "star" for name in names) else len(names)
    return 0


def is_excluded(candidates: Candidates, calls: set[tuple[Shape, int]], path: str, cls: IR) -> bool:
    """Whether a call takes another class that stands beside a class and not this one, by the number of its results.

    Only for a class that nobody speaks of but by its name at run time: a part of another class gives its results to that.
    """
    step = forward_of(cls)
    fitting = [(shape, count) for shape, count in calls if count > 1 and not shape.member and step is not None and shape.fits(step[3])]
    if step is None or not fitting or is_mentioned(candidates, path, cls):
        return False
    ir = candidates.project.ir(path)
    others = [other for other in definitions(ir[1]) if other[0] == "class" and other is not cls] if ir is not None else []
    for shape, count in fitting:
        beside = [(other, own) for other in others if (own := forward_of(other)) is not None and shape.fits(own[3])]
        if one_result(cls, step) and any(gives(own, count) for _, own in beside):
            return True
    return False


def forward_of(cls: IR) -> IR | None:
    """The forward method that a class has itself."""
    return next((s[2] for s in cls[6] if s[0] == "define" and s[2][2] == "forward"), None)


def gives(step: IR, count: int) -> bool:
    """Whether a method returns as many results."""
    found = [value[2] for value in parts(step[4], "return") if value[2] is not None and value[2][0] == "tuple"]
    return any(len(value[2]) == count and all(part[0] != "star" for part in value[2]) for value in found)


def one_result(cls: IR, step: IR) -> bool:
    """Whether a method of a class returns one number each time: arithmetic, a mean or sum, or what a loss of torch gives."""
    losses = {
        target[3]
        for statement in parts(cls[6], "assign")
        for target in statement[2]
        if target[0] == "attribute" and statement[3][0] == "call" and is_loss(statement[3][2])
    }
    returned = [value[2] for value in parts(step[4], "return")]
    return bool(returned) and all(value is not None and is_one(value, step, losses, LEVELS) for value in returned)


def is_loss(callee: IR) -> bool:
    """Whether what is called is a class of torch.nn for a loss."""
    return callee[0] == "attribute" and callee[3].endswith("Loss") and head_of(callee) in ("nn", "torch")


def is_one(value: IR, step: IR, losses: set[str], left: int) -> bool:
    """Whether an expression in a method is one number or tensor, as losses are."""
    if value[0] in ("binary", "unary"):
        return True
    if value[0] == "conditional":
        return all(is_one(way, step, losses, left) for way in value[3:])
    if value[0] == "call":
        callee = value[2]
        member = callee[3] if callee[0] == "attribute" else ""
        own = callee[0] == "attribute" and callee[2][0] == "name" and callee[2][2] == "self"
        made = callee[0] == "call" and is_loss(callee[2])
        return made or (member in losses if own else member in REDUCTIONS or member.startswith("binary_cross_entropy"))
    if value[0] != "name" or not left:
        return False
    assigned = [(s[3], s[2]) for s in parts(step[4], "assign") if any(value[2] in names_of(target) for target in s[2])]
    return bool(assigned) and all(
        len(targets) == 1 and targets[0][0] == "name" and is_one(given, step, losses, left - 1) for given, targets in assigned
    )


def head_of(node: IR) -> str:
    """The name that a dotted name begins with, or ""."""
    while node[0] == "attribute":
        node = node[2]
    return str(node[2]) if node[0] == "name" else ""


def names_of(target: IR) -> set[str]:
    """The names that a target binds."""
    return {name[2] for name in parts(target, "name")}


def is_mentioned(candidates: Candidates, path: str, cls: IR) -> bool:
    """Whether some code speaks of a class outside its own body, in an import's list or a text alone left aside."""
    name = cls[2]
    for user in candidates.project.paths:
        ir = candidates.project.ir(user)
        if ir is None or name not in ir[2]:
            continue
        own = set(map(id, parts(cls, "name", "attribute"))) if user == path else set()
        bound = candidates.bound_at(user)
        for part in parts(ir[1], "name", "attribute"):
            if id(part) in own:
                continue
            if part[0] == "name" and part[2] == name:
                return True
            if part[0] == "attribute" and part[3] == name and bound.get(head_of(part)) != frozenset():
                return True
    return False
