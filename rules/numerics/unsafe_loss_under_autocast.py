"""MP206: binary cross entropy on probabilities under autocast."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Applicability, Change, Confidence, Finding, Fix, Replace, Severity
from mplint.rule import Rule
from mplint.source.file import SourceFile
from mplint.source.values import UNKNOWN

FUNCTIONS = ("torch.nn.functional.binary_cross_entropy", "torch.binary_cross_entropy")
CLASS = "torch.nn.BCELoss"
FLOAT32_DECORATORS = ("custom_fwd", "force_fp32")


class UnsafeLossUnderAutocast(Rule):
    """Binary cross entropy on probabilities under autocast

    ## What it does
    Finds `torch.nn.functional.binary_cross_entropy` and `torch.nn.BCELoss` that run inside an autocast region, in the same function or
    through helpers of the file.

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
    Unsafe: the loss on logits is the same function, but the sigmoid is dropped from the value that other code may read. Offered where
    sigmoid and loss are both in sight.

    ## Evidence
    Shown on the CPU, with fake CUDA tensors, by tests/witness/test_mp206.py.

    ## References
    - PyTorch: "Prefer binary_cross_entropy_with_logits over binary_cross_entropy", https://pytorch.org/docs/stable/amp.html
    """

    code = "MP206"
    name = "unsafe-loss-under-autocast"
    severity = Severity.ERROR
    fix = Applicability.UNSAFE
    frameworks = ("torch",)
    tokens = ("binary_cross_entropy", "BCELoss")

    def check_source(self, file: SourceFile) -> Iterator[Finding]:
        if "autocast" not in file.document.text:
            return
        for call in file.syntax.all(ast.Call):
            maker = self.loss(file, call)
            if maker is None or (region := file.precision.autocast(call)) is None or self.in_float32(file, call):
                continue
            devices = self.devices(file, call)
            if devices == {"cpu"}:
                continue
            silent = devices == {"mps"}
            what = "BCELoss" if maker is not call else "binary_cross_entropy"
            yield self.finding(
                file,
                call,
                f"`{what}` under autocast " + ("runs in float16" if silent else "raises a RuntimeError"),
                why="In float16 a sigmoid of 9 is 1.0 and log(1 - p) is -inf, so PyTorch refuses the loss on probabilities."
                if not silent
                else "On MPS the loss runs in float16, where a sigmoid of 9 is 1.0 and log(1 - p) is -inf.",
                help="take the loss on the logits: `binary_cross_entropy_with_logits` or `BCEWithLogitsLoss`, and drop the sigmoid",
                severity=Severity.WARNING if silent else Severity.ERROR,
                confidence=Confidence.HIGH if UNKNOWN not in devices else Confidence.MEDIUM,
                related=((region.because, "autocast is in force from here"),) if region.because is not None else (),
                fix=self.repair(file, call, maker),
            )

    def loss(self, file: SourceFile, call: ast.Call) -> ast.Call | None:
        """The call itself for the function, the construction for a BCELoss object that is called; None for anything else."""
        if file.names.resolve(call.func) in FUNCTIONS:
            return call
        partial = file.values.partial_of(call.func)
        if partial is not None and file.names.resolve(partial.args[0]) in FUNCTIONS:
            return call
        if isinstance(call.func, (ast.Name, ast.Attribute, ast.Call)):
            made = file.values.made_by(call.func)
            if made and all(name == CLASS for _, name in made):
                return made[0][0]
        return None

    def in_float32(self, file: SourceFile, call: ast.Call) -> bool:
        function = file.syntax.function(call)
        return function is not None and any(name in file.text(d) for d in function.decorator_list for name in FLOAT32_DECORATORS)

    def devices(self, file: SourceFile, call: ast.Call) -> set[str]:
        regions = file.torch.autocasts.regions_around(call)
        return {device for region in regions[:1] for autocast in region.autocasts for device in autocast.devices} or {UNKNOWN}

    def repair(self, file: SourceFile, call: ast.Call, maker: ast.Call) -> Fix | None:
        """Loss on logits, where the sigmoid is this call's own argument or a name bound once to it and read only here."""
        sigmoid = self.sigmoid(file, call.args[0]) if call.args else None
        if sigmoid is None or call.keywords:
            return None
        place, logits = sigmoid
        changes: list[Change] = [Replace(file.span(place), file.text(logits))]
        named = maker.func if maker is not call else call.func
        if isinstance(named, ast.Attribute):
            name = "BCEWithLogitsLoss" if maker is not call else "binary_cross_entropy_with_logits"
            changes.append(Replace(file.span(named), f"{file.text(named.value)}.{name}"))
        else:
            return None
        if maker is not call and len(file.values.call_sites.get(file.syntax.function(call), ())) > 1:  # type: ignore[arg-type]
            return None
        return Fix("take the loss on the logits", Applicability.UNSAFE, tuple(changes))

    def sigmoid(self, file: SourceFile, node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
        """The sigmoid expression and its logits."""
        if isinstance(node, ast.Name):
            scope, bindings = file.names.lookup(node)
            reads = [
                n for n in file.syntax.all(ast.Name) if n.id == node.id and isinstance(n.ctx, ast.Load) and file.names.lookup(n)[0] is scope
            ]
            if len(bindings) != 1 or len(reads) != 1 or bindings[0].value is None or bindings[0].element is not None:
                return None
            node = bindings[0].value
        match node:
            case ast.Call(func=ast.Attribute(attr="sigmoid", value=receiver), args=[]):
                return node, receiver
            case ast.Call(func=func, args=[logits]) if file.names.resolve(func) in ("torch.sigmoid", "torch.nn.functional.sigmoid"):
                return node, logits
        return None
