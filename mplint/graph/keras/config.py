"""A Keras model's configuration as a graph: functional, sequential and subclassed models, nested and shared ones."""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple

from mplint.graph.keras.layers import Config, Recorded, class_of, constant_of, is_own, layer_config, layer_node, name_of
from mplint.graph.keras.policy import policy_of
from mplint.graph.keras.weights import NOTHING, Source, children, variables
from mplint.graph.model import Attribute, Graph, GraphError, Node, OpKind, Tensor, literal
from mplint.graph.storage import Json, shape_of

MAX_DEPTH = 60
OLD_OPERANDS = ("x", "y", "a", "b", "clip_value_min", "clip_value_max")  # the arguments of tf functions that may be numbers to compute with
Key = tuple[str, int, int]  # layer, which of its calls, which of the outputs


class Call(NamedTuple):
    """One call of a layer: the tensors that go in, the plain arguments, and the constants among the operands with their places."""

    inputs: tuple[Key, ...]
    scalars: dict[str, Attribute]
    constants: tuple[tuple[int, Tensor], ...] = ()


def read_model(config: Config, source: Source, notes: list[str]) -> Graph:
    """The graph of a serialized model. Raises GraphError for a configuration that contradicts itself."""
    return _Reader(notes).model(config, source, "", 0)


def policy_name(config: Config) -> str | None:
    """The policy of the model as a whole: its own, else the only mixed one of its layers, else the one that all of them have."""
    own = policy_of(layer_config(config).get("dtype"))
    if own is not None:
        return own.name
    names: Counter[str] = Counter()
    pending: list[Json] = [layer_config(config).get("layers")]
    while pending:
        match pending.pop():
            case list(entries):
                pending += entries
            case {"config": dict(inner), "class_name": str(kind)} if kind != "InputLayer":
                found = policy_of(inner.get("dtype"))
                if found is not None:
                    names[found.name] += 1
                pending.append(inner.get("layers"))
            case _:
                pass
    mixed = [name for name in names if "mixed" in name]
    return mixed[0] if len(mixed) == 1 else next(iter(names)) if len(names) == 1 else None


