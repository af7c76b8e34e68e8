"""What a Keras program does with its models: train them, only run them, or only try them out."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Literal

from mplint.python.syntax import is_main_guard

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def only_tried_out(file: SourceFile, owner: ast.ClassDef, setters: Iterable[ast.Call]) -> bool:
    """Whether the policy is set under `if __name__ == "__main__":` alone, in a program that only calls its instances of `owner` there."""
    if not all(in_main_guard(file, setter) for setter in setters):
        return False
    made = [c for c in file.names.calls_of(owner.name) if file.names.local_function(c.func) is owner]
    return all(in_main_guard(file, call) and stays_here(file, call) for call in made)


def in_main_guard(file: SourceFile, node: ast.AST) -> bool:
    """Whether `node` runs only where the file is the program itself."""
    return any(isinstance(parent, ast.If) and is_main_guard(parent.test) for parent in file.syntax.ancestors(node))


def stays_here(file: SourceFile, made: ast.Call) -> bool:
    """Whether what `made` builds is only called, and its attributes read, by the name that it is given."""
    statement = file.syntax.parents[made]
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return isinstance(statement, (ast.Expr, ast.Call)) and getattr(statement, "func", made) is made
    name = statement.targets[0].id
    for node in file.syntax.all(ast.Name):
        if node.id == name and isinstance(node.ctx, ast.Load) and any(d is made for d in file.values.definitions(node)):
            parent = file.syntax.parents[node]
            if not isinstance(parent, ast.Attribute) and not (isinstance(parent, ast.Call) and parent.func is node):
                return False
    return True


def last_name(func: ast.expr) -> str | None:
    """The last part of the name of what is called."""
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else None
