"""Modules: layers, parameters, conversions of whole models, and what calling a module does.

A module's dtype stands in its slot "#dtype" once somebody has cast it. Events: "unknown model called", "module cast",
"probabilities given", "module handed on".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from mplint.frameworks.derived import OpMeaning, torch_layer
from mplint.frameworks.library import unknown_result
from mplint.frameworks.packages import in_table, is_of_the_host, note, of_table
from mplint.frameworks.torch.forwards import is_trained, is_used_as_model, note_called, owner_of_member
from mplint.frameworks.torch.promotion import FLOATS, HALVES, SCALAR, UNKNOWN_TENSOR, dtypes_given, named, spread
from mplint.frameworks.torch.protocol import GRADIENTS_OFF, OFF, clipped, gradients_off, zero_grad
from mplint.frameworks.torch.raised import OF_LAYER
from mplint.frameworks.torch.tensors import (
    BUFFER,
    CALLED_LOSS,
    FROZEN,
    HOST,
    LEGACY,
    MAKERS,
    MODEL_OUTPUT,
    PARAMETER,
    QUIET,
    RATES,
    ROUNDED,
    UNTRAINED,
    inherit,
    is_module_name,
    note_cast,
    operate,
    sigmoid_of,
)
from mplint.frameworks.trainers.managed import manager_of
from mplint.frameworks.trainers.weights import CLASS, CONVERSIONS, OWN, groups_of, owner_of, watch, weights
from mplint.frameworks.vocabulary import Entered, Vocabulary
from mplint.program.conditions import extend
from mplint.program.expressions import INSTANCE, ancestors, bind, class_member, external_bases
from mplint.program.machine import IDENTITY, STATE, Args, Machine
from mplint.program.store import choose, join
from mplint.program.values import (
    ANY,
    HALF,
    INTEGER,
    JOINED,
    NONE,
    SINGLE,
    TRUE,
    Atom,
    Autocast,
    By,
    Chain,
    Class,
    Constant,
    Context,
    DType,
    DTypeOf,
    Entries,
    External,
    Function,
    Items,
    Method,
    Object,
    Place,
    Step,
    Tensor,
    Unknown,
    Value,
    Wrapped,
    atoms,
    first_joined,
    options,
)

vocabulary = Vocabulary()
call = vocabulary.call
method = vocabulary.method

HALF_WORDS = frozenset({"half", "float16", "bfloat16"})
MAKES = frozenset({"arange", "from_pretrained"})  # what a module's `__init__` makes in half precision
CALL_STEPS = 20_000  # that one call of a module may use
RESERVED = 4  # of an entry's steps, this part is for what stands around such calls
UNCHANGED = ("cuda", "cpu", "to", "eval", "train", "requires_grad_", "apply", "xpu", "npu", "mps", "type", "to_empty", "share_memory")
WRAPPERS = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.compile",
    "torch.jit.script",
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
    "torch.nn.parallel.distributed.DistributedDataParallel",
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.nn.utils.weight_norm",
    "torch.nn.utils.spectral_norm",
    "torch.nn.utils.parametrizations.weight_norm",
    "torch.nn.utils.parametrizations.spectral_norm",
    "torch._dynamo.optimize",
    "torch._dynamo.disable",
    "torch.compiler.disable",
    "torch.jit.script_if_tracing",
    "torch.vmap",
    "torch.func.vmap",
    "torch.nn.utils.parametrizations.orthogonal",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.checkpoint_wrapper",
    "fairscale.nn.checkpoint_wrapper",
    "fairscale.nn.checkpoint.checkpoint_wrapper",
)
CONTAINERS = {
    "torch.nn.Sequential": "list",
    "torch.nn.ModuleList": "list",
    "torch.nn.ParameterList": "list",
    "torch.nn.ModuleDict": "dict",
    "torch.nn.ParameterDict": "dict",
}
COMPUTES, TAKES = "#computes", "#takes"  # slots of a module: the dtype that it computes in, whatever its weights are, and casts inputs to
HEIR = "#modules"  # the slot of an instance whose class extends a container: what that holds
SLOTS = {"list": "#items", "dict": "#entries"}
SIZED = ("Linear", "LazyLinear", "Embedding", "Conv", "LSTM", "GRU", "RNN", "MultiheadAttention", "LayerNorm", "BatchNorm")
CONTENT = f"module{IDENTITY}"
NO_MODELS = frozenset(
    [
        "get",
        "print",
        "log",
        "info",
        "debug",
        "warning",
        "error",
        "append",
        "extend",
        "update",
        "next",
        "range",
        "len",
        "isinstance",
        "zip",
        "enumerate",
        "tqdm",
        "add_scalar",
        "item",
        "items",
        "keys",
        "values",
        "format",
        "join",
        "split",
        "strip",
        "write",
        "flush",
        "close",
        "open",
        "read",
        "startswith",
        "endswith",
        "set_description",
        "set_postfix",
        "record",
        "log_metrics",
        "add_image",
        "state_dict",
        "load_state_dict",
        "step",
        "zero_grad",
        "barrier",
        "all_reduce",
        "reset",
        "named_parameters",
        "parameters",
        "modules",
        "named_modules",
        "register_hook",
        "wait",
        "stop",
        "start",
    ]
)


# making


@vocabulary.prefix("torch.nn.")
def layer(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """A layer of torch, or a container of layers."""
    last = name.rpartition(".")[2]
    if name.startswith(("torch.nn.functional.", "torch.nn.init.", "torch.nn.utils.", "torch.nn.parallel.")) or not last[:1].isupper():
        return None
    short = f"torch.nn.{last}" if name.startswith("torch.nn.modules.") else name
    if last in ("Parameter", "Buffer", "UninitializedParameter"):
        return parameter(m, args, place)
    kind = CONTAINERS.get(short)
    identity = m.identity(place)
    if kind is not None:
        return container(m, short, kind, identity, args, place)
    made = Object(("layer", identity), "layer", short, place)
    asked = args.named.get("dtype")
    m.write(made.id, "#dtype", asked if asked is not None else NONE)
    for key in ("eps", "inplace"):
        if key in args.named:
            m.write(made.id, key, args.named[key])
    if last.startswith(SIZED):
        m.emit("sized layer made", place, layer=made, name=short, args=args)
    return made


def parameter(m: Machine, args: Args, place: Place) -> Value:
    """`nn.Parameter(data)`."""
    data = args.get(0, "data")
    if data is None:
        return Tensor(frozenset({SINGLE}), tags=frozenset({PARAMETER}))
    asks = args.get(1, "requires_grad")
    own = frozenset({PARAMETER, FROZEN} if asks is not None and asks != TRUE else {PARAMETER})

    def one(atom: Atom) -> Value:
        held = registered_at(atom, place) if type(atom) is Tensor else UNKNOWN_TENSOR
        if held.dtypes == {HALF} and held.half and held.half[-1].by in (By.PARAMETERS, By.MODEL):
            held = held.but(half=(*held.half, Step(place, "the parameter takes the dtype of those weights here", By.PARAMETERS)))
        return held.but(tags=own | held.tags & {RATES, ROUNDED, SCALAR}, scaled=None, range=None)

    return m.each(data, one)


def content(place: Place) -> Unknown:
    """What a container of modules that is made at a place holds, where nobody knows it."""
    return Unknown(f"{CONTENT}{place.path}:{place.position}")


def home_of_content(atom: Unknown) -> str:
    """The file that makes the container of which a value is the unknown content, or ""."""
    return atom.symbol.removeprefix(CONTENT).rpartition(":")[0] if atom.symbol.startswith(CONTENT) else ""


def container(m: Machine, name: str, kind: str, identity: object, args: Args, place: Place) -> Value:
    """A Sequential, ModuleList or ModuleDict, as the list or dict that it is."""
    made = Object(("container", identity), kind, name, place)
    if kind == "dict":
        given = args.get(0)
        held = m.read(given.id, "#entries") if type(given) is Object and given.kind == "dict" else None
        m.write(made.id, "#entries", held if held is not None else Entries((), None if given is None else content(place)))
        return made
    items: list[Value] | None = list(args.positional)
    rest: Value | None = (args.rest or content(place)) if args.opaque else None
    if name != "torch.nn.Sequential" or (len(args.positional) == 1 and is_collection(args.positional[0])):
        given = args.get(0, "modules")
        if type(given) is Object and given.kind == "dict":
            entries = m.read(given.id, "#entries")
            items = [v for _, v in entries.entries] if type(entries) is Entries and entries.rest is None else None
        else:
            held = m.read(given.id, "#items") if type(given) is Object else given
            if type(held) is Items:
                items, rest = list(held.items), held.rest
            else:
                items = [] if given is None else None
    m.write(made.id, "#items", Items(tuple(items), rest) if items is not None else Items((), content(place)))
    return made


def is_collection(value: Value) -> bool:
    """Whether an only argument holds the modules."""
    return type(value) is Items or (
        type(value) is Object
        and value.kind in ("list", "dict")
        and value.type in ("builtins.list", "builtins.dict", "collections.OrderedDict")
    )


@call(*WRAPPERS)
def wrapper(m: Machine, name: str, args: Args, place: Place) -> Value:
    """What wraps a module and computes what it computes."""
    for key in ("module", "model", "obj"):
        if key in args.named:
            return args.named[key]
    return args.positional[0] if args.positional else External("builtins.identity")


@call("torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.nn.parallel.data_parallel.DataParallel")
def data_parallel(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The module itself: its replicas run in threads of their own."""
    module = args.get(0, "module")
    for atom in atoms(module) if module is not None else ():
        if type(atom) in (Object, Unknown):
            m.write(owner_of(atom), REPLICAS, Constant(place))
    return module if module is not None else External("builtins.identity")


