"""Results that leave autocast: numpy has no bfloat16, and a float32 tensor takes no half under a mask or in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.adopt.execution import Execution
from mplint.adopt.torch.models import Models, is_half
from mplint.findings import Change, Replace, Span
from mplint.program.values import SINGLE, External, Items, Tensor, atoms
from mplint.python.syntax import argument
from mplint.recipes.float32 import float32_tensor

IN_PLACE = frozenset({"index_add_", "index_copy_", "scatter_", "scatter_add_", "masked_scatter_"})
ARRAYS = ("numpy.array", "numpy.asarray")


def float_arrays(execution: Execution) -> Iterator[Change]:
    """Cast what models give under autocast where numpy or the host gets it, and where a mask says which of a float32 tensor it becomes."""
    file = execution.file
    for call in file.syntax.all(ast.Call):
        given: ast.expr | None = None
        match call:
            case ast.Call(func=ast.Attribute(value=value, attr="numpy" | "cpu")):  # on the host, measures are taken of it
                given = value
            case ast.Call(args=[value, *_]) if any(type(atom) is External and atom.name in ARRAYS for atom, _ in execution.callees(call)):
                given = value
        if given is not None and gives_half(execution, given):
            yield float32_tensor(file, root_of(execution, given))
    for statement in file.syntax.all(ast.Assign):
        match statement.targets:
            case [ast.Subscript(value=ast.Name() as kept, slice=index)] if is_mask(execution, index) and not in_model(execution, statement):
                if holds_float32(execution, kept) and gives_half(execution, statement.value):
                    yield float32_tensor(file, root_of(execution, statement.value))


def distributions(execution: Execution) -> Iterator[Change]:
    """Cast what models give under autocast where a distribution is made of it: it samples, takes logarithms and inverts in that dtype."""
    file = execution.file
    for call in file.syntax.all(ast.Call):
        if not any(type(atom) is External and is_distribution(atom.name) for atom, _ in execution.callees(call)):
            continue
        for given in (*call.args, *(keyword.value for keyword in call.keywords)):
            if isinstance(given, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) and gives_half(execution, given):
                yield float32_tensor(file, given)


def is_distribution(name: str) -> bool:
    """Whether a name is that of a distribution of torch."""
    return name.startswith("torch.distributions.") and name.rpartition(".")[2][:1].isupper()


def matching_stores(execution: Execution) -> Iterator[Change]:
    """In models, give what layers compute the dtype of the float32 tensor that it is stored in: in place, nothing is promoted."""
    file = execution.file
    for call in file.syntax.all(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name() as kept, attr=attr), args=[_, *_]) if attr in IN_PLACE:
                given = argument(call, "source" if attr.startswith("index") else "src", 2 if attr != "masked_scatter_" else 1)
                if given is not None:
                    yield from matched(execution, kept, given)
    for statement in file.syntax.all(ast.Assign):
        match statement.targets:
            case [ast.Subscript(value=ast.Name() as kept, slice=index)] if is_mask(execution, index) and in_model(execution, statement):
                yield from matched(execution, kept, statement.value)


def matched(execution: Execution, kept: ast.Name, given: ast.expr) -> Iterator[Change]:
    """The cast of what is stored in a float32 tensor."""
    if not in_model(execution, kept) or not holds_float32(execution, kept) or not gives_half(execution, given):
        return
    if isinstance(given, (ast.Name, ast.Call, ast.Attribute, ast.Subscript)):
        end = execution.file.span(given)
        yield Replace(Span(end.end_line, end.end_column, end.end_line, end.end_column), f".to({kept.id}.dtype)")


def in_model(execution: Execution, node: ast.AST) -> bool:
    """Whether a node stands in a module of torch."""
    owner = execution.file.syntax.enclosing_class(node)
    return owner is not None and Models(execution).is_module_class(owner)


def gives_half(execution: Execution, node: ast.expr) -> bool:
    """Whether an expression may give a tensor in half precision."""
    return any(is_half(atom) for atom in execution.values(node))


def holds_half(execution: Execution, node: ast.expr) -> bool:
    """Whether an expression gives a tensor in half precision, or several of which one is."""
    found = execution.values(node)
    parts = [part for atom in found if type(atom) is Items for item in atom.items for part in atoms(item)]
    return any(is_half(atom) for atom in (*found, *parts))


def holds_float32(execution: Execution, kept: ast.Name) -> bool:
    """Whether a name stands for a tensor that was made in float32."""
    found = [atom for atom in execution.values(kept) if type(atom) is Tensor]
    return bool(found) and all(atom.dtypes == {SINGLE} for atom in found)


def is_mask(execution: Execution, index: ast.expr) -> bool:
    """Whether an index may be a tensor: what is stored there has to have the dtype of what it is stored in."""
    if isinstance(index, (ast.Constant, ast.Slice, ast.Tuple, ast.BinOp)):
        return False
    found = execution.values(index)
    tensors = [atom for atom in found if type(atom) is Tensor]
    if tensors:
        return True
    bound = [execution.file.syntax.parents.get(b.node) for b in execution.file.names.reaching(index)] if isinstance(index, ast.Name) else []
    return not any(isinstance(parent, (ast.For, ast.Tuple, ast.comprehension)) for parent in bound)


def root_of(execution: Execution, node: ast.expr) -> ast.expr:
    """The first part of a chain of methods and attributes that is in half precision: what follows it computes in float32, too."""
    while True:
        match node:
            case ast.Call(func=ast.Attribute(value=value)) | ast.Attribute(value=value) if holds_half(execution, value):
                node = value
            case _:
                return node
