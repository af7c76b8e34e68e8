"""MP207: a cast that autocast makes by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Fix, Replace, Severity
from mplint.frameworks.torch import half
from mplint.program.trace import Trace
from mplint.program.values import DTYPE_NAMES, Autocast, Tensor
from mplint.rule import Rule


class ManualCastInAutocast(Rule):
    """Manual cast to half precision inside autocast

    ## What it does
    Finds `.half()`, `.bfloat16()` and `.to(torch.float16)` on operands of matrix products and convolutions, and on the inputs of a model,
    inside an autocast region of the same dtype.

    ## Why is this bad?
    Autocast casts the operands of these operations itself, so the cast of an operand changes nothing. The cast of a model's input
    rounds it to 11 bits before the first operation, also where that operation would have run in float32, and ties the code to one dtype.

    ## Example
    ```python
    import torch

    def scores(query, key):
        with torch.autocast("cuda", dtype=torch.float16):
            return torch.matmul(query.half(), key.half())
    ```

    ## Use instead
    ```python
    import torch

    def scores(query, key):
        with torch.autocast("cuda", dtype=torch.float16):
            return torch.matmul(query, key)
    ```

    ## Fix safety
    Safe: offered only for operands that autocast casts in the same way, so the result is the same to the bit.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp207.py.

    ## References
    - PyTorch: "you should not call half() or bfloat16() on your model(s) or inputs", https://pytorch.org/docs/stable/amp.html#torch.autocast
    """

    code = "MP207"
    name = "manual-cast-in-autocast"
    severity = Severity.INFO
    fix = Applicability.SAFE
    frameworks = ("torch",)
    tokens = ("autocast",)
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each cast whose only use is an operand of a product, or the input of a model."""
        for item in half.found(trace, "cast by hand"):
            event = item.event
            region, tensor = event.data["autocast"], event.data["tensor"]
            file, cast = trace.node(event.place) or (None, None)
            if file is None or not isinstance(cast, ast.Call) or not isinstance(cast.func, ast.Attribute) or not isinstance(tensor, Tensor):
                continue
            used_at_once = isinstance(file.syntax.parents[cast], ast.Call | ast.BinOp)
            if not isinstance(region, Autocast) or not used_at_once or not item.verdict.proven:
                continue
            dtype = DTYPE_NAMES[next(iter(tensor.dtypes))]
            product = bool(event.data["name"])
            given = cast.func.value
            only_cast = cast.func.attr in ("half", "bfloat16") or len(cast.args) + len(cast.keywords) == 1
            removable = product and only_cast and isinstance(given, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
            fix = Fix("leave the cast to autocast", Applicability.SAFE, (Replace(file.span(cast), file.text(given)),))
            yield self.at(
                trace,
                event.place,
                f"`{' '.join(file.text(given).split())}` is cast to {dtype} inside an autocast region, which casts by itself",
                why="Autocast casts what gains from it and keeps the rest in float32; a cast by hand only rounds earlier.",
                help="leave the cast to autocast",
                confidence=item.confidence if removable else Confidence.MEDIUM,
                steps=region.chain[:1],
                fix=fix if removable else None,
            )
