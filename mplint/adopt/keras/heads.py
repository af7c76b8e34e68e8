"""Layers that stay float32 under a mixed policy: those that emit a model's output, and those that take raw values."""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from mplint.adopt.keras.scene import Scene
from mplint.findings import Applicability, Fix
from mplint.frameworks.keras.policies import compute_letter, policy_name
from mplint.frameworks.keras.tensors import LOW
from mplint.program.machine import Event
from mplint.program.trace import Entry, possible, tensors_of
from mplint.program.values import Constant, External, Object, Place, State, Tensor, atoms
from mplint.python.syntax import argument
from mplint.recipes.float32 import float32_layers

HIDDEN = frozenset({"relu", "relu6", "elu", "selu", "gelu", "swish", "silu", "mish", "leaky_relu", "leakyrelu", "prelu"})
WEIGHTED = re.compile(r"(EinsumDense|Dense|TimeDistributed|(Separable)?(Conv|Convolution)[123]D(Transpose)?)$")
FEATURES = re.compile(r"backbone|encod|extract|feature|embed|trunk|stem|neck|block", re.IGNORECASE)
PROBABILITIES = frozenset({"softmax", "sigmoid", "log_softmax", "log_sigmoid"})
RAW = {
    "Normalization": "it takes raw features, which half precision rounds, and which may exceed 65504",
    "UnitNormalization": "it squares its inputs",
}
SMALL = 1 / 512  # a smaller factor than this says that the inputs are larger than the numbers that bfloat16 and float16 count exactly
TRAINED = ("model compiled", "model fit", "model handed on")


class Kept(NamedTuple):
    """What is to be changed: the call at which it stands, why, and the fix."""

    node: ast.Call
    why: str
    fix: Fix


def kept_layers(scene: Scene) -> Iterator[Kept]:
    """Each layer that has to stay float32 and does not yet."""
    done: set[ast.Call] = set()
    for found in (*raw_inputs(scene), *probabilistic(scene), *outputs(scene)):
        if found.node not in done:
            done.add(found.node)
            yield found


def raw_inputs(scene: Scene) -> Iterator[Kept]:
    """Layers that take numbers as they come: features of any size, images of 16 bits, tensors of a SavedModel."""
    for _, event in scene.events("layer made"):
        node, name = scene.node(event.place), str(event.data["name"])
        if not isinstance(node, ast.Call) or event.data["dtype"] is not None or not is_half(event):
            continue
        kind = name.rpartition(".")[2]
        why = RAW.get(kind, "") if name.startswith("keras.layers.") else ""
        if name == "tensorflow_hub.KerasLayer":
            why = "a SavedModel takes and gives the dtypes that it was saved with"
        scale = event.data["args"].get(0, "scale") if kind == "Rescaling" else None  # type: ignore[attr-defined]
        number = scale.value if type(scale) is Constant and isinstance(scale.value, (int, float)) else None
        if number is not None and (0 < abs(number) < SMALL or abs(number) > 255):
            why = f"its inputs, of the order of {1 / abs(number):.0f}," if abs(number) < 1 else "its outputs"
            why += " are larger than the whole numbers that half precision holds exactly"
        if why:
            yield Kept(node, why, keep(scene, [node]))


def probabilistic(scene: Scene) -> Iterator[Kept]:
    """Layers of TensorFlow Probability: their distributions and weights are float32, and what they are given has to be."""
    for call in scene.file.syntax.all(ast.Call):
        names = [name for name in scene.file.names.candidates(call.func) if name.startswith("tensorflow_probability.layers.")]
        if any(name.rpartition(".")[2][:1].isupper() for name in names) and argument(call, "dtype") is None:
            yield Kept(call, "it computes with distributions, which are float32", keep(scene, [call]))


def is_half(event: Event) -> bool:
    """Whether a layer may compute in half."""
    return any(compute_letter(policy_name(atom)) in LOW for _, atom in possible(event.data["policy"], event.path))  # type: ignore[arg-type]


class Model(NamedTuple):
    """A model as its entry leaves it: the event that tells its outputs, and whether it is trained."""

    entry: Entry
    event: Event
    trained: bool

    @property
    def tensors(self) -> list[Tensor]:
        """Its outputs, as far as they are known."""
        return [tensor for _, tensor in tensors_of(self.event.data["outputs"], self.event.path)]  # type: ignore[arg-type]


def models(scene: Scene) -> Iterator[Model]:
    """The models of the program that are no parts of others."""
    for entry in scene.trace.entries:
        made: dict[Hashable, Event] = {}
        for event in entry.of("model made"):
            made[id_of(event.data["model"])] = event
        called = entry.of("layer called")
        parts = {id_of(e.data["layer"]) for e in called if (e.data["symbolic"] and not is_recorded(e)) or e.data.get("inside")}
        trained = {id_of(e.data["model"]) for e in entry.of(*TRAINED)} | {id_of(e.data["layer"]) for e in called if is_recorded(e)}
        for key, event in made.items():
            if key not in parts:
                yield Model(entry, event, key in trained)


def id_of(value: object) -> Hashable:
    """What an object is known by."""
    return value.id if type(value) is Object else None


