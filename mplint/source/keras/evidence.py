"""What speaks for float16 in a training loop, and for the Keras that the loop is written for."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Literal, NamedTuple

from mplint.frameworks.keras import versions
from mplint.python.syntax import FUNCTIONS, argument
from mplint.source.keras.optimizers import GRAPH_HOMES
from mplint.source.keras.policy import KerasPolicy
from mplint.source.values import UNKNOWN

if TYPE_CHECKING:
    from mplint.source.file import SourceFile
    from mplint.source.keras.loop import Update

MIXED = "mixed_float16"
SCALING_WORDS = ("LossScale", "loss_scale", "scaled_loss", "scale_loss", "graph_rewrite", "auto_mixed_precision", "AUTO_MIXED_PRECISION")


class Float16(NamedTuple):
    """Whether layers compute in float16 under a mixed policy.

    `level` is "certain", "maybe" (a condition decides), "open" (nothing here says; another file may) or "no".
    `setters` are the calls that set the policy.
    """

    level: Literal["certain", "maybe", "open", "no"]
    setters: tuple[ast.Call, ...] = ()


def float16_at(file: SourceFile, node: ast.AST) -> Float16:
    """What the program says about float16 where `node` runs."""
    state = file.fact(KerasPolicy).policy_at(node)
    if state.certain:
        return Float16("certain", state.setters) if state.names == {MIXED} else Float16("no")
    if UNKNOWN in state.names:
        return Float16("no")
    if MIXED in state.names:
        return Float16("maybe", tuple(s for s in state.setters if MIXED in file.fact(KerasPolicy).setters[s].names))
    return Float16("open") if not state.setters else Float16("no")


def loop_major(file: SourceFile) -> int | None:
    """2 or 3 where the targets, API that only one Keras has, or the loss-scaling methods in use decide; else None."""
    return versions.loop_major(file, file.targets)


def speaks_of_scaling(file: SourceFile) -> bool:
    """Whether the program mentions a loss scale anywhere, so that what looks unscaled may not be."""
    return any(word in file.document.text for word in SCALING_WORDS)


def graph_loop_in_half(file: SourceFile, update: Update) -> ast.AST | None:
    """Where the function that computes gradients with a TensorFlow 1 optimizer decides about mixed precision; None where it does not.

    Optimizers of graph mode never scale a loss, and no `compile()` wraps them.
    """
    gradient = update.gradients[0]
    if not isinstance(gradient.func, ast.Attribute) or gradient.func.attr not in ("compute_gradients", "minimize"):
        return None
    if argument(gradient, "tape") is not None or not any(is_graph_module(name) for name in versions.imported(file)):
        return None
    made = update.optimizer.plain
    if any(
        not name.startswith(GRAPH_HOMES)
        for call in made
        for name in file.names.candidates(call.func)
        if not name.endswith("CrossShardOptimizer")
    ):
        return None
    functions = [parent for parent in file.syntax.ancestors(gradient) if isinstance(parent, FUNCTIONS)]
    return next((node for node in ast.walk(functions[-1]) if decides_precision(node)), None) if functions else None


def decides_precision(node: ast.AST) -> bool:
    """Whether a node reads a mixed-precision setting or names the float16 policy."""
    match node:
        case (
            ast.Constant(value="mixed_precision" | "mixed_float16") | ast.Attribute(attr="mixed_precision") | ast.Name(id="mixed_precision")
        ):
            return True
    return False


def is_graph_module(name: str) -> bool:
    """Whether an imported module is TensorFlow 1."""
    return name.startswith(("tensorflow.compat.v1", "tensorflow.contrib"))
