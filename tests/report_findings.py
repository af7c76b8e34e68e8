"""A small program and findings about it, for the tests of reports."""

from __future__ import annotations

from pathlib import Path

from mplint.findings import Applicability, Confidence, Edit, Finding, Fix, Location, Related, Severity
from mplint.report.sources import Sources

PROGRAM = """\
import torch

scaler = torch.amp.GradScaler("cuda")

def step(model, loss, optimizer):
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    # the limit is meant for the true gradients
    # so it must come after unscale_
    scaler.step(optimizer)
    scaler.update()
"""
CLIP = Location("src/train.py", 7, 5, 7, 60)
UNSCALE = Edit(Location("src/train.py", 7, 5, 7, 5), "scaler.unscale_(optimizer)\n    ")


def clip_before_unscale(location: Location = CLIP, **changes: object) -> Finding:
    """The finding that the reports show, with some fields changed."""
    fields: dict[str, object] = {
        "code": "MP304",
        "name": "clip-before-unscale",
        "severity": Severity.ERROR,
        "confidence": Confidence.HIGH,
        "message": "gradients are clipped while they are still multiplied by the loss scale",
        "location": location,
        "why": "the scale starts at 65536, so a limit of 1.0 cuts the true gradients to 1.5e-5.",
        "help": "call `scaler.unscale_(optimizer)` before clipping.",
        "related": (Related(Location("src/train.py", 6, 5, 6, 34), "scaled here"),),
        "fix": Fix("insert `scaler.unscale_(optimizer)`", Applicability.SAFE),
    }
    return Finding(**(fields | changes))  # type: ignore[arg-type]


class ProgramSources(Sources):
    """Sources whose fixes are already edits."""

    def edits(self, finding: Finding) -> tuple[Edit, ...]:
        return (UNSCALE,) if finding.fix is not None else ()


def write_program(folder: Path, text: str = PROGRAM, name: str = "src/train.py") -> None:
    """Put a program where the findings are."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
