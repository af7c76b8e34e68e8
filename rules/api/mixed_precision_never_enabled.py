"""MP115: the mixed-precision API is there, and nothing in the project enables it."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from mplint.findings import Confidence, Finding, Severity
from mplint.frameworks.projects import enabled_elsewhere, holds
from mplint.program.trace import Trace
from mplint.python.file import SourceFile
from mplint.rule import Rule

from .unused_amp_api import idle_apis


class MixedPrecisionNeverEnabled(Rule):
    """Mixed precision prepared and never put in force

    ## What it does
    Finds projects that import the mixed-precision API (`autocast` or `GradScaler` of torch, `mixed_precision` of Keras) or build a mixed
    policy, and never put it in force: no file enters autocast, sets a policy, converts a model or asks a trainer for half precision.

    ## Why is this bad?
    Everything runs in float32, at up to an eighth of what Tensor Cores give (A100: 19.5 TFLOPS against 312 in float16), and takes twice
    the memory for activations. The import suggests otherwise.

    ## Example
    ```python
    import keras
    from keras import mixed_precision

    policy = mixed_precision.Policy("mixed_float16")
    model = keras.Sequential([keras.layers.Dense(256), keras.layers.Dense(10)])
    ```
    ```python
    import torch
    from torch.amp import GradScaler, autocast

    def step(model, x, y, optimizer):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    import keras
    from keras import mixed_precision

    mixed_precision.set_global_policy("mixed_float16")
    model = keras.Sequential([keras.layers.Dense(256), keras.layers.Dense(10, dtype="float32")])
    ```
    ```python
    import torch
    from torch.amp import GradScaler, autocast

    scaler = GradScaler("cuda")

    def step(model, x, y, optimizer):
        with autocast("cuda"):
            loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    ```

    ## Evidence
    Shown on the CPU by tests/witness/test_mp115.py; the speed shows only on a GPU.

    ## References
    - <https://keras.io/api/mixed_precision/>
    - <https://docs.pytorch.org/docs/stable/amp.html>
    """

    code = "MP115"
    name = "mixed-precision-never-enabled"
    severity = Severity.INFO
    frameworks = ("torch", "keras")
    tokens = ("autocast", "GradScaler", "mixed_precision", ".amp", "import amp", "DTypePolicy")

    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report the first import, or the policy, that nothing in the project puts in force."""
        for file in trace.programs(*self.tokens):
            path = trace.path_of(file)
            if os.path.basename(path) == "__init__.py" or enabled_elsewhere(trace, path) or not holds(trace, path, own_imports(file)):
                continue
            yield from self.idle(file)

    def idle(self, file: SourceFile) -> Iterator[Finding]:
        """The API that a file imports or builds and never uses."""
        for idle in idle_apis(file):
            verb = "is built" if isinstance(idle.node, ast.Call) else "are imported" if " and " in idle.what else "is imported"
            yield self.finding(
                file,
                idle.node,
                f"{idle.what} {verb}, and nothing in the project enables mixed precision",
                why="all of it runs in float32, at up to an eighth of the speed of Tensor Cores and with twice the memory for activations",
                help="set the policy before the model is built: `set_global_policy('mixed_float16')`"
                if idle.framework == "keras"
                else "run the forward pass and the loss under `torch.autocast`, and scale the loss where it is float16",
                confidence=Confidence.MEDIUM,
            )


def own_imports(file: SourceFile) -> list[str]:
    """The relative imports of a file: modules of its own project, without which nothing can be said about that project."""
    return sorted({"." * s.level + (s.module or "") for s in file.syntax.all(ast.ImportFrom) if s.level and s.module})
