"""How autocast and the scaler are written for the torch that a program runs under."""

from __future__ import annotations

import ast

from mplint.adopt.execution import Execution
from mplint.adopt.torch.devices import device_type
from mplint.adopt.torch.models import Models
from mplint.python.file import SourceFile
from mplint.recipes.scaler.insertion import grad_scaler
from mplint.recipes.scaler.plan import NoFix, require

DTYPES = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}
NO_DEVICE = "on which device it trains is not known where that is needed: name it there in a variable `device`"


class Spelling:
    """The text of what is added to one file, for one policy."""

    def __init__(self, execution: Execution, policy: str) -> None:
        self.file, self.targets, self.dtype = execution.file, execution.targets, DTYPES[policy]
        self.torch, self.models = torch_name(self.file), Models(execution)

    def header(self, node: ast.AST) -> str:
        """The `with` line that opens autocast at `node`; raises NoFix where it can't be written."""
        device = self._device(node)
        if self.targets.torch_lacks("1.10"):
            require(self.dtype == "float16", "the torch that the project pins has autocast for float16 only")
            return f"with {self.torch}.cuda.amp.autocast():"
        given = [f"device_type={device}", f"dtype={self.torch}.{self.dtype}", self._switch(device)]
        return f"with {self.torch}.autocast({', '.join(filter(None, given))}):"

    def scaler(self, node: ast.AST) -> str:
        """The call that builds the scaler at `node`; raises NoFix where it can't be written."""
        device = self._device(node)
        old = self.targets.torch_lacks("2.3")
        return grad_scaler(self.targets, device, [self._old_switch(device) if old else self._switch(device)], self.torch)

    def _device(self, node: ast.AST) -> str:
        device = device_type(self.models, node)
        if device is None:
            raise NoFix(NO_DEVICE)
        return device

    def _old_switch(self, device: str) -> str:
        return "" if device.startswith('"') else f'enabled={device} == "cuda"'

    def _switch(self, device: str) -> str:
        """LSTMs have no float16 kernel on most CPUs: there such a program goes on in float32."""
        found = has_lstm(self.file) or (device == '"cpu"' and runs_lstm(self.models.execution))
        if self.dtype != "float16" or not found or device == '"cuda"':
            return ""
        require(device != '"cpu"', "an LSTM has no float16 kernel on the CPU: train in mixed_bfloat16, or on an accelerator")
        return f'enabled={device} != "cpu"'


def has_lstm(file: SourceFile) -> bool:
    """Whether the program may build an LSTM: its name stands in code, or in a text that may choose it, and not in a comment alone."""
    named = (getattr(node, field, None) for node in ast.walk(file.tree) for field in ("id", "attr", "name", "value"))
    return "LSTM" in file.document.text and any(isinstance(name, str) and "LSTM" in name and " " not in name for name in named)


def runs_lstm(execution: Execution) -> bool:
    """Whether a file that runs with the program makes an LSTM of torch (its cells alone have such kernels)."""
    files = (execution.trace.file(path) for path in execution.beside)
    calls = (call.func for file in files if file is not None for call in file.syntax.all(ast.Call))
    return any((func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")) == "LSTM" for func in calls)


def torch_name(file: SourceFile) -> str:
    """The name under which the program imports torch."""
    for statement in file.syntax.all(ast.Import):
        for alias in statement.names:
            if alias.name == "torch" and isinstance(file.syntax.parents[statement], ast.Module):
                return alias.asname or "torch"
    return "torch"


def imports_torch(file: SourceFile) -> bool:
    """Whether the module itself imports torch."""
    imports = [i for i in file.syntax.all(ast.Import) if isinstance(file.syntax.parents[i], ast.Module)]
    return any(a.name == "torch" or (a.name.startswith("torch.") and not a.asname) for i in imports for a in i.names)
