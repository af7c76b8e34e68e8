"""MP205: an epsilon that half precision loses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mplint.findings import Applicability, Confidence, Finding, Fix, Replace, Severity, When
from mplint.rule import Rule
from mplint.source import constants
from mplint.source.arguments import set_keyword
from mplint.source.constants import Use
from mplint.source.file import SourceFile
from mplint.source.syntax import argument, has_star
from mplint.source.torch.half_training import HalfTraining

if TYPE_CHECKING:
    from mplint.graph.facts import GraphFacts
    from mplint.graph.numerics import Epsilon

ZERO = 2.0**-25  # float16 rounds this and less to 0
SMALLEST_NORMAL = 6.103515625e-05
LARGEST_RECIPROCAL = 1 / 65504.0
GUARDED = ("log", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "log_")
# The optimizers of torch that divide by a root plus an epsilon, and its default.
EPSILONS = {"Adam": 1e-8, "AdamW": 1e-8, "NAdam": 1e-8, "Adamax": 1e-8, "RMSprop": 1e-8, "Adagrad": 1e-10}
SMALL = re.compile(r"\d[eE]-\d|0\.00000|\beps")


class EpsilonUnderflows(Rule):
    """Epsilon that float16 rounds to zero

    ## What it does
    Finds epsilons that guard a division, a logarithm or a square root of a float16 tensor and that float16 cannot hold:
    `x / (norm + 1e-8)`, `(p + 1e-8).log()`, `torch.log(p.clamp(min=1e-8))`.
    Also optimizers such as Adam over float16 parameters, whose epsilon is added to float16 state.
    In model graphs: small constants that are added, or that bound from below, before a division, a logarithm or a root in float16; in
    float32 graphs those that float16 would lose.

    ## Why is this bad?
    float16 rounds everything up to 2^-25 (2.98e-8) to 0: `x + 1e-8` is `x`, `clamp(min=1e-8)` is `clamp(min=0)`, and the guard that was
    to prevent a division by zero or log(0) is not there. The smallest normal float16 is 6.1e-5; below it precision
    fades (1e-7 becomes 1.19e-7), and the reciprocal of anything below 1.53e-5 overflows to inf.

    ## Example
    ```python
    import torch

    def normalize(features):
        x = features.half()
        norm = x.abs().mean(dim=-1, keepdim=True)
        return x / (norm + 1e-8)
    ```

    ## Use instead
    ```python
    import torch

    def normalize(features):
        x = features.half()
        norm = x.abs().mean(dim=-1, keepdim=True)
        return x / (norm + 1e-4)
    ```

    ## Fix safety
    Safe: an epsilon of 1e-4 is the same guard in float16, where the old one was 0 or close to it. Computing the guarded step in float32
    is the other way out.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp205.py.

    ## References
    - PyTorch: `torch.finfo`, https://pytorch.org/docs/stable/type_info.html
    """

    code = "MP205"
    name = "epsilon-underflows"
    severity = Severity.WARNING
    fix = Applicability.SAFE
    frameworks = ("torch", "keras")
    graphs = True
    tokens = ("float16", "half()", "autocast", "mixed_")

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield the epsilons of a model that float16 loses, once a value and pair of operations."""
        from mplint.graph.numerics import vanishing

        groups: dict[tuple[float, str, str], list[Epsilon]] = {}
        for found in vanishing(graph):
            groups.setdefault((found.value, found.node.op_type, found.guarded.op_type), []).append(found)
        for (value, _, guarded), members in groups.items():
            node = members[0].node
            more = f" ({len(members)} such places)" if len(members) > 1 else ""
            would = "would round" if graph.is_float else "rounds"
            fate = f"float16 {would} it to 0" if value <= ZERO else f"its reciprocal overflows float16: 1/{value:.3g} is {1 / value:.3g}"
            message = f"the epsilon {value:.3g} at {node.described} guards {members[0].guarded.described}{more}, and {fate}"
            if value == 0:
                message = f"{node.described} guards {members[0].guarded.described}{more} by a float16 0: an epsilon that was rounded away"
            yield self.graph_finding(
                graph,
                node,
                message,
                why=f"float16 rounds everything up to 2^-25 (2.98e-8) to 0, and then nothing keeps {guarded} from a zero.",
                help="Use an epsilon of at least 1e-4 in float16, or keep these nodes in float32.",
                confidence=Confidence.HIGH if value <= ZERO else Confidence.MEDIUM,
                related=((members[0].guarded, "this is what it guards"),),
            )

    def check_source(self, file: SourceFile) -> Iterator[Finding]:
        if "half()" in file.document.text or "float16" in file.document.text:
            yield from self.optimizers(file)
        if not SMALL.search(file.document.text):
            return
        for use in constants.uses(file):
            if (
                0 < use.value < SMALLEST_NORMAL
                and use.how in ("add", "clamp")
                and (guard := guarded(file, use)) is not None
                and not file.precision.dtype_guard(use.node)
            ):
                yield from self.judge(file, use, guard)

    def optimizers(self, file: SourceFile) -> Iterator[Finding]:
        """Optimizers over float16 parameters, which add their epsilon to float16 state; fused ones compute in float32."""
        for optimizer, conversion in {c.optimizer: c for c in HalfTraining(file).conversions}.items():
            name = (file.names.resolve(optimizer.func) or "").rpartition(".")[2]
            given = argument(optimizer, "eps")
            eps = file.values.number(given) if given is not None else EPSILONS.get(name)
            fused = file.values.constant_or(argument(optimizer, "fused")) is True
            if name not in EPSILONS or eps is None or not 0 < eps <= ZERO or fused or has_star(optimizer) or len(optimizer.args) > 3:
                continue
            yield self.finding(
                file,
                given if given is not None else optimizer,
                f"`{name}` adds eps={eps:g} to float16 state, where it is 0",
                why=f"A gradient of 0 gives 0 / 0: one step of {name} makes the weight NaN. float16 rounds everything up to 2.98e-8 to 0.",
                help="train float32 parameters under autocast, or give the optimizer eps=1e-4",
                confidence=Confidence.HIGH if conversion.certain else Confidence.MEDIUM,
                related=((conversion.node, "the parameters become float16 here"),),
                fix=Fix("use an epsilon that float16 can hold", Applicability.SAFE, (set_keyword(file, optimizer, "eps", "1e-4"),))
                if conversion.certain
                else None,
            )

    def judge(self, file: SourceFile, use: Use, guard: str) -> Iterator[Finding]:
        precision = file.precision.of(use.tensor)
        lost = use.value <= ZERO
        if precision.only != "float16" and file.precision_in_float16.of(use.tensor).only != "float16":
            return
        if not lost and not (guard == "division" and use.value < LARGEST_RECIPROCAL and not divides_itself(file, use)):
            return
        when = None if precision.only == "float16" else When("float16", file.syntax.qualname(file.syntax.statement(use.number)))
        text = file.text(use.number)
        if lost:
            message = f"`{text}` is 0 in float16, so nothing guards this {guard}"
            why = f"float16 rounds {text} to 0: everything up to 2.98e-8 is lost."
        else:
            message = f"`{text}` is subnormal in float16, and dividing by it overflows"
            why = f"The smallest normal float16 is 6.1e-5 and the largest 65504: 1 / {text} does not fit."
        related = ((precision.because, "float16 comes from here"),) if precision.because is not None else ()
        plain = isinstance(use.number, ast.Constant)
        fix = Fix("use an epsilon that float16 can hold", Applicability.SAFE, (Replace(file.span(use.number), "1e-4"),)) if plain else None
        yield self.finding(
            file,
            use.number,
            message,
            why=why,
            help="use 1e-4 or more here, or compute this step in float32 (`.float()`)",
            confidence=Confidence.HIGH if when is None else Confidence.MEDIUM,
            related=related,
            fix=fix,
            when=when,
        )


