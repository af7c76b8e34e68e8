"""Where a program builds the layers and models that follow the global policy, and where it trains them."""

from __future__ import annotations

import ast
from typing import NamedTuple

from mplint.adopt.keras.scene import Scene
from mplint.frameworks.keras.layers import is_preparing
from mplint.program.machine import IDENTITY, Event
from mplint.program.trace import Entry
from mplint.program.values import Class, Constant, External, Object, Unknown

OTHERS = ("sklearn", "scipy", "numpy", "xgboost", "lightgbm", "catboost", "pandas", "torch", "builtins", "re.", "statsmodels", "joblib",
          "sonnet", "keras_tuner", "kerastuner")  # fmt: skip
FITS = ("fit", "fit_generator", "train_on_batch", "get_updates")
TRAINING = ("model fit", "gradients applied", "minimized", "jax gradients taken", "backward", "gradients assigned")


class Built(NamedTuple):
    """A layer or model is made: the syntax of this file that leads there, outermost first, in which entry, and where."""

    chain: list[ast.expr]
    entry: Entry
    event: Event


def builds(scene: Scene) -> list[Built]:
    """Everything that follows the global policy, in the order in which it is made; models that nobody knows where they are trained."""
    found, whole = [], False
    for entry, event in scene.events("layer made", "container made", "input made", "unknown model trained"):
        if event.kind == "unknown model trained":
            maker = maker_of(scene, event)
            if maker is not None:
                found.append(Built([*before(scene, event, maker), maker], entry, event))
                whole = True
        elif event.kind == "input made" or follows_policy(event):
            found.append(Built(scene.chain(event), entry, event))
            whole = whole or event.kind == "layer made"
    return found if whole else []  # a model around layers that came from elsewhere has nothing that computes


def follows_policy(event: Event) -> bool:
    """Whether a layer takes the global policy, and has any use for it."""
    dtype, name = event.data["dtype"], str(event.data["name"]).rpartition(".")[2]
    return (dtype is None or (type(dtype) is Constant and dtype.value is None)) and not is_preparing(name) and name != "InputLayer"


def maker_of(scene: Scene, trained: Event) -> ast.Call | None:
    """The call that makes what is trained as a model of Keras and that nobody knows; None where this file has none."""
    node = scene.node(trained.place)
    func = node.func if isinstance(node, ast.Call) else node
    if is_other(trained.data["model"]) or not isinstance(func, ast.Attribute):
        return None
    receiver = func.value
    if isinstance(receiver, ast.Call):
        return receiver
    if not isinstance(receiver, ast.Name):
        return None
    calls = [binding.value for binding in scene.file.names.reaching(receiver) if isinstance(binding.value, ast.Call)]
    return next((call for call in calls if scene.file.names.local_function(call.func) is None), None)


def before(scene: Scene, event: Event, maker: ast.Call) -> list[ast.expr]:
    """The calls that lead to the function in which a model is made that an event is about."""
    function = scene.file.syntax.function
    chain = scene.chain(event)
    return chain[: next((n for n, node in enumerate(chain) if function(node) is function(maker)), 0)]


def trains(scene: Scene) -> bool:
    """Whether the program itself fits a model, or applies gradients."""
    if any(scene.here(event) is not None for _, event in scene.events(*TRAINING)):
        return True
    if any(fits(scene, call) for call in scene.file.syntax.all(ast.Call)):
        return True
    unknown = [event for _, event in scene.events("unknown model trained") if str(event.data["how"]).startswith("fit")]
    return any(scene.here(event) is not None and not is_other(event.data["model"]) for event in unknown)


def fits(scene: Scene, call: ast.Call) -> bool:
    """Whether a call trains a model that an object of the project holds, or gives the updates of a training step."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in FITS:
        return False
    if call.func.attr == "get_updates":
        return True
    held = scene.program.execution.values(call.func.value)
    return any(type(atom) is Object and type(atom.type) is Class for atom in held) and all(
        code.name != call.func.attr for code in scene.program.execution.codes(call)
    )


def is_other(model: object) -> bool:
    """Whether something that is fitted belongs to a package whose models are no models of Keras."""
    symbol = model.symbol.partition(IDENTITY)[0] if type(model) is Unknown else model.name if type(model) is External else ""
    return symbol.startswith(OTHERS)
