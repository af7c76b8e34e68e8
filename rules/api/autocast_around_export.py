"""MP113: a model is exported under an ambient autocast, which the exported program does not hold."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Severity
from mplint.frameworks.torch import steps
from mplint.program.machine import Event
from mplint.program.trace import Trace
from mplint.program.values import DTYPE_NAMES, NONE, TRUE, Class, Object, Step, atoms
from mplint.python.document import is_test_path
from mplint.rule import Rule


class AutocastAroundExport(Rule):
    """A model exported under autocast

    ## What it does
    Finds `torch.export.export`, and `torch.onnx.export` through it (`dynamo=True`, the default since torch 2.9), under an autocast region.

    ## Why is this bad?
    Export records the operations and not the autocast around it: the program computes in float32, without an error or a warning. The
    same model gives bfloat16 or float16 when it is called in that region, so a file twice as large and slower than measured goes out.

    ## Example
    ```python
    import torch

    def save(model, x, path):
        with torch.autocast("cuda", dtype=torch.float16):
            program = torch.export.export(model, (x,))
        torch.export.save(program, path)
    ```

    ## Use instead
    ```python
    import torch

    class Half(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x):
            with torch.autocast("cuda", dtype=torch.float16):
                return self.model(x)

    def save(model, x, path):
        program = torch.export.export(Half(model), (x,))
        torch.export.save(program, path)
    ```

    ## Fix safety
    No fix is applied: enter autocast in the `forward` of the exported module, or convert the module with `.half()` before the export.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp113.py

    ## References
    - <https://docs.pytorch.org/docs/stable/export.html>
    """

    code = "MP113"
    name = "autocast-around-export"
    severity = Severity.ERROR
    fix = Applicability.DISPLAY
    frameworks = ("torch",)
    tokens = ("torch.export", "onnx.export(", "dynamo_export")
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each export where autocast to half precision may be in force."""
        for entry, event in trace.of("model exported"):
            if is_test_path(event.place.path) or not through_export(trace, event) or enters_autocast(event.data["model"]):
                continue
            for path, region in steps.in_half(event.data["autocast"], event.path)[:1]:
                verdict = self.verdict(trace, entry, path, event.place)
                dtype = DTYPE_NAMES.get(region.dtype or "", "half precision")
                yield self.at(
                    trace,
                    event.place,
                    f"`{event.data['name']}` under autocast gives a float32 program{verdict.condition()}",
                    why=f"the export does not record the autocast around it, so nothing in it runs in {dtype}",
                    help="enter autocast inside the `forward` of the module that is exported",
                    confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                    steps=tuple(Step(step.place, "autocast is in force here") for step in region.chain[:1]),
                )


def through_export(trace: Trace, event: Event) -> bool:
    """Whether an ONNX export certainly goes through torch.export: the older exporter records the casts."""
    given = event.data["dynamo"]
    if event.data["name"] != "torch.onnx.export" or given == TRUE:
        return True
    torch = trace.targets(event.place.path).torch
    return given is None and torch is not None and torch.at_least("2.9")


def enters_autocast(model: object) -> bool:
    """Whether the model is of a class of the project that enters autocast itself."""
    found = [a.type for a in atoms(model or NONE) if type(a) is Object and type(a.type) is Class]  # type: ignore[arg-type]
    return any("autocast" in cls.ir_words for cls in found if type(cls) is Class)
