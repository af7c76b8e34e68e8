"""Which layers of a Keras configuration compute in half: the policy of each is set where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mplint.conversion.policy import Options, Policy
from mplint.graph.keras.layers import LOOKUPS, Config, class_of, is_operation, is_own, layer_config, name_of
from mplint.graph.keras.policy import policy_of
from mplint.graph.storage import Json
from mplint.limits import EXACT_INTEGERS

HEAVY = (
    "Dense",
    "EinsumDense",
    "Conv",
    "Separable",
    "Depthwise",
    "LSTM",
    "GRU",
    "SimpleRNN",
    "Attention",
    "MultiHead",
    "GroupedQuery",
    "GroupQuery",
)
# What hands values on: a float32 output behind them is still one that was computed in half.
PASSING = frozenset(
    (
        "Reshape",
        "Flatten",
        "Permute",
        "Identity",
        "Dropout",
        "RepeatVector",
        "Squeeze",
        "Cropping1D",
        "Cropping2D",
        "ActivityRegularization",
    )
)
FINAL = frozenset(("Softmax", "Activation", "ReLU", "LeakyReLU"))
FRAGILE = {
    "Normalization": "it takes raw features, and {half} may hold neither their size nor their differences",
    "UnitNormalization": "it squares its inputs, and the smallest of them vanish",
    **dict.fromkeys(LOOKUPS, "it looks values up and computes nothing"),
    "Discretization": "it compares raw features with boundaries",
    "Lambda": "what its function needs is not known",
    "TorchModuleWrapper": "what the wrapped module needs is not known",
    "JaxLayer": "what the wrapped function needs is not known",
}


class Editor:
    """Walks a configuration and sets the policy of each layer that can compute in half.

    `known` says that the classes of custom layers are there, so that what their policies make of them is run and compared.
    `found` are the layers whose policy was float32: class, path, and whether it is half now. `kept` says of layers why they stay.
    """

    def __init__(
        self, policy: Policy, options: Options, largest: Mapping[str, float], reasons: Mapping[str, str], *, known: bool = False
    ) -> None:
        self.main, self.options, self.largest, self.reasons = policy, options, largest, reasons
        self.policy = policy  # of the layer that is looked at
        self.known = known
        self.found: list[tuple[str, str, bool]] = []
        self.kept: list[tuple[str, str]] = []
        self.planned: dict[str, str] = {}

    def model(self, entry: Config, *, output: bool, path: str = "") -> None:
        """Convert the layers of a model; `output`: what it returns leaves the whole model."""
        layers = layers_of(entry)
        if layers is None:
            return
        config = layer_config(entry)
        producers = {name_of(layer): _inputs(layer) for layer in layers}
        ends = set(_names(config.get("output_layers"))) or {name_of(layer) for layer in layers[-1:]}
        if not any(producers.values()):  # sequential: each layer takes the one before
            names = [name_of(layer) for layer in layers]
            producers = {name: names[at - 1 : at] if at else [] for at, name in enumerate(names)}
        by_name = {name_of(layer): layer for layer in layers}
        final = _final(ends, producers, by_name) if output else frozenset()
        feeding = self.feeding(path, producers, by_name)
        for layer in layers:
            name = name_of(layer)
            inputs = [by_name[before] for before in producers[name] if before in by_name]
            self.layer(layer, path, output=name in final, inputs=inputs, feeding=feeding.get(name, ""))

    def feeding(self, path: str, producers: Mapping[str, list[str]], by_name: Mapping[str, Config]) -> dict[str, str]:
        """Why layers stay float32 that make what an operation takes: it computes in the dtype that they give."""
        found: dict[str, str] = {}
        for name, layer in by_name.items():
            reason = self.reasons.get(path + name)
            stack = list(producers[name]) if reason and is_operation(layer) else []
            while stack:
                before = stack.pop()
                if before in by_name and is_operation(by_name[before]):
                    stack += producers[before]
                else:
                    found.setdefault(before, f"what {name!r} makes of it: {reason}")
        return found

    def layer(self, entry: Config, path: str, *, output: bool, inputs: list[Config], feeding: str = "") -> None:
        """Convert one layer, and what it holds."""
        kind, name = class_of(entry), path + name_of(entry)
        self.policy = self.policy_for((name, name_of(entry), kind))
        config = layer_config(entry)
        if kind == "InputLayer" or is_operation(entry):
            return
        if layers_of(entry) is not None:
            self.model(entry, output=output or bool(feeding), path=f"{name}/")
            return
        reason = self.reason(entry, name, output=output, inputs=inputs) or feeding
        self.set(config, kind, name, reason)
        for part, inner in held(config):
            if reason:
                self.set(layer_config(inner), class_of(inner), f"{name}/{name_of(inner)}", reason)
            elif layers_of(inner) is not None:
                self.model(inner, output=False, path=f"{name}/{part}/")
            else:
                self.layer(inner, f"{name}/", output=False, inputs=[])

    def reason(self, entry: Config, name: str, *, output: bool, inputs: list[Config]) -> str:
        """Why a layer stays float32; "" where it may compute in half."""
        kind, config = class_of(entry), layer_config(entry)
        if asked := self.options.stays((name, name_of(entry), kind)):
            return asked
        if output:
            return "it produces an output of the model, which stays float32"
        if name in self.reasons:
            return self.reasons[name]
        if not is_own(entry) and not is_operation(entry) and not self.takes_policy(entry):
            return "a custom layer: what its code does with half is not known (convert it by hand, in its class)"
        if kind in FRAGILE:
            return FRAGILE[kind].format(half=self.policy.half)
        if kind == "Rescaling" and (why := self.rescaling(config)):
            return why
        raw = [layer for layer in inputs if class_of(layer) == "InputLayer"]
        for layer in raw:
            limit = self.largest.get(name_of(layer), 0.0)
            if limit > self.policy.largest / 4:
                return f"its input {name_of(layer)!r} reaches {limit:g}, and {self.policy.half} ends at {self.policy.largest:g}"
        exact = EXACT_INTEGERS[self.policy.half]
        rows = config.get("input_dim")
        if kind == "Embedding" and isinstance(rows, int) and rows > exact and not all(_is_integer(layer) for layer in raw or [entry]):
            return f"its ids come as floats, and {self.policy.half} holds integers up to {exact} exactly"
        return ""

    def policy_for(self, names: tuple[str, ...]) -> Policy:
        """The policy of a layer with these names."""
        half = self.options.half_of(names, self.main.half)
        return self.main if half == self.main.half else replace(self.main, name=f"mixed_{half}", half=half)

    def takes_policy(self, entry: Config) -> bool:
        """Whether the class of a custom layer is there, and takes the policy in its configuration."""
        given = layer_config(entry).get("dtype")
        return self.known and isinstance(given, dict) and given.get("class_name") == "DTypePolicy"

    def whole(self, entry: Config) -> None:
        """Convert a model that makes its layers itself, of its own policy and of what it holds."""
        config = layer_config(entry)
        asked = self.options.stays((name_of(entry), class_of(entry)))
        self.set(config, class_of(entry), name_of(entry), asked)
        for part, inner in held(config):
            if layers_of(inner) is not None:
                self.model(inner, output=False, path=f"{part}/")
            else:
                self.layer(inner, "", output=False, inputs=[])

    def rescaling(self, config: Config) -> str:
        """Why a Rescaling stays float32: numbers beyond the range, or a factor so large that ordinary inputs leave it."""
        numbers = [abs(number) for key in ("scale", "offset") for number in _numbers(config.get(key))]
        if any(number > self.policy.largest / 256 for number in numbers):
            return f"it scales by {max(numbers):g}, and results may exceed {self.policy.largest:g}"
        return ""

    def set(self, config: Config, kind: str, name: str, reason: str) -> None:
        """Write the policy into one layer's configuration, or note why not."""
        given = config.get("dtype")
        known = policy_of(given)
        plain = isinstance(given, str) or (isinstance(given, dict) and given.get("class_name") in ("DTypePolicy", "Policy"))
        if known is None:
            return
        if not plain or known.name != "float32":
            if not reason:
                shown = known.name if plain or known.name.startswith("map_") else f"{known.name} (quantized)"
                self.kept.append((f"{name} ({kind})", f"its policy is {shown} already"))
            return
        self.found.append((kind, name, not reason))
        self.policy = self.policy_for((name, name.rpartition("/")[2], kind))
        own, wanted = str(config.get("name")), "float32" if reason else self.policy.name
        self.planned[own] = wanted if self.planned.get(own, wanted) == wanted else ""  # two layers of one name: neither is told apart
        if isinstance(given, dict):  # a policy object may be shared by many layers in the file; each keeps its own from now on
            given.pop("shared_object_id", None)
        if reason:
            self.kept.append((f"{name} ({kind})", reason))
            return
        config["dtype"] = {**given, "config": {"name": self.policy.name}} if isinstance(given, dict) else self.policy.name


