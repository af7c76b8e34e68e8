"""The rules: one class a mistake. docs/writing-rules.md of mplint says what a rule can ask."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mplint.findings import AddImport, Applicability, Confidence, Finding, Fix, Replace, Severity
from mplint.program.machine import Args
from mplint.program.trace import Trace, possible
from mplint.program.values import Constant
from mplint.rule import Option, Rule, Surroundings

if TYPE_CHECKING:
    from mplint.python.file import SourceFile


class AutocastByHand(Rule):
    """Autocast that does not go through acme.precision

    ## What it does
    Finds `with torch.autocast("cuda"):` in Acme's code.

    ## Why is this bad?
    `acme.precision.region()` takes the dtype from the job's configuration; autocast by hand takes float16 everywhere.
    """

    code = "ACME001"
    name = "autocast-by-hand"
    severity = Severity.WARNING
    fix = Applicability.UNSAFE
    frameworks = ("torch",)
    tokens = ("autocast",)

    def check_source(self, file: SourceFile, around: Surroundings) -> Iterator[Finding]:
        """Yield the calls that are entered."""
        for statement in file.syntax.all(ast.With):
            for item in statement.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and file.names.resolve(call.func) == "torch.autocast":
                    changes = (AddImport("acme.precision"), Replace(file.span(call), "acme.precision.region()"))
                    yield self.finding(
                        file,
                        call,
                        "autocast is entered by hand",
                        why="the dtype of a job is that of its configuration.",
                        help="Use `acme.precision.region()`.",
                        fix=Fix("use `acme.precision.region()`", Applicability.UNSAFE, changes),
                    )


class ScaleTooHigh(Rule):
    """A loss scaler that starts higher than Acme's models bear

    ## What it does
    Finds loss scalers whose first scale is above the one that is configured, wherever the number comes from.

    ## Why is this bad?
    The first steps are skipped until the scale has come down, and short jobs take few steps.
    """

    code = "ACME002"
    name = "scale-too-high"
    severity = Severity.WARNING
    frameworks = ("torch",)
    tokens = ("GradScaler",)
    program = True
    options = (Option("highest", 65536, 1, "the highest first scale"),)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Yield the scalers that are made, in whichever function or file."""
        for entry in trace.entries:
            for event in entry.of("scaler made"):
                args = event.data["args"]
                value = args.get(-1, "init_scale") if isinstance(args, Args) else None
                highest = self.option("highest", trace.targets(event.place.path))
                for path, atom in possible(value, event.path) if value is not None else ():
                    if isinstance(atom, Constant) and isinstance(atom.value, int | float) and atom.value > highest:
                        verdict = self.verdict(trace, entry, path, event.place)
                        yield self.at(
                            trace,
                            event.place,
                            f"the loss scale starts at {atom.value:g}{verdict.condition()}",
                            why="the first steps are skipped until the scale has come down.",
                            help=f"Begin with {highest} or less.",
                            confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                        )
