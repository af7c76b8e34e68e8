"""MP211: a sum that stays in float16."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mplint.findings import Applicability, Confidence, Finding, Fix, Severity
from mplint.frameworks.torch import half
from mplint.frameworks.torch.promotion import is_of_cast_model
from mplint.frameworks.torch.tensors import PRODUCT
from mplint.program.machine import Event
from mplint.program.trace import CALLERS, Trace
from mplint.program.values import HALF, Autocast, By, Place, Step, Tensor
from mplint.python.file import SourceFile
from mplint.recipes.float32 import float32_tensor
from mplint.rule import Rule

if TYPE_CHECKING:
    from mplint.graph.facts import GraphFacts


SUMS = ("sum", "nansum", "cumsum", "reduce_sum")
MEANS = ("mean", "nanmean", "reduce_mean")
VARIANCES = ("var", "var_mean", "reduce_variance")  # means of squared deviations


class HalfPrecisionReduction(Rule):
    """Sum kept in float16

    ## What it does
    Finds sums and variances of tensors that a cast (or a placeholder) made float16, and means of their squares, outside autocast regions,
    which would promote the sums; and products of a matrix with itself (Gram matrices) in float16, also in such regions, that are divided
    by the number of values only afterwards; and sums of features over the positions of a map, with the sigmoids of another map as weights,
    that are divided by the sum of these weights only afterwards. Squares of what the modules of a model compute that is cast to float16
    as a whole; in a library whose models are cast so, by its own code, tests or examples, variances as well.
    Products and sums whose operands show that they overflow are warnings, the others advice (severity info). Such sums over a map take
    its size for granted, and have low confidence beside a guess about which model runs.
    In model graphs: sums and means over 2048 elements or more in float16, and sums that half can't hold for inputs within their range
    (in float32 graphs advice, or with `--policy` a warning about the conversion).

    ## Why is this bad?
    The largest finite float16 is 65504: a sum of 300 squares of 16 is inf, and the squared norm of a vector overflows once the norm
    exceeds 256, a variance once the standard deviation does. Above 2048 the result is a multiple of 2 or more.

    ## Example
    ```python
    import torch

    def squared_norm(features):
        x = features.half()
        return (x * x).sum(dim=-1)
    ```

    ## Use instead
    ```python
    import torch

    def squared_norm(features):
        x = features.half()
        return x.float().square().sum(dim=-1)
    ```

    ## Fix safety
    Unsafe: the reduction runs in float32 and its result is float32 then, which the code after it may have to cast back. There is no fix
    for TensorFlow, which raises where that result meets float16 tensors.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp211.py.

    ## References
    - PyTorch: operations that autocast to float32, https://pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float32
    """

    code = "MP211"
    name = "half-precision-reduction"
    severity = Severity.WARNING
    fix = Applicability.UNSAFE
    frameworks = ("torch", "tensorflow")
    graphs = True
    tokens = ("autocast", "float16", "half()")
    program = True

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield the long sums that a model takes in float16, and those of a float32 model that float16 can't hold."""
        from mplint.graph.model import OpKind
        from mplint.graph.numerics import long_sums, overflowing

        for node, count in long_sums(graph):
            given = next((f" of {t.described}" for t in node.inputs if t is not None), "")
            over = f"{count:,} elements{given}" if count is not None else f"an unknown number of elements{given}"
            yield self.graph_finding(
                graph,
                node,
                f"{node.described} sums {over} in float16",
                why="Above 2048 a float16 sum is a multiple of 2 or more and drops small addends; above 65504 it is inf.",
                help="Cast to float32 before the reduction and back after it.",
                severity=Severity.INFO,
            )
        for found in overflowing(graph):
            if found.node.kind is OpKind.REDUCTION:
                yield self.graph_finding(
                    graph,
                    found.node,
                    f"{found.node.described} reaches {found.reached:.4g} for inputs within their range: inf in {found.dtype}",
                    why=f"The largest finite {found.dtype} is beyond it{'; in float32 the model is right' if graph.is_float else ''}.",
                    help=f"Keep this node in float32{f' when the model is converted to {found.dtype}' if graph.is_float else ''}.",
                    severity=graph.severity_of(Severity.WARNING),
                    confidence=Confidence.MEDIUM,
                )

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report the sums and variances of what the program itself made float16, and the means of its squares."""
        for item in (f for kind in ("reduced in half", "unstable in half") for f in half.found(trace, kind, callers=True)):
            event = item.event
            tensor, name, region = event.data["tensor"], str(event.data["name"]), event.data["autocast"]
            if not isinstance(tensor, Tensor) or (isinstance(region, Autocast) and region.dtype is not None):
                continue
            spread, squares = name in VARIANCES, PRODUCT in tensor.tags or name in VARIANCES
            users = item.entry.context == CALLERS
            if not (made_half(tensor) or (squares and (users or not spread) and of_cast_module(tensor))):
                continue
            if name not in SUMS and not spread and not (name in MEANS and squares):
                continue
            what = "squares of float16 values" if squares else "float16 values"
            limit = "squares overflow once a value or the norm exceeds 256" if squares else "a sum beyond 65504 is inf"
            yield self.at(
                trace,
                event.place,
                f"`{name}` {'gives a variance' if spread else f'adds up {what}'} in float16{item.condition}",
                why=f"float16 ends at 65504: {'a standard deviation over 256 has an infinite variance' if spread else limit}.",
                help="cast the tensor to float32 before the reduction, and the result back where that is needed",
                severity=Severity.INFO,
                confidence=Confidence.MEDIUM,
                steps=(*item.entry.meant, *tensor.half),
                fix=widen(trace, event, squares and not spread) if made_half(tensor) or users else None,  # layers of half weights follow
            )
        yield from self._averaged_late(trace)

    def _averaged_late(self, trace: Trace) -> Iterator[Finding]:
        """Report sums over all positions that are divided only afterwards: of a matrix with itself, or with weights by their sum."""
        for item in half.found(trace, "averaged late in half"):
            product, tensor, weighed = item.event.data["product"], item.event.data["tensor"], item.event.data["weighed"] is True
            if not isinstance(product, Place) or not isinstance(tensor, Tensor) or not (weighed or is_with_itself(trace, product)):
                continue
            yield self.at(
                trace,
                product,
                f"{SUMS_UP[weighed]} later{item.condition}",
                why=f"float16 ends at 65504: {CASES[weighed]}, which is inf.",
                help=f"divide the {'weights by their sum' if weighed else 'features'} first, or take the product outside of autocast, "
                "in float32",
                confidence=Confidence.MEDIUM,
                assumed=TAKEN[weighed],
                steps=(*item.chain(tensor), Step(item.event.place, f"it is divided by the {DIVISORS[weighed]} only here")),
            )


SUMS_UP = {
    False: "this product of a matrix with itself adds up squares in float16, and is divided by their number",
    True: "this product adds up features in float16, and they are divided by the sum of their weights",
}
CASES = {
    False: "over 64 x 64 positions features of 4 have a sum of squares of 65536",
    True: "over 128 x 128 positions of weight 0.5 features of 8 have a sum of 65536",
}
TAKEN = {False: "features reach 4 over 64 x 64 positions", True: "features reach 8 over 128 x 128 positions"}
DIVISORS = {False: "number of values", True: "sum of the weights"}
CASTS = (By.CAST, By.PARAMETERS, By.MODEL)


def made_half(tensor: Tensor) -> bool:
    """Whether a cast or a placeholder of the program made a tensor float16, and nothing else."""
    return len(tensor.half) == 1 and tensor.half[0].by in (*CASTS, By.FEEDING) and not tensor.forward


def of_cast_module(tensor: Tensor) -> bool:
    """Whether a tensor is half because of a module that was cast: its input, or what its weights made of that."""
    by = tensor.half[0].by if len(tensor.half) == 1 else None
    return is_of_cast_model(tensor) or by is By.CALLER or (by in CASTS and HALF in tensor.forward)


TURNED = frozenset({"transpose", "permute", "t", "T", "mT", "contiguous", "clone", "swapaxes"})


def is_with_itself(trace: Trace, product: Place) -> bool:
    """Whether both factors of a product of matrices are the same tensor, one of them transposed."""
    file, node = trace.node(product) or (None, None)
    match node:
        case ast.BinOp(op=ast.MatMult(), left=left, right=right):
            factors = [left, right]
        case ast.Call(func=ast.Attribute(attr="einsum"), args=[_, left, right]):
            factors = [left, right]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch")), args=[left, right]):
            factors = [left, right]
        case ast.Call(func=ast.Attribute(value=left), args=[right]):
            factors = [left, right]
        case _:
            return False
    assert file is not None
    one, other = (turned_back(file, factor) for factor in factors)
    return ast.dump(one) == ast.dump(other)


def turned_back(file: SourceFile, node: ast.expr, depth: int = 3) -> ast.expr:
    """What a transposed tensor was made of, also where it has a name of its own."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) | ast.Attribute(value=inner, attr=name) if name in TURNED:
            return turned_back(file, inner, depth)
        case ast.Name() if depth:
            bound = [binding.value for binding in file.names.reaching(node)]
            made = bound[0] if len(bound) == 1 else None
            if isinstance(made, ast.Call | ast.Attribute) and (inner := turned_back(file, made, depth - 1)) is not made:
                return inner
    return node


def widen(trace: Trace, event: Event, squares: bool) -> Fix | None:
    """The reduction of a float32 tensor; squares are squared in float32 too, so the cast stands at the name that is squared.

    None for TensorFlow, which raises where the float32 result then meets float16 tensors.
    """
    given = event.data["given"]
    file, operand = trace.node(given) or (None, None) if isinstance(given, Place) else (None, None)
    if file is not None and given == event.place and isinstance(operand, ast.Call) and isinstance(operand.func, ast.Attribute):
        operand = operand.func.value  # a method: what it is called on
    if squares:
        operand = operand.args[0] if isinstance(operand, ast.Call) and operand.args else None
    if file is None or not isinstance(operand, ast.Name | ast.Attribute | ast.Subscript):
        return None
    return Fix("reduce in float32", Applicability.UNSAFE, (float32_tensor(file, operand),))
