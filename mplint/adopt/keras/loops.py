"""What the rules leave to do in loops that scale the loss: thresholds of clipping (Keras 3), and updates that nothing scales."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.adopt.keras.heads import Kept
from mplint.adopt.keras.scene import Scene
from mplint.findings import Applicability, Fix, Replace
from mplint.frameworks.keras import steps as keras_steps
from mplint.frameworks.keras.policies import OPEN, policy_name
from mplint.frameworks.keras.tensors import LOW
from mplint.program.machine import Event
from mplint.program.trace import Entry, possible
from mplint.program.values import Object
from mplint.recipes.clip_in_optimizer import thresholds

OPTIMIZERS = ("keras.optimizers.", "tensorflow.keras.optimizers.", "tf_keras.optimizers.", "tensorflow.optimizers.")
PASSING = ("apply_gradients", "apply", "minimize")  # what an optimizer around another one passes on
WHY = "clips at a threshold that is scaled as the loss is, since the gradients are unscaled only when they are applied"


def scaled_clips(scene: Scene) -> Iterator[Kept]:
    """Each clipping of scaled gradients in the function that scales the loss by `optimizer.scale_loss`."""
    for entry in scene.trace.entries:
        for event in entry.of("keras gradients clipped"):
            scaled = next((s for _, g in keras_steps.ways_of(event) if (s := keras_steps.scaling_of(entry, g)) is not None), None)
            node, source = scene.node(event.place), scene.node(scaled.place) if scaled is not None else None
            if scaled is None or scaled.data["how"] != "scale_loss" or not isinstance(node, ast.Call) or not isinstance(source, ast.Call):
                continue
            if scene.file.syntax.function(node) is scene.file.syntax.function(source) and isinstance(source.func, ast.Attribute):
                yield from scaled_limits(scene, node, source.func.value)


def scaled_limits(scene: Scene, node: ast.Call, optimizer: ast.expr) -> Iterator[Kept]:
    """The threshold of a clipping, multiplied by the scale of an optimizer."""
    given = thresholds(node)
    scale = f"{scene.file.text(optimizer)}.scale_loss"
    if given and not any(scale in scene.file.text(limit) for limit in given):
        changes = tuple(Replace(scene.file.span(limit), f"{scale}({scene.file.text(limit)})") for limit in given)
        yield Kept(node, WHY, Fix("scale the threshold", Applicability.UNSAFE, changes))


def unscaled_updates(scene: Scene) -> Iterator[tuple[ast.AST, str]]:
    """The updates whose gradients are float16 and whose loss nothing scales, each with what to do."""
    told: set[ast.AST] = set()
    for entry, event in scene.events("gradients applied", "minimized"):
        node = scene.here(event)
        if node is None or node in told or passes_on(scene, event) or not in_float16(event) or is_scaled(entry, event):
            continue
        told.add(node)
        if scene.node(event.place) is None:
            text = f"`{scene.text(node)}` leads to an update in `{event.place.path}` whose loss nothing scales: scale it there"
            yield node, f"{text}, or use mixed_bfloat16, which needs no scaling"
            continue
        func = node.func if isinstance(node, ast.Call) else node
        receiver = " ".join(scene.file.text(func.value if isinstance(func, ast.Attribute) else func).split())
        yield (
            node,
            f"`{receiver}` would get float16 gradients of a loss that nothing scales, and it is not plain here how to: make it a "
            f"LossScaleOptimizer where it is built, and take the gradients of `{receiver}.scale_loss(loss)`; or use mixed_bfloat16, which "
            "needs no scaling",
        )


def passes_on(scene: Scene, event: Event) -> bool:
    """Whether an update is that of an optimizer by another one; a model's own method of that name is where its gradients go."""
    node = scene.node(event.place)
    owner = scene.file.syntax.enclosing_class(node) if node is not None else None
    names = scene.file.names.base_names(owner) if owner is not None else []
    return event.function in PASSING and (owner is None or any(n.startswith(OPTIMIZERS) or n.endswith("Optimizer") for n in names))


def in_float16(event: Event) -> bool:
    """Whether the gradients of an update are those of a float16 forward, as far as anybody knows."""
    forward = frozenset().union(*(t.forward for _, t in keras_steps.ways_of(event)))
    if forward:
        return not forward.isdisjoint(frozenset(LOW) - {"b"})
    names = {policy_name(atom) for _, atom in possible(event.data["policy"], event.path)}  # type: ignore[arg-type]
    return bool(names & {"mixed_float16", OPEN})


def is_scaled(entry: Entry, event: Event) -> bool:
    """Whether the loss of an update is scaled by somebody."""
    optimizer = keras_steps.key_of(event)
    if any(keras_steps.key_of(e) == optimizer and e.frame == event.frame for e in entry.of("keras loss scaled")):
        return True
    ways = keras_steps.ways_of(event)
    if event.kind == "gradients applied" and ways:
        return any(gradient.scaled is not None or "unscaled" in gradient.tags for _, gradient in ways)
    optimizers = [o for _, o in possible(event.data["optimizer"], event.path)]  # type: ignore[arg-type]
    return event.kind == "minimized" and all(type(o) is Object and o.kind == "loss scale optimizer" for o in optimizers)