class _Reader:
    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def model(self, entry: Config, source: Source, path: str, depth: int) -> Graph:
        """The graph of a model; `path` ends in "/" for a nested one."""
        if depth > MAX_DEPTH:
            raise GraphError("models nested too deeply")
        config = layer_config(entry)
        layers = config.get("layers")
        if isinstance(entry.get("config"), list):  # the oldest sequential models are the list alone
            layers = entry["config"]
        if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
            return self._subclassed(entry, source, path)
        entries = [layer for layer in layers if isinstance(layer, dict)]
        sources = children(source, [(name_of(layer), class_of(layer)) for layer in entries])
        if class_of(entry) != "Sequential" and ("input_layers" in config or any("inbound_nodes" in layer for layer in entries)):
            return self._functional(config, entries, sources, path, depth)
        return self._sequential(entry, entries, sources, path, depth)

    def _functional(self, config: Config, entries: list[Config], sources: dict[str, Source], path: str, depth: int) -> Graph:
        graph = Graph(str(config.get("name", "")))
        by_name = {name_of(entry): entry for entry in entries}
        calls = {name: _calls(entry.get("inbound_nodes")) for name, entry in by_name.items()}
        ends = _keys(config.get("output_layers"))
        _renumber(calls, ends, by_name)
        recorded = _recorded(entries)
        tensors: dict[Key, Tensor] = {}
        waiting: dict[tuple[str, int], list[tuple[str, int]]] = {}
        missing: dict[tuple[str, int], int] = {}
        ready: deque[tuple[str, int]] = deque()
        for name, made in calls.items():
            for index, call in enumerate(made or [Call((), {})]):
                needs = {(key[0], key[1]) for key in call.inputs}
                missing[name, index] = len(needs)
                for need in needs:
                    waiting.setdefault(need, []).append((name, index))
                if not needs:
                    ready.append((name, index))
        done = 0
        first_bodies: dict[str, Node] = {}
        while ready:
            name, index = ready.popleft()
            done += 1
            entry = by_name[name]
            call = calls[name][index] if calls[name] else Call((), {})
            inputs = [_tensor(tensors, key) for key in call.inputs]
            for place, constant in call.constants:
                inputs.insert(place, constant)
            outputs = recorded.get((name, index), [])
            if class_of(entry) == "InputLayer":
                tensor = _input(entry, path)
                graph.inputs.append(tensor)
                made_tensors: tuple[Tensor, ...] = (tensor,)
            else:
                node = self._node(entry, path, inputs, sources.get(name, NOTHING), outputs, call.scalars, first_bodies, depth)
                if index:
                    node.name = f"{name} (call {index + 1})"
                    node.weights = first_bodies[name].weights
                first_bodies.setdefault(name, node)
                graph.nodes.append(node)
                made_tensors = node.outputs
            for place, tensor in enumerate(made_tensors):
                tensors[name, index, place] = tensor
            for later in waiting.get((name, index), ()):
                missing[later] -= 1
                if missing[later] == 0:
                    ready.append(later)
        if done < len(missing):
            stuck = next(name for (name, _), count in missing.items() if count)
            raise GraphError(f"the configuration is cyclic or refers to a layer that is not there: {stuck[:100]} never gets its inputs")
        names = [key for key in _keys(config.get("input_layers")) if key in tensors]
        graph.inputs = [tensors[key] for key in names] or graph.inputs
        graph.outputs = [_tensor(tensors, key) for key in ends]
        return graph

    def _sequential(self, entry: Config, entries: list[Config], sources: dict[str, Source], path: str, depth: int) -> Graph:
        config = layer_config(entry)
        graph = Graph(str(config.get("name", "")))
        first_bodies: dict[str, Node] = {}
        build = entry.get("build_config")
        shape = shape_of(config.get("build_input_shape")) or (shape_of(build.get("input_shape")) if isinstance(build, dict) else None)
        tensor: Tensor | None = None
        for place, layer in enumerate(entries):
            if class_of(layer) == "InputLayer":
                tensor = _input(layer, path)
                graph.inputs.append(tensor)
                continue
            settings = layer_config(layer)
            if tensor is None:
                given = shape_of(settings.get("batch_input_shape")) or shape
                policy = policy_of(settings.get("dtype"))
                integers = class_of(layer) == "Embedding"
                tensor = Tensor(f"{path}input", None if integers else policy.variable if policy and given else "float32", given)
                graph.inputs.append(tensor)
            after = entries[place + 1] if place + 1 < len(entries) else None
            built = after.get("build_config") if after is not None else None
            noted = shape_of(built.get("input_shape")) if isinstance(built, dict) else None
            name = name_of(layer)
            node = self._node(layer, path, [tensor], sources.get(name, NOTHING), [(noted, None)] if noted else [], {}, first_bodies, depth)
            first_bodies.setdefault(name, node)
            graph.nodes.append(node)
            tensor = node.outputs[0] if node.outputs else tensor
        if tensor is not None:
            graph.outputs = [tensor]
        return graph

    def _node(
        self,
        entry: Config,
        path: str,
        inputs: list[Tensor],
        source: Source,
        recorded: list[Recorded],
        scalars: dict[str, Attribute],
        first_bodies: dict[str, Node],
        depth: int,
    ) -> Node:
        """A layer, or a nested model as a call with the model as its body; a second call shares the first one's body."""
        name = name_of(entry)
        config = layer_config(entry)
        if not isinstance(config.get("layers"), list) or class_of(entry) in ("StackedRNNCells", "Pipeline"):
            return layer_node(entry, path + name, path.rstrip("/"), inputs, source, recorded, scalars)
        policy = policy_of(config.get("dtype"), path + name)
        first = first_bodies.get(name)
        body = first.graphs["body"] if first is not None else self.model(entry, source, f"{path}{name}/", depth + 1)
        attributes: dict[str, Attribute] = {**scalars, **({"shares": name} if first is not None else {})}
        noted = [shape for shape, _ in recorded] + [None] * len(body.outputs)
        outputs = [
            Tensor(f"{path}{name}{f':{i}' if i else ''}", tensor.dtype, noted[i] or tensor.shape) for i, tensor in enumerate(body.outputs)
        ]
        return Node(
            name,
            OpKind.CALL,
            class_of(entry),
            domain="keras" if is_own(entry) else str(entry.get("module") or "custom"),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            attributes=attributes,
            graphs={} if first is not None else {"body": body},
            callees=(body,) if first is not None else (),
            compute_dtype=policy.compute if policy else None,
            variable_dtype=policy.variable if policy else None,
            layer=path.rstrip("/"),
        )

    def _subclassed(self, entry: Config, source: Source, path: str) -> Graph:
        """A model that is Python code: one node that nothing is known of, with its variables; layers in its settings are its parts."""
        name = name_of(entry)
        self.notes.append(f"{name} is a subclassed model: its layers and their order are in its Python code, not in the file.")
        node = layer_node({"module": "custom", **entry}, path + name, path.rstrip("/"), [], source, [], {})
        node.kind = OpKind.OPAQUE
        node.outputs = ()
        if not node.weights:
            node.weights = variables(source, path + name, "", {})
        return Graph(name, [node])


def _renumber(calls: dict[str, list[Call]], ends: list[Key], by_name: dict[str, Config]) -> None:
    """Number the calls of nested models from 0: Keras 2 counts the one that built the model itself, too."""
    highest: dict[str, int] = {}
    for keys in (ends, *(call.inputs for made in calls.values() for call in made)):
        for name, index, _ in keys:
            highest[name] = max(index, highest.get(name, 0))
    nested = {
        name: highest[name] + 1 - len(calls[name])
        for name, entry in by_name.items()
        if isinstance(layer_config(entry).get("layers"), list) and highest.get(name, 0) >= len(calls[name]) > 0
    }
    if not nested:
        return
    for made in calls.values():
        made[:] = [call._replace(inputs=tuple((n, i - nested.get(n, 0), o) for n, i, o in call.inputs)) for call in made]
    ends[:] = [(n, i - nested.get(n, 0), o) for n, i, o in ends]


