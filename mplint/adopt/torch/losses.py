"""Losses that half precision harms: they are computed in float32, from outputs that are cast for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from mplint.adopt.torch.models import Models
from mplint.findings import Change, InsertStatements
from mplint.frameworks.torch.tensors import BANNED
from mplint.program.values import BFLOAT, BOOLEAN, HALF, INTEGER, SINGLE, Items, Object, Tensor, Unknown, atoms
from mplint.python.file import SourceFile
from mplint.python.syntax import FUNCTIONS, walk_expressions
from mplint.recipes.float32 import float32_tensor
from mplint.recipes.scaler.plan import NoFix

# What overflows or loses its argument in half precision where autocast leaves it there, as it does on the CPU.
RAW = frozenset({"exp", "log", "log1p", "log2", "log10", "expm1", "exp_", "log_"})
SPECTRA = frozenset({"stft", "istft"})
INTEGERS = frozenset({
    "argmax", "argmin", "long", "int", "bool", "item", "tolist", "size", "eq", "ne", "gt", "lt", "ge", "le", "topk", "numel"
})  # fmt: skip
SHAPES = frozenset({"shape", "device", "dtype", "ndim", "is_cuda", "requires_grad", "type"})


def is_fragile(models: Models, node: ast.AST) -> bool:
    """Whether exponentials or logarithms are taken by hand, a loss that autocast refuses, or products of a tensor with itself."""
    return any(work.name in RAW or work.name in BANNED for work in models.execution.work(node)) or squares(models, node)


def is_banned(models: Models, node: ast.AST) -> bool:
    """Whether a loss that autocast refuses is taken."""
    return any(work.name in BANNED for work in models.execution.work(node))


def is_spectral(models: Models, node: ast.AST) -> bool:
    """Whether spectra are computed outside of every model: their powers exceed what float16 holds, and its epsilons vanish there."""
    return not models.runs_model(node) and any(work.name in SPECTRA for work in models.execution.work(node))


def squares(models: Models, node: ast.AST) -> bool:
    """Whether a tensor is multiplied with its own transpose outside of every model: a sum over all positions, beyond what float16 holds."""
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
        for file, function in models.execution.definitions(call):
            inside = file.syntax.enclosing_class(function) is not None
            if not inside and any(is_square(file, n) for n in ast.walk(function)):
                return True
    return any(is_square(models.file, n) for n in ast.walk(node))


def is_square(file: SourceFile, node: ast.AST) -> bool:
    """Whether an expression multiplies a tensor with its own transpose."""
    match node:
        case ast.BinOp(op=ast.MatMult(), left=left, right=right):
            pass
        case ast.Call(func=ast.Attribute(attr="bmm" | "mm" | "matmul"), args=[left, right]):
            pass
        case ast.Call(func=ast.Attribute(attr="bmm" | "mm" | "matmul", value=left), args=[right]):
            pass
        case _:
            return False
    names = [root_of(file, side) for side in (left, right)]
    return names[0] is not None and names[0] == names[1] and ast.unparse(left) != ast.unparse(right)


TRANSPOSES = frozenset({"transpose", "t", "permute", "T", "mT"})


def root_of(file: SourceFile, node: ast.expr) -> str | None:
    """The name of the tensor that an expression is, or is a transpose of."""
    for _ in range(3):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) | ast.Attribute(value=value, attr=attr) if attr in TRANSPOSES:
                node = value
            case ast.Name() as name:
                match [b.value for b in file.names.reaching(name)]:
                    case [ast.Call(func=ast.Attribute(attr=attr)) as made] if attr in TRANSPOSES:
                        node = made
                    case _:
                        return name.id
            case _:
                return None
    return None


def casts(models: Models, inside: Sequence[ast.stmt], outside: Sequence[ast.stmt], once: frozenset[str] = frozenset()) -> Iterator[Change]:
    """Cast what statements outside autocast read of the results of those inside; NoFix where it is not clear what those are.

    `once`: names that are cast in a statement of their own, since gradients are taken of them: each has to stay one tensor.
    """
    file = models.file
    results: set[str] = set()
    for statement in inside:
        results |= set(computed(models, statement, results))
    for statement in outside:
        results |= {part for node in ast.walk(statement) if isinstance(node, ast.For) for part in _parts(node, results)}
        targets: set[str] = set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id in results and isinstance(node.ctx, ast.Load) and not _is_iterated(file, node):
                tensor = tensor_at(file, node)
                if tensor is node and node.id in once:
                    results.discard(node.id)
                    if may_be_cast(models, node):
                        yield InsertStatements(file.span(statement), (f"{node.id} = {node.id}.float()",))
                elif tensor is node and (parts := parts_of(models, node)) and (top := beside_last(file, inside, statement)) is not None:
                    results.discard(node.id)
                    part = "part.float()" if parts == "floats" else "part.float() if part.is_floating_point() else part"
                    yield InsertStatements(file.span(top), (f"{node.id} = tuple({part} for part in {node.id})",))
                elif tensor is node and (keys := entries_read(models, node, statement)):
                    lines = [f"{node.id}[{key!r}] = {node.id}[{key!r}].float()".replace("'", '"') for key in sorted(keys)]
                    yield InsertStatements(file.span(statement), tuple(lines))
                elif tensor is not None and may_be_cast(models, tensor):
                    yield float32_tensor(file, tensor)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                targets.add(node.id)
        results -= targets


def may_be_cast(models: Models, node: ast.expr) -> bool:
    """Whether an expression gives a tensor of floats, as far as anyone knows; NoFix where it gives several together."""
    found = models.execution.values(node)
    if any((type(a) is Object and a.kind in ("dict", "list", "instance")) or type(a) is Items for a in found):
        raise NoFix(f"the loss has to be computed in float32 from each part of `{models.file.text(node)}`: cast them with `.float()`")
    if any(is_mapping(models, node, call) for call in ast.walk(models.file.syntax.statement(node)) if isinstance(call, ast.Call)):
        raise NoFix(f"the loss has to be computed in float32 from each part of `{models.file.text(node)}`: cast them with `.float()`")
    return not found or any(type(a) is Unknown or (type(a) is Tensor and not a.dtypes <= NUMBERS) for a in found)


def parts_of(models: Models, node: ast.Name) -> str:
    """What a name stands for if that is a tuple of tensors: "floats", or "tensors" where some may be none; "" for anything else."""
    found = models.execution.values(node)
    held = [part for atom in found if type(atom) is Items for item in atom.items for part in atoms(item)]
    if not held or any(type(atom) is not Items for atom in found) or any(type(part) is not Tensor for part in held):
        return ""
    return "floats" if all(part.dtypes <= FLOATS for part in held) else "tensors"  # type: ignore[union-attr]


def beside_last(file: SourceFile, inside: Sequence[ast.stmt], statement: ast.stmt) -> ast.stmt | None:
    """The statement of the block of some statements in which another one stands that follows them."""
    block = file.syntax.block(inside[-1])
    around = [statement, *(parent for parent in file.syntax.ancestors(statement) if isinstance(parent, ast.stmt))]
    return next((s for s in around if any(s is item for item in block)), None)


def entries_read(models: Models, node: ast.Name, statement: ast.stmt) -> set[str]:
    """The entries that a statement reads of what nobody knows by handing it to functions that do nothing else with it; else none."""
    found: set[str] = set()
    if any(type(atom) is not Unknown for atom in models.execution.values(node)):
        return found
    for call in ast.walk(statement):
        if isinstance(call, ast.Call) and node in call.args:
            for code in models.execution.codes(call):
                number = call.args.index(node) + (1 if code.parameters[:1] and code.parameters[0][0] in ("self", "cls") else 0)
                name = code.parameters[number][0] if number < len(code.parameters) else ""
                keys = list(keys_in(code.body, name)) if name else []
                if not keys or len(keys) != count(code.body, name):
                    return set()
                found |= set(keys)
    return found


def keys_in(ir: object, name: str) -> Iterator[str]:
    """The names by which lowered code reads entries of a variable."""
    if isinstance(ir, tuple):
        match ir:
            case ("subscript", _, ("name", _, str(read)), ("constant", _, str(key))) if read == name:
                yield key
            case _:
                for part in ir:
                    yield from keys_in(part, name)


def count(ir: object, name: str) -> int:
    """How often lowered code reads a variable."""
    if not isinstance(ir, tuple):
        return 0
    own = 1 if len(ir) >= 3 and ir[0] == "name" and ir[2] == name else 0
    return own + sum(count(part, name) for part in ir)


def is_mapping(models: Models, node: ast.expr, call: ast.Call) -> bool:
    """Whether a call hands something to a function that reads entries of it by their names."""
    if node not in call.args:
        return False
    for code in models.execution.codes(call):
        number = call.args.index(node) + (1 if code.parameters[:1] and code.parameters[0][0] in ("self", "cls") else 0)
        if number < len(code.parameters) and any(True for _ in keys_in(code.body, code.parameters[number][0])):
            return True
    return False


NUMBERS = frozenset({INTEGER, BOOLEAN})
FLOATS = frozenset({SINGLE, HALF, BFLOAT})


def _parts(loop: ast.For, results: set[str]) -> Iterator[str]:
    """The targets of a loop over results: `y` in `for y in outputs`, or in `for y, t in zip(outputs, targets)`."""
    match loop.iter, loop.target:
        case ast.Name(id=name), ast.Name(id=part) if name in results:
            yield part
        case ast.Call(func=ast.Name(id="zip"), args=given), ast.Tuple(elts=targets):
            for source, target in zip(given, targets, strict=False):
                if isinstance(source, ast.Name) and source.id in results and isinstance(target, ast.Name):
                    yield target.id


def _is_iterated(file: SourceFile, node: ast.Name) -> bool:
    """Whether a loop goes over the parts of a result; NoFix where those have no names."""
    parent = file.syntax.parents[node]
    if isinstance(parent, ast.For) or (isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "zip"):
        loop = parent if isinstance(parent, ast.For) else file.syntax.parents[parent]
        if not isinstance(loop, ast.For) or not any(True for _ in _parts(loop, {node.id})):
            raise NoFix(f"the loss has to be computed in float32 from each part of `{node.id}`: cast them with `.float()`")
        return True
    return False


def computed(models: Models, statement: ast.stmt, results: set[str]) -> Iterator[str]:
    """The names to which a statement gives results of a model, or of math on such `results`."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return
    for node in ast.walk(statement):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
            if _is_no_output(models, node.value):
                continue
            if not models.runs(node.value) and results.isdisjoint(name.id for name in names_in(node.value)):
                continue
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (item.id for item in ast.walk(target) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store))


