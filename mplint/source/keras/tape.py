"""Events of a custom Keras training loop: the tape opens and closes, the loss is scaled, gradients are taken, unscaled and applied."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from mplint.frameworks.names import keras_path
from mplint.python.syntax import argument
from mplint.source.flow import Event

if TYPE_CHECKING:
    from mplint.source.file import SourceFile
    from mplint.source.keras.optimizers import Optimizers

SCALE, UNSCALE, GRADIENT, APPLY, OPEN, CLOSE = "scale", "unscale", "gradient", "apply", "open", "close"
SCALERS = ("get_scaled_loss", "scale_loss")
DERIVATIVES = ("gradient", "jacobian", "batch_jacobian")
OWN_GRADIENTS = ("compute_gradients", "get_gradients")
BACKWARD = "backward"
TOKENS = ("GradientTape", "tf.gradients", *OWN_GRADIENTS, ".minimize(")


class TapeEvents:
    """Classifies nodes for `Flow`."""

    def __init__(self, file: SourceFile, optimizers: Optimizers) -> None:
        self.file, self.optimizers = file, optimizers
        self.on_torch = "keras" in file.document.text and ".backward(" in file.document.text

    def of_call(self, node: ast.AST) -> tuple[Event, ...]:
        """The events of a call; `subject` is what kind of call it is, `detail` the optimizer's or the tape's expression."""
        if not isinstance(node, ast.Call):
            return ()
        if self.file.names.resolve(node.func) in ("tensorflow.gradients", "tensorflow.compat.v1.gradients"):
            return (Event(GRADIENT, node, "tf.gradients"),)
        match node.func:
            case ast.Attribute(value=receiver, attr=attr) if self.file.names.local_function(node.func) is None:
                if attr in SCALERS and node.args:
                    return (Event(SCALE, node, attr, receiver),)
                if attr == "get_unscaled_gradients":
                    return (Event(UNSCALE, node, attr, receiver),)
                if attr in DERIVATIVES and self.is_tape(receiver):
                    return (Event(GRADIENT, node, "tape", receiver),)
                if attr == BACKWARD and self.on_torch:
                    return (Event(GRADIENT, node, BACKWARD, receiver),)
                if attr in OWN_GRADIENTS and self.is_optimizer(receiver):
                    return (Event(GRADIENT, node, attr, receiver),)
                if attr == "apply_gradients" or (attr in ("apply", "minimize") and self.is_optimizer(receiver)):
                    return (Event(APPLY, node, attr, receiver),)
        return ()

    def entering(self, node: ast.AST) -> tuple[Event, ...]:
        """The event of entering a context manager expression."""
        return (Event(OPEN, node),) if isinstance(node, ast.expr) and self.tapes(node) else ()

    def leaving(self, node: ast.AST) -> tuple[Event, ...]:
        """The event of leaving it."""
        return (Event(CLOSE, node),) if isinstance(node, ast.expr) and self.tapes(node) else ()

    def is_optimizer(self, node: ast.expr) -> bool:
        """Whether the expression holds an optimizer, by what made it or by its name."""
        if any(not name.startswith("tensorflow") and keras_path(name) is None for name in self.file.names.candidates(node)):
            return False  # scipy.optimize, a project's module
        last = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        return "opt" in last.lower() or self.optimizers.of(node).known

    def is_tape(self, node: ast.expr) -> bool:
        """Whether the expression is a gradient tape, by what made it or by its name."""
        last = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        return "tape" in last.lower() or bool(self.tapes(node))

    def tapes(self, node: ast.expr, depth: int = 0) -> frozenset[ast.AST]:
        """The constructions of tapes (and parameters that must be one) that `node` may stand for; empty where it is none."""
        found: set[ast.AST] = set()
        if not isinstance(node, (ast.Call, ast.Name, ast.Attribute)):
            return frozenset()
        for definition in [node] if isinstance(node, ast.Call) else self.file.values.definitions(node):
            if isinstance(definition, ast.Call):
                last = last_name(definition.func)
                if last == "GradientTape":
                    found.add(definition)
                elif last == "DistributedGradientTape" and depth < 4:
                    inner = argument(definition, "gradtape", 0)
                    found |= self.tapes(inner, depth + 1) if inner is not None else set()
            elif isinstance(definition, ast.arg) and "tape" in definition.arg.lower():
                found.add(definition)
        return frozenset(found)


def last_name(node: ast.AST) -> str:
    """The last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
