"""What a custom Keras loop does to gradients while they are multiplied by the loss scale, that does not grow with the scale."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mplint.python.names import position
from mplint.recipes.clip_in_optimizer import CLIPS, last_name
from mplint.source.keras.loop import KerasLoop
from mplint.source.torch.modifications import NAN, NOISE, PENALTY, SCALES, THRESHOLD
from mplint.source.torch.scaler import words_of

if TYPE_CHECKING:
    from mplint.source.file import SourceFile
    from mplint.source.keras.loop import Update

RANDOM = frozenset(
    {"normal", "uniform", "truncated_normal", "stateless_normal", "stateless_uniform", "random_normal", "random_uniform", "randn"}
)
FINITE = frozenset({"is_nan", "is_inf", "is_finite", "isnan", "isinf", "isfinite", "nan_to_num", "multiply_no_nan"})


class Modified(NamedTuple):
    """One change of scaled gradients: its kind, where it is, and the calls that scaled the loss and that unscale (or apply) them."""

    kind: str
    node: ast.AST
    scaled: ast.AST
    unscaled: ast.AST


def modified_gradients(file: SourceFile) -> Iterator[Modified]:
    """Each change between the computation of scaled gradients and the call that unscales them, in one function."""
    seen: set[ast.AST] = set()
    for update in file.fact(KerasLoop).updates:
        if update.by_hand or update.scales_itself or update.optimizer.certainly_plain or not update.scaled:
            continue
        for way in update.ways:
            if not way.scales or len(way.gradients) != 1 or any(s.node in {late.node for late in way.late} for s in way.scales):
                continue
            if not way.unscales and "get_scaled_loss" in ast.unparse(way.scales[0].node):
                continue  # never unscaled at all: that is the mistake
            if not way.unscales and any(s.subject == "get_scaled_loss" for s in way.scales):
                continue  # never unscaled, which is a mistake of its own
            end = way.unscales[0].node if way.unscales else update.node
            for kind, node in changes_between(file, update, way.gradients[0].node, end):
                if node not in seen:
                    seen.add(node)
                    yield Modified(kind, node, way.scales[0].node, end)


def changes_between(file: SourceFile, update: Update, gradient: ast.AST, end: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The changes of what `gradient` gives before `end`."""
    start, last = file.syntax.statement(gradient), file.syntax.statement(end)
    if file.syntax.function(start) is not file.syntax.function(last):
        return
    names = assigned(start)
    for statement in between(file, start, last):
        held = names | elements(statement, names)
        if not held & {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}:
            continue
        if not {word for n in ast.walk(statement) for word in words_of(name_of(n))} & SCALES:
            found = change(statement, held)
            if found is not None:
                yield found
        names |= assigned(statement)


def elements(statement: ast.stmt, gradients: set[str]) -> set[str]:
    """The names that stand for one gradient in the comprehensions of a statement."""
    found = set()
    for item in ast.walk(statement):
        match item:
            case ast.comprehension(target=ast.Name(id=name), iter=ast.Name(id=source)) if source in gradients:
                found.add(name)
            case ast.comprehension(target=ast.Tuple(elts=targets), iter=ast.Call(func=ast.Name(id="zip"), args=sources)):
                pairs = zip(targets, sources, strict=False)
                found |= {t.id for t, s in pairs if isinstance(t, ast.Name) and isinstance(s, ast.Name) and s.id in gradients}
    return found


def change(statement: ast.stmt, held: set[str]) -> tuple[str, ast.AST] | None:
    """What a statement does to gradients: clips them, adds to them, or removes what is not finite."""
    for node in ast.walk(statement):
        match node:
            case ast.Call(func=func, args=[given, *_]) if last_name(func) in CLIPS and reads(given, held):
                return THRESHOLD, node
            case ast.Call(func=func, args=[given, *_]) if last_name(func) in FINITE and reads(given, held):
                return NAN, node
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                for gradient, added in ((left, right), (right, left)):
                    if isinstance(gradient, ast.Name) and gradient.id in held and not reads(added, held, values=True):
                        kind = addition(statement, added)
                        if kind is not None:
                            return kind, node
    return None


def addition(statement: ast.stmt, added: ast.expr) -> str | None:
    """What is added to gradients: noise, or a multiple of the variables that are zipped with them."""
    calls = {last_name(n.func) for n in ast.walk(added) if isinstance(n, ast.Call)}
    if calls & RANDOM:
        return NOISE
    variables = set()
    for item in ast.walk(statement):
        match item:
            case ast.comprehension(target=ast.Tuple(elts=[_, ast.Name(id=name)]), iter=ast.Call(func=ast.Name(id="zip"), args=[_, source])):
                if any(word in ast.unparse(source) for word in ("variables", "weights", "params")):
                    variables.add(name)
    return PENALTY if reads(added, variables) else None


def reads(node: ast.AST, names: set[str], values: bool = False) -> bool:
    """Whether an expression reads one of the names; with `values` not only for its shape."""
    if (
        values
        and isinstance(node, ast.Call)
        and (last_name(node.func) in ("shape", "zeros_like", "ones_like") or last_name(node.func) in RANDOM)
    ):
        return False
    if values and isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype"):
        return False
    if isinstance(node, ast.Name) and node.id in names:
        return True
    return any(reads(child, names, values) for child in ast.iter_child_nodes(node))


def name_of(node: ast.AST) -> str:
    """The last identifier of a node, "" for anything but a name or an attribute."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def between(file: SourceFile, start: ast.stmt, end: ast.stmt) -> list[ast.stmt]:
    """The simple statements of a function after one and before another."""
    function = file.syntax.function(start)
    kinds = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)
    around = [s for s in file.syntax.all(*kinds) if file.syntax.function(s) is function]
    return sorted((s for s in around if position(start) < position(s) < position(end)), key=position)


def assigned(statement: ast.stmt) -> set[str]:
    """The names that a statement binds."""
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
