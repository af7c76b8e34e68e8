"""Which expressions are loss-scaling optimizers."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from mplint.frameworks.names import keras_path

if TYPE_CHECKING:
    from mplint.python.definitions import Definitions
    from mplint.python.file import SourceFile

CLASSES = ("LossScaleOptimizer", "LossScaleOptimizerV1", "LossScaleOptimizerV3")
MODELS = ("Model", "Sequential", "models.Model", "models.Sequential", "training.Model")


def makes_loss_scale_optimizer(file: SourceFile, call: ast.Call) -> bool:
    """Whether the call constructs a Keras LossScaleOptimizer."""
    names = file.names.candidates(call.func)
    return bool(names) and all((path := keras_path(name)) is not None and path.rpartition(".")[2] in CLASSES for name in names)


def is_loss_scale_optimizer(file: SourceFile, found: Definitions, node: ast.expr) -> bool:
    """Whether everything that `node` may stand for is a LossScaleOptimizer, or an isinstance check around it says so."""
    definitions = found.of(node)
    if definitions and all(isinstance(d, ast.Call) and makes_loss_scale_optimizer(file, d) for d in definitions):
        return True
    text = ast.unparse(node)
    child: ast.AST = node
    for parent in file.syntax.ancestors(node):
        if isinstance(parent, ast.If) and any(child is s for s in parent.body) and checks_class(file, parent.test, text):
            return True
        if isinstance(parent, ast.IfExp) and child is parent.body and checks_class(file, parent.test, text):
            return True
        child = parent
    return False


def checks_class(file: SourceFile, test: ast.expr, text: str) -> bool:
    """Whether a condition holds only where the expression with this text is a LossScaleOptimizer."""
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            return any(checks_class(file, value, text) for value in values)
        case ast.Call(func=ast.Name(id="isinstance"), args=[subject, kind]):
            return ast.unparse(subject) == text and any(
                (keras_path(n) or "").rpartition(".")[2] in CLASSES for n in file.names.candidates(kind)
            )
    return False


def is_model_optimizer(file: SourceFile, node: ast.expr) -> bool:
    """Whether `node` is `self.optimizer` inside a subclass of a Keras model, which compile() sets."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr="optimizer"):
            owner = file.syntax.enclosing_class(node)
            return owner is not None and any(keras_path(name) in MODELS for name in file.names.base_names(owner))
    return False
