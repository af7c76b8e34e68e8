"""MP204: a constant beyond the range of half precision."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from mplint.findings import Applicability, Confidence, Finding, Fix, Replace, Severity
from mplint.frameworks.keras.evidence import excluded, programs
from mplint.frameworks.torch import half
from mplint.frameworks.torch.promotion import is_of_cast_model
from mplint.frameworks.torch.tensors import IN_PLACE
from mplint.limits import BFLOAT16_MAX
from mplint.program.lower import span_of
from mplint.program.machine import Event
from mplint.program.trace import CALLERS, Trace
from mplint.program.values import BFLOAT, COMPUTE, Place, Step, Tensor
from mplint.rule import Consequence, Rule

if TYPE_CHECKING:
    from mplint.graph.facts import GraphFacts
    from mplint.graph.numerics import Constant
    from mplint.python.file import SourceFile

MASK = re.compile(r"mask|\b1(?:\.0?)? ?- |logical_not|not_equal|padding", re.I)

# what becomes of a Python number in the dtype of a half tensor of Keras
KERAS_EFFECTS = {
    "*": "it becomes {inf}, and 0 * {inf} is NaN in every row",
    "where": "it becomes {inf} silently, and a fully masked row NaN",
    "+": "it becomes {inf} silently, and a fully masked row NaN",
    "-": "it becomes {inf} silently, and a fully masked row NaN",
}
EFFECTS = {
    "nan": "Infinity times 0 is NaN, so that every element that the mask leaves alone is lost.",
    "inf": "The largest finite {dtype} is {largest}; infinity spreads through everything that is computed from it.",
    "masked": "A softmax over a row that is masked throughout becomes NaN, since all its elements are -inf.",
    "raises": "In {dtype}, or on a {dtype} tensor under autocast, torch raises RuntimeError: the value overflows.",
    "zero": "Whatever is multiplied by 0 or divided by infinity is 0: nothing of the data is left.",
    "by zero": "Whatever is divided by 0 is infinite or NaN.",
}
SHOWN_LIMITS = {"float16": "65504", "bfloat16": "3.39e38"}


class ConstantOutOfRange(Rule):
    """Constant that does not fit float16

    ## What it does
    Finds constants beyond ±65504 that reach a float16 tensor: attention masks `(1 - mask) * -1e9`, `scores - 1e9 * (1 - mask)`,
    `masked_fill(mask, -1e9)`, `torch.where(mask, scores, -1e9)`, `torch.finfo(torch.float32).min`. A sum in place,
    `scores += (1 - mask) * -1e9`, stays in the dtype of `scores`, whatever that of the mask. For bfloat16 the bound is 3.39e38, which
    `torch.finfo(torch.float32).min` still exceeds.
    Modules that a distribution (setup.py, pyproject.toml) offers, and whose own code or tests speak of float16, are read as a caller runs
    them: under float16 autocast, with a first input that may be half, and cast to float16 where its code, tests or examples cast models;
    such findings say so, and have medium confidence where the library runs or tests modules in half itself, low confidence elsewhere.
    In model graphs: initializers, numbers written into operations, fills and constant expressions beyond the range, at the node that
    computes with them: also divisors that become infinite, and factors that become 0. A float32 graph is right as it is: there the finding
    is advice, or with `--policy mixed_float16` a warning about the conversion.

    ## Why is this bad?
    The largest finite float16 is 65504. PyTorch's `masked_fill`, `full`, `fill_` and `clamp` raise "value cannot be converted to type
    c10::Half without overflow"; `where`, item assignment and arithmetic turn the number into -inf without a word. In
    TensorFlow and Keras the scalar itself becomes -inf, and 0 × -inf is NaN in every row of an arithmetic mask; in PyTorch only
    a fully masked row becomes NaN.

    ## Example
    ```python
    import torch

    def attend(query, key, mask):
        with torch.autocast("cuda", dtype=torch.float16):
            scores = query @ key.transpose(-2, -1)
            scores = scores.masked_fill(mask, -1e9)
            return scores.softmax(dim=-1)
    ```

    ## Use instead
    ```python
    import torch

    def attend(query, key, mask):
        with torch.autocast("cuda", dtype=torch.float16):
            scores = query @ key.transpose(-2, -1)
            scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
            return scores.softmax(dim=-1)
    ```

    ## Fix safety
    Safe for fills and `where`: the smallest finite number of the tensor's own dtype masks just as well in every precision. Offered
    where the tensor is a plain name. Unsafe where the program compares with the number, and where a mask is multiplied: added to
    scores, the smallest number may still come to -inf in rows that are masked throughout.
    In ONNX models and `.keras` archives -3e4 (in bfloat16 -1e9) is written in the place of masks that do not fit: unsafe where a mask is
    multiplied by it, which need not hold 0 and 1 alone, and in float32 models.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp204.py.

    ## References
    - PyTorch: `torch.finfo`, https://pytorch.org/docs/stable/type_info.html
    - Keras: mixed precision guide, https://keras.io/api/mixed_precision/
    """

    code = "MP204"
    name = "constant-out-of-range"
    severity = Severity.ERROR
    fix = Applicability.SAFE
    frameworks = ("torch", "keras")
    graphs = True
    tokens = (
        "float16",
        "bfloat16",
        "half()",
        "autocast",
        "mixed_",
        ".dtype",
        "compute_dtype",
        "masked_fill",
        "type_as",
        "where(",
        "* -",
        "*-",
        "*= -",
    )
    program = True
    adoption = Consequence("the constant fits float16 now", mends=True, fatal=True)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each number that a half tensor of the program meets and can't hold."""
        numbers = half.Numbers(trace)
        for item in half.found(trace, "constant beyond range", where=partial(written_at, numbers)):
            event = item.event
            tensor, value, effect = event.data["tensor"], event.data["value"], event.data["effect"]
            if not isinstance(tensor, Tensor) or not isinstance(value, float):
                continue
            name = str(event.data["name"])
            raises = effect == "raises"
            if value > 0 and is_subtracted(trace, event.data["operation"]):
                value = -value
            if not raises and value > 0 and name not in ("where", "assignment"):
                continue  # a factor that may be small enough for what it meets
            if name == IN_PLACE and not MASK.search(str(event.data["of"]) or trace.text(event.place)):
                continue
            dtype = "bfloat16" if tensor.dtypes == {BFLOAT} else "float16"
            place = written_at(numbers, event)
            shown = half.number_shown(trace.text(place), value)
            result = "-inf" if value < 0 else "inf"
            happens = f"`{name}` raises" if raises else f"it becomes {result} silently, and a fully masked row NaN"
            if name == IN_PLACE:
                happens = "added in place, it makes the sum -inf, and a fully masked row NaN"
            yield self.at(
                trace,
                place,
                f"`{shown}` does not fit {dtype}: {happens}{item.condition}",
                why=f"The largest finite {dtype} is {'65504' if dtype == 'float16' else '3.39e38'}; {shown} is beyond it.",
                help="use `torch.finfo(x.dtype).min` of the tensor itself, or mask in float32",
                severity=Severity.ERROR if raises else Severity.WARNING,
                confidence=Confidence.MEDIUM if meets_cast_module(item, tensor) else item.confidence,
                steps=(*item.chain(tensor), *([Step(event.place, "it meets the tensor here")] if is_elsewhere(place, event) else [])),
                fix=program_fix(trace, event, place, value),
            )
        yield from self.in_keras(trace, numbers)

    def in_keras(self, trace: Trace, numbers: half.Numbers) -> Iterator[Finding]:
        """Report the numbers that TensorFlow and Keras turn into infinities in the dtype of a half tensor."""
        for item in half.found(trace, "number beyond half"):
            event = item.event
            tensor, value, op = event.data["tensor"], event.data["value"], str(event.data["op"])
            if not isinstance(tensor, Tensor) or not isinstance(value, float) or op not in KERAS_EFFECTS or excluded(event.path):
                continue
            followed = tensor.dtypes == {COMPUTE}
            bfloat = tensor.dtypes == {BFLOAT}
            masks = value < 0 and (op == "where" or MASK.search(trace.text(event.place)) is not None)
            if (bfloat and abs(value) <= BFLOAT16_MAX) or (followed and not (masks and in_mind(trace, item))):
                continue
            dtype = "bfloat16" if bfloat else "float16"
            place = numbers.place(event.place, value)
            shown = half.number_shown(trace.text(place), value)
            whose = ", which this tensor has wherever the model runs in half" if followed else ""
            effect = KERAS_EFFECTS[op].format(inf="-inf" if value < 0 else "inf")
            yield self.at(
                trace,
                place,
                f"`{shown}` does not fit {dtype}{whose}: {effect}{item.condition}",
                why=f"The largest finite {dtype} is {'3.39e38' if bfloat else '65504'}; {shown} is beyond it.",
                help="use the tensor's own `x.dtype.min` (or -3e4), select with `where` instead of multiplying, or mask in float32",
                severity=Severity.ERROR if op == "*" else Severity.WARNING,
                confidence=programs(trace).sureness(place.path, item.entry) if followed else item.confidence,
                steps=(*programs(trace).told(place.path, tensor), *item.chain(tensor)),
                fix=keras_fix(trace, event.place, place, value),
            )

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield the constants of a model that half can't hold, each with what becomes of it, once a value and operation."""
        from mplint.graph.numerics import lost_constants

        groups: dict[tuple[float, str, str], list[Constant]] = {}
        for found in lost_constants(graph):
            if not found.rounded or found.effect not in ("masked", "inf"):  # -inf in a mask, written on purpose
                groups.setdefault((found.value, found.effect, found.node.op_type), []).append(found)
        for members in groups.values():
            yield self._in_graph(graph, members)

    def _in_graph(self, graph: GraphFacts, members: list[Constant]) -> Finding:
        from mplint.graph.mends import fitting_mask
        from mplint.graph.model import Literal

        first = members[0]
        more = f", and in {len(members) - 1} more places" if len(members) > 1 else ""
        verb = "is" if first.rounded else "becomes" if not graph.is_float else "would become"
        fate = f"{'-' if first.value < 0 else ''}inf" if abs(first.value) > 1 else "0"
        holds = "" if first.rounded else f" holds {first.value:.6g}, which"
        what = f"the constant {first.tensor.name} ({first.tensor.described}){holds}"
        if isinstance(first.tensor.weights, Literal):
            what = f"the number {first.value:.6g}"
        result = f"{verb} {fate} in {first.dtype}"
        if first.effect == "raises":
            result = f"{'would raise' if graph.is_float else 'raises'} in {first.dtype}"
        small = fate == "0"
        return self.graph_finding(
            graph,
            graph.first_of(self.code, [member.node for member in members]),
            f"{what} {result} at {first.node.described}{more}",
            why=EFFECTS[first.effect].format(dtype=first.dtype, largest=SHOWN_LIMITS[first.dtype]),
            help="Scale by a number of at least 6.1e-5, in two steps if need be, or keep this part in float32."
            if small
            else "Use a value within ±65504 (-3e4 masks as well), or keep this part in float32."
            if first.dtype == "float16"
            else "Use a value within ±3.38e38 (-1e9 masks as well), or keep this part in float32.",
            severity=graph.severity_of(Severity.ERROR if first.effect == "nan" else Severity.WARNING),
            related=((first.tensor, f"holds {first.value:.6g}"),) if not isinstance(first.tensor.weights, Literal) else (),
            fix=fitting_mask(graph, members),
        )


