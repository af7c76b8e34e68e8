"""What other files of the project do with half precision that a loop in this one brings them: what crashes, and what loses too much."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from mplint.adopt.execution import Execution
from mplint.adopt.torch.arrays import is_distribution
from mplint.adopt.torch.hazards import NO_HALF, is_cast
from mplint.adopt.torch.models import is_half
from mplint.findings import Location
from mplint.python.file import SourceFile
from mplint.recipes.scaler.plan import NoFix


class Told(NamedTuple):
    """A place in another file, and what to do there."""

    location: Location
    text: str


def of_states(execution: Execution) -> None:
    """Raise NoFix where a module keeps in its weights what autocast computed: outside of it they then meet float32."""
    for file, halves in execution.halves_elsewhere():
        for statement in file.syntax.all(ast.Assign):
            kept = [t for t in statement.targets if isinstance(t, ast.Attribute) and t.attr == "data"]
            if kept and statement.value in halves:
                raise NoFix(
                    f"`{file.document.path}:{statement.lineno}` keeps in `{ast.unparse(kept[0])}` what autocast computes in half, and "
                    "float32 meets it wherever autocast is off: compute it under `torch.autocast(..., enabled=False)` there first"
                )


def of_kernels(execution: Execution) -> None:
    """Raise NoFix where another file gives half tensors to an operation that has no half kernel."""
    for file, halves in execution.halves_elsewhere():
        for call in file.syntax.all(ast.Call):
            if halves.intersection(call.args) and any(NO_HALF.fullmatch(n) for n in file.names.candidates(call.func)) and not is_cast(call):
                shown = file.text(call.func)
                raise NoFix(
                    f"`{file.document.path}:{call.lineno}` gives `{shown}` half tensors, for which it has no kernel: cast them there first"
                )


def told_of(execution: Execution) -> Iterator[Told]:
    """What loses too much in half precision, in any file, each line once."""
    own = {node for node in ast.walk(execution.file.tree) if isinstance(node, ast.expr) and any(map(is_half, execution.values(node)))}
    here: tuple[SourceFile, set[ast.AST]] = (execution.file, set(own))
    for file, halves in (here, *execution.halves_elsewhere()):
        expressions: list[ast.expr] = [*file.syntax.all(ast.Call), *file.syntax.all(ast.BinOp)]
        found = {node.lineno: (node, text) for node in expressions if (text := lost_by(file, node, halves)) is not None}
        for _, (node, text) in sorted(found.items()):
            yield Told(file.location(node), text)


def lost_by(file: SourceFile, node: ast.AST, halves: set[ast.AST]) -> str | None:
    """What an expression makes of half tensors that it should be given in float32."""
    match node:
        case ast.Call(args=given, keywords=named) if makes_distribution(file, node):
            if any(value in halves for value in (*given, *(keyword.value for keyword in named))):
                return f"`{file.text(node.func)}` is made of half tensors: cast them with `.float()` there"
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name) as function, attr="apply"), args=given) if not halves.isdisjoint(given):
            if hands_to_compiled(file, function):
                return (
                    f"`{name}` hands half tensors to compiled code, which autocast does not cast, beside others that may be float32: "
                    'decorate its `forward` with `torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)` there'
                )
        case ast.Call(func=ast.Attribute(attr="log" | "log2" | "log10")) if (shares := shares_in(file, node)) is not None:
            if shares in halves:
                return f"what is below 6e-8 is 0 in the half `{file.text(shares)}`, and its logarithm infinite: compute it in float32 there"
        case ast.Call() | ast.BinOp() if product_in(node) in halves:
            return "squared distances are small differences of large half products: compute them in float32 there"
        case ast.Call(func=ast.Attribute(attr="sqrt")) if (angle := cosine_in(node)) is not None and angle in halves:
            name = ast.unparse(angle)
            return f"where the half `{name}` comes near 1, 1 - {name}² is 0, whose root has no gradient: cast it to float32 there"
    return None


def makes_distribution(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call makes a distribution of torch, or one of the file's own classes of such."""
    if any(map(is_distribution, file.names.candidates(call.func))):
        return True
    owner = file.names.local_function(call.func)
    return isinstance(owner, ast.ClassDef) and any(map(is_distribution, file.names.base_names(owner)))