def _is_no_output(models: Models, value: ast.expr) -> bool:
    if isinstance(value, ast.Constant) or models.takes_loss(value):
        return True
    func = value.func if isinstance(value, ast.Call) else None
    return isinstance(func, (ast.Attribute, ast.Name)) and _last(func) in (*INTEGERS, "max", "len", "range")


def _last(func: ast.Attribute | ast.Name) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id


def tensor_at(file: SourceFile, name: ast.Name) -> ast.expr | None:
    """The tensor that is read where a result is named: the name itself, or a field or item of it; None where only its shape is asked."""
    node: ast.expr = name
    while True:
        parent = file.syntax.parents[node]
        match parent:
            case ast.Attribute(value=value, attr=attr) if value is node:
                if attr in SHAPES or attr in INTEGERS or attr == "float":
                    return None
                called = file.syntax.parents[parent]
                if isinstance(called, ast.Call) and called.func is parent:
                    return node
                node = parent
            case ast.Subscript(value=value, slice=ast.Constant()) if value is node:
                node = parent
            case ast.Call(args=[first]) if first is node and isinstance(parent.func, ast.Name) and parent.func.id == "len":
                return None
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[holder]) if holder is node:
                return None  # whether it has such an entry
            case _:
                return node


def names_in(node: ast.AST) -> Iterator[ast.Name]:
    """The names that an expression reads."""
    return (item for item in walk_expressions(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load))
