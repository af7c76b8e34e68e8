"""MP101: `torch.cuda.amp` and `torch.cpu.amp`, replaced by `torch.amp`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mplint.findings import Applicability, Finding, Severity
from mplint.python.file import SourceFile
from mplint.rule import Consequence, Rule, Surroundings

from .amp_sites import OldAmp

if TYPE_CHECKING:
    from .amp_migration import Migration
    from .amp_sites import Site, Symbol

WARNINGS = {"function": "a DeprecationWarning at every call", "": "a FutureWarning at every use since torch 2.4"}
HARMS = {
    "autocast": "and the warning's advice to put 'cuda' first makes a positional `enabled` the dtype",
    "scaler": "and after a plain rename the first positional argument is the device, so a custom `init_scale` is lost",
    "custom": "and torch.amp needs `device_type=` by keyword",
    "function": "and the replacement takes the device as first argument",
    "cast": "and the replacement takes the device between value and dtype",
}


class DeprecatedTorchAmp(Rule):
    """The old torch.cuda.amp and torch.cpu.amp

    ## What it does
    Finds imports, calls, decorators and other references to the old, per-device homes of automatic mixed
    precision: `torch.cuda.amp` and `torch.cpu.amp` (`autocast`, `GradScaler`, `custom_fwd`, `custom_bwd`) and the
    functions `torch.get_autocast_gpu_dtype`, `torch.set_autocast_cpu_enabled` and their relatives, under every alias.

    ## Why is this bad?
    Since torch 2.4 each use prints a FutureWarning, and the names will go away. The old and the new parameters do
    not stand in the same order: `torch.cuda.amp.autocast(enabled, dtype)` against `torch.amp.autocast(device_type,
    dtype, enabled)`. Renaming `GradScaler(1024.)` to `torch.amp.GradScaler(1024.)` sets `device=1024.0` and keeps the
    default scale of 65536, without an error.

    ## Example
    ```python
    import torch
    from torch.cuda.amp import GradScaler

    scaler = GradScaler(1024.0)
    with torch.cuda.amp.autocast(True):
        loss = model(batch)
    ```

    ## Use instead
    ```python
    import torch
    from torch.amp import GradScaler

    scaler = GradScaler("cuda", init_scale=1024.0)
    with torch.amp.autocast("cuda", enabled=True):
        loss = model(batch)
    ```

    ## Fix safety
    The fix inserts the device and names every argument. An import and all uses of the name move together. It is unsafe
    where the object is stored or passed on, because code elsewhere may call it by position, and for a subclass without an
    `__init__`. It is only shown where the project supports a torch that lacks the new name (`GradScaler`: 2.3,
    `custom_fwd`: 2.4). There is none for `autocast(*args)`.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp101.py.

    ## References
    - https://docs.pytorch.org/docs/stable/amp.html
    - https://github.com/pytorch/pytorch/blob/main/torch/cuda/amp/autocast_mode.py
    """

    code = "MP101"
    name = "deprecated-torch-amp"
    severity = Severity.WARNING
    fix = Applicability.SAFE
    frameworks = ("torch",)
    tokens = (
        "cuda.amp", "cpu.amp", "torch.cuda import", "torch.cpu import",
        "autocast_gpu", "autocast_cpu", "autocast_ipu", "autocast_xla",
    )  # fmt: skip
    adoption = Consequence(torch="2.3")

    def check_source(self, file: SourceFile, around: Surroundings) -> Iterator[Finding]:
        """Report each reference, and each import statement that names a deprecated symbol."""
        if around.targets.torch is not None and around.targets.torch.below("2.4"):
            return
        old = OldAmp(file, around.modules)
        if not old.sites and not old.imports:
            return
        from .amp_migration import Migration

        migration = Migration(file, old, around.targets)
        for site in old.sites:
            if site.use != "init":
                yield self.reference(file, site, migration)
        for statement, named in old.imports:
            uses = [s for s in old.sites if s.bound is not None and s.bound.node is statement]
            if uses or not self.is_used(file, statement):
                yield self.imported(file, statement, named, uses, migration)

    def reference(self, file: SourceFile, site: Site, migration: Migration) -> Finding:
        """The finding of one expression."""
        symbol = site.symbol
        text = f"`{file.text(site.node)}`"
        spelled = text if text == f"`{symbol.old}`" else f"{text} ({symbol.old})"
        return self.finding(
            file,
            site.node,
            f"{spelled} is deprecated",
            why=f"It gives {WARNINGS.get(symbol.kind, WARNINGS[''])}, {HARMS[symbol.kind]}.",
            help=f"Use `{replacement(symbol)}`.",
            severity=Severity.INFO if site.use == "annotation" else None,
            fix=migration.fix(site),
        )

    def imported(
        self, file: SourceFile, statement: ast.ImportFrom, named: tuple[Symbol, ...], uses: list[Site], migration: Migration
    ) -> Finding:
        """The finding of one import statement."""
        names = " and ".join(f"`{symbol.tail}`" for symbol in named)
        annotations = bool(uses) and all(site.use == "annotation" for site in uses)
        return self.finding(
            file,
            statement,
            f"{names} from {statement.module} {'is' if len(named) == 1 else 'are'} deprecated",
            why=f"{'They give' if len(named) > 1 else 'It gives'} {WARNINGS.get(named[0].kind, WARNINGS[''])}, {HARMS[named[0].kind]}.",
            help="Use " + " and ".join(f"`{replacement(symbol)}`" for symbol in named) + ".",
            severity=Severity.INFO if annotations else None,
            fix=migration.import_fix(statement),
        )

    def is_used(self, file: SourceFile, statement: ast.ImportFrom) -> bool:
        """Whether something in the file uses a name that the statement binds."""
        bound = {alias.asname or alias.name for alias in statement.names}
        return any(name.id in bound and isinstance(name.ctx, ast.Load) for name in file.syntax.all(ast.Name))


def replacement(symbol: Symbol) -> str:
    """How the new call begins."""
    if symbol.kind == "custom":
        return f'{symbol.new}(device_type="{symbol.device}")'
    return f'{symbol.new}("{symbol.device}", …)'
