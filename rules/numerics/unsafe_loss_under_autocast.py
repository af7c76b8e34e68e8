"""MP206: binary cross entropy on probabilities under autocast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mplint.findings import Applicability, Finding, Severity
from mplint.frameworks.torch import half
from mplint.frameworks.torch.steps import is_entered
from mplint.program.trace import Trace
from mplint.program.values import Autocast, Place, Step
from mplint.rule import Rule

from .loss_on_logits import take_logits

ON_LOGITS = "take the loss on the logits, without the sigmoid: `binary_cross_entropy_with_logits` or `BCEWithLogitsLoss`"
IN_FLOAT32 = "; where no sigmoid gave the probabilities, take it of `.float()` ones under `torch.autocast(…, enabled=False)`"


class Told(NamedTuple):
    """What is said of such a loss."""

    message: str
    why: str


ROUNDED = "a sigmoid of 9 is 1.0 and log(1 - p) is -inf"
TOLD = {
    "": Told("under autocast raises a RuntimeError", f"In float16 {ROUNDED}, so PyTorch refuses the loss on probabilities."),
    "apex": Told(
        "of float16 probabilities raises a NotImplementedError under apex",
        f"At the level O1 the network's outputs are float16, where {ROUNDED}: apex refuses the loss on such probabilities.",
    ),
    "mps": Told("under autocast runs in float16", f"On MPS the loss runs in float16, where {ROUNDED}."),
}


class UnsafeLossUnderAutocast(Rule):
    """Binary cross entropy on probabilities under autocast

    ## What it does
    Finds `torch.nn.functional.binary_cross_entropy` and `torch.nn.BCELoss` that run inside an autocast region,
    wherever the region is entered.

    ## Why is this bad?
    In float16 a sigmoid of 8 is 0.9997 and one of 9 is already 1.0, so that log(1 - p) is log(0). PyTorch refuses: on CUDA and XPU the
    call raises "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast". On MPS it runs in float16
    without a word.

    ## Example
    ```python
    import torch
    from torch.nn import functional as F

    def train_step(model, images, labels):
        with torch.autocast("cuda"):
            probabilities = torch.sigmoid(model(images))
            return F.binary_cross_entropy(probabilities, labels)
    ```

    ## Use instead
    ```python
    import torch
    from torch.nn import functional as F

    def train_step(model, images, labels):
        with torch.autocast("cuda"):
            logits = model(images)
            return F.binary_cross_entropy_with_logits(logits, labels)
    ```

    ## Fix safety
    Unsafe: the loss on logits is the same function, and the sigmoid moves to where the probabilities are still wanted. Offered where
    sigmoid and loss are both in sight: the sigmoid in the call or bound to a name, or at the end of a model (its `forward`, an
    `nn.Sequential`) whose uses are all in this file; inference gets the sigmoid then. Weights that were saved stay good; a model that
    another program loads returns logits.

    ## Evidence
    Shown on the CPU, with fake CUDA tensors, by tests/witness/test_mp206.py; what the fix writes by tests/witness/test_mp206_fixed.py

    ## References
    - PyTorch: "Prefer binary_cross_entropy_with_logits over binary_cross_entropy", https://pytorch.org/docs/stable/amp.html
    """

    code = "MP206"
    name = "unsafe-loss-under-autocast"
    severity = Severity.ERROR
    fix = Applicability.UNSAFE
    frameworks = ("torch",)
    tokens = ("binary_cross_entropy", "BCELoss")
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each loss on probabilities that autocast refuses to compute."""
        for item in half.found(trace, "raises under autocast"):
            event = item.event
            region = event.data["autocast"]
            if not isinstance(region, Autocast) or region.device == "cpu":
                continue
            name = str(event.data["name"])
            silent = region.device == "mps"
            steps = (*region.chain, *item.chain())
            made, place = event.data["made"], event.place
            if isinstance(made, Place) and (item.entry.context or not is_entered(item.entry, region)):
                place, steps = made, (*steps, Step(event.place, "the loss is taken here"))
            told = TOLD["apex" if region.by else "mps" if silent else ""]
            yield self.at(
                trace,
                place,
                f"`{name}` {told.message}{item.condition}",
                why=told.why,
                help=ON_LOGITS if region.by else ON_LOGITS + IN_FLOAT32,
                severity=Severity.WARNING if silent else None,
                confidence=item.confidence,
                steps=steps,
                fix=take_logits(trace, event.place, made),
            )
