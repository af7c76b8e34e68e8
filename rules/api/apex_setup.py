"""What a file's call of `apex.amp.initialize` says about the scaler and the autocast that take its place."""

from __future__ import annotations

import ast
from typing import NamedTuple

from mplint.source.file import SourceFile
from mplint.source.syntax import argument

LEVELS = {"O1", "O2"}
READ = {"opt_level", "loss_scale", "enabled"}
DROPPED = {"keep_batchnorm_fp32", "verbosity", "cast_model_type", "patch_torch_functions", "master_weights"}


class NoFix(Exception):
    """The file does something that the migration does not know."""


class Setup(NamedTuple):
    """The call of `initialize`, the texts of model and optimizer, and how scaler and autocast are built.

    `branch` is the `if` that holds nothing else; `enabled` is the text of the condition under which mixed precision is on, "" where it
    always is.
    """

    call: ast.Call
    branch: ast.If | None
    model: str
    optimizer: str
    scaler: str
    construction: str
    autocast: str
    enabled: str


def setup_of(file: SourceFile, call: ast.Call) -> Setup:
    """Read the call of `initialize`."""
    statement = file.syntax.statement(call)
    match statement, call.args:
        case ast.Assign(targets=[ast.Tuple(elts=[model, optimizer])], value=value), [given, stepped] if value is call:
            require(ast.unparse(model) == ast.unparse(given) and ast.unparse(optimizer) == ast.unparse(stepped))
        case _:
            raise NoFix
    require({k.arg for k in call.keywords} <= READ | DROPPED)
    trained, stepping = ast.unparse(given), ast.unparse(stepped)
    held = trained.startswith("self.") and stepping.startswith("self.")
    require(held or (trained.isidentifier() and stepping.isidentifier()))
    enabled, branch = condition(file, call, statement)
    scaler = "self.scaler" if held else "scaler"
    last = scaler.rpartition(".")[2]
    require(not any(n.id == last for n in file.syntax.all(ast.Name)) and not any(a.attr == last for a in file.syntax.all(ast.Attribute)))
    require(not any(a.arg == last for a in file.syntax.all(ast.arg)))
    shown = f", enabled={switch(file, enabled)}" if enabled else ""
    old = file.settings.torch_lacks("2.3")
    options = [*([] if old else ['"cuda"']), *scale_options(file, call), *([shown[2:]] if shown else [])]
    construction = f"torch.{'cuda.' if old else ''}amp.GradScaler({', '.join(options)})"
    autocast = f'torch.autocast("cuda", dtype=torch.float16{shown})'
    return Setup(call, branch, trained, stepping, scaler, construction, autocast, enabled)


def condition(file: SourceFile, call: ast.Call, statement: ast.stmt) -> tuple[str, ast.If | None]:
    """The condition under which mixed precision is on, and the `if` that speaks of it."""
    enabled = ""
    parent = file.syntax.parents[statement]
    branch = parent if isinstance(parent, ast.If) else None
    if branch is not None:
        others = [s for s in branch.body if s is not statement]
        imports = all(isinstance(s, (ast.Try, ast.ImportFrom, ast.Import)) and "apex" in file.text(s) for s in others)
        nested = isinstance(file.syntax.parents[branch], ast.If)
        require(imports and not branch.orelse and not nested)
        enabled = ast.unparse(branch.test)
    given = argument(call, "enabled", 2)
    if given is not None and file.values.constant_or(given) is not True:
        require(not enabled)
        enabled = ast.unparse(given)
    level = argument(call, "opt_level", 3)
    levels = file.values.strings(level) if level is not None else {"O1"}
    if levels <= LEVELS:
        return enabled, branch
    if levels != {None} or not isinstance(level, (ast.Name, ast.Attribute)):
        raise NoFix
    return enabled or f"{ast.unparse(level)} != 'O0'", branch


def switch(file: SourceFile, enabled: str) -> str:
    """The condition as a bool, which autocast asks for."""
    tree = ast.parse(enabled, mode="eval").body
    if isinstance(tree, (ast.Compare, ast.Constant)) or (isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)):
        return enabled.replace("'", '"')
    name = tree.attr if isinstance(tree, ast.Attribute) else tree.id if isinstance(tree, ast.Name) else ""
    for call in file.syntax.all(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(attr="add_argument")) if name:
                flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                action = argument(call, "action")
                stores = isinstance(action, ast.Constant) and action.value in ("store_true", "store_false")
                if stores and any(flag.lstrip("-").replace("-", "_") == name for flag in flags):
                    return enabled
    return f"bool({enabled})"


def scale_options(file: SourceFile, call: ast.Call) -> list[str]:
    """The options of the scaler for the `loss_scale` that was asked for."""
    given = argument(call, "loss_scale")
    value = file.values.constant_or(given, "?") if given is not None else "dynamic"
    if value is None or value == "dynamic":
        return []
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else 0.0
    except ValueError:
        number = 0.0
    require(number > 1.0)
    return [f"init_scale={number}", "growth_interval=2**31 - 1"]


def require(holds: bool) -> None:
    """Give up where something does not hold."""
    if not holds:
        raise NoFix