REPLICAS = "#replicas"  # the slot that says where a module was made to run in replicas


def note_replicas(m: Machine, module: Atom, place: Place) -> None:
    """Note that a module runs in replicas under a region."""
    held = m.read(owner_of(module), REPLICAS)
    if held is None:
        return
    base = m.path
    for guards, made in options(held):
        path = extend(base, guards)
        if type(made) is Constant and isinstance(made.value, Place) and path is not None:
            m.path = path
            m.emit("replicas run", place, module=module, made=made.value, autocast=m.state("autocast"))
    m.path = base


def module_made(m: Machine, made: Object, bases: Sequence[str], args: Args, place: Place) -> None:
    """An instance of a project's module is in training mode."""


vocabulary.made.append(module_made)


# calling


@vocabulary.invoke("layer")
def call_layer(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """A layer of torch."""
    note_called(m, receiver, args, place)
    args = as_taken(m, receiver, args)
    meaning = torch_layer(str(receiver.type))
    if meaning is None:
        return unknown_model(m, receiver, args, place)
    note_sized(m, receiver, place)
    return spread(m, [cast_weights(m, receiver.id)], lambda chosen: layer_result(m, receiver, meaning, chosen[0], args, place))


def note_sized(m: Machine, layer: Object, place: Place) -> None:
    """Note that a layer of some size runs under a region, once."""
    if not str(layer.type).rpartition(".")[2].startswith(SIZED) or m.read(layer.id, "#ran") is not None:
        return
    state = m.state("autocast")
    if any(type(a) is Autocast and a.dtype is not None for a in atoms(state)):
        m.write(layer.id, "#ran", NONE)
        m.emit("sized layer run", place, layer=layer, autocast=state)


def layer_result(m: Machine, receiver: Object, meaning: OpMeaning, weights: Atom, args: Args, place: Place) -> Value:
    """What a layer gives whose weights are in the dtype of a cast, or in float32."""
    short = str(receiver.type).rpartition(".")[2]
    cast_to = weights if type(weights) is Tensor else None
    values: list[Value] = list(args.positional) or [v for k, v in args.named.items() if k in ("input", "query", "x", "src")]
    if meaning.of_weights:
        return cast_to or Tensor(frozenset({SINGLE}))
    if cast_to is not None and short not in WEIGHTLESS:
        values.append(cast_to)
        if meaning.plain == "same":
            meaning = replace(meaning, plain="promote")
    result = operate(m, short, meaning, values, place, places=args.places, made=receiver.made)
    if cast_to is None and meaning.kind == "lower":
        result = m.each(result, cast_by_somebody)
    if short.startswith(SIZED) and type(result) is Tensor and UNTRAINED in result.tags and not gradients_off(m):
        own = result.forward if result.dtypes & HALVES or not result.dtypes <= {SINGLE} else frozenset[str]()
        result = result.but(tags=result.tags - {UNTRAINED}, forward=own)  # its weights are trained, whatever its input is
    if short in ("LSTM", "GRU", "RNN"):
        return Items((result, result)) if type(result) is not Items else Items((result.items[0], Items(result.items[1:])))
    return result


def cast_by_somebody(result: Atom) -> Value:
    """What a layer gives for an input that is cast to half outside of regions: float32 weights take none, so somebody casts them."""
    if type(result) is Tensor and result.dtypes == {HALF} and not result.forward:
        return result.but(dtypes=frozenset({ANY}), half=())
    return result


WEIGHTLESS = frozenset({"Softmax", "ReLU", "Dropout", "Identity", "Flatten", "GELU", "SiLU", "Sigmoid", "Tanh", "LogSoftmax"})


def weights_of(dtype: Atom) -> Tensor | None:
    """The weights of a layer that somebody has cast to a dtype."""
    asked = dtypes_given(dtype)
    if asked is not None:
        return Tensor(asked[0], asked[1], forward=asked[0] & HALVES)
    return dtype if type(dtype) is Tensor else None


def dtype_held(m: Machine, owner: Hashable) -> Value | None:
    """The dtype that somebody has cast something to: of several unknown models that were joined to one, the first."""
    held = m.read(owner, "#dtype")
    if held is None and type(owner) is Unknown and owner.symbol.endswith(JOINED):
        return m.read(Unknown(first_joined(owner.symbol), owner.hint), "#dtype")
    return held


def cast_weights(m: Machine, owner: Hashable) -> Value:
    """The weights of what somebody has cast, or computes with in another dtype, as a tensor; NONE where nobody has: both, under their
    conditions.
    """
    held = dtype_held(m, owner)
    own = choose(join((guards, weights_of(atom) or NONE) for guards, atom in options(held)), m.path) if held is not None else NONE
    computes = m.read(owner, COMPUTES)
    return own if computes is None else m.each(computes, lambda low: own if low == NONE else low)


def compute_in(m: Machine, module: Atom, dtype: Atom, chain: Chain, depth: int = 0) -> None:
    """What a module computes with in another dtype than that of its weights, and casts its inputs to: a sharding policy, an engine.

    Its parameters and submodules follow, its buffers do not.
    """
    asked = dtypes_given(dtype)
    if asked is None or type(module) is not Object or depth > 6:
        return
    low = Tensor(asked[0], chain, forward=asked[0] & HALVES)
    m.write(module.id, COMPUTES, low)
    if depth == 0:
        m.write(module.id, TAKES, low)
    if type(module.type) is Class:
        for name, value in [(n, v) for n, v in m.store.slots.of(module.id) if not n.startswith(("#", "@"))]:
            if any(type(atom) is Tensor and PARAMETER in atom.tags for atom in atoms(value)):
                m.write(module.id, name, m.each(value, lambda a: in_dtype(a, asked[0], chain) if type(a) is Tensor else a))
    for inner in list(modules_in(m, module)):
        compute_in(m, inner, dtype, chain, depth + 1)


def computes_as_it_is(m: Machine, owner: Hashable, name: str) -> Value | None:
    """What a module computes in, and where, where only the other arm of a branch has sharded or replicated it: in its own dtype, here."""
    return NONE if name in (COMPUTES, TAKES, REPLICAS) else None


vocabulary.unset.append(computes_as_it_is)


def as_taken(m: Machine, receiver: Object, args: Args) -> Args:
    """Arguments in the dtype that a module casts its inputs to."""
    held = m.read(receiver.id, TAKES)
    if held is None:
        return args

    def lowered_to(low: Atom, given: Atom) -> Value:
        is_float = type(given) is Tensor and type(low) is Tensor and given.dtypes <= FLOATS
        return given.but(dtypes=low.dtypes, half=low.half) if is_float else given  # type: ignore[union-attr]

    def one(value: Value) -> Value:
        return m.each(held, lambda low: m.each(value, lambda given: lowered_to(low, given)))

    return Args([one(v) for v in args.positional], {k: one(v) for k, v in args.named.items()}, args.places, args.named_places, args.opaque)


@vocabulary.invoke("list")
def call_sequential(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """A Sequential: its modules one after the other."""
    held = m.read(receiver.id, "#items")
    if receiver.type != "torch.nn.Sequential" or type(held) is not Items or not args.positional:
        return unknown_model(m, receiver, args, place)
    note_replicas(m, receiver, place)
    value = as_taken(m, receiver, args).positional[0]
    for module in held.items:
        value = m.call(module, Args((value,), places=args.places[:1]), place.position)
    if held.rest is not None:
        value = m.call(held.rest, Args((value,), places=args.places[:1]), place.position)
    note_probabilities(m, receiver, value, place)
    return given_back(m, receiver, value)


@vocabulary.invoke("instance")
def call_instance(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """An instance of a project's class with bases of other packages: its `forward`, as a trainer gives it that has prepared it."""
    if manager_of(m, receiver) is not None and m.store.get((receiver.id, "called"), "#prepared") is None:
        m.write((receiver.id, "called"), "#prepared", NONE)
        m.emit("prepared model called", place, model=receiver)
    return given_back(m, receiver, forward_of_instance(m, receiver, as_taken(m, receiver, args), place))


def forward_of_instance(m: Machine, receiver: Object, args: Args, place: Place) -> Value:
    """What the `forward` of an instance of a project's class gives."""
    if type(receiver.type) is not Class:
        return unknown_model(m, receiver, args, place)
    note_called(m, receiver, args, place)
    note_replicas(m, receiver, place)
    if m.closed is not None:
        return unknown_model(m, receiver, args, place)
    member = class_member(m, receiver.type, "forward")
    held = m.read(receiver.id, "forward")
    if held is None and member is None:
        return base_forward(m, receiver, args, place)
    given = tuple(alike(m, value) for value in args.positional), tuple((name, alike(m, value)) for name, value in args.named.items())
    key = ("forward", receiver.id, *given, m.state("autocast"), m.state(GRADIENTS_OFF))
    try:
        known = m.read(key, "#result")
    except TypeError:
        return unknown_model(m, receiver, args, place)
    if known is not None and m.recorder is None:
        m.step(3)
        note_probabilities(m, receiver, known, place)
        return known
    note_run(m, receiver.type, place)
    before = len(m.events)
    value = held if held is not None else bind(m, member[0], receiver, receiver.type, member[1], place.position)  # type: ignore[index]
    result = bounded(m, value, with_inputs_cast(m, value, args, place), place)
    if result is None:
        note_called(m, receiver, args, place, cut_off=True)
        return unknown_model(m, receiver, args, place)
    result = computed_under(m, result)
    note_probabilities(m, receiver, result, place)
    if all(e.kind in NUMERIC for e in m.events[before:]):
        m.write(key, "#result", result)
    return result


def alike(m: Machine, value: Value) -> Value:
    """What stands for a value of which nothing is known: a forward makes the same of one batch as of the next."""
    told = type(value) is not Unknown or value.hint or value.symbol in m.switches or any(key[1] == value.symbol for key, _ in m.path)
    return value if told else Unknown("")


def note_probabilities(m: Machine, model: Object, value: Value, place: Place) -> None:
    """Note that a model of the program gives the result of a sigmoid."""
    taken = {sigmoid_of(atom) for atom in atoms(value)}
    if taken != {None} and model.made is not None:
        m.emit("probabilities given", place, model=model, sigmoid=taken.pop() if len(taken) == 1 else None)


def note_run(m: Machine, cls: Class, place: Place) -> None:
    """Note that a module runs under a region, once a class and state."""
    state = m.state("autocast")
    if any(type(a) is Autocast and a.dtype is not None for a in atoms(state)):
        slot = (cls.id, "#run under")
        if m.read(*slot) != state:
            m.write(*slot, state)
            m.emit("module run", place, module=cls, autocast=state)


NUMERIC = frozenset(
    [
        "loss of probabilities",
        "model called",
        "module handed on",
        "module run",
        "sized layer run",
        "probabilities given",
        "constant beyond range",
        "epsilon lost",
        "raises under autocast",
        "no half kernel",
        "unstable in half",
        "reduced in half",
        "loss in half",
        "late in half",
        "log-probabilities in half",
        "cancellation in half",
        "cast by hand",
        "cast to half",
        "integers in half",
        "frequencies in half",
        "unknown model called",
        "custom function applied",
        "kernel called",
        "autocast made",
        "autocast entered",
        "autocast left",
    ]
)


def bounded(m: Machine, callee: Value, args: Args, place: Place) -> Value | None:
    """Call with a part of the steps, which leaves some for what calls it; None where that was not enough."""
    spare = max(m.left - m.limit // RESERVED, 0)
    return m.within(CALL_STEPS if m.bounds else min(CALL_STEPS, spare // 3), lambda: m.call(callee, args, place.position))


def computed_under(m: Machine, value: Value) -> Value:
    """What a module gives under autocast: its tensors were computed by the region."""

    def with_region(region: Atom, atom: Atom) -> Value:
        if type(region) is not Autocast or region.dtype is None:
            return atom
        return changed_within(m, atom, partial(marked, region.dtype))

    return spread(m, [m.state("autocast"), value], lambda chosen: with_region(*chosen))


def marked(letter: str, atom: Atom) -> Value:
    """An atom with a region's dtype in its history."""
    if type(atom) is Tensor:
        return atom.but(forward=atom.forward | {letter})
    if type(atom) is Unknown:
        return Tensor(frozenset({ANY}), forward=frozenset({letter}), tags=frozenset({MODEL_OUTPUT}))
    return atom


def changed_within(m: Machine, value: Value, change: Callable[[Atom], Value], depth: int = 0) -> Value:
    """A value with what it holds changed, in tuples, lists and dicts as well."""

    def one(atom: Atom) -> Value:
        if type(atom) is Tensor:
            return change(atom)
        if depth > 2:
            return atom
        held = m.read(atom.id, SLOTS[atom.kind]) if type(atom) is Object and atom.kind in SLOTS else None
        if type(atom) is Items:
            rest = atom.rest and changed_within(m, atom.rest, change, depth + 1)
            return Items(tuple(changed_within(m, item, change, depth + 1) for item in atom.items), rest)
        if type(atom) is Object and type(held) is Items:
            m.write(atom.id, "#items", changed_within(m, held, change, depth + 1))
        elif type(atom) is Object and type(held) is Entries:
            entries = tuple((key, changed_within(m, item, change, depth + 1)) for key, item in held.entries)
            m.write(atom.id, "#entries", Entries(entries, held.rest and changed_within(m, held.rest, change, depth + 1)))
        else:
            return change(atom)
        return atom

    return m.each(value, one)


def handed_on(m: Machine, atom: Atom, args: Args, place: Place) -> Value | None:
    """Note models and losses that are given to something unknown: what it does with them is unknown."""
    if type(atom) is External and (atom.name.startswith(QUIET) or in_table(atom)):
        return None
    for value in args.all():
        for given in atoms(value):
            if type(given) is Object and given.made is not None and is_module(m, given):
                m.emit("module handed on", place, module=given)
    return None


vocabulary.atom_calls.append(handed_on)


# models that nobody knows


def of_its_class(m: Machine, model: Atom) -> Atom:
    """A model, as an instance of the project's class that it is known to be of, and that nobody has built."""
    cls = m.read(model.id, CLASS) if type(model) is Object else None
    return Object(model.id, "instance", cls, model.made) if type(model) is Object and type(cls) is Class else model


def unknown_model(m: Machine, receiver: Atom, args: Args, place: Place) -> Value:
    """A model that nobody knows: a tensor of unknown dtype that the autocast region has computed."""
    if m.recorder is not None:
        m.recorder.assumed(m, place, receiver, "model")
        if type(receiver) is not Unknown or is_trained(m, receiver):
            m.recorder.computed(m, place, "", "model")
    note_replicas(m, receiver, place)
    for given in (atom for value in args.positional for atom in atoms(value)):
        if type(given) is Tensor and (type(receiver) is not Unknown or is_module_name(receiver)):
            note_cast(m, given, place, "")

    def one(region: Atom, weights: Atom) -> Value:
        cast_to = weights if type(weights) is Tensor else None
        found = inherit(m, args.all()) or Tensor(frozenset({ANY}))
        if type(region) is Autocast and region.dtype is not None:
            trained = not gradients_off(m)
            if m.store.get(("seen", place, trained), "#model") is None:
                m.write(("seen", place, trained), "#model", NONE)
                m.emit("unknown model called", place, model=of_its_class(m, receiver), autocast=region, args=args, trained=trained)
            tags = frozenset({MODEL_OUTPUT}) if trained else frozenset({MODEL_OUTPUT, UNTRAINED})
            return found.but(forward=found.forward | {region.dtype}, tags=tags)
        if cast_to is not None and cast_to.dtypes & HALVES:
            return found.but(
                dtypes=cast_to.dtypes, half=cast_to.half, forward=found.forward | cast_to.dtypes, tags=frozenset({MODEL_OUTPUT})
            )
        return found

    held = weights_held(m, receiver)
    return given_back(m, receiver, m.each(m.state("autocast"), lambda region: m.each(held, partial(one, region))))


def given_back(m: Machine, receiver: Atom, outputs: Value) -> Value:
    """What a model gives that accelerate has prepared: where it computes in half precision, its outputs are float32 again."""
    trainer = manager_of(m, receiver)
    held = m.read(trainer.id, "#dtypes") if trainer is not None and trainer.type == "accelerate.Accelerator" else None

    def single(letter: str, atom: Atom) -> Value:
        if type(atom) is not Tensor or atom.dtypes == {INTEGER}:
            return atom
        return atom.but(dtypes=frozenset({SINGLE}), half=(), forward=atom.forward | {letter})

    def with_letter(letter: Atom) -> Value:
        is_half = type(letter) is DType and letter.letter in HALVES
        return changed_within(m, outputs, partial(single, letter.letter)) if is_half else outputs  # type: ignore[union-attr]

    return m.each(held, with_letter) if held is not None else outputs


@vocabulary.invoke("model")
def call_model(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """A model of another package."""
    note_called(m, receiver, args, place)
    return unknown_model(m, receiver, args, place)


def weights_held(m: Machine, receiver: Atom) -> Value:
    """The weights of a model that somebody has cast or loaded in half precision, NONE where nobody has."""
    held = cast_weights(m, receiver.id if type(receiver) is Object else receiver)
    if held != NONE or type(receiver) is not Object or receiver.kind != "model":
        return held
    made = receiver.made
    return choose(join((guards, loaded_weights(state, made) or NONE) for guards, state in options(weights(m, receiver))), m.path)


def loaded_weights(state: Atom, made: Place | None) -> Tensor | None:
    """The weights of a model of another package as a tensor, where their dtype is known; `made`: where the model was."""
    groups = [group for group in groups_of(state) if group.name == OWN]
    letters = frozenset(group.dtype for group in groups)
    if not letters or ANY in letters:
        return None
    chain = next((group.chain for group in groups if group.chain), ())
    if not chain and made is not None and letters & HALVES:
        chain = (Step(made, f"the model is made with weights in {named(next(iter(letters & HALVES)))} here"),)
    return Tensor(letters, chain, forward=letters & HALVES)


def unknown_called(m: Machine, atom: Atom, args: Args, place: Place) -> Value | None:
    """Calls of unknown values with tensors or unknown arguments: models, criteria, methods that compute."""
    if type(atom) is Tensor:
        return called_after_cast(m, atom, args, place)
    if type(atom) is not Unknown:
        return None
    if not any(type(a) in (Unknown, Tensor, Items, Object) for v in args.all() for a in atoms(v)) and not args.opaque:
        return None
    shown = atom.symbol.partition(IDENTITY)[0]
    if shown.rpartition(".")[2] in NO_MODELS:
        return None
    note_called(m, atom, args, place)
    region = m.state("autocast")
    owner = cast_owner(m, atom, args)
    held = dtype_held(m, owner)
    if held is None and not any(type(a) is Autocast and a.dtype is not None for a in atoms(region)):
        is_model = is_used_as_model(m, atom) or ((is_trained(m, atom) or is_part_of_forward(m, atom)) and not is_of_the_host(atom))
        if m.recorder is not None and is_model:
            m.recorder.computed(m, place, "", "model")
        return None

    def one(state: Atom) -> Value:
        if held is not None or (type(state) is Autocast and state.dtype is not None):
            return unknown_model(m, owner, args, place)
        found = inherit(m, (atom, *args.all()))
        if found is None:
            return plain_result(m, atom, args, place)
        note(m, atom, place)
        return found

    return m.each(region, one)


def cast_owner(m: Machine, atom: Unknown, args: Args) -> Unknown:
    """What is called, or the model that somebody has cast of which it is a part: its `forward`, a module, or what takes its outputs."""
    owner = owner_of_member(atom) if dtype_held(m, atom) is None else None
    if owner is None or dtype_held(m, owner) is None:
        return atom
    is_part = is_trained(m, atom) or any(type(a) is Tensor and MODEL_OUTPUT in a.tags for v in args.all() for a in atoms(v))
    return owner if is_part else atom


def called_after_cast(m: Machine, atom: Tensor, args: Args, place: Place) -> Value | None:
    """A call of what `to(dtype)` gives of a value that nobody knows: it was a model."""
    note_called(m, atom, args, place)
    region = m.state("autocast")
    if not any(type(a) is Autocast and a.dtype is not None for a in atoms(region)):
        return None

    def one(state: Atom) -> Value:
        found = inherit(m, (atom, *args.all())) or Tensor(frozenset({ANY}))
        if type(state) is not Autocast or state.dtype is None:
            return found
        return found.but(forward=found.forward | {state.dtype}, tags=frozenset({MODEL_OUTPUT}))

    return m.each(region, one)


def is_part_of_forward(m: Machine, atom: Unknown) -> bool:
    """Whether something unknown is an object of another package's class that a model calls in its `forward`: a layer."""
    return INSTANCE.search(atom.symbol) is not None and any(f.code is not None and f.code.name == "forward" for f in m.frames)


def plain_result(m: Machine, atom: Unknown, args: Args, place: Place) -> Value:
    """What a call outside of every region gives."""
    found = of_table(m, atom, args, place)
    return found if found is not None else unknown_result(m, atom, args, place)


vocabulary.atom_calls.append(unknown_called)


# casting, and what modules tell of themselves


def classes_within(m: Machine, module: Atom, depth: int = 0) -> frozenset[Class]:
    """The project's classes of which a module and those within it are instances."""
    if type(module) is not Object or depth > 6:
        return frozenset()
    own = frozenset({module.type}) if type(module.type) is Class else frozenset[Class]()
    return own.union(*(classes_within(m, atom, depth + 1) for atom in modules_in(m, module)))


def modules_in(m: Machine, module: Object) -> Iterator[Object]:
    """The modules that a module, or a container of modules, holds."""
    if module.kind in ("list", "dict"):
        inside = m.read(module.id, "#items" if module.kind == "list" else "#entries")
        values = list(inside.items) if type(inside) is Items else [v for _, v in inside.entries] if type(inside) is Entries else []
        if type(inside) in (Items, Entries) and inside.rest is not None:  # type: ignore[union-attr]
            values.append(inside.rest)  # type: ignore[union-attr]
        yield from (atom for value in values for atom in atoms(value) if type(atom) is Object)
    elif type(module.type) is Class:
        for _, value in [(n, v) for n, v in m.store.slots.of(module.id) if not n.startswith(("#", "@"))]:
            for atom in atoms(value):
                if type(atom) is Object and atom.id != module.id and is_part(atom):
                    yield atom


def is_part(held: Object) -> bool:
    """Whether what an attribute holds is a module of its owner."""
    return held.kind in ("layer", "instance") or str(held.type).startswith("torch.nn.")


def cast_module(m: Machine, module: Atom, dtype: Value, place: Place, depth: int = 0, words: str = "the model is cast to {} here") -> None:
    """A module, its parameters and its submodules in another dtype; `words` tell of it at the place."""
    owner = module.id if type(module) is Object else module
    chosen = next(iter(atoms(dtype)))
    asked = dtypes_given(chosen)
    letters = asked[0] if asked is not None else frozenset({ANY})
    half = (Step(place, words.format(named(next(iter(letters)))), By.MODEL),) if letters & HALVES else ()
    held = Tensor(letters, half, forward=letters & HALVES)
    if depth == 0:
        m.emit("module cast", place, module=module, dtypes=letters, autocast=m.state("autocast"), classes=classes_within(m, module))
    m.write(owner, "#dtype", held)
    if depth > 6 or type(module) is not Object:
        return
    if type(module.type) is Class:
        for name, value in [(n, v) for n, v in m.store.slots.of(module.id) if not n.startswith(("#", "@"))]:
            held_with = cast_with_module(m, value, letters, half)
            if held_with is not None:
                m.write(module.id, name, held_with)
    for inner in list(modules_in(m, module)):
        cast_module(m, inner, dtype, place, depth + 1, words)


def made_half(m: Machine, module: Atom, place: Place) -> None:
    """Cast the layers of a module where what `apply` has just shown them has made its weights half."""
    states = options(weights(m, module))
    steps = {g.chain[-1] for _, state in states for g in groups_of(state) if g.name == OWN and g.dtype == HALF and g.chain}
    step = next((step for step in steps if step.place == place), None)
    if step is not None and len(states) == 1:
        cast_layers(m, module, step)


def cast_layers(m: Machine, module: Atom, step: Step, depth: int = 0) -> None:
    """The layers of a module that multiply by their weights, in float16, and what else it holds as it is: `model.apply(convert)`."""
    if depth > 6 or type(module) is not Object:
        return
    if module.kind == "layer" and MULTIPLIES.search(str(module.type)) is not None:
        m.write(module.id, "#dtype", Tensor(frozenset({HALF}), (step,), forward=frozenset({HALF})))
    for inner in list(modules_in(m, module)):
        cast_layers(m, inner, step, depth + 1)


MULTIPLIES = re.compile(r"\.(?:Conv(?:Transpose)?\dd|Linear)$")


def module_method(m: Machine, module: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Methods that every module has."""
    if name in CONVERSIONS and not args.positional:
        cast_module(m, module, DType(CONVERSIONS[name]), place)
        return module
    if name in ("to", "type"):
        for value in (*args.positional, *(v for k, v in args.named.items() if k == "dtype")):
            letter = LEGACY.get(str(getattr(next(iter(atoms(value))), "name", "")).rpartition(".")[2])
            if letter is not None:
                cast_module(m, module, DType(letter), place)
            elif any(names_dtype(m, a) for a in atoms(value)):
                cast_alternatives(m, module, value, place)
        return module
    if name == "apply":
        made_half(m, module, place)
    if name in UNCHANGED:
        return module
    if name in ("parameters", "named_parameters", "buffers", "named_buffers"):
        made = Object(
            ("parameters", module.id if type(module) is Object else module, name), "parameters", "torch.nn.Module.parameters", place
        )
        m.write(made.id, "#of", module)
        return made
    if name == "clip_grad_norm_":  # of sharded modules
        clipped(m, place, name, module_method(m, module, "parameters", Args((), {}), place), args.get(0, "max_norm"))
        return Tensor(frozenset({SINGLE}), tags=frozenset({"gradient norm"}))
    if name == "state_dict":
        made = Object(("state", module.id if type(module) is Object else module), "state_dict", "module", place)
        m.write(made.id, "#of", module)
        return made
    if name == "load_state_dict":
        m.emit("state loaded", place, object=module, what="module", state=args.get(0))
        return NONE
    if name == "zero_grad":
        return zero_grad(m, module, place)
    if name in ("register_buffer", "register_parameter", "add_module", "register_module"):
        key, held = args.get(0, "name"), args.get(1, "tensor") or args.get(1, "module") or args.get(1, "param")
        if type(key) is Constant and held is not None and type(module) is Object:
            m.write(module.id, str(key.value), of_buffer(m, held, place) if name == "register_buffer" else held)
        if type(module) is Object and module.kind == "list" and held is not None:
            m.library.kinds["list"](m, module, "append", Args((held,)), place)  # type: ignore[attr-defined]
        return NONE
    if name == "optimizers":
        m.emit("optimizer managed", place, by=module)
        return Unknown(f"optimizers(){IDENTITY}{module!r}"[:200])
    if name in ("children", "modules", "named_modules", "named_children"):
        return Unknown(f"{name}(){IDENTITY}{module!r}"[:200])
    return None


def of_buffer(m: Machine, held: Value, place: Place) -> Value:
    """A tensor as a buffer of a module, cast with it where it has a floating dtype."""

    def one(atom: Atom) -> Value:
        if type(atom) is not Tensor:
            return atom
        moved = atom.but(tags=atom.tags - {HOST}) if HOST in atom.tags else atom  # with its module
        return registered_at(moved, place).but(tags=moved.tags | {BUFFER}) if moved.dtypes <= FLOATS else moved

    return m.each(held, one)


def registered_at(tensor: Tensor, place: Place) -> Tensor:
    """A tensor that a module gets; of frequencies it counts where, for a cast of the module casts them too."""
    if RATES not in tensor.tags or ROUNDED in tensor.tags:
        return tensor
    return tensor.but(made=Step(place, "the module holds the frequencies here"))


def cast_with_module(m: Machine, value: Value, letters: frozenset[str], half: Chain) -> Value | None:
    """The buffers and parameters that a value may be, in another dtype; None for any other value."""
    found = options(value)
    if not all(type(atom) is Tensor and atom.tags & {PARAMETER, BUFFER} for _, atom in found):
        return None
    return join((guards, in_dtype(atom, letters, half)) for guards, atom in found if type(atom) is Tensor)


def in_dtype(tensor: Tensor, letters: frozenset[str], half: Chain) -> Tensor:
    """A buffer or parameter that is cast with its module."""
    if RATES in tensor.tags and half and not tensor.dtypes & HALVES:
        tensor = tensor.but(tags=tensor.tags | {ROUNDED})
    return tensor.but(dtypes=letters, half=half or (tensor.half if ROUNDED in tensor.tags else ()))


def names_dtype(m: Machine, atom: Atom) -> bool:
    """Whether an argument of `to` is a dtype, or a setting whose default is one."""
    return default_dtype(m, atom) is not None or (dtypes_given(atom) is not None and type(atom) is not Constant)


def default_dtype(m: Machine, atom: Atom) -> DType | None:
    """The dtype that a setting has where its user says nothing."""
    switch = m.switches.get(atom.symbol) if type(atom) is Unknown else None
    return switch.default if switch is not None and type(switch.default) is DType else None


def cast_alternatives(m: Machine, module: Atom, dtype: Value, place: Place) -> None:
    """`model.to(dtype)` where the dtype depends on conditions, or is a setting: its default casts the model where nobody says otherwise."""

    def one(atom: Atom) -> Value:
        default = default_dtype(m, atom)
        if default is not None and type(atom) is Unknown:
            key = ("in", atom.symbol, frozenset({f"dtype:{default.letter}"}))
            asked = partial(cast_module, m, module, default, place)
            m.fork([(frozenset({(key, True)}), lambda: (True, asked() or NONE)), (frozenset({(key, False)}), lambda: (True, NONE))])
        elif dtypes_given(atom) is not None:
            cast_module(m, module, atom, place)
        return NONE

    m.each(dtype, one)


MODULE_METHODS = (
    *CONVERSIONS,
    *UNCHANGED,
    "parameters",
    "named_parameters",
    "buffers",
    "named_buffers",
    "state_dict",
    "load_state_dict",
    "zero_grad",
    "register_buffer",
    "register_parameter",
    "add_module",
    "register_module",
    "children",
    "modules",
    "named_modules",
    "named_children",
)


def is_module(m: Machine, value: Atom) -> bool:
    """Whether a value is a module of torch, or of the project with such a base."""
    if type(value) is not Object:
        return False
    if value.kind == "layer":
        return True
    if type(value.type) is Class:
        if class_member(m, value.type, "forward") is not None:
            return True
        return any(
            isinstance(a, str) and (a.startswith("?") or a.endswith(("Module", "Model")) or a in CONTAINERS)
            for a in ancestors(m, value.type)
        )
    return str(value.type).startswith("torch.nn.")


def opening(m: Machine, cls: Class) -> Callable[[Object, int], None] | None:
    """How torch uses a module that nobody uses in the project and that makes tables of numbers, or loads a model, in half precision: its
    `forward` runs.
    """
    maker, runner = class_member(m, cls, "__init__"), class_member(m, cls, "forward")
    made_by = maker[0].code if maker is not None and type(maker[0]) is Function else None
    if runner is None or made_by is None or not has_module_base(m, cls) or made_by.words.isdisjoint(MAKES):
        return None
    defaults = (default for _, _, default, _ in made_by.parameters if default is not None)
    if made_by.words.isdisjoint(HALF_WORDS) and not any(default[-1] in HALF_WORDS for default in defaults):
        return None
    member, owner = runner

    def use(given: Object, position: int) -> None:
        if type(member) is not Function or member.code not in m.called:
            m.call(bind(m, member, given, cls, owner, position), Args(opaque=True), position)

    return use


vocabulary.openings.append(opening)


LOGARITHMS = frozenset({"log", "log2", "log_softmax", "logsigmoid", "logsumexp", "LogSoftmax"})


def computes_in_half(m: Machine, instance: Object, words: frozenset[str]) -> bool:
    """Whether a method takes logarithms, and speaks of a model that the instance has cast to half precision."""
    if words.isdisjoint(LOGARITHMS):
        return False
    held = [m.read(instance.id, name) for name, _ in m.store.slots.of(instance.id) if name in words]
    owners = [atom.id if type(atom) is Object else atom for value in held if value is not None for atom in atoms(value)]
    weights = [atom for owner in owners for atom in atoms(dtype_held(m, owner) or NONE)]
    return any(type(atom) is Tensor and not atom.dtypes.isdisjoint(HALVES) for atom in weights)


vocabulary.computing.append(computes_in_half)


def has_module_base(m: Machine, cls: Class) -> bool:
    """Whether a class is a module of torch, as far as its bases are known."""
    names = [a for a in ancestors(m, cls) if isinstance(a, str)]
    return any(n.startswith(("?", "torch.nn.")) or n.endswith(("Module", "Model")) for n in names)


def of_module(m: Machine, receiver: Atom, name: str, args: Args, place: Place) -> Value | None:
    """A method of a module; of what is none, what the next vocabulary knows."""
    if type(receiver) is Unknown:
        return of_unknown(m, receiver, name, args, place)
    if type(receiver) is not Object or not is_module(m, receiver):
        return None
    if name in ("forward", "__call__"):
        return base_forward(m, receiver, args, place)
    return module_method(m, receiver, name, args, place)


def of_unknown(m: Machine, receiver: Unknown, name: str, args: Args, place: Place) -> Value | None:
    """Methods that say that an unknown value is a module."""
    if name in ("parameters", "named_parameters") or (name == "clip_grad_norm_" and len(args.all()) == 1):
        return module_method(m, receiver, name, args, place)
    if (name in CONVERSIONS or name in ("to", "state_dict")) and is_module_name(receiver):
        return module_method(m, receiver, name, args, place)
    if name in ("cuda", "cpu", "eval", "train", "requires_grad_", "contiguous", "detach"):
        return receiver
    return None


vocabulary.atom_methods.append(of_module)
CODES = ("encode", "decode")
SETTERS = (*MAKERS, "set", "save", "update", "print", "export", "freeze", "register", "add_", "log")  # beginnings of what computes nothing


def model_method(m: Machine, receiver: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Tell a recorder of a method of a model that nobody knows, or a part of one that nobody has seen made.

    It computes, where it is given anything that may be a tensor.
    """
    if m.recorder is None or name in NO_MODELS or name.startswith(SETTERS) or name in MODULE_METHODS:
        return None
    if type(receiver) is Unknown:
        known = not is_trained(m, receiver)
    else:
        known = not (type(receiver) is Object and (receiver.kind == "model" or (type(receiver.type) is Class and is_module(m, receiver))))
    computes = name in CODES or not in_table(Method(receiver, name))  # of what is trained, they are no methods of a text
    if not known and computes and any(type(a) in (Unknown, Tensor) for v in args.all() for a in atoms(v)):
        m.recorder.computed(m, place, name, "model")
    return None


vocabulary.atom_methods.append(model_method)


def calls_part(m: Machine, owner: Value, name: str, args: Args) -> bool:
    """Whether `owner.name(…)` calls a part of a model of which nobody knows what it is: no method, and nothing called like a loss."""
    if type(owner) is not Object or type(owner.type) is not Class or not is_module(m, owner):
        return False
    if name in NO_MODELS or CALLED_LOSS.search(name):
        return False
    held = m.read(owner.id, name)
    if held is None or class_member(m, owner.type, name) is not None or not all(type(a) is Unknown for a in atoms(held)):
        return False
    return any(type(a) in (Unknown, Tensor) for v in args.all() for a in atoms(v))


def list_of_modules(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """The methods that a ModuleList has as a module."""
    value = watch(m, receiver, name, args, place)
    if value is None and is_module(m, receiver):
        value = module_method(m, receiver, name, args, place)
    if value is not None:
        return value
    return m.library.kinds[receiver.kind](m, receiver, name, args, place)  # type: ignore[attr-defined, no-any-return]


method("list", *MODULE_METHODS)(list_of_modules)
method("dict", *(n for n in MODULE_METHODS))(list_of_modules)


def base_forward(m: Machine, receiver: Object, args: Args, place: Place) -> Value:
    """`super().forward(x)` of a layer, of a Sequential, or of a model that nobody knows."""
    held = m.read(receiver.id, HEIR)
    if type(held) is Object:
        return call_sequential(m, held, str(held.type), args, place)
    name = base_layer(m, receiver)
    meaning = torch_layer(name) if name else None
    if meaning is None:
        return unknown_model(m, receiver, args, place)

    def run(chosen: tuple[Atom, ...]) -> Value:
        given = [*args.positional, *(atom for atom in chosen if type(atom) is Tensor)]
        return operate(m, name.rpartition(".")[2], meaning, given, place, places=args.places)

    return spread(m, [cast_weights(m, receiver.id)], run)


def base_layer(m: Machine, receiver: Object) -> str:
    """The layer of torch that a project's class extends, or ""."""
    if type(receiver.type) is Class:
        for ancestor in ancestors(m, receiver.type):
            if isinstance(ancestor, str) and ancestor.startswith("torch.nn.") and torch_layer(ancestor) is not None:
                return ancestor
    return ""


def layer_attribute(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    if type(atom) is Object and name in ("weight", "bias"):

        def one(cast_to: Atom) -> Value:
            held = cast_to if type(cast_to) is Tensor else Tensor(frozenset({SINGLE}))
            return held.but(tags=frozenset({PARAMETER, OF_LAYER}), forward=frozenset())

        return m.each(cast_weights(m, atom.id), one)
    return Unknown(f"{name}{IDENTITY}{atom!r}"[:160]) if type(atom) is Object else None


vocabulary.attributes["layer"] = layer_attribute


def module_attribute(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """What modules tell of themselves."""
    if type(atom) is not Object or not is_module(m, atom):
        return None
    if name == "dtype":
        unknown = Unknown(f"dtype{IDENTITY}{atom.id!r}"[:160])
        return m.each(cast_weights(m, atom.id), lambda held: DTypeOf(held) if type(held) is Tensor else unknown)
    if name in ("training", "device", "config"):
        hint = "torch.device" if name == "device" and has_device(m, atom) else ""
        return Unknown(f"{name}{IDENTITY}{atom.id!r}"[:160], hint)
    return None


def has_device(m: Machine, module: Object) -> bool:
    """Whether a base of a module tells its device, as those of Lightning and transformers do; torch's own does not."""
    bases = external_bases(m, module.type) if type(module.type) is Class else [str(module.type)]
    return any(not base.startswith(("torch.", "abc.", "typing.", "?", "builtins.")) for base in bases)


vocabulary.atom_attributes.append(module_attribute)


def parameters_of(m: Machine, iterable: Atom, place: Place) -> Sequence[Value] | Value | None:
    """The parameters of a module, one for all."""
    if type(iterable) is not Object or iterable.kind != "parameters":
        return None
    value = Unknown(f"parameter{IDENTITY}{iterable.id!r}"[:200], "torch.nn.Parameter")
    if str(iterable.id[2]).startswith("named"):  # type: ignore[index]
        return Items((Unknown(f"name{IDENTITY}{iterable.id!r}"[:200]), value))
    return value


vocabulary.elements.append(parameters_of)


# functions with a backward of their own, and their decorators


@call("torch.amp.custom_fwd", "torch.cuda.amp.custom_fwd", "torch.amp.custom_bwd", "torch.cuda.amp.custom_bwd")
def custom_fwd(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The decorator with arguments; with the function alone, what it makes of it."""
    made = Context("custom_fwd" if name.endswith("fwd") else "custom_bwd", args.named.get("cast_inputs"))
    if name.startswith("torch.amp.") and "device_type" not in args.named and not args.opaque:
        m.emit("decorator without device", place, name=name)
    if args.positional:
        return Wrapped(args.positional[0], made)
    return made


def decorated(m: Machine, function: Value, decorator: Atom, place: Place) -> Value | None:
    """`@custom_fwd` without parentheses."""
    if type(decorator) is External and decorator.name.endswith(("amp.custom_fwd", "amp.custom_bwd")):
        if decorator.name.startswith("torch.amp."):
            m.emit("decorator without device", place, name=decorator.name)
        return Wrapped(function, Context(decorator.name.rpartition(".")[2]))
    return None


vocabulary.decorators.append(decorated)


def enters(m: Machine, atom: Atom, place: Place) -> Entered | None:
    """Inside `custom_fwd(cast_inputs=…)` autocast is off."""
    if type(atom) is Context and atom.kind == "custom_fwd":
        if atom.value is not None and atom.value != NONE:
            return NONE, ((STATE, "autocast"), OFF)
        return NONE, None
    return None


vocabulary.contexts.append(enters)


def inputs_cast(callee: Value) -> Value | None:
    """The dtype to which `custom_fwd` casts the inputs of a function."""
    while type(callee) is Wrapped:
        if type(callee.context) is Context and callee.context.kind == "custom_fwd" and callee.context.value not in (None, NONE):
            return callee.context.value
        callee = callee.callee
    return None


def has_custom_fwd(callee: Value) -> bool:
    """Whether a function was decorated with `custom_fwd`."""
    while type(callee) is Wrapped:
        if type(callee.context) is Context and callee.context.kind == "custom_fwd":
            return True
        callee = callee.callee
    return False


def with_inputs_cast(m: Machine, callee: Value, args: Args, place: Place) -> Args:
    """The arguments as `custom_fwd(cast_inputs=…)` hands them on, where autocast runs."""
    dtype = inputs_cast(callee)
    if dtype is None:
        return args

    def one(value: Value) -> Value:
        tensors = [a for a in atoms(value) if type(a) is Tensor]
        if not tensors and type(value) is not Unknown:
            return value
        asked = dtypes_given(next(iter(atoms(dtype))))
        letters = asked[0] if asked is not None else frozenset({ANY})
        held = inherit(m, [value]) or UNKNOWN_TENSOR
        return held.but(dtypes=letters)

    return Args([one(v) for v in args.positional], {k: one(v) for k, v in args.named.items()}, args.places, args.named_places, args.opaque)


__all__ = ["vocabulary"]
