"""Carries out the changes of fixes in the configuration of a Keras model: no framework is imported, and nothing of the model runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from mplint.conversion.keras.editor import held, layers_of
from mplint.findings import ComputeIn, Fix, RemoveCast, WriteNumber
from mplint.graph.keras.layers import Config, is_operation, layer_config, name_of
from mplint.graph.keras.policy import policy_of
from mplint.graph.model import FLOATS, HALF
from mplint.graph.storage import Json
from mplint.limits import FLOAT16_SMALLEST_NORMAL
from mplint.mend.proof import MendError


def carry_out(config: Config, fixes: Iterable[Fix]) -> None:
    """Carry out the changes of all fixes in place; raises MendError where one can't be."""
    for fix in fixes:
        for change in fix.model:
            match change:
                case RemoveCast(place):
                    _remove(*_found(config, place.name))
                case ComputeIn(places, dtype):
                    for place in places:
                        _compute_in(*_found(config, place.name), dtype)
                case WriteNumber():
                    for place in dict.fromkeys(place for place, _ in change.operands):
                        _write_number(_found(config, place.name)[1], change)


def widened(config: Json) -> None:
    """Let everything of a configuration compute in float32, in place."""
    stack = [config]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            policy = policy_of(item.get("dtype"))
            if policy is not None and policy.compute in HALF:
                item["dtype"] = "float32"
            stack += item.values()
        elif isinstance(item, list):
            stack += item


def _found(model: Config, path: str) -> tuple[Config, Config]:
    """The model that a layer stands in, and the layer's entry, by the path of the layer."""
    prefix = ""
    holder = model
    while True:
        for entry in layers_of(holder) or ():
            name = prefix + name_of(entry)
            if name == path:
                return holder, entry
            if path.startswith(f"{name}/") and layers_of(entry) is not None:
                prefix, holder = f"{name}/", entry
                break
        else:
            raise MendError(f"the layer {path} is not where it was read")


def _remove(model: Config, entry: Config) -> None:
    """Take out a layer that only casts: those that take its result take what it takes."""
    name = name_of(entry)
    settings = layer_config(model)
    layers = settings["layers"]
    assert isinstance(layers, list)
    if not any("inbound_nodes" in layer for layer in layers if isinstance(layer, dict)):
        if layers[-1] is entry:
            raise MendError(f"{name} makes an output of the model")
        layers.remove(entry)  # sequential
        return
    given = list(_references(entry.get("inbound_nodes")))
    if len(_calls(entry)) != 1 or len(given) != 1:
        raise MendError(f"{name} is called more than once, or on several tensors")
    if name in _strings(settings.get("output_layers")):
        raise MendError(f"{name} makes an output of the model, which has its name")
    before = given[0]
    for layer in layers:
        if isinstance(layer, dict):
            for reference in _references(layer.get("inbound_nodes")):
                if _origin(reference) == name:
                    reference["keras_history"] = before["keras_history"]
                    reference["dtype"] = before.get("dtype")
    layers.remove(entry)


def _compute_in(model: Config, entry: Config, dtype: str) -> None:
    name, config = name_of(entry), layer_config(entry)
    if len(_calls(entry)) > 1:
        raise MendError(f"{name} is called more than once: others take what it gives")
    if not is_operation(entry):
        if dtype in HALF:
            raise MendError(f"{name} has a policy of its own")
        for settings in (config, *(layer_config(inner) for _, inner in held(config))):
            policy = policy_of(settings.get("dtype"))
            if policy is None or policy.name.startswith(("int8", "int4", "float8")):
                raise MendError(f"{name} has no plain policy")
            settings["dtype"] = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": dtype}, "registered_name": None}
    for layer in layers_of(model) or ():
        for reference in _references(layer.get("inbound_nodes")):
            if _origin(reference) == name and reference.get("dtype") in FLOATS:
                reference["dtype"] = dtype


def _write_number(entry: Config, change: WriteNumber) -> None:
    """Write a number where the only one stands in a call of an operation, or in its settings, that it is meant for."""
    calls = _calls(entry)
    places = list(_numbers(layer_config(entry)))
    for call in calls:
        places += _numbers(call.get("args")) if isinstance(call, dict) else []
        places += _numbers(call.get("kwargs")) if isinstance(call, dict) else []
    beyond = change.beyond
    meant = [at for at in places if (abs(at[0]) > beyond if beyond is not None else 0 < at[0] < FLOAT16_SMALLEST_NORMAL)]
    if len(meant) != 1 or len(calls) != 1:
        raise MendError(f"which number of {name_of(entry)} is meant is not clear")
    ((old, write),) = meant
    write(-change.number if old < 0 else change.number)


def _numbers(value: Json) -> Iterator[tuple[float, Callable[[Json], None]]]:
    """The numbers in a list or a dict, each with what puts another in its place."""
    items: Iterable[tuple[object, Json]] = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, part in items:
        if isinstance(part, int | float) and not isinstance(part, bool):

            def write(new: Json, key: object = key) -> None:
                value[key] = new  # type: ignore[index,call-overload]

            yield float(part), write


def _calls(entry: Config) -> list[Json]:
    calls = entry.get("inbound_nodes")
    return calls if isinstance(calls, list) else []


def _references(value: Json) -> Iterator[Config]:
    """The settings of the tensors in the calls of a layer."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if isinstance(item.get("keras_history"), list):
                yield item
            stack += item.values()
        elif isinstance(item, list):
            stack += item


def _origin(reference: Config) -> Json:
    history = reference["keras_history"]
    return history[0] if isinstance(history, list) and history else None


def _strings(value: Json) -> set[str]:
    stack, found = [value], set()
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            found.add(item)
        elif isinstance(item, list):
            stack += item
        elif isinstance(item, dict):
            stack += item.values()
    return found
