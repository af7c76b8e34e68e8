"""MP406: float32 matrix products without TF32."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.configs.trainers.duties import kind_of
from mplint.findings import Confidence, Finding, Severity
from mplint.python.file import SourceFile
from mplint.rule import Rule, Surroundings

# Whoever writes one of these has decided about TF32, or computes in half anyway.
DECIDED = (
    "tf32", "float32_matmul_precision", "fp32_precision", "autocast", "float16", "fp16", "bf16", ".half(", "apex", "deepspeed",
)  # fmt: skip
PRODUCTS = frozenset({"matmul", "mm", "bmm", "baddbmm", "addmm", "einsum", "linear", "scaled_dot_product_attention"})
SMALL = 128  # narrower layers take no time worth saving
LINEAR = frozenset({"torch.nn.Linear", "torch.nn.LazyLinear"})
ATTENTION = ("MultiheadAttention", "Transformer")


class Tf32Disabled(Rule):
    """float32 matrix products without TF32

    ## What it does
    Finds PyTorch programs that train on CUDA in float32, spend their time in matrix products (attention, several Linear layers, models
    from transformers) and never say whether TF32 may be used. Says nothing where the program decides either way, trains in half
    precision, is made of convolutions (cuDNN uses TF32 by default), or where the target has no TF32. A setting in another file is not seen.

    ## Why is this bad?
    Since Ampere, Tensor Cores multiply float32 matrices in TF32, with float32's range and 10 bits of mantissa: 156 TFLOPS against 19.5 on
    an A100. torch 1.12 and later leave it off for matrix products, so that they run at an eighth of what the GPU offers.

    ## Example
    ```python
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()

    def step(batch, target, optimizer):
        loss = nn.functional.mse_loss(model(batch), target)
        loss.backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    import torch
    from torch import nn

    torch.set_float32_matmul_precision("high")
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()

    def step(batch, target, optimizer):
        loss = nn.functional.mse_loss(model(batch), target)
        loss.backward()
        optimizer.step()
    ```

    ## Evidence
    Shows only on a GPU since Ampere: time, not results. The numbers are NVIDIA's for the A100.

    ## References
    - <https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices>
    - <https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html>
    """

    code = "MP406"
    name = "tf32-disabled"
    severity = Severity.INFO
    frameworks = ("torch",)
    tokens = ("backward(",)

    def check_source(self, file: SourceFile, around: Surroundings) -> Iterator[Finding]:
        """Yield the place where the model moves to CUDA, once."""
        target, text = around.targets.hardware, file.document.text.lower()
        if file.is_test or (target is not None and not (target.kind == "cuda" and target.tf32)) or any(word in text for word in DECIDED):
            return
        if any(scales_and_steps(name) for name in imported(file)):
            return
        if around.targets.torch is not None and around.targets.torch.below("1.12"):  # there, TF32 is on by default
            return
        moved = next((call for call in file.syntax.all(ast.Call) if moves_to_cuda(file, call)), None)
        if moved is None or not trains(file) or not multiplies(file):
            return
        yield self.finding(
            file,
            moved,
            "training runs in float32 on CUDA, and nothing allows TF32 for its matrix products",
            why="From Ampere on, TF32 multiplies at 156 TFLOPS where float32 does 19.5 (A100); torch leaves it off by default.",
            help='Call `torch.set_float32_matmul_precision("high")` once at the start, or train in mixed precision.',
            confidence=Confidence.MEDIUM,
        )


def imported(file: SourceFile) -> Iterator[str]:
    """The dotted names that the file imports."""
    for statement in file.syntax.all(ast.ImportFrom):
        if not statement.level:
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)
    for plain in file.syntax.all(ast.Import):
        yield from (alias.name for alias in plain.names)


def scales_and_steps(name: str) -> bool:
    """Whether an imported name is that of a trainer, which chooses the precision itself."""
    kind = kind_of(name)
    return kind is not None and kind.takes_part(name) and {"scale", "step"} <= kind.does


def moves_to_cuda(file: SourceFile, call: ast.Call) -> bool:
    """Whether the call is `.cuda()`, or `.to(…)` of "cuda" or of a name that stands for it."""
    match call.func:
        case ast.Attribute(attr="cuda", value=ast.Name() | ast.Attribute() | ast.Call() as owner) if file.names.resolve(owner) != "torch":
            return True
        case ast.Attribute(attr="to") if call.args:
            given = call.args[0]
            bound = [b.value for b in file.names.reaching(given)] if isinstance(given, ast.Name) else [given]
            return any(names_cuda(value) for value in bound if value is not None)
    return False


def names_cuda(value: ast.expr) -> bool:
    """Whether an expression has "cuda" or "cuda:1" in it, alone or in the call of torch.device."""
    return any(isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value.startswith("cuda") for n in ast.walk(value))


def trains(file: SourceFile) -> bool:
    """Whether the program computes gradients and steps an optimizer."""
    called = {call.func.attr for call in file.syntax.all(ast.Call) if isinstance(call.func, ast.Attribute)}
    return {"backward", "step"} <= called


def multiplies(file: SourceFile) -> bool:
    """Whether matrix products, not convolutions, are what the program's model is made of."""
    names = [name for call in file.syntax.all(ast.Call) for name in file.names.candidates(call.func)]
    modules = [name.rpartition(".")[2] for name in names if name.startswith("torch.nn.") and not name.startswith("torch.nn.functional.")]
    if any(module.startswith(ATTENTION) for module in modules) or any(is_pretrained(name) for name in names):
        return True
    if any(module.startswith("Conv") for module in modules):
        return False
    linear = [c for c in file.syntax.all(ast.Call) if not LINEAR.isdisjoint(file.names.candidates(c.func))]
    sizes = [[a.value for a in c.args[:2] if isinstance(a, ast.Constant) and isinstance(a.value, int)] for c in linear]
    if sizes and all(sizes) and max(min(given) for given in sizes) < SMALL:
        return False
    products = any(name.startswith("torch.") and name.rpartition(".")[2] in PRODUCTS for name in names)
    return products or modules.count("Linear") >= 2


def is_pretrained(name: str) -> bool:
    """Whether the dotted name loads one of transformers' models."""
    return name.startswith("transformers.") and name.endswith(".from_pretrained") and "Model" in name
