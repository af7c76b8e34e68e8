"""What a Keras program does with its models: train them, only run them, or only try them out."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

TRAINING = frozenset({"fit", "fit_generator", "train_on_batch", "apply_gradients", "GradientTape", "minimize"})
WEIGHTS = frozenset({"load_model", "load_weights", "load_lora_weights", "set_weights"})
RUNNING = WEIGHTS | {"predict", "from_keras_model", "from_saved_model", "evaluate", "export"}
OTHER_COMPILE = ("re.compile", "regex.compile", "torch.compile")


def purpose(file: SourceFile) -> Literal["trains", "runs", "open"]:
    """Whether the program trains Keras models, only runs models that were trained before, or nothing says.

    A model that is compiled and then given stored weights may only predict; one compiled without optimizer and loss does.
    """
    called = {name for call in file.syntax.all(ast.Call) if (name := last_name(call.func)) is not None}
    if called & TRAINING:
        return "trains"
    compiled = "compile" in called and [c for c in file.names.calls_of("compile") if file.names.resolve(c.func) not in OTHER_COMPILE]
    if compiled and not called & WEIGHTS:
        return "trains" if any(c.args or {k.arg for k in c.keywords} & {None, "optimizer", "loss"} for c in compiled) else "runs"
    named = called | {node.attr for node in file.syntax.all(ast.Attribute)}  # model.predict may be kept and called later
    return "runs" if named & RUNNING else "open"


def last_name(func: ast.expr) -> str | None:
    """The last part of the name of what is called."""
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else None