def written_at(numbers: half.Numbers, event: Event) -> Place:
    """Where the number of an event is written: in the call of a helper that is given it, or where the tensor meets it."""
    value = event.data["value"]
    return numbers.given(event, value) if isinstance(value, float) else event.place


def is_elsewhere(place: Place, event: Event) -> bool:
    """Whether a number is written in another function than the one in which a tensor meets it."""
    return any(call.path == place.path and covers(call, place) for call in event.calls)


def is_subtracted(trace: Trace, operation: object) -> bool:
    """Whether an operation multiplies what a mask leaves over with a number, and the product is subtracted: `scores - 1e9 * (1 - mask)`."""
    file, product = (trace.node(operation) or (None, None)) if isinstance(operation, Place) else (None, None)
    if file is None or not isinstance(product, ast.BinOp):
        return False
    match file.syntax.parents.get(product):
        case ast.BinOp(op=ast.Sub(), right=right) if right is product:
            pass
        case ast.AugAssign(op=ast.Sub()):
            pass
        case _:
            return False
    return any(is_left_over(factor) for factor in (product.left, product.right))


def is_left_over(node: ast.expr) -> bool:
    """Whether an expression is what a mask leaves over: `1 - mask`, or `~mask` cast to numbers."""
    match node:
        case ast.BinOp(op=ast.Sub(), left=ast.Constant(value=1 | 1.0)) | ast.UnaryOp(op=ast.Invert()):
            return True
        case ast.Call(func=ast.Attribute(value=inner)):
            return is_left_over(inner)
    return False


