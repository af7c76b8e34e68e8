"""Why a program can't adopt a policy as a whole: code that a Keras policy doesn't reach, or in which it would not train."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

from mplint.adopt.keras.builders import Built
from mplint.adopt.keras.scene import Scene
from mplint.frameworks.keras import steps as keras_steps
from mplint.frameworks.keras.policies import policy_name
from mplint.program.machine import Event
from mplint.program.trace import possible
from mplint.program.values import External, Object, Unknown
from mplint.python.names import position
from mplint.python.syntax import argument

PASSING = ("apply_gradients", "apply")  # what an optimizer around another one passes on


class Refusal(NamedTuple):
    """A place of the program, and why the policy can't be adopted there."""

    node: ast.AST
    text: str


def refusals(scene: Scene, policy: str, built: list[Built]) -> Iterator[Refusal]:
    """Each reason once, at the first place that shows it."""
    found = [graph_code(scene), updates_by_hand(scene), sparse_inputs(scene), other_float(scene)]
    found += [loaded_only(scene, built), built_at_import(scene)]
    if policy == "mixed_float16":
        found += [tpu(scene), own_loop(scene), unseen_update(scene), assigned_by_hand(scene)]
    yield from (refusal for refusal in found if refusal is not None)


def first(scene: Scene, kind: str, wanted: Callable[[Event], bool] = lambda event: True) -> tuple[ast.AST, Event] | None:
    """The first event of a kind that happens in this file, or that it leads to."""
    return next(((node, event) for _, event in scene.events(kind) if wanted(event) and (node := scene.here(event)) is not None), None)


def graph_code(scene: Scene) -> Refusal | None:
    """Sessions, placeholders and estimators of TensorFlow 1."""
    found = first(scene, "graph code")
    if found is None:
        return None
    text = f"`{scene.text(found[0])}` is TensorFlow 1: a Keras policy does not reach graphs and estimators; move to Keras first"
    return Refusal(found[0], text)


def updates_by_hand(scene: Scene) -> Refusal | None:
    """Updates of a graph that an optimizer gives to a function of the backend, as Keras did before TensorFlow 2."""
    call = next((c for c in scene.file.syntax.all(ast.Call) if isinstance(c.func, ast.Attribute) and c.func.attr == "get_updates"), None)
    if call is None:
        return None
    text = (
        f"`{scene.text(call)}` puts its updates into a graph, where nothing scales their loss: train with `fit` or in a GradientTape first"
    )
    return Refusal(call, text)


def sparse_inputs(scene: Scene) -> Refusal | None:
    """Models that take sparse matrices, which TensorFlow multiplies in float32 and float64 alone."""
    for call in scene.file.syntax.all(ast.Call):
        sparse = next((k.value for k in call.keywords if k.arg == "sparse"), None)
        if (
            isinstance(sparse, ast.Constant)
            and sparse.value is True
            and any(n.endswith(".Input") for n in scene.file.names.candidates(call.func))
        ):
            text = f"`{scene.text(call)}` takes sparse matrices, which TensorFlow does not multiply in half: keep this model in float32"
            return Refusal(call, text)
    return None


def other_float(scene: Scene) -> Refusal | None:
    """A program that asks for another dtype of all its layers."""
    for _, event in scene.events("floatx set"):
        names = {policy_name(atom) for _, atom in possible(event.data["floatx"], event.path)}  # type: ignore[arg-type]
        node = scene.here(event)
        if node is not None and names != {"float32"}:
            asked = ", ".join(sorted(names))
            return Refusal(node, f"`{scene.text(node)}` makes every layer {asked}, weights included: take this line out first")
    return None


def loaded_only(scene: Scene, built: list[Built]) -> Refusal | None:
    """A model that is loaded, and no layer built: it keeps the dtypes that it was saved with."""
    if any(b.event.kind == "layer made" for b in built):
        return None
    found = first(scene, "model loaded", lambda event: not is_saved_here(scene, scene.here(event)))
    if found is None:
        return None
    text = (
        f"`{scene.text(found[0])}` gives layers the dtypes that they were saved with, whatever the policy: build the model anew under the "
        "policy and load its weights, or convert the file (`mplint convert model.keras`)"
    )
    return Refusal(found[0], text)