def is_recorded(called: Event) -> bool:
    """Whether a tape records the call of a layer."""
    return called.data.get("tape", State(None)) != State(None)


def outputs(scene: Scene) -> Iterator[Kept]:
    """The layers that compute and emit the outputs of models, whoever trains them."""
    looped = any(True for _ in scene.events("tape gradients taken", "minimized")) or "add_loss(" in scene.file.document.text
    for model in models(scene):
        layers = layers_of(model.entry)
        name = f"{model.event.data['name']} {model.event.function} {variable(scene, model.event)}"
        if FEATURES.search(name) and not (looped or model.trained):
            continue
        for tensor in model.tensors:
            nodes = head(scene, tensor, layers) or computed_by_lambda(scene, model.entry, tensor)
            if nodes:
                yield Kept(nodes[0], "it computes an output of the model", keep(scene, nodes))


def variable(scene: Scene, event: Event) -> str:
    """The name that the program gives to a model, for the words in it."""
    node = scene.node(event.place)
    parent = scene.file.syntax.parents.get(node) if node is not None else None
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    label = argument(node, "name") if isinstance(node, ast.Call) else None
    words = label.value if isinstance(label, ast.Constant) and isinstance(label.value, str) else ""
    return f"{ast.unparse(target) if target is not None else ''} {words}"


def layers_of(entry: Entry) -> dict[Place, Event]:
    """The events in which the layers of an entry are made, in the order in which they were called last."""
    made = {e.place: e for e in entry.of("layer made")}
    order: dict[Place, None] = {}
    for called in entry.of("layer called"):
        layer = called.data["layer"]
        if type(layer) is Object and layer.made in made:
            order.pop(layer.made, None)
            order[layer.made] = None
    return {place: made[place] for place in order}


def head(scene: Scene, tensor: Tensor, layers: dict[Place, Event]) -> list[ast.Call]:
    """The calls that make the layers which compute an output, where they compute it in half; none where they are no head."""
    if not tensor.dtypes <= frozenset(LOW) or "application" in tensor.tags or "cast" in tensor.tags:
        return []
    chain = [event for place, event in reversed(layers.items()) if f"by:{place.path}:{place.position}" in tensor.tags]
    if not chain and tensor.half:  # an operation behind the layer, such as the bounds of a deviation
        chain = [event for place, event in layers.items() if place == tensor.half[-1].place]
    end = next((n for n, event in enumerate(chain) if activation_of(event) in PROBABILITIES or WEIGHTED.match(kind_of(event))), None)
    if end is None or activation_of(chain[0]) in HIDDEN or activation_of(chain[end]) in HIDDEN:
        return []
    nodes = [scene.node(event.place) for event in chain[: end + 1] if is_half(event) and event.data["dtype"] is None]
    return [node for node in nodes if isinstance(node, ast.Call)]


def kind_of(made: Event) -> str:
    """The name of a layer's class."""
    return str(made.data["name"]).rpartition(".")[2]


def activation_of(made: Event) -> str:
    """The name of a layer's activation, "" where it has none or none that can be told."""
    kind = kind_of(made)
    given = made.data["args"].get({"Activation": 0, "Dense": 1}.get(kind, -1), "activation")  # type: ignore[attr-defined]
    if type(given) is Constant and isinstance(given.value, str):
        return given.value.lower()
    return given.name.rpartition(".")[2].lower() if type(given) is External else kind.lower()


def computed_by_lambda(scene: Scene, entry: Entry, tensor: Tensor) -> list[ast.Call]:
    """The call that makes the Lambda layer which gives an output in half."""
    if not tensor.dtypes <= frozenset(LOW):
        return []
    for called in reversed(entry.of("layer called")):
        layer, output = called.data["layer"], called.data.get("output")
        if type(layer) is Object and layer.type == "keras.layers.Lambda" and output is not None and tensor in atoms(output):  # type: ignore[arg-type]
            node = scene.node(layer.made)
            return [node] if isinstance(node, ast.Call) and argument(node, "dtype") is None else []
    return []


def keep(scene: Scene, calls: list[ast.Call]) -> Fix:
    """The fix that gives layers, and what they wrap, `dtype="float32"`."""
    return Fix("keep it in float32", Applicability.SAFE, float32_layers(scene.file, calls))


def kind_of_model(model: Model) -> object:
    """The project's class of a model, or the model itself."""
    made = model.event.data["model"]
    return made.type if type(made) is Object and not isinstance(made.type, str) else id_of(made)


def untraced(scene: Scene) -> Iterator[tuple[ast.AST, str]]:
    """Models that this program makes and trains and of whose outputs nothing is known, so that they may be half."""
    told: set[ast.AST] = set()
    known = {kind_of_model(model) for model in models(scene) if model.tensors}
    for model in models(scene):
        made = model.event.data["model"]
        node = scene.node(made.made) if type(made) is Object else None
        if node is None or node in told or not model.trained or model.tensors or kind_of_model(model) in known:
            continue
        told.add(node)
        owner = getattr(made.type, "name", "")  # type: ignore[attr-defined]
        title = f"`{owner}`" if owner else "this model"
        yield node, f"the output of {title} can't be traced to its last layer: see that it is float32 before a loss is taken on it"