def hands_to_compiled(file: SourceFile, function: ast.Name) -> bool:
    """Whether an autograd Function calls what `torch.utils.cpp_extension` compiles, with its tensors as autocast leaves them."""
    owner = file.names.local_function(function)
    if not isinstance(owner, ast.ClassDef) or not any(base.endswith("autograd.Function") for base in file.names.base_names(owner)):
        return False
    forward = file.names.method(owner, "forward")
    if forward is None or any("custom_fwd" in file.text(decorator) for decorator in forward.decorator_list):
        return False
    roots = [n.value for n in ast.walk(forward) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    values = [binding.value for root in roots for binding in file.names.lookup(root)[1]]
    made = [value.func for value in values if isinstance(value, ast.Call)]
    return any(name.startswith("torch.utils.cpp_extension.load") for func in made for name in file.names.candidates(func))


def shares_in(file: SourceFile, taken: ast.Call) -> ast.expr | None:
    """What a logarithm is taken of, where that is a product with probabilities, which may be as small as they like."""
    func = taken.func
    given = func.value if isinstance(func, ast.Attribute) and not taken.args else next(iter(taken.args), None)
    if given is None:
        return None
    for value in values_of(file, given):
        parts = (
            [part for node in ast.walk(value) if isinstance(node, ast.expr) for part in values_of(file, node)] if is_product(value) else []
        )
        if any(isinstance(part, ast.Call) and ast.unparse(part.func).rpartition(".")[2] in ("softmax", "Softmax") for part in parts):
            return given
    return None


def values_of(file: SourceFile, node: ast.expr) -> list[ast.expr]:
    """An expression, and what a name stands for."""
    bound = [binding.value for binding in file.names.reaching(node)] if isinstance(node, ast.Name) else []
    return [node, *(value for value in bound if value is not None)]


def product_in(node: ast.Call | ast.BinOp) -> ast.expr | None:
    """The product of matrices in an expression that is x² + y² - 2xy."""
    match node:
        case ast.Call(func=ast.Attribute(attr="addmm" | "baddbmm" | "addbmm"), keywords=named):
            scale = next((keyword.value for keyword in named if keyword.arg == "alpha"), None)
            return node if isinstance(scale, ast.UnaryOp) and isinstance(scale.op, ast.USub) else None
        case ast.BinOp(op=ast.Sub(), right=ast.BinOp(left=ast.Constant(value=2 | 2.0), op=ast.Mult(), right=product)):
            return product if is_product(product) else None
        case ast.BinOp(op=ast.Sub(), right=ast.BinOp(left=product, op=ast.Mult(), right=ast.Constant(value=2 | 2.0))):
            return product if is_product(product) else None
    return None


def is_product(node: ast.expr) -> bool:
    """Whether an expression multiplies matrices."""
    match node:
        case ast.BinOp(op=ast.MatMult()) | ast.Call(func=ast.Attribute(attr="matmul" | "mm" | "bmm" | "einsum")):
            return True
    return False


def cosine_in(root: ast.Call) -> ast.expr | None:
    """The x of a root of 1 - x²."""
    for node in ast.walk(root):
        match node:
            case ast.BinOp(left=ast.Constant(value=1 | 1.0), op=ast.Sub(), right=square):
                match square:
                    case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="pow" | "square"), args=[base, *_]):
                        return base
                    case ast.Call(func=ast.Attribute(value=base, attr="pow" | "square")) | ast.BinOp(left=base, op=ast.Pow()):
                        return base
                    case ast.BinOp(left=base, op=ast.Mult(), right=other) if ast.unparse(base) == ast.unparse(other):
                        return base
    return None