def covers(outer: Place, inner: Place) -> bool:
    """Whether one range of a file lies within another."""
    one, other = span_of(outer.position), span_of(inner.position)
    return (one.line, one.column) <= (other.line, other.column) and (other.end_line, other.end_column) <= (one.end_line, one.end_column)


def meets_cast_module(item: half.Found, tensor: Tensor) -> bool:
    """Whether a number meets half precision wherever a module is cast, as the models of its library are: no scale of values saves it."""
    return item.entry.context == CALLERS and is_of_cast_model(tensor)


def in_mind(trace: Trace, item: half.Found) -> bool:
    """Whether the code of a layer may meet a mixed policy."""
    return programs(trace).in_mind(item.event.place.path, item.entry)


def program_fix(trace: Trace, event: Event, place: Place, value: float) -> Fix | None:
    """The dtype-aware constant, where a plain name is filled, padded or selected from with a number or a name of one."""
    operation = event.data["operation"]
    if not isinstance(operation, Place) or operation.path != place.path or not covers(operation, place):
        return None
    file, call = trace.node(operation) or (None, None)
    number = (trace.node(place) or (None, None))[1]
    if file is None or not isinstance(number, ast.Constant | ast.UnaryOp | ast.Name | ast.Attribute):
        return None
    name, dtype = None, ""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="masked_fill" | "masked_fill_")) if owner != "torch":
            name = owner
        case ast.Call(func=ast.Attribute(attr="where" | "masked_fill"), args=[_, ast.Name(id=selected), other]) if other is number:
            name = selected
        case ast.Call(func=ast.Attribute(attr="where"), args=[_, other, ast.Name(id=selected)]) if other is number:
            name = selected
        case ast.Call(func=ast.Attribute(attr="pad"), args=[ast.Name(id=padded), *_]):
            name = padded
        case ast.BinOp(op=ast.Mult()):
            dtype = dtype_beside(call, number)
    root = next((a.asname or "torch" for s in file.syntax.all(ast.Import) for a in s.names if a.name == "torch"), None)
    dtype = f"{name}.dtype" if name is not None else dtype
    if not dtype or root is None:
        return None
    lowest = value < 0 and not is_subtracted(trace, operation)
    text = f"{root}.finfo({dtype}).{'min' if lowest else 'max'}"
    same = name is not None and value < 0 and ADDED.search(name) is None and not is_compared(file, number, value)
    return Fix(f"use `{text}`", Applicability.SAFE if same else Applicability.UNSAFE, (Replace(trace.span(place), text),))


