"""Probabilities that a model gives to a loss which wants them in float32: float16 has none between 0.9995 and 1."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.adopt.execution import Execution
from mplint.findings import Change
from mplint.frameworks.torch.tensors import SIGMOID, SIGMOIDS
from mplint.program.values import Atom, External, Object, Place, Tensor
from mplint.recipes.float32 import float32_tensor


def float_sigmoids(execution: Execution) -> Iterator[Change]:
    """Compute in float32 the sigmoids whose results go into a loss of probabilities."""
    for place in dict.fromkeys(places_of(execution)):
        call = execution.node(place)
        given = given_to(execution, call) if isinstance(call, ast.Call) else None
        if given is not None:
            yield float32_tensor(execution.file, given)


def places_of(execution: Execution) -> Iterator[Place]:
    """Where the sigmoids are taken."""
    for _, event in execution.events("loss of probabilities"):
        tensor = event.data["tensor"]
        for tag in sorted(tensor.tags) if type(tensor) is Tensor else ():
            if tag.startswith(SIGMOID):
                path, _, number = tag.removeprefix(SIGMOID).rpartition(":")
                yield Place(path, int(number))


def given_to(execution: Execution, call: ast.Call) -> ast.expr | None:
    """The argument of a sigmoid, where it can be cast and is not; None for a call of what ends with one."""
    match call:
        case ast.Call(func=ast.Attribute(value=value, attr="sigmoid" | "sigmoid_"), args=[]):
            given = value
        case ast.Call(args=[value]) if any(called(atom, name).endswith(ENDS) for atom, name in execution.callees(call)):
            given = value
        case _:
            return None
    plain = isinstance(given, (ast.Name, ast.Call, ast.Attribute, ast.Subscript))
    cast = isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "float"
    return given if plain and not cast else None


ENDS = tuple(f".{name}" for name in SIGMOIDS)


def called(atom: Atom, method: str) -> str:
    """The dotted name of what a call calls, "" where it has none."""
    if type(atom) is External:
        return f"{atom.name}.{method}" if method else atom.name
    return atom.type if type(atom) is Object and isinstance(atom.type, str) else ""
