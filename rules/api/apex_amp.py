"""MP104: apex.amp, which apex no longer has."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from mplint.findings import Applicability, Finding, Fix, RemoveImport, Severity
from mplint.python.file import SourceFile
from mplint.python.syntax import argument
from mplint.rule import Rule, Surroundings

from .apex.uses import AMP, Apex, Use

LEVELS = {
    "O0": "level O0 is float32: leave amp out, or disable autocast and GradScaler",
    "O3": "level O3 is pure float16, which torch.amp does not do on purpose: train with autocast and GradScaler, as after O1",
}
HELP = "use `torch.autocast` and `torch.amp.GradScaler`"
DROP = "drop the import, which nothing here uses"


class ApexAmp(Rule):
    """Mixed precision by apex.amp, which nobody maintains

    ## What it does
    Finds mixed precision by `apex.amp`: its import, `initialize`, `scale_loss`, `master_params`, `state_dict`.

    ## Why is this bad?
    apex no longer contains `apex.amp`: with an apex of today the import raises ImportError. What it did has been in torch since version
    1.6. Levels O1 and O2 become autocast with a GradScaler, and the weights stay in float32, which O2 kept as a second copy of 4 bytes
    per weight. Level O0 is plain float32. Level O3, float16 throughout, has no counterpart.

    ## Example
    ```python
    import torch
    from apex import amp

    def train(model, optimizer, loader):
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
            optimizer.step()
    ```

    ## Use instead
    ```python
    import torch

    def train(model, optimizer, loader):
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    ```

    ## Fix safety
    Unsafe: the fix rewrites the whole file at once, where initialization, forward pass, backward, clipping and step are all in sight; where
    they are not, the help says what stands in the way. Under O2 the model was converted to float16 and inputs were cast; afterwards
    autocast chooses per operation, so numbers differ a little. O0 becomes autocast and a GradScaler that are disabled, O3 has no fix.
    Clipping that ran after every backward pass moves to the step, because `unscale_` works once a step. A loss scale that is an option
    becomes the first value of a scale that adapts. Checkpoints keep the key and hold the state of another scaler: apex's don't load.
    Evaluation, which apex ran in half too, runs in float32. `apex.parallel`, which went with `apex.amp`, becomes torch's own
    DistributedDataParallel and SyncBatchNorm where the call has nothing that they lack. An import that nothing in the file uses is dropped.
    Where another loss runs backward before the step it is scaled, too; what reads gradients in between, in code that is not in sight, then
    sees scaled ones. A torch older than 1.10 that the project pins gets `torch.cuda.amp`.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp104.py, for each shape of program by tests/witness/test_mp104_shapes.py

    ## References
    - <https://docs.pytorch.org/docs/stable/notes/amp_examples.html>
    - <https://github.com/NVIDIA/apex>
    """

    code = "MP104"
    name = "apex-amp"
    severity = Severity.WARNING
    fix = Applicability.UNSAFE
    frameworks = ("torch",)
    tokens = ("apex",)

    def check_source(self, file: SourceFile, around: Surroundings) -> Iterator[Finding]:
        """Report apex.amp once a file, where it is imported first."""
        if "amp" not in file.document.text.replace("import apex as amp", ""):
            return
        apex = Apex(file, around)
        uses = [use for use in apex.uses if use.function]
        place = report_at(file, apex, uses)
        if place is None or apex.is_vendored or (around.targets.torch is not None and around.targets.torch.below("1.6")):
            return  # torch has autocast since 1.6
        optional = apex.is_guarded(place) or apex.is_chosen(place)
        severity = Severity.INFO if (optional and apex.has_native_path) or apex.is_adapter else self.severity
        from .apex.migration import migrate

        fix, reason = None, ""
        if severity is not Severity.INFO:
            fix, reason = migrate(file, apex) if apex.uses else (drop(file, apex), "")
        yield self.finding(
            file,
            place,
            f"`{AMP}` has been removed from apex",
            severity=severity,
            why="with an apex of May 2025 or later the import raises ImportError; torch has had the same since version 1.6",
            help=level_help(file, apex, uses) or (HELP + (f", by hand: {reason}" if reason else "") if apex.uses else DROP),
            related=tuple((use.node, f"`{file.text(use.node)}` is used here") for use in uses[:4]),
            fix=fix,
        )


def drop(file: SourceFile, apex: Apex) -> Fix | None:
    """Remove imports that nothing in the file uses; None for a package's `__init__.py`, whose imports others use."""
    if os.path.basename(file.document.path) == "__init__.py":
        return None
    changes = tuple(RemoveImport(file.span(item.statement), item.alias.name) for item in apex.imports)
    return Fix("Drop the import that nothing uses", Applicability.UNSAFE, changes)


def report_at(file: SourceFile, apex: Apex, uses: list[Use]) -> ast.AST | None:
    """The first import of apex.amp, or its first use through `import apex`; None where nothing needs it."""
    if apex.imports:
        first = apex.imports[0].statement
        return first if uses or not apex.is_guarded(first) else None
    return uses[0].node if uses else None


def level_help(file: SourceFile, apex: Apex, uses: list[Use]) -> str:
    """What to do about the levels that torch.amp has no counterpart for; "" for the others."""
    for use in uses:
        call = file.syntax.parents.get(use.node)
        if use.function == "initialize" and isinstance(call, ast.Call):
            for level in apex.definitions.strings(argument(call, "opt_level", 3)):
                if level in LEVELS:
                    return LEVELS[level]
    return ""