COMPARING = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "isclose", "equal", "not_equal", "less", "greater"))


def is_compared(file: SourceFile, number: ast.expr, value: float) -> bool:
    """Whether the program compares something with the number that is filled in, by its name or by its value."""
    name = file.text(number) if isinstance(number, ast.Name | ast.Attribute) else ""
    sides = [side for compare in file.syntax.all(ast.Compare) for side in (compare.left, *compare.comparators)]
    sides += [
        a for call in file.syntax.all(ast.Call) if isinstance(f := call.func, ast.Attribute) and f.attr in COMPARING for a in call.args
    ]
    return any((name and file.text(side) == name) or number_of(side) == value for side in sides)


def number_of(node: ast.expr) -> float | None:
    """The number that an expression is written as."""
    match node:
        case ast.Constant(value=float() | int() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=float() | int() as value)):
            return -float(value)
    return None


ADDED = re.compile(r"mask|bias", re.I)  # what may be added to another mask: two of the lowest numbers are infinite together


def dtype_beside(product: ast.BinOp, number: ast.expr) -> str:
    """The text of the dtype that a mask has which is multiplied with a number: that it is cast to, or its own; "" where it has no name."""
    mask = product.left if product.right is number else product.right if product.left is number else None
    while isinstance(mask, ast.BinOp | ast.UnaryOp):
        if isinstance(mask, ast.UnaryOp):
            mask = mask.operand
        else:
            mask = mask.right if isinstance(mask.left, ast.Constant) else mask.left if isinstance(mask.right, ast.Constant) else None
    match mask:
        case ast.Name(id=name):
            return f"{name}.dtype"
        case (
            ast.Call(func=ast.Attribute(attr="cast"), args=[_, given], keywords=[])
            | ast.Call(func=ast.Attribute(attr="to"), args=[given], keywords=[])
            | ast.Call(func=ast.Attribute(attr="to" | "cast"), keywords=[ast.keyword(arg="dtype", value=given)])
        ):
            return ast.unparse(given) if isinstance(given, ast.Attribute) and given.attr == "dtype" else ""
        case ast.Call(func=ast.Attribute(attr="type_as"), args=[ast.Name(id=name)]):
            return f"{name}.dtype"
    return ""


def keras_fix(trace: Trace, operation: Place, place: Place, value: float) -> Fix | None:
    """The bound of the tensor's own dtype, where a plain name of TensorFlow's is selected from."""
    file, call = trace.node(operation) or (None, None)
    number = (trace.node(place) or (None, None))[1]
    if file is None or not any(a.name == "tensorflow" for s in file.syntax.all(ast.Import) for a in s.names):
        return None
    match call:
        case ast.Call(func=ast.Attribute(attr="where"), args=[_, ast.Name(id=name), other]) if other is number:
            pass
        case ast.Call(func=ast.Attribute(attr="where"), args=[_, other, ast.Name(id=name)]) if other is number:
            pass
        case ast.BinOp(op=ast.Mult()) if isinstance(number, ast.expr) and (dtype := dtype_beside(call, number)):
            text = f"{dtype}.{'min' if value < 0 else 'max'}"
            return Fix(f"use `{text}`", Applicability.UNSAFE, (Replace(trace.span(place), text),))
        case _:
            return None
    text = f"{name}.dtype.{'min' if value < 0 else 'max'}"
    same = value < 0 and ADDED.search(name) is None and not (isinstance(number, ast.expr) and is_compared(file, number, value))
    return Fix(f"use `{text}`", Applicability.SAFE if same else Applicability.UNSAFE, (Replace(trace.span(place), text),))
