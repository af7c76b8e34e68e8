"""What is said of the files around a program: those that build its models, and those that run it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.adopt.keras.builders import Built, maker_of
from mplint.adopt.keras.heads import models
from mplint.adopt.keras.scene import Scene
from mplint.adopt.keras.spelling import root_of
from mplint.adopt.program import Note
from mplint.frameworks.keras.tensors import LOW
from mplint.program.machine import Event
from mplint.program.values import Object, Tensor
from mplint.python.names import position

TRAINS = (
    "super().fit",
    "GradientTape",
    "apply_gradients",
    "minimize",
    "train_on_batch",
    "train_step",
    ".compile(",
)  # words of what takes gradients


def models_from_elsewhere(scene: Scene, policy: str) -> Iterator[tuple[ast.AST, str]]:
    """The models whose output layers other files build in half, or out of sight, each call that makes one once."""
    makers = {maker for _, event in scene.events("unknown model trained") if (maker := maker_of(scene, event)) is not None}
    for model in models(scene):
        if not any(tensor.dtypes <= frozenset(LOW) and computed_elsewhere(scene, tensor) for tensor in model.tensors):
            continue
        made = (e for e in model.entry.of("layer made", "container made", "model made") if object_of(e) == object_of(model.event))
        node = scene.here(next(made, model.event))
        if isinstance(node, ast.Call):
            makers.add(node)
    told: set[str] = set()
    for call in sorted(makers, key=position):
        text = f'`{scene.text(call)}` builds its model in other code: there the output layer has to have dtype="float32"'
        if policy == "mixed_float16":
            text += ", and a `train_step` of its own has to scale its loss"
        if text not in told:
            told.add(text)
            yield call, f"{text} (if it is yours, convert that file, too)"


def computed_elsewhere(scene: Scene, tensor: Tensor) -> bool:
    """Whether a layer of another file computes an output."""
    paths = {tag.removeprefix("by:").rpartition(":")[0] for tag in tensor.tags if tag.startswith("by:")}
    paths |= {step.place.path for step in tensor.half[-1:]}
    return "application" not in tensor.tags and any(path != scene.path for path in paths)


def object_of(event: Event) -> object:
    """What stands for the layer or model of an event."""
    held = event.data["model"] if "model" in event.data else event.data["layer"]
    return held.id if type(held) is Object else None


def run_elsewhere(scene: Scene, built: list[Built], policy: str) -> Note | None:
    """A note on where to set the policy for a module that others run; None for one that builds nothing."""
    begun = {b.entry.name for b in built if b.chain}
    around = {node for b in built for inner in b.chain for node in scene.file.syntax.ancestors(inner)}
    scopes = [s for s in scene.file.tree.body if isinstance(s, (ast.FunctionDef, ast.ClassDef)) and (s in around or s.name in begun)]
    scopes = [s for s in scopes if not fits_without_gradients(scene, s)]
    scopes.sort(key=lambda s: not isinstance(s, ast.ClassDef))
    loops = [node for _, event in scene.events("gradients applied", "minimized") if (node := scene.here(event)) is not None]
    if not scopes and not loops:
        return None
    first: ast.AST = scopes[0] if scopes else loops[0]
    what = f"builds `{scopes[0].name}`" if scopes else "builds the model of this loop"
    text = f"the program that {what} has to call `{setter(scene, policy)}` first; nothing in this file runs it"
    return Note(scene.file.location(first), text)


def fits_without_gradients(scene: Scene, scope: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether a class has a `fit` of its own in which nothing of Keras trains: a reservoir before a linear regression."""
    own = isinstance(scope, ast.ClassDef) and scene.file.names.method(scope, "fit") is not None
    return own and not any(word in scene.file.text(scope) for word in TRAINS)


def setter(scene: Scene, policy: str) -> str:
    """The call that sets the policy, in the usual spelling."""
    return f'{root_of(scene.file, None).replace("tensorflow", "tf")}.mixed_precision.set_global_policy("{policy}")'


def foreign_training(scene: Scene, policy: str) -> Note | None:
    """A note on a program that fits a model whose layers other code builds, where nothing here shows when."""
    for _, event in scene.events("unknown model trained", "model fit"):
        node = scene.here(event)
        if node is not None and event.data["how"] != "compile":
            text = f"`{scene.text(node)}` trains layers that other code builds: call `{setter(scene, policy)}` before it does"
            applied = next((at for _, e in scene.events("gradients applied") if isinstance(at := scene.here(e), ast.Call)), None)
            if policy == "mixed_float16" and applied is not None:
                text += f"; for `{scene.text(applied)}`, make the optimizer a LossScaleOptimizer, and scale the loss in the tape by it"
            return Note(scene.file.location(node), text)
    return None
