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
    if home is None:
        return  # a name of the module
    waiting = [file.syntax.function(place) for place in places]
    done: set[Function] = set()
    found = Definitions(file.syntax, file.names)
    while waiting:
        function = waiting.pop()
        if function is None:
            raise NoFix("the scaler is needed outside the function that would build it")
        if function in done or function is home or any(p is home for p in file.syntax.ancestors(function)):
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
