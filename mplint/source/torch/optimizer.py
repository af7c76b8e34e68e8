"""Optimizers: which `x.step()` updates weights, and which frameworks scale, clip and step on their own."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING

from mplint.source.torch.subjects import root_name

if TYPE_CHECKING:
    from mplint.source.file import SourceFile
    from mplint.source.torch.scaler import Scalers

CALLED_LIKE_ONE = re.compile(r"(\w*_)?(opt|optim|optimi[sz]er)(_\w+|\d+)?s?$", re.IGNORECASE)
CLASS_ENDS = (
    "Adam",
    "AdamW",
    "Adamax",
    "SGD",
    "Adagrad",
    "Adadelta",
    "RMSprop",
    "Rprop",
    "LBFGS",
    "Lamb",
    "LAMB",
    "LARS",
    "Lion",
    "Adafactor",
    "Adan",
    "Optimizer",
)
NOT_ONE = ("lr_scheduler", "scheduler", "Scheduler", "swa_utils", "Wrapper")
# What makes an object of these roots scales, unscales before clipping and steps by itself.
MANAGERS = (
    "accelerate",
    "lightning",
    "pytorch_lightning",
    "lightning_fabric",
    "deepspeed",
    "colossalai",
    "mmengine",
    "mmcv",
    "composer",
    "ignite",
    "fastai",
    "catalyst",
)
MANAGED_CALLS = ("prepare", "setup", "setup_optimizers", "prepare_optimizer", "initialize")
MANAGED_NAMES = ("accelerator", "fabric", "trainer", "engine", "model_engine", "optim_wrapper", "super")


class Optimizers:
    """Recognizes the optimizers of one file."""

    def __init__(self, file: SourceFile, scalers: Scalers) -> None:
        self.file = file
        self.syntax, self.names, self.values = file.syntax, file.names, file.values
        self.scalers, self.subjects = scalers, scalers.subjects

    @cached_property
    def stepped_by_scalers(self) -> frozenset[str]:
        """Keys of what is passed to a scaler's `step` or `unscale_`."""
        found = set()
        for call in self.syntax.all(ast.Call):
            match call:
                case ast.Call(func=ast.Attribute(attr="step" | "unscale_", value=owner), args=[optimizer, *_]) if self.scalers.scaler_of(
                    owner
                ):
                    found.add(self.subjects.key(optimizer))
        return frozenset(found)

    @cached_property
    def managed(self) -> bool:
        """Whether a training framework in this file takes over scaling, clipping and stepping."""
        for name in self.names_used:
            root, _, rest = name.partition(".")
            if root in MANAGERS or (root == "apex" and "scale_loss" in self.file.document.text):
                return True
            if root == "transformers" and rest.rpartition(".")[2] in ("Trainer", "Seq2SeqTrainer", "TrainingArguments"):
                return True
        return False

    @cached_property
    def names_used(self) -> frozenset[str]:
        """Dotted names of everything that the file imports."""
        found = {f"{i.module or ''}.{a.name}" for i in self.syntax.all(ast.ImportFrom) if not i.level for a in i.names}
        return frozenset(found | {a.name for i in self.syntax.all(ast.Import) for a in i.names})

    def is_optimizer(self, node: ast.expr, calls: tuple[ast.Call, ...] = ()) -> bool:
        """Whether `node` is an optimizer in the hands of this program (not a scheduler, and not one that a framework has prepared)."""
        node, calls = self.subjects.bound(node, calls)
        if self._is_handed_out(node):
            return False
        if self.subjects.key(node, calls) in self.stepped_by_scalers:
            return True
        names = [name for d in self.values.definitions(node) if isinstance(d, ast.Call) for name in self._names_of(d)]
        if any(part in name for name in names for part in NOT_ONE):
            return False
        if any(
            name.startswith("torch.optim.") or name.endswith(CLASS_ENDS) or "optim" in name.rpartition(".")[2].lower() for name in names
        ):
            return True
        last = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        return CALLED_LIKE_ONE.match(last) is not None

    def _names_of(self, call: ast.Call) -> list[str]:
        local = self.names.local_function(call.func)
        bases = self.names.base_names(local) if isinstance(local, ast.ClassDef) else []
        return [*self.names.candidates(call.func), *bases, ast.unparse(call.func)]

    def _is_handed_out(self, node: ast.expr) -> bool:
        """Whether the object comes out of a framework's `prepare` or `setup`."""
        if root_name(node) in MANAGED_NAMES:
            return True
        if isinstance(node, ast.Name):
            values = [b.value for b in self.names.reaching(node)]
        else:
            values = [d for d in self.values.definitions(node) if isinstance(d, ast.Call)]
        return any(isinstance(v, ast.Call) and isinstance(v.func, ast.Attribute) and v.func.attr in MANAGED_CALLS for v in values)

    def is_loss(self, node: ast.expr) -> bool:
        """Whether `node.backward()` is autograd's own: not a framework's engine and not a method of this file."""
        match node:
            case ast.Call(func=ast.Name(id="super")):
                return False
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in MANAGED_NAMES:
                return False
            case ast.Name(id="self" | "cls"):
                return False
        owner = self.values.instance_class(node)
        return owner is None or self.names.method(owner, "backward") is None
