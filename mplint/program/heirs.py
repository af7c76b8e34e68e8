"""Classes that replace a step of what their bases do: the methods of the bases that run the steps in their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mplint.program.expressions import ancestors
from mplint.program.lower import IR
from mplint.program.machine import Machine
from mplint.program.values import Class, Function, atoms


def drivers(m: Machine, cls: Class, statement: IR, relevant: Callable[[frozenset[str]], bool]) -> list[Function]:
    """The inherited methods that call a step which a class replaces, where one of them or the step is relevant: the outermost ones."""
    own = {s[2][2] for s in statement[6] if s[0] == "define" and not s[2][2].startswith("__")}
    members = inherited_methods(m, cls)
    replaced = own & members.keys()
    stepping = {name for name in replaced if relevant(members[name].code.words)}
    left = {name: f for name, f in members.items() if name not in own and not name.startswith("__")}
    found = {
        name: f
        for name, f in left.items()
        if not stepping.isdisjoint(f.code.words) or (relevant(f.code.words) and not replaced.isdisjoint(f.code.words))
    }
    while more := {n: f for n, f in left.items() if n not in found and any(name in f.code.words for name in found)}:
        found.update(more)
    return [f for name, f in found.items() if not any(name in other.code.words for other in found.values() if other is not f)]


def inherited_methods(m: Machine, cls: Class) -> Mapping[str, Function]:
    """The methods of the project that a class inherits or replaces, by their names."""
    found: dict[str, Function] = {}
    for base in ancestors(m, cls):
        if type(base) is Class and base is not cls:
            for name, value in m.store.slots.of(base.id):
                function = next((a for a in atoms(value) if type(a) is Function), None) if name not in found else None
                if function is not None:
                    found[name] = function
    return found
