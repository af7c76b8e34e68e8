"""What modules share: the objects that others get hold of by importing them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from mplint.program.imported import IMPORTERS, RUN
from mplint.program.machine import MAIN, Machine
from mplint.program.store import settled
from mplint.program.values import (
    Class,
    Constant,
    Entries,
    Function,
    Items,
    Method,
    Object,
    Partial,
    Scope,
    Unknown,
    Value,
    Wrapped,
    atoms,
)


def is_shared(m: Machine, table: Object, home: str) -> bool:
    """Whether modules that import a file may add to a table that was made there: whether a module holds it, itself or further down.

    What a running program has made for itself nobody gets hold of by an import.
    """
    slots = m.store.slots
    if slots.peek((home, IMPORTERS)) is not None or not m.project.importers(home):
        return True  # nothing is left to be done
    if table.id in m.private:
        return False
    modules = {owner: settled(slots.peek((owner, RUN))) for owner in slots.owners() if type(owner) is str}
    held = [owner for owner, run in modules.items() if owner == home or (run is not None and run != MAIN)]
    if reaches(m, held, table.id):
        return True
    m.private.add(table.id)
    return False


def reaches(m: Machine, owners: Iterable[Hashable], target: Hashable) -> bool:
    """Whether what some owners hold leads to another one."""
    slots = m.store.slots
    seen: set[Hashable] = set(owners)
    stack: list[tuple[Hashable, Iterable[str]]] = [(owner, slots.names_of(owner)) for owner in seen]
    while stack:
        holder, names = stack.pop()
        values = [settled(slots.peek((holder, name))) for name in names]
        while values:
            value = values.pop()
            for atom in atoms(value) if value is not None else ():
                kind = type(atom)
                if kind is Object or kind is Class or kind is Unknown:
                    owner: Hashable = atom if kind is Unknown else atom.id  # type: ignore[union-attr]
                    if owner == target:
                        return True
                    if owner not in seen:
                        seen.add(owner)
                        stack.append((owner, slots.names_of(owner)))
                elif kind is Function:
                    values.append(atom.bound)  # type: ignore[union-attr]
                    for scope in scopes_around(atom):  # type: ignore[arg-type]
                        if scope.id not in seen:
                            seen.add(scope.id)
                            stack.append((scope.id, scope.locals or ()))
                elif kind is not Constant:
                    values += parts(atom)
    return False


def parts(atom: Value) -> tuple[Value | None, ...]:
    """The values that an atom holds itself."""
    match atom:
        case Items(items, rest):
            return (*items, rest)
        case Entries(entries, rest):
            return (*(value for _, value in entries), rest)
        case Method(receiver, _):
            return (receiver,)
        case Partial(callee, positional, named):
            return (callee, *positional, *(value for _, value in named))
        case Wrapped(callee, context, _):
            return (callee, context)
    return ()


def scopes_around(function: Function) -> Iterator[Scope]:
    """The calls of functions around a function, whose variables it may read."""
    scope: Scope | None = function.frame
    while scope is not None:
        if type(scope.id) is int:
            yield scope
        scope = scope.parent
