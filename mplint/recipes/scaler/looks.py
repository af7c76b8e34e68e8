"""Where a program looks at its gradients between backward and step, which a scaler has to unscale first."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mplint.configs.trainers.duties import kind_of
from mplint.python.definitions import Definitions
from mplint.python.names import position
from mplint.python.syntax import words_of
from mplint.recipes.scaler.plan import require

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

COLLECTIVE = frozenset({"all_reduce", "all_reduce_coalesced", "reduce", "broadcast", "allreduce", "allreduce_"})
CALLS = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm")


def gradient_looks(file: SourceFile, backwards: Sequence[ast.AST], steps: Sequence[ast.Call]) -> list[ast.expr]:
    """What clips, measures or reads gradients after a scaled backward pass and before a step."""
    return [node for node in looks(file) if is_between(file, node, backwards, steps)]


def looks(file: SourceFile) -> list[ast.expr]:
    """What clips, measures or reads gradients in a file."""
    return [*(call for call in file.syntax.all(ast.Call) if clips_or_measures(file, call)), *gradients_read(file)]


def clips_or_measures(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call clips gradients or takes their norm: a function of torch, or one that is called so and takes no scale."""
    names = file.names.candidates(call.func)
    if any(name.startswith("torch.nn.utils.") and name.rpartition(".")[2] in CALLS for name in names):
        return True
    last = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
    if not says_so(last) or not (call.args or call.keywords) or any("scale" in (k.arg or "scale") for k in call.keywords):
        return False
    if any(words_of(ast.unparse(a)) & {"scale", "scaler"} for a in (*call.args[1:], *(k.value for k in call.keywords))):
        return False
    found = Definitions(file.syntax, file.names)
    helper = found.callee(call)
    if helper is not None:
        attributes = {node.attr for node in ast.walk(helper) if isinstance(node, ast.Attribute)}
        return "grad" in attributes and not attributes & {"unscale_", "get_scale"}
    return not (isinstance(call.func, ast.Attribute) and unscales_itself(file, found, call.func))


def says_so(last: str) -> bool:
    """Whether the name of a function says that it clips gradients or takes their norm."""
    words = words_of(last)
    if not words & {"grad", "grads", "gradient", "gradients"} or last[:1].isupper():
        return False
    return bool(words & {"clip", "clipping", "clamp"} or (words & {"norm", "norms"} and not words & {"set", "zero", "sync", "broadcast"}))


def unscales_itself(file: SourceFile, found: Definitions, method: ast.Attribute) -> bool:
    """Whether what a method is called on is a trainer, or an object of the program's own that nobody sees into."""
    made = [d for d in found.of(method.value) if isinstance(d, ast.Call)]
    if any(kind_of(name) is not None for call in made for name in file.names.candidates(call.func)):
        return True
    return not file.names.candidates(method) and (method.attr != "clip_grad_norm_" or root_of(method) == "self")


def root_of(node: ast.expr) -> str:
    """The name that a dotted expression begins with, "" for anything else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def gradients_read(file: SourceFile) -> list[ast.expr]:
    """Where a file reads `.grad` for more than what scaled gradients are as good for."""
    found = [a for a in file.syntax.all(ast.Attribute) if a.attr == "grad" and isinstance(a.ctx, ast.Load) and not is_autograd(a)]
    return [a for a in found if not is_linear(file, a)]


def is_linear(file: SourceFile, gradient: ast.expr) -> bool:
    """Whether a gradient is only asked for, divided, or summed up over processes, where all have to find the same infinities afterwards."""
    parents = file.syntax.parents
    parent = parents[gradient]
    if isinstance(parent, ast.Attribute) and parent.attr == "data":
        gradient, parent = parent, parents[parent]
    match parent:
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
            return True
        case ast.Attribute(attr="div_" | "mul_" | "zero_"):
            return isinstance(parents[parent], ast.Call)
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return parent.func is not gradient and name in COLLECTIVE
        case ast.BinOp(left=left, op=ast.Div() | ast.Mult()) if left is gradient:
            statement = parents[parent]
            return isinstance(statement, ast.Assign) and [ast.unparse(t) for t in statement.targets] == [ast.unparse(gradient)]
    return False


def is_between(file: SourceFile, node: ast.expr, backwards: Sequence[ast.AST], steps: Sequence[ast.Call]) -> bool:
    """Whether a node stands after a backward pass and before a step of the same function; in a function of its own it can't be told."""
    function = file.syntax.function(node)
    before = [c for c in backwards if file.syntax.function(c) is function]
    after = [c for c in steps if file.syntax.function(c) is function]
    if not before and not after:
        called = function is not None and bool(Definitions(file.syntax, file.names).call_sites.get(function))
        require(not called, "gradients are clipped or read in a function of their own")
        return False
    return all(position(c) < position(node) for c in before[:1]) and all(position(node) < position(c) for c in after[-1:])


def before_its_loops(file: SourceFile, look: ast.stmt, steps: Sequence[ast.Call]) -> ast.stmt:
    """The statement before which to unscale for a look: the outermost loop around it that holds no step, else the look itself."""
    holders = {id(parent) for step in steps for parent in file.syntax.ancestors(step)}
    found = look
    for parent in file.syntax.ancestors(look):
        if id(parent) in holders:
            break
        if isinstance(parent, (ast.For, ast.While)):
            found = parent
    return found


def runs_with(file: SourceFile, look: ast.stmt, step: ast.AST) -> bool:
    """Whether a step follows whenever a look at the gradients runs: unscaling twice before a step is an error."""
    block = file.syntax.block(file.syntax.statement(step))
    around = [look, *(p for p in file.syntax.ancestors(look) if isinstance(p, ast.stmt))]
    here = next((s for s in around if any(s is item for item in block)), None)
    loops = [p for p in around[: around.index(here)] if isinstance(p, (ast.For, ast.While))] if here is not None else []
    return here is not None and position(here) < position(step) and (not loops or look in loops)


def is_after_one_of(file: SourceFile, look: ast.stmt, done: Sequence[ast.stmt]) -> bool:
    """Whether one of the looks that are unscaled already comes before a look on every way to it."""
    above = {id(s) for s in (look, *file.syntax.ancestors(look))}
    return any(id(later) in above for s in done for later in file.syntax.block(s) if position(later) >= position(s))


def is_autograd(node: ast.Attribute) -> bool:
    """Whether `x.grad` is the function of torch.autograd."""
    return ast.unparse(node.value).endswith("autograd")
