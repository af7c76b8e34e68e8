"""The models of a Keras program and the layers and ops that compute their outputs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mplint.frameworks.names import keras_path
from mplint.python.syntax import SCOPES, argument
from mplint.source.keras.layers import (
    ACTIVATION_CALLS,
    PASSING,
    PROBABILITIES,
    Layer,
    activation,
    keras_name,
    layer_of,
    speaks_of_keras,
)
from mplint.source.keras.policy import KerasPolicy
from mplint.source.values import HALF, UNKNOWN

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

MODEL_NAMES = ("Model", "Functional")
TRAINING = frozenset({"compile", "fit", "fit_generator", "train_on_batch"})
RUNNING = TRAINING | {"predict", "evaluate", "predict_on_batch"}
MAX_DEPTH = 12
# Ops (last part of the name) that keep the dtype of their first argument and compute nothing.
SHAPE_OPS = frozenset({"reshape", "squeeze", "expand_dims", "identity", "transpose", "stop_gradient", "flatten", "permute_dimensions"})
CAST_OPS = frozenset({"cast", "convert_to_tensor", "saturate_cast"})
OP_ROOTS = ("tensorflow.", "keras.", "tf_keras.")


class Step(NamedTuple):
    """One step of a computation: `kind` is "layer", "op" (an activation function), "shape", "cast" or "application".

    `node` is the layer's construction or the op's call, `dtype` the dtype that a cast names ("?" where it can't be told).
    """

    node: ast.Call
    layer: Layer | None
    kind: str
    activation: str = "linear"
    dtype: str | None = None


Chain = tuple[Step, ...]


class Model(NamedTuple):
    """A model of the program.

    `node` is the call (or the class) that makes it, `kind` "sequential", "functional", "subclass", "application" or
    "fragment" (layers whose model is not shown); `name` what the program calls it; `outputs` what computes each output,
    last step first; `part`: it is a layer of another model here; `trained`: the program compiles or fits it; `run`: or
    predicts with it.
    """

    node: ast.Call | ast.ClassDef
    kind: str
    name: str
    outputs: tuple[tuple[Step, ...], ...]
    part: bool
    trained: bool
    run: bool


class ComputeDtype(NamedTuple):
    """The dtypes in which a layer may compute ("?": one that can't be told) and the calls that set the policy behind them.

    `certain`: the program leaves one; `undecided`: nothing in this file decides, so that another file of the project may.
    """

    names: frozenset[str]
    setters: tuple[ast.Call, ...] = ()
    certain: bool = False
    undecided: bool = False

    @property
    def half(self) -> frozenset[str]:
        """The half dtypes among them."""
        return self.names & HALF


class KerasModels:
    """Questions about layers and models in one file."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._layers: dict[ast.Call, Layer | None] = {}
        self.steps = Outputs(file, self)

    def layer(self, call: ast.Call) -> Layer | None:
        """The layer that `call` builds, or None."""
        if call not in self._layers:
            self._layers[call] = layer_of(self.file, call)
        return self._layers[call]

    def computes_in(self, call: ast.Call) -> ComputeDtype:
        """The dtypes in which the layer that `call` builds may compute: its own `dtype=`, else the global policy."""
        policy = self.file.fact(KerasPolicy)
        own = policy.dtype_argument(call)
        if own is not None:
            return ComputeDtype(own, (), len(own) == 1 and UNKNOWN not in own)
        state = policy.policy_at(call)
        return ComputeDtype(state.compute_dtypes, state.setters, state.certain, state.undecided)

    @cached_property
    def layers(self) -> list[Layer]:
        """Every layer that the program builds, in source order."""
        if not speaks_of_keras(self.file):
            return []
        return [layer for call in self.file.syntax.all(ast.Call) if (layer := self.layer(call)) is not None]

    @cached_property
    def models(self) -> list[Model]:
        """Every model of the program whose outputs are in sight, in source order."""
        if not speaks_of_keras(self.file):
            return []
        found = [self._model(call, kind) for call in self.file.syntax.all(ast.Call) if (kind := self.kind(call)) is not None]
        found += [self._subclass(owner) for owner in self.file.syntax.all(ast.ClassDef) if self.is_model_class(owner)]
        found = [model for model in found if model.outputs]
        if not found:
            found = self._fragments()
        return sorted(found, key=lambda m: (m.node.lineno, m.node.col_offset))

    @cached_property
    def heads(self) -> set[ast.Call]:
        """The layers that compute a model's output, or that a function or an unused name ends with."""
        chains = [chain for model in self.models for chain in model.outputs]
        for statement in self.file.syntax.all(ast.Return):
            chains += self.steps.of(statement.value)
        return {step.node for chain in chains for step in chain}

    def _fragments(self) -> list[Model]:
        """In a program without models: layer outputs at module level whose name nothing reads, the ends of networks shown in part."""
        read = {name.id for name in self.file.syntax.all(ast.Name) if isinstance(name.ctx, ast.Load)}
        found = []
        for statement in self.file.tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if name not in read:
                    found.append(Model(call, "fragment", name, tuple(self.steps.of(call)), False, False, False))
        return [model for model in found if model.outputs]

    def kind(self, call: ast.Call) -> str | None:
        """Which kind of model `call` makes: "sequential", "functional" or "application"; None: no model."""
        if not self.file.names.may_be_class(call.func) and not (isinstance(call.func, ast.Name) and call.func.id in self._classes):
            return None
        path = keras_name(self.file, call.func)
        if path is None:
            owner = self.file.names.local_function(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
            functional = isinstance(owner, ast.ClassDef) and self.is_model_class(owner) and self.file.names.method(owner, "call") is None
            return "functional" if functional and self.model_outputs(call) is not None else None
        last = path.rpartition(".")[2]
        if path.startswith("applications.") and last[:1].isupper():
            return "application"
        if last == "Sequential":
            return "sequential"
        return "functional" if last in MODEL_NAMES and self.model_outputs(call) is not None else None

    @cached_property
    def _classes(self) -> set[str]:
        return {owner.name for owner in self.file.syntax.all(ast.ClassDef)}

    def model_outputs(self, call: ast.Call) -> ast.expr | None:
        """The outputs expression of `Model(inputs, outputs)`, or None."""
        return argument(call, "outputs", 1) or argument(call, "output")

    def is_model_class(self, owner: ast.ClassDef) -> bool:
        """Whether a class of this file derives from `keras.Model`."""
        return self._derives(owner, (*MODEL_NAMES, "Sequential"))

    def outputs(self, node: ast.Call | ast.ClassDef, depth: int = 0) -> list[tuple[Step, ...]]:
        """What computes each output of the model that `node` makes, last step first."""
        if isinstance(node, ast.ClassDef):
            method = self.file.names.method(node, "call")
            values = self.file.values.returns(method) if method is not None else []
            return [chain for value in values for chain in self.steps.of(value, depth + 1)]
        match self.kind(node):
            case "sequential":
                return self.steps.of_sequential(node, depth)
            case "functional":
                return self.steps.of(self.model_outputs(node), depth + 1)
            case "application" if self._has_top(node):
                return [(Step(node, None, "application"),)]
        return []

    def _has_top(self, call: ast.Call) -> bool:
        top = argument(call, "include_top", 0)
        if top is not None and self.file.values.constant_or(top) is not True:
            return False
        return argument(call, "classifier_activation") is None and not any(k.arg is None for k in call.keywords)

    def _model(self, call: ast.Call, kind: str) -> Model:
        chains = tuple(dict.fromkeys(self.outputs(call)))
        return Model(call, kind, self._name(call), chains, self.is_model_part(call), call in self._trained, call in self._run)

    def _subclass(self, owner: ast.ClassDef) -> Model:
        chains = tuple(dict.fromkeys(self.outputs(owner)))
        made = self._instances.get(owner, [])
        part = any(self.is_model_part(call) for call in made) or self._is_base(owner)
        used = [any(call in receivers for call in made) for receivers in (self._trained, self._run)]
        return Model(owner, "subclass", owner.name, chains, part, *used)

    @cached_property
    def _instances(self) -> dict[ast.ClassDef, list[ast.Call]]:
        """The constructions of the classes of this file."""
        table: dict[ast.ClassDef, list[ast.Call]] = {}
        for call in self.file.syntax.all(ast.Call):
            made = self.file.names.local_function(call.func) if isinstance(call.func, ast.Name) else None
            if isinstance(made, ast.ClassDef):
                table.setdefault(made, []).append(call)
        return table

    def is_model_part(self, call: ast.Call) -> bool:
        """Whether what `call` makes is kept by a class that is a network, listed in a Sequential, or called inside a network."""
        owner = self.file.syntax.enclosing_class(call)
        if call in self.steps.parts or owner is None:
            return call in self.steps.parts
        return self.is_network_class(owner) or (self.kind(call) == "sequential" and owner in self._running_layers)

    @cached_property
    def _running_layers(self) -> set[ast.ClassDef]:
        """The classes, of whatever base, whose methods call layers that they keep: networks in all but name."""
        found = set()
        for call in self.file.syntax.all(ast.Call):
            match call.func:
                case ast.Attribute(value=ast.Name(id="self")) as kept if (owner := self.file.syntax.enclosing_class(call)) is not None:
                    if owner not in found and any(self.layer(made) is not None for made in self.made(kept)):
                        found.add(owner)
        return found

    def is_network_class(self, owner: ast.ClassDef) -> bool:
        """Whether a class of this file is a Keras layer or model."""
        return self._derives(owner, (*MODEL_NAMES, "Layer", "Sequential"))

    def _derives(self, owner: ast.ClassDef, kinds: tuple[str, ...]) -> bool:
        return any((keras_path(name) or "").rpartition(".")[2] in kinds for name in self.file.names.base_names(owner))

    def _is_base(self, owner: ast.ClassDef) -> bool:
        return any(owner in self.file.names.bases(other) for other in self.file.syntax.all(ast.ClassDef) if other is not owner)

    def _name(self, call: ast.Call) -> str:
        """The variable and the function that the model is made in, for the words in them."""
        parent = self.file.syntax.parents.get(call)
        target = parent.targets[0] if isinstance(parent, ast.Assign) else None
        variable = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
        return f"{variable} {self.file.syntax.qualname(call)} {self._label(call)}".strip()

    def _label(self, call: ast.Call) -> str:
        label = self.file.values.constant_or(argument(call, "name"))
        return label if isinstance(label, str) else ""

    @cached_property
    def _trained(self) -> set[ast.AST]:
        return set(self._receivers(TRAINING))

    @cached_property
    def _run(self) -> set[ast.AST]:
        return set(self._receivers(RUNNING))

    def _receivers(self, methods: frozenset[str]) -> Iterator[ast.AST]:
        """What the objects stand for on which one of `methods` is called."""
        for node in self.file.syntax.all(ast.Attribute):
            if node.attr in methods and isinstance(self.file.syntax.parents[node], ast.Call):
                yield from self.made(node.value)

    def made(self, node: ast.expr) -> list[ast.Call]:
        """The calls that may have made what `node` holds; a keyword argument's default and helper functions are followed."""
        return [d for d in self.file.values.definitions(node) if isinstance(d, ast.Call)]


class Outputs:
    """Follows tensors of one program back to what computes them."""

    def __init__(self, file: SourceFile, models: KerasModels) -> None:
        self.file, self.models = file, models
        self._open: set[int] = set()

    def of(self, node: ast.expr | None, depth: int = 0) -> list[Chain]:
        """Every way in which `node` may be computed, for each of its elements where it is a list, tuple or dict.

        A chain runs from the last step back through steps that only pass on what they get, up to the one that
        computes it; an expression that can't be read gives no chain.
        """
        if node is None or depth > MAX_DEPTH or id(node) in self._open:
            return []
        self._open.add(id(node))
        try:
            return [chain for definition in self._definitions(node) for chain in self._chains(definition, depth + 1)]
        finally:
            self._open.discard(id(node))

    def _definitions(self, node: ast.expr) -> list[ast.expr]:
        if isinstance(node, ast.Call) and self.file.names.local_function(node.func) is None:
            return [node]
        return [d for d in self.file.values.definitions(node) if isinstance(d, ast.expr)]

    def _chains(self, node: ast.expr, depth: int) -> list[Chain]:
        match node:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return [chain for part in (*parts, *self._appended(node)) for chain in self.of(part, depth)]
            case ast.Dict(values=parts):
                return [chain for part in parts for chain in self.of(part, depth)]
            case ast.ListComp(elt=element) | ast.DictComp(value=element):
                return self.of(element, depth)
            case ast.Attribute(value=owner, attr="output" | "outputs"):
                return [chain for made in self.models.made(owner) for chain in self.models.outputs(made, depth)]
            case ast.Call():
                return self._call(node, depth)
        return []

    def _appended(self, node: ast.expr) -> list[ast.expr]:
        """What `.append` adds to a list that a name is given, in its scope."""
        parent = self.file.syntax.parents.get(node)
        if not isinstance(node, ast.List) or not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Name):
            return []
        name, scope = parent.targets[0].id, self.file.syntax.scope(node)
        return [c.args[0] for c in self._appends.get(name, []) if self.file.syntax.scope(c) is scope]

    @cached_property
    def _appends(self) -> dict[str, list[ast.Call]]:
        table: dict[str, list[ast.Call]] = {}
        for call in self.file.syntax.all(ast.Call):
            match call:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[_]):
                    table.setdefault(name, []).append(call)
        return table

    def _call(self, call: ast.Call, depth: int) -> list[Chain]:
        if (step := self.op(call)) is not None:
            if step.kind == "cast":
                return [(step,)]
            return [(step, *rest) for rest in self.of(call.args[0], depth)] if call.args else []
        chains: list[Chain] = []
        for made in self._callees(call.func):
            layer = self.models.layer(made)
            if layer is not None:
                chains += self._layer(layer, call.args[0] if call.args else None, depth)
            elif self.models.kind(made) is not None:
                chains += self.models.outputs(made, depth)
            elif isinstance(owner := self.file.names.local_function(made.func), ast.ClassDef) and self.models.is_network_class(owner):
                chains += self.models.outputs(owner, depth)
        return chains

    def _callees(self, func: ast.expr) -> list[ast.Call]:
        """The constructions of the objects that a call may run: `Dense(5)` of `Dense(5)(x)`, or what a name or attribute holds."""
        if isinstance(func, ast.Call):
            return [func] if self.file.names.local_function(func.func) is None else self.models.made(func) or [func]
        return self.models.made(func) if isinstance(func, (ast.Name, ast.Attribute)) else []

    def _layer(self, layer: Layer, given: ast.expr | None, depth: int) -> list[Chain]:
        step = self.step(layer)
        if step.kind == "cast" or layer.kind not in PASSING or given is None:
            return [(step,)]
        return [(step, *rest) for rest in self.of(given, depth)] or [(step,)]

    def step(self, layer: Layer) -> Step:
        """The step that a layer is; a Lambda that casts is a cast."""
        if layer.kind == "Lambda":
            function = argument(layer.call, "function", 0)
            body = function.body if isinstance(function, ast.Lambda) else None
            op = self.op(body) if isinstance(body, ast.Call) else None
            return op._replace(node=layer.call) if op is not None and op.kind == "cast" else Step(layer.call, layer, "cast", dtype="?")
        source = self.models.layer(layer.inner) if layer.kind == "TimeDistributed" and layer.inner is not None else None
        return Step(layer.call, layer, "layer", activation(self.file, source or layer))

    def casts(self) -> list[Step]:
        """The casts of the program."""
        return [step for call in self.file.names.calls_of(*CAST_OPS) if (step := self.op(call)) is not None and step.kind == "cast"]

    def op(self, call: ast.Call) -> Step | None:
        """The step of a call of an op: a cast, an activation function, a change of shape; None for anything else."""
        for name in self.file.names.candidates(call.func):
            last = name.rpartition(".")[2]
            if not name.startswith(OP_ROOTS):
                continue
            if last in CAST_OPS and (last != "convert_to_tensor" or argument(call, "dtype", 1) is not None):
                found = self.file.values.dtypes(argument(call, "dtype", 1))
                return Step(call, None, "cast", dtype=found.pop() if len(found) == 1 else "?")
            if last in PROBABILITIES and ((keras_path(name) or "").startswith(ACTIVATION_CALLS) or keras_path(name) is None):
                return Step(call, None, "op", last)
            if last in SHAPE_OPS:
                return Step(call, None, "shape")
        return None

    def of_sequential(self, call: ast.Call, depth: int) -> list[Chain]:
        """What computes the output of a Sequential: the last of its list, or of its `.add` calls."""
        if any(isinstance(c, ast.Attribute) and c.attr == "pop" for c in self._pops.get(call, [])):
            return []
        listed = self._listed(argument(call, "layers", 0))
        added = self._last_adds(call)
        if not added:
            return self._tail(listed, depth) if listed else []
        return [chain for tail in added for chain in self._tail([*(listed or []), *tail], depth)]

    def _listed(self, given: ast.expr | None) -> list[ast.expr] | None:
        if given is None:
            return []
        found = [d for d in self.file.values.definitions(given) if isinstance(d, (ast.List, ast.Tuple))]
        if len(found) != 1:
            return None
        return [*found[0].elts, *self._appended(found[0])]

    def _tail(self, layers: list[ast.expr], depth: int) -> list[Chain]:
        """The chains that end a list of layers."""
        chains: list[Chain] = [()]
        for item in reversed(layers):
            grown: list[Chain] = []
            for chain in chains:
                grown += [(*chain, *more) for more in self._element(item, depth)]
            if not grown:
                return [chain for chain in chains if chain]
            chains = grown
            if any(c[-1].layer is None or c[-1].layer.kind not in PASSING for c in chains):
                break
        return [chain for chain in chains if chain]

    def _element(self, item: ast.expr, depth: int) -> list[Chain]:
        """The chains of one element of a Sequential: a layer, a nested model, or a conditional choice of them."""
        found: list[Chain] = []
        if depth > MAX_DEPTH:
            return found
        for made in self.models.made(item) if not isinstance(item, ast.Call) else self._callees(item):
            layer = self.models.layer(made)
            if layer is not None:
                found.append((self.step(layer),))
            elif self.models.kind(made) in ("sequential", "functional"):
                found += self.models.outputs(made, depth + 1)
        return found

    @cached_property
    def _pops(self) -> dict[ast.Call, list[ast.expr]]:
        return self._method_calls("pop")

    @cached_property
    def _adds(self) -> dict[ast.Call, list[ast.expr]]:
        return self._method_calls("add")

    def _method_calls(self, name: str) -> dict[ast.Call, list[ast.expr]]:
        """The calls of a method of each Sequential: the callee of `pop`, the argument of `add`, in source order."""
        table: dict[ast.Call, list[ast.expr]] = {}
        for call in self.file.syntax.all(ast.Call):
            match call:
                case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute() as owner, attr=attr)) if attr == name:
                    item = call.args[0] if name == "add" and call.args else call.func
                    for made in self.models.made(owner):
                        if (keras_name(self.file, made.func) or "").endswith("Sequential"):
                            table.setdefault(made, []).append(item)
        return table

    def _last_adds(self, call: ast.Call) -> list[list[ast.expr]]:
        """The layers that `.add` puts last, on each way through the program: the ends of lists of added layers."""
        adds = self._adds.get(call, [])
        base = self._blocks(call)
        tails: list[list[ast.expr]] = []
        covered: set[int] = set()
        for index in range(len(adds) - 1, -1, -1):
            blocks = self._blocks(adds[index])
            if not blocks or blocks[0] in covered:
                continue
            ahead = [a for a in adds[: index + 1] if set(self._blocks(a)) <= set(blocks) | set(base)]
            tails.append(ahead)
            covered.add(blocks[0])
            if blocks[0] in base or self._both_arms(adds[index], covered):
                break
        return tails

    def _blocks(self, node: ast.AST) -> list[int]:
        """Identities of the statement lists around `node` within its function, innermost first; a `with` body belongs to its block."""
        found: list[int] = []
        statement = self.file.syntax.statement(node)
        while not isinstance(statement, ast.Module):
            parent = self.file.syntax.parents[statement]
            if not isinstance(parent, (ast.With, ast.AsyncWith)):
                found.append(id(self.file.syntax.block(statement)))
            if isinstance(parent, SCOPES):
                break
            statement = self.file.syntax.statement(parent)
        return found

    def _both_arms(self, node: ast.AST, covered: set[int]) -> bool:
        parent = self.file.syntax.parents[self.file.syntax.statement(node)]
        return isinstance(parent, ast.If) and bool(parent.orelse) and id(parent.body) in covered and id(parent.orelse) in covered

    @cached_property
    def parts(self) -> set[ast.Call]:
        """The constructions of models that this program uses inside a network: listed, added, or followed by further layers."""
        found: set[ast.Call] = set()
        for call in self.file.syntax.all(ast.Call):
            built = self.file.names.may_be_class(call.func)
            if built and (keras_name(self.file, call.func) or "").endswith("Sequential"):
                for item in (*(self._listed(argument(call, "layers", 0)) or []), *self._adds.get(call, [])):
                    found.update(self.models.made(item))
            elif self._is_layer_call(call):
                for given in call.args:
                    found.update(self._models_within(given))
            elif self.models.kind(call) == "functional":
                found.update(self._models_within(self.models.model_outputs(call)) - {call})
            if built and self._holds_models(call):
                for given in (*call.args, *(k.value for k in call.keywords)):
                    found.update(made for made in self.models.made(given) if self.models.kind(made) in ("sequential", "functional"))
        return found

    def _holds_models(self, call: ast.Call) -> bool:
        """Whether the call builds a layer or model of Keras, such as `TimeDistributed(encoder)` or `WideDeepModel(wide, deep)`."""
        home, _, last = (keras_name(self.file, call.func) or "").rpartition(".")
        return home.partition(".")[0] in ("layers", "models", "experimental") and last[:1].isupper()

    def _is_layer_call(self, call: ast.Call) -> bool:
        return any(self.models.layer(made) is not None for made in self._callees(call.func))

    def _models_within(self, node: ast.expr | None, depth: int = 0) -> set[ast.Call]:
        """The models through which the tensor (or list of tensors) `node` has come, through calls of models only."""
        found: set[ast.Call] = set()
        for definition in self.file.values.definitions(node) if depth < 5 else ():
            match definition:
                case ast.Attribute(value=owner, attr="output" | "outputs"):
                    found.update(self.models.made(owner))
                case ast.Call(func=ast.Name() | ast.Attribute() | ast.Call() as func, args=given) if self.models.layer(definition) is None:
                    called = {made for made in self._callees(func) if self.models.layer(made) is None}
                    found |= called
                    for part in given if called else ():
                        found |= self._models_within(part, depth + 1)
                case ast.List(elts=parts) | ast.Tuple(elts=parts):
                    for part in parts:
                        found |= self._models_within(part, depth + 1)
        return found
