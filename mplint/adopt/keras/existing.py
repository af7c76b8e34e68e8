"""What a program does about precision before anything is adopted in it."""

from __future__ import annotations

import ast
from typing import Literal, NamedTuple

from mplint.adopt.keras.scene import Scene
from mplint.frameworks.keras.policies import MIXED, OPEN, compute_letter, policy_name
from mplint.frameworks.names import keras_path
from mplint.program.trace import possible
from mplint.program.values import BFLOAT, HALF, Object
from mplint.python.file import SourceFile

OWN_NAMES = ("enable_mixed_precision_graph_rewrite", "LossScaleOptimizer", "MixedPrecisionLossScaleOptimizer")


class Existing(NamedTuple):
    """How a program deals with precision already.

    `kind`: "adopted" (it sets the policy that is asked for), "own" (it chooses among policies, or uses other means), "other" (it sets
    another policy, and only that).
    """

    kind: Literal["adopted", "own", "other"]
    node: ast.AST
    text: str


def existing(scene: Scene, policy: str) -> Existing | None:
    """What the program does about precision; None for a program that is silent about it."""
    found: dict[ast.AST, set[str]] = {}
    for entry, event in scene.events("policy set"):
        if (call := scene.here(event)) is not None:
            for path, atom in possible(event.data["policy"], event.path):  # type: ignore[arg-type]
                name = policy_name(atom)
                found.setdefault(call, set()).add(name if scene.trace.verdict(entry, path).proven else "?")
    if not found:
        return by_other_means(scene)
    names = {name for held in found.values() for name in held} - {OPEN}
    node: ast.AST = min(found, key=lambda n: (n.lineno, n.col_offset))  # type: ignore[attr-defined]
    text = scene.text(node)
    if names == {policy}:
        return Existing("adopted", node, f"the global policy is {policy}")
    if names <= set(MIXED) | {"float16", "bfloat16", "float32", "float64"}:
        if not any(compute_letter(name) in (HALF, BFLOAT) for name in names):
            return Existing("other", node, f"`{shown(scene, node)}` keeps it in float32: write {policy!r} here to adopt it")
        if len(names) == 1:
            return Existing("other", node, f"the global policy is {next(iter(names))} already: write {policy!r} here to change it")
    return Existing("own", node, f"the program chooses its precision itself: `{shown(scene, node) or text}`")


def shown(scene: Scene, node: ast.AST) -> str:
    """A call as the program writes it, on one line."""
    text = " ".join(scene.file.text(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def by_other_means(scene: Scene) -> Existing | None:
    """Policies of single layers, options of a runtime, loss scaling: what says that a program has its own way to half precision."""
    for _, event in scene.events("loss scale optimizer made", "layer made"):
        node = scene.here(event)
        half = any(compute_letter(policy_name(a)) in (HALF, BFLOAT) for _, a in possible(event.data["policy"], event.path))  # type: ignore[arg-type]
        made = event.data.get("optimizer")
        if node is not None and ((type(made) is Object and made.type != "compile") or (half and event.kind == "layer made")):
            return Existing("own", node, f"the program has its own mixed precision: `{shown(scene, node)}`")
    file = scene.file
    for call in file.syntax.all(ast.Call):
        if any(name.rpartition(".")[2] in OWN_NAMES for name in file.names.candidates(call.func)):
            return Existing("own", call, f"the program has its own mixed precision: `{shown(scene, call)}`")
    for constant in file.syntax.all(ast.Constant):
        if constant.value in (*MIXED, "auto_mixed_precision") and not isinstance(file.syntax.parents[constant], ast.Expr):
            return Existing("own", constant, f"the program speaks of {constant.value!r} here, and chooses its precision itself")
    return None


def imports_keras(file: SourceFile) -> bool:
    """Whether a program uses Keras or TensorFlow at all."""
    statements: list[ast.Import | ast.ImportFrom] = [*file.syntax.all(ast.Import), *file.syntax.all(ast.ImportFrom)]
    modules = [alias.name for s in statements if isinstance(s, ast.Import) for alias in s.names]
    modules += [s.module or "" for s in statements if isinstance(s, ast.ImportFrom) and not s.level]
    return any(keras_path(module) is not None or module.split(".")[0] in ("tensorflow", "keras_hub", "keras_cv") for module in modules)
