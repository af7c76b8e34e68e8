"""A GradScaler for losses that run under autocast in float16: what MP301's fix does, for the device of the program."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from mplint.conversion.source.torch.spelling import Spelling, imports_torch, torch_name
from mplint.findings import AddImport, Applicability, Fix
from mplint.source.file import SourceFile
from mplint.source.torch.forward import region_behind
from mplint.source.torch.loop import BACKWARD, receiver
from mplint.source.torch.scaling.insertion import Insertion
from mplint.source.torch.scaling.plan import NoFix

POLICY = "mixed_float16"


class Scaling(Insertion):
    """Brings a scaler to backward passes whose forward is under autocast."""

    @property
    def name(self) -> str:  # type: ignore[override]
        """`scaler`, or another name where the program uses that one."""
        bound = {n.id for n in self.file.syntax.all(ast.Name)} | {n.arg for n in self.file.syntax.all(ast.arg)}
        bound |= {n.attr for n in self.file.syntax.all(ast.Attribute)}
        return next(name for name in ("scaler", "grad_scaler", "loss_scaler", "amp_scaler") if name not in bound)

    def construction(self) -> str:
        """The call that builds the scaler for the device that is named where it is built."""
        return Spelling(self.file, POLICY).scaler(self.place.anchor)


def scaled(file: SourceFile, backwards: Sequence[ast.Call]) -> Fix:
    """The fix that scales the losses of these backward passes; raises NoFix where not all of it is in sight."""
    loop = file.torch.loop
    cases = []
    for act in loop.acts(BACKWARD):
        loss = receiver(act)
        if act.node in backwards and loss is not None:
            region = loop.region_around(act) or region_behind(file, loop.scalers.subjects.bound(loss, act.calls)[0])
            if region is None:
                raise NoFix(f"the forward pass of `{file.text(loss)}` is not under autocast")
            cases.append((act, region))
    changes = tuple(dict.fromkeys(Scaling(file, loop, cases).changes()))
    if torch_name(file) != "torch" or imports_torch(file):
        changes = tuple(change for change in changes if change != AddImport("torch"))
    return Fix("Scale the loss with a GradScaler", Applicability.UNSAFE, changes)
