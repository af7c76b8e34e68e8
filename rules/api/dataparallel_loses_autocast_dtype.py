"""MP112: `nn.DataParallel` runs its replicas without the dtype of the autocast around it."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Severity
from mplint.frameworks.torch import steps
from mplint.program.trace import Trace
from mplint.program.values import Place, Step
from mplint.rule import Rule


class DataParallelLosesAutocastDtype(Rule):
    """A bfloat16 autocast around nn.DataParallel, whose threads forget the dtype

    ## What it does
    Finds an `nn.DataParallel` model that is called under autocast with `dtype=torch.bfloat16`.

    ## Why is this bad?
    DataParallel runs each replica in a thread of its own and hands on only whether autocast is enabled, not its dtype. The dtype belongs
    to the thread and is float16 there, on CUDA: the replicas compute in float16, whose largest value is 65504, and a bfloat16 loop has no
    loss scaling. With one GPU the same code runs in bfloat16.

    ## Example
    ```python
    import torch

    def train(model, loader, optimizer):
        model = torch.nn.DataParallel(model)
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
    ```

    ## Use instead
    ```python
    import torch

    def train(model, loader, optimizer, rank):
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
    ```

    ## Fix safety
    No fix is applied: use DistributedDataParallel, or enter autocast with its dtype in the `forward` of the wrapped module.

    ## Evidence
    Shows only on several GPUs; tests/witness/test_mp112.py shows on the CPU that a new thread forgets the dtype.

    ## References
    - <https://docs.pytorch.org/docs/stable/notes/amp_examples.html#dataparallel-in-a-single-process>
    - <https://github.com/pytorch/pytorch/blob/main/torch/nn/parallel/parallel_apply.py>
    """

    code = "MP112"
    name = "dataparallel-loses-autocast-dtype"
    severity = Severity.WARNING
    fix = Applicability.DISPLAY
    frameworks = ("torch",)
    tokens = ("DataParallel(",)
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each DataParallel whose replicas run under bfloat16 autocast."""
        for entry, event in trace.of("replicas run"):
            made = event.data["made"]
            if not isinstance(made, Place):
                continue
            for path, region in steps.replicas_in_float16(event):
                verdict = self.verdict(trace, entry, path, made)
                chosen = tuple(Step(step.place, "bfloat16 is chosen here") for step in region.chain[:1])
                what = "`DataParallel` runs its replicas in float16, not in the bfloat16 of the autocast around them"
                yield self.at(
                    trace,
                    made,
                    what + verdict.condition(),
                    why="each replica runs in a thread that gets no dtype; float16 ends at 65504"
                    + ("" if entry.of("loss scaled") else ", and no loss scaling is there"),
                    help="use `DistributedDataParallel`, or enter autocast with its dtype in the module's own `forward`",
                    confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                    steps=(Step(event.place, "the replicas run from here"), *chosen),
                )
