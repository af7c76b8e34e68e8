"""Optimizers: which `x.step()` updates weights, and which frameworks scale, clip and step on their own."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING

from mplint.configs.trainers.duties import OBJECTS
from mplint.source.torch.trainers import Trainers

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
        if self.file.fact(Trainers).scale_and_step:
            return True
        return "scale_loss" in self.file.document.text and any(name.partition(".")[0] == "apex" for name in self.names_used)

    @cached_property
    def names_used(self) -> frozenset[str]:
        """Dotted names of everything that the file imports."""
        found = {f"{i.module or ''}.{a.name}" for i in self.syntax.all(ast.ImportFrom) if not i.level for a in i.names}
        return frozenset(found | {a.name for i in self.syntax.all(ast.Import) for a in i.names})

    def is_optimizer(self, node: ast.expr, calls: tuple[ast.Call, ...] = ()) -> bool:
        """Whether `node` is an optimizer in the hands of this program (not a scheduler, and not one that a framework has prepared)."""
        node, calls = self.subjects.bound(node, calls)
        if self.file.fact(Trainers).stands_for_one(node) or self.file.fact(Trainers).hands_out(node):
            return False
        if self.subjects.key(node, calls) in self.stepped_by_scalers:
            return True
        names = [name for d in self.values.definitions(node) if isinstance(d, ast.Call) for name in self._names_of(d)]
        if any(part in name for name in names for part in NOT_ONE):
            return False
        if any(
            name.startswith("torch.optim.") or name.endswith(CLASS_ENDS) or makes_one(name.rpartition(".")[2].lower()) for name in names
        ):
            return True
        last = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        return CALLED_LIKE_ONE.match(last) is not None

    def _names_of(self, call: ast.Call) -> list[str]:
        local = self.names.local_function(call.func)
        bases = self.names.base_names(local) if isinstance(local, ast.ClassDef) else []
        return [*self.names.candidates(call.func), *bases, ast.unparse(call.func)]

    def is_loss(self, node: ast.expr) -> bool:
        """Whether `node.backward()` is autograd's own: not a framework's engine and not a method of this file."""
        match node:
            case ast.Call(func=ast.Name(id="super")):
                return False
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in OBJECTS or name == "super":
                return False
            case ast.Name(id="self" | "cls"):
                return False
        owner = self.values.instance_class(node)
        return owner is None or self.names.method(owner, "backward") is None


def makes_one(name: str) -> bool:
    """Whether a function called so may give an optimizer; `optimize` and the like give back the model that they speed up."""
    return "optim" in name and not (name == "optimize" or name.startswith("optimize_"))