def _input(entry: Config, path: str) -> Tensor:
    config = layer_config(entry)
    dtype = config.get("dtype")
    policy = policy_of(dtype)
    shape = shape_of(config.get("batch_shape") or config.get("batch_input_shape"))
    return Tensor(path + name_of(entry), policy.variable if policy else None, shape)


def _tensor(tensors: dict[Key, Tensor], key: Key) -> Tensor:
    found = tensors.get(key) or tensors.get((key[0], key[1], 0))
    if found is None:
        raise GraphError(f"the configuration refers to output {key[2]} of a layer {key[0][:100]!r} that is not there")
    if key not in tensors:  # an output that nothing noted
        found = tensors[key] = Tensor(f"{found.name}:{key[2]}", found.dtype)
        producer = tensors[key[0], key[1], 0]
        found.producer = producer.producer
    return found


class _Arguments:
    """What one call of a layer is given."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.scalars: dict[str, Attribute] = {}
        self.constants: list[tuple[int, Tensor]] = []

    def call(self) -> Call:
        """The call."""
        return Call(tuple(self.keys), self.scalars, tuple(self.constants))

    def constant(self, tensor: Tensor) -> None:
        """Add an operand that the file holds."""
        self.constants.append((len(self.keys) + len(self.constants), tensor))

    def gather(self, value: Json, name: str, depth: int = 0) -> None:
        """Add an argument of Keras 3, with what lies in it."""
        if depth > MAX_DEPTH:
            raise GraphError("arguments nested too deeply")
        match value:
            case {"class_name": "__keras_tensor__", "config": {"keras_history": [str(layer), int(call), int(output)]}}:
                self.keys.append((layer, call, output))
            case {"class_name": "__tensor__", "config": {"value": values, "dtype": str(dtype)}}:
                self.constant(constant_of(name, values, dtype))
            case dict():
                for key, part in value.items():
                    self.gather(part, f"{name}.{key}", depth + 1)
            case list():
                for part in value:
                    self.gather(part, name, depth + 1)
            case bool() | str():
                self.scalars.setdefault(name, value)
            case int() | float():
                self.scalars.setdefault(name, value)
                if depth == 0:
                    self.constant(literal(value, None))
            case _:
                pass

    def old_reference(self, reference: Json) -> None:
        """["layer", call, output, {keyword arguments}]; a keyword may itself refer to a tensor, and a constant has a name of its own."""
        match reference:
            case ["_CONSTANT_VALUE", _, value, *rest]:
                if isinstance(value, bool | int | float | str):
                    self.scalars.setdefault("arg0", value)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self.constant(literal(value, None))
            case [str(layer), int(call), int(output), *rest]:
                self.keys.append((layer, call, output))
            case _:
                return
        for part in rest:
            for name, value in part.items() if isinstance(part, dict) else ():
                match value:
                    case [str(layer), int(call), int(output)]:
                        self.keys.append((layer, call, output))
                    case bool() | int() | float() | str():
                        self.scalars.setdefault(name, value)
                        if name in OLD_OPERANDS and isinstance(value, int | float) and not isinstance(value, bool):
                            self.constant(literal(value, None))
                    case _:
                        pass


def _calls(nodes: Json) -> list[Call]:
    """The calls in a layer's inbound_nodes, in the form of Keras 3 or of Keras 2."""
    found = []
    for node in nodes if isinstance(nodes, list) else ():
        arguments = _Arguments()
        match node:
            case {"args": list(given), "kwargs": dict(named)}:
                for place, argument in enumerate(given):
                    arguments.gather(argument, f"arg{place}")
                for name, argument in named.items():
                    arguments.gather(argument, name)
            case [str(), int(), int(), *_]:
                arguments.old_reference(node)
            case list():
                for reference in node:
                    arguments.old_reference(reference)
        found.append(arguments.call())
    return found


def _recorded(entries: list[Config]) -> dict[tuple[str, int], list[Recorded]]:
    """The shapes and dtypes that Keras 3 notes where a tensor goes in, by the call that made it."""
    found: dict[tuple[str, int], dict[int, Recorded]] = {}
    pending: list[Json] = [entry.get("inbound_nodes") for entry in entries]
    while pending:
        match pending.pop():
            case {"class_name": "__keras_tensor__", "config": {"keras_history": [str(layer), int(call), int(output)], **noted}}:
                dtype = noted.get("dtype")
                if 0 <= output < 1000:
                    found.setdefault((layer, call), {})[output] = (shape_of(noted.get("shape")), dtype if isinstance(dtype, str) else None)
            case dict() as mapping:
                pending += mapping.values()
            case list() as values:
                pending += values
            case _:
                pass
    return {key: [outputs.get(i, (None, None)) for i in range(max(outputs) + 1)] for key, outputs in found.items()}


def _keys(value: Json) -> list[Key]:
    """References to tensors in input_layers and output_layers: one, or a list, or a dict of them."""
    match value:
        case [str(layer), int(call), int(output)]:
            return [(layer, call, output)]
        case list():
            return [key for part in value for key in _keys(part)]
        case dict():
            return [key for part in value.values() for key in _keys(part)]
        case _:
            return []
