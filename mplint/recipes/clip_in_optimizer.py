"""Clipping in a loop whose gradients stay scaled until they are applied (Keras 3): the optimizer itself has to clip, after it unscales."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from mplint.findings import Change, RemoveStatement, Replace
from mplint.python.names import position
from mplint.python.syntax import argument

if TYPE_CHECKING:
    from mplint.program.event import Event
    from mplint.program.trace import Trace
    from mplint.python.file import SourceFile

# What may be done to gradients whatever their scale (last part of the operation's name).
LINEAR = frozenset({"zeros_like", "add_n", "add", "reduce_mean", "reduce_sum", "cast", "convert_to_tensor", "identity", "stack", "concat"})
CLIPS = {"clip_by_global_norm": "global_clipnorm", "clip_by_norm": "clipnorm", "clip_by_value": "clipvalue"}


class Clipping(NamedTuple):
    """The option of the optimizer that stands for a clipping ("" where there is none), and the changes that take the old one away."""

    option: str
    changes: tuple[Change, ...]


def clipping_by_optimizer(trace: Trace, file: SourceFile, changes: list[Event], optimizer: ast.Call, receiver: ast.expr) -> Clipping | None:
    """What is done to gradients, as an option of the optimizer, or by a threshold that it scales; None where it is anything but clipping.

    `receiver`: the optimizer, where it applies the gradients.
    """
    found = Clipping("", ())
    for event in changes:
        if event.kind == "operation" and str(event.data["name"]).rpartition(".")[2] in LINEAR:
            continue
        held = trace.node(event.place) if event.kind == "keras gradients clipped" and not found.option else None
        if held is None or held[0] is not file or not isinstance(held[1], ast.Call):
            return None
        clip = clipping(file, file.syntax.statement(held[1]), optimizer) if not found.changes else None
        clip = clip or scaled_clipping(file, held[1], receiver)
        if clip is None:
            return None
        found = Clipping(clip.option, found.changes + clip.changes)
    return found


def scaled_clipping(file: SourceFile, call: ast.Call, receiver: ast.expr) -> Clipping | None:
    """A clipping whose thresholds the optimizer scales as it does the loss; None where the norm is read that it gives as well."""
    limits = thresholds(call)
    statement = file.syntax.statement(call)
    if not limits or file.syntax.function(call) is not file.syntax.function(receiver):
        return None
    if last_name(call.func) == "clip_by_global_norm":
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=[_, ast.Name(id=norm)])]) if norm not in reads(file):
                pass
            case ast.Assign(value=ast.Subscript(slice=ast.Constant(value=0))):
                pass
            case _:
                return None
    scale = f"{file.text(receiver)}.scale_loss"
    return Clipping("", tuple(Replace(file.span(limit), f"{scale}({file.text(limit)})") for limit in limits))


LIMITS = {"clip_by_value": (("clip_value_min", 1), ("clip_value_max", 2))}


def thresholds(call: ast.Call) -> list[ast.expr]:
    """What a clipping clips at; nothing where that is not plain to see."""
    kind = last_name(call.func)
    limits = [argument(call, name, at) for name, at in LIMITS.get(kind, (("clip_norm", 1),))] if kind in CLIPS else []
    given = [limit for limit in limits if limit is not None]
    return given if len(given) == len(limits) else []


def reads(file: SourceFile) -> set[str]:
    """The names that a program reads anywhere."""
    return {n.id for n in file.syntax.all(ast.Name) if isinstance(n.ctx, ast.Load)}


def clipping(file: SourceFile, statement: ast.stmt, optimizer: ast.Call) -> Clipping | None:
    """The clipping that a statement does as a whole, where its threshold is known where the optimizer is built."""
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=target), ast.Name(id=norm)])], value=ast.Call() as call):
            used = [n for n in file.syntax.all(ast.Name) if n.id == norm and isinstance(n.ctx, ast.Load)]
            if used or last_name(call.func) != "clip_by_global_norm":
                return None
        case ast.Assign(targets=[ast.Name(id=target)], value=ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=0))):
            if last_name(call.func) != "clip_by_global_norm":
                return None
        case ast.Assign(targets=[ast.Name(id=target)], value=ast.ListComp(elt=ast.Call() as call, generators=[generator])):
            if generator.ifs or last_name(call.func) not in ("clip_by_norm", "clip_by_value"):
                return None
        case _:
            return None
    threshold = threshold_of(call)
    if threshold is None or not is_known(file, threshold, optimizer) or any("clip" in (k.arg or "") for k in optimizer.keywords):
        return None
    source = statement.value.generators[0].iter if isinstance(statement.value, ast.ListComp) else call.args[0]
    if not isinstance(source, ast.Name):
        return None
    span = file.span(statement)
    change: Change = RemoveStatement(span) if source.id == target else Replace(span, f"{target} = {source.id}")
    return Clipping(f"{CLIPS[last_name(call.func)]}={ast.unparse(threshold)}", (change,))


def threshold_of(call: ast.Call) -> ast.expr | None:
    """The threshold of a clipping: of values only where they are clipped to -c and c."""
    match call.args:
        case [_, threshold] if not call.keywords and last_name(call.func) != "clip_by_value":
            return threshold
        case [_, ast.UnaryOp(op=ast.USub(), operand=low), high] if not call.keywords and ast.unparse(low) == ast.unparse(high):
            return high
    return None


def is_known(file: SourceFile, threshold: ast.expr, optimizer: ast.Call) -> bool:
    """Whether a threshold means the same where the optimizer is built: a number, or a constant of the module."""
    if isinstance(threshold, ast.Constant):
        return True
    if not isinstance(threshold, ast.Name):
        return False
    scope, bindings = file.names.lookup(threshold)
    return scope is file.syntax.tree and len(bindings) == 1 and position(bindings[0].node) < position(optimizer)


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name, "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