def divides_itself(file: SourceFile, use: Use) -> bool:
    """Whether the numerator shrinks with the denominator, `x / (x.abs().max() + eps)`: then the quotient stays small."""
    division = next((p for p in file.syntax.ancestors(use.node) if isinstance(p, ast.BinOp) and isinstance(p.op, ast.Div)), None)
    if division is None:
        return False
    above = {file.text(n) for n in ast.walk(division.left) if isinstance(n, ast.Name)}
    behind = [d for d in (use.tensor, *file.values.definitions(use.tensor)) if isinstance(d, ast.expr)]
    return any(isinstance(n, ast.Name) and n.id in above for d in behind for n in ast.walk(d))


def guarded(file: SourceFile, use: Use) -> str | None:
    """What the epsilon guards: "division", "logarithm" or "square root"; None where it guards none of them."""
    child: ast.AST = use.node
    for parent in file.syntax.ancestors(use.node):
        match parent:
            case ast.BinOp(op=ast.Div(), right=right) if right is child:
                return "division"
            case ast.Call(func=ast.Attribute(attr=name)) if name in GUARDED:
                return "division" if name in ("rsqrt", "reciprocal") else "square root" if name == "sqrt" else "logarithm"
            case ast.Attribute() | ast.Call(func=ast.Attribute()) if not isinstance(parent, ast.Call) or parent.func is child:
                pass
            case ast.BinOp(op=ast.Pow(), left=left) if left is child:
                return "division" if (file.values.number(parent.right) or 0) < 0 else None
            case _:
                return None
        child = parent
    return None