def layers_of(entry: Config) -> list[Config] | None:
    """The layers of a functional or sequential model, None for anything else."""
    layers = layer_config(entry).get("layers")
    return [layer for layer in layers if isinstance(layer, dict)] if isinstance(layers, list) else None


def held(config: Config) -> Iterator[tuple[str, Config]]:
    """The layers that a layer holds in its settings, each with the name of the setting."""
    for part, value in config.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict) and "class_name" in item and ("dtype" in layer_config(item) or layers_of(item) is not None):
                yield part, item


def _final(ends: set[str], producers: Mapping[str, list[str]], by_name: Mapping[str, Config]) -> frozenset[str]:
    """The layers that make the outputs, with what only hands them on and the activation before that."""
    found: set[str] = set()
    stack = list(ends)
    while stack:
        name = stack.pop()
        if name in found or name not in by_name:
            continue
        found.add(name)
        if class_of(by_name[name]) in PASSING or is_operation(by_name[name]):
            stack += producers.get(name, [])
        elif class_of(by_name[name]) in FINAL:
            stack += [before for before in producers.get(name, []) if before in by_name and class_of(by_name[before]) in PASSING]
    return frozenset(found)


def _inputs(layer: Config) -> list[str]:
    """The names of the layers whose tensors a layer takes."""
    return list(dict.fromkeys(_histories(layer.get("inbound_nodes"))))


def _histories(value: Json) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            history = item.get("keras_history")
            if isinstance(history, list) and history and isinstance(history[0], str):
                yield history[0]
            stack += item.values()
        elif isinstance(item, list):
            stack += item


def _names(value: Json) -> Iterator[str]:
    """The layer names in `output_layers`: ["name", 0, 0], or any nesting of such."""
    if isinstance(value, list) and len(value) == 3 and isinstance(value[0], str) and isinstance(value[1], int):
        yield value[0]
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _names(item)


def _numbers(value: Json) -> list[float]:
    if isinstance(value, bool):
        return []
    if isinstance(value, int | float):
        return [float(value)]
    return [number for item in value for number in _numbers(item)] if isinstance(value, list) else []


def _is_integer(entry: Config) -> bool:
    """Whether an input layer gives integers."""
    dtype = layer_config(entry).get("dtype")
    return class_of(entry) != "InputLayer" or (isinstance(dtype, str) and dtype.startswith(("int", "uint", "bool")))
