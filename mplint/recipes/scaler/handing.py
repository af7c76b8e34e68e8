"""How a scaler gets to the functions that need it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mplint.findings import Change
from mplint.python.arguments import set_keyword
from mplint.python.definitions import Definitions
from mplint.python.names import position
from mplint.python.syntax import Function, has_star
from mplint.recipes.scaler.checkpoint import beside
from mplint.recipes.scaler.plan import NoFix, require

if TYPE_CHECKING:
    from mplint.python.file import SourceFile


def handed_on(file: SourceFile, built: ast.AST, scaler: str, places: Iterable[ast.AST]) -> Iterator[Change]:
    """Hand a scaler that is built where `built` stands to the functions that need it at `places`, through all their callers."""
    if scaler.startswith("self."):
        owner = file.syntax.enclosing_class(built)
        known = Definitions(file.syntax, file.names)
        reached = owner is not None and all(owner in known.classes(place) for place in places)
        require(reached, "the scaler is needed outside the class that would hold it")
        return
    home = file.syntax.function(built)
    if home is None and not is_for_scripts(file, built):
        return  # a name of the module
    try:
        yield from list(through_callers(file, built, home, scaler, places))
    except NoFix:
        if home is not None:
            raise


def is_for_scripts(file: SourceFile, built: ast.AST) -> bool:
    """Whether a statement stands in `if __name__ == "__main__":`, which does not run where the file is imported."""
    tests = [parent.test for parent in file.syntax.ancestors(built) if isinstance(parent, ast.If)]
    return any("__name__" in ast.unparse(test) for test in tests)


def through_callers(file: SourceFile, built: ast.AST, home: Function | None, scaler: str, places: Iterable[ast.AST]) -> Iterator[Change]:
    """The parameters, and what callers give for them, up to the function (or the module) that builds the scaler."""
    waiting = [file.syntax.function(place) for place in places]
    done: set[Function] = set()
    found = Definitions(file.syntax, file.names)
    while waiting:
        function = waiting.pop()
        if function is home:
            continue
        if function is None:
            raise NoFix("the scaler is needed outside the function that would build it")
        if function in done or (home is not None and any(p is home for p in file.syntax.ancestors(function))):
            continue
        done.add(function)
        yield parameter(file, function, scaler)
        sites = found.call_sites.get(function, [])
        require(bool(sites), f"`{function.name}`, which needs the scaler, is called from another file")
        for call in sites:
            caller = file.syntax.function(call)
            if caller is home:
                require(position(call) > position(built), f"`{function.name}` is called before the scaler can be built")
            require(not has_star(call), f"it is not clear what `{function.name}` is called with")
            yield set_keyword(file, call, scaler, scaler)
            waiting.append(caller)


def parameter(file: SourceFile, function: Function, name: str) -> Change:
    """One more parameter for a function, behind those that it has."""
    spec = function.args
    simple = bool(spec.args) and not (spec.vararg or spec.kwarg or spec.kwonlyargs or function.decorator_list)
    require(simple, f"`{function.name}` needs the scaler as a parameter")
    return beside(file, spec.args[-1], spec.defaults[-1] if spec.defaults else spec.args[-1], f"{name}{'=None' if spec.defaults else ''}")