def is_saved_here(scene: Scene, load: ast.AST | None) -> bool:
    """Whether a model is loaded from where its function has had it saved, under the same name: it has the policy of what was trained."""
    path = argument(load, "filepath", 0) if isinstance(load, ast.Call) else None
    if load is None or not isinstance(path, (ast.Name, ast.Attribute)):
        return False
    home = scene.file.syntax.function(load)
    for call in scene.file.syntax.all(ast.Call):
        saves = position(call) < position(load) and scene.text(call.func).endswith(("ModelCheckpoint", ".save"))
        given = argument(call, "filepath", 0) if saves and scene.file.syntax.function(call) is home else None
        if given is not None and ast.unparse(given) == ast.unparse(path):
            return True
    return False


def built_at_import(scene: Scene) -> Refusal | None:
    """A model that another file builds while it is imported."""
    names = scene.file.names
    for _, event in scene.events("model fit", "model compiled", "unknown model trained"):
        model, node = event.data["model"], scene.node(event.place)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not isinstance(node.func.value, ast.Name):
            continue
        bindings = names.reaching(node.func.value)
        elsewhere = type(model) is Object and model.made is not None and model.made.path != scene.path
        if len(bindings) != 1 or not isinstance(bindings[0].node, ast.ImportFrom) or not (elsewhere or type(model) in (External, Unknown)):
            continue
        home = ("." * bindings[0].node.level) + (bindings[0].node.module or "")
        text = (
            f"`{node.func.value.id}` is built when `{home}` is imported: a policy set here comes too late; build it in a function of "
            f"`{home}`, and call that"
        )
        return Refusal(bindings[0].node, text)
    return None


def tpu(scene: Scene) -> Refusal | None:
    """A program for TPUs, which compute in bfloat16."""
    found = first(scene, "tpu used")
    if found is None:
        return None
    text = f"`{scene.text(found[0])}`: TPUs compute in bfloat16, and Keras refuses to scale losses there: use mixed_bfloat16"
    return Refusal(found[0], text)


def own_loop(scene: Scene) -> Refusal | None:
    """A training loop of JAX's or PyTorch's own around Keras layers."""
    if (found := first(scene, "jax gradients taken")) is not None:
        text = (
            f"`{scene.text(found[0])}` differentiates a loss that nothing scales, and the loop keeps the optimizer's state itself: "
            "use mixed_bfloat16, which needs no scaling"
        )
        return Refusal(found[0], text)
    applied = any(True for _ in scene.events("gradients applied"))
    if applied or (found := first(scene, "backward")) is None:
        return None
    text = (
        f"`{scene.text(found[0])}` leaves gradients to an optimizer of PyTorch, which Keras does not scale for: scale the loss with "
        "torch.amp.GradScaler by hand, or use mixed_bfloat16, which needs no scaling"
    )
    return Refusal(found[0], text)


def unseen_update(scene: Scene) -> Refusal | None:
    """Gradients that reach an optimizer in a way that can't be followed."""
    seen = {scene.here(event) for _, event in scene.events("gradients applied") if keras_steps.ways_of(event)}
    found = first(scene, "gradients applied", lambda e: not (keras_steps.ways_of(e) or scene.here(e) in seen or e.function in PASSING))
    if found is None:
        return None
    taken = any(True for _ in scene.events("tape gradients taken"))
    where = "from a place that can't be followed" if taken else "and nothing shows where they come from"
    return Refusal(found[0], f"`{scene.text(found[0])}` applies gradients {where}: scale their loss, or use mixed_bfloat16")


def assigned_by_hand(scene: Scene) -> Refusal | None:
    """Weights that gradients change without an optimizer."""
    found = first(scene, "gradients assigned", lambda event: event.data["how"] == "assign_sub")
    if found is None:
        return None
    text = (
        "this step updates weights without an optimizer, so no loss scale would be taken out of it: use a Keras optimizer, "
        "or mixed_bfloat16"
    )
    return Refusal(found[0], text)
