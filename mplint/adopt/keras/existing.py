"""What a program does about precision before anything is adopted in it."""

from __future__ import annotations

import ast
from typing import Literal, NamedTuple

from mplint.frameworks.names import keras_path
from mplint.source.file import SourceFile
from mplint.source.keras.policy import KerasPolicy
from mplint.source.keras.policy_names import MIXED, compute_dtype
from mplint.source.values import HALF

OWN_NAMES = ("enable_mixed_precision_graph_rewrite", "LossScaleOptimizer", "MixedPrecisionLossScaleOptimizer")


class Existing(NamedTuple):
    """How a program deals with precision already.

    `kind`: "adopted" (it sets the policy that is asked for), "own" (it chooses among policies, or uses other means), "other" (it sets
    another policy, and only that).
    """

    kind: Literal["adopted", "own", "other"]
    node: ast.AST
    text: str


def existing(file: SourceFile, policy: str) -> Existing | None:
    """What the program does about precision; None for a program that is silent about it."""
    setters = [s for s in file.fact(KerasPolicy).setters.values() if s.kind == "policy"]
    names = frozenset(name for setter in setters for name in setter.names)
    if setters and names == {policy}:
        return Existing("adopted", setters[0].node, f"the global policy is {policy}")
    if setters:
        first = setters[0]
        literal = all(len(s.names) == 1 and "?" not in s.names for s in setters)
        if literal and not {compute_dtype(name) for name in names} & HALF:
            return Existing("other", first.node, f"`{short(file, first.node)}` keeps it in float32: write {policy!r} here to adopt it")
        if literal and len(names) == 1:
            return Existing("other", first.node, f"the global policy is {next(iter(names))} already: write {policy!r} here to change it")
        return Existing("own", first.node, f"the program chooses its precision itself: `{short(file, first.node)}`")
    return by_other_means(file)


def by_other_means(file: SourceFile) -> Existing | None:
    """Policies of single layers, options of a runtime, loss scaling: what says that a program has its own way to half precision."""
    for call in file.syntax.all(ast.Call):
        if any(name.rpartition(".")[2] in OWN_NAMES for name in file.names.candidates(call.func)):
            return Existing("own", call, f"the program has its own mixed precision: `{short(file, call)}`")
    for node in file.syntax.all(ast.Constant):
        if node.value in (*MIXED, "auto_mixed_precision") and not isinstance(file.syntax.parents[node], ast.Expr):
            return Existing("own", node, f"the program speaks of {node.value!r} here, and chooses its precision itself")
    return None


def imports_keras(file: SourceFile) -> bool:
    """Whether a program uses Keras or TensorFlow at all."""
    statements: list[ast.Import | ast.ImportFrom] = [*file.syntax.all(ast.Import), *file.syntax.all(ast.ImportFrom)]
    modules = [alias.name for s in statements if isinstance(s, ast.Import) for alias in s.names]
    modules += [s.module or "" for s in statements if isinstance(s, ast.ImportFrom) and not s.level]
    return any(keras_path(module) is not None or module.split(".")[0] in ("tensorflow", "keras_hub", "keras_cv") for module in modules)


def short(file: SourceFile, node: ast.AST) -> str:
    """The text of a node on one line, cut where it is long."""
    text = " ".join(file.text(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
