"""The training protocol of PyTorch: autocast regions, loss scalers, optimizers, and the state of gradients.

Gradients are `State((kind, scaler, place, unscaled))`: kind "entry" (nothing known yet), "none", "plain" or "scaled"; `unscaled` holds
the keys of the optimizers whose gradients a scaler has unscaled since. A scaler knows each optimizer as
`State("ready" | "unscaled" | "stepped", place)` in its slot `@optimizer:key`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace

from mplint.frameworks.packages import note
from mplint.frameworks.vocabulary import Entered, Vocabulary
from mplint.program.conditions import extend
from mplint.program.expressions import at_home, class_member, items_of, truths
from mplint.program.machine import IDENTITY, STATE, Args, Machine, Switch, shown
from mplint.program.store import join
from mplint.program.values import (
    ANY,
    BFLOAT,
    DOUBLE,
    FALSE,
    FLOAT8,
    HALF,
    INTEGER,
    NONE,
    SEVERAL,
    SIFTED,
    SINGLE,
    TRUE,
    Alternatives,
    Atom,
    Autocast,
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
    Partial,
    Place,
    State,
    Step,
    Tensor,
    Test,
    Unknown,
    Value,
    Wrapped,
    alternatives,
    atoms,
    options,
)

vocabulary = Vocabulary()
call = vocabulary.call
method = vocabulary.method

ENTRY = State(("entry", None, None, ()))
NO_GRADIENTS = State(("none", None, None, ()))
READY = State(("ready", None))
OFF = Autocast("", None)
vocabulary.scoped.add("autocast")
vocabulary.defaults.update({"gradients": ENTRY, "autocast": OFF, "@optimizer": READY, "@handed on": READY, "autocast dtype": NONE})

LETTERS = {
    "float16": HALF,
    "half": HALF,
    "bfloat16": BFLOAT,
    "float32": SINGLE,
    "float": SINGLE,
    "float64": DOUBLE,
    "double": DOUBLE,
    "float8_e4m3fn": FLOAT8,
    "float8_e5m2": FLOAT8,
    "int": INTEGER,
    "int8": INTEGER,
    "int16": INTEGER,
    "int32": INTEGER,
    "int64": INTEGER,
    "uint8": INTEGER,
    "long": INTEGER,
    "short": INTEGER,
    "bool": "?b",
}
vocabulary.values.update({f"torch.{name}": DType(letter) for name, letter in LETTERS.items()})
vocabulary.aliases.update(
    {
        "torch.cuda.amp.grad_scaler": "torch.cuda.amp",
        "torch.cuda.amp.autocast_mode": "torch.cuda.amp",
        "torch.amp.grad_scaler": "torch.amp",
        "torch.amp.autocast_mode": "torch.amp",
        "torch.cpu.amp.grad_scaler": "torch.cpu.amp",
        "torch.cpu.amp.autocast_mode": "torch.cpu.amp",
        "torch.autocast": "torch.amp.autocast",
        "torch.GradScaler": "torch.amp.GradScaler",
        "torch.nn.utils.clip_grad": "torch.nn.utils",
    }
)
NAMES = {HALF: "float16", BFLOAT: "bfloat16", SINGLE: "float32", DOUBLE: "float64", ANY: "half precision"}


def dtype_of(value: Value | None) -> list[tuple[frozenset[object], str | None]]:
    """The dtype letters that a value may name, with their conditions; ANY where it can't be told, None for no dtype."""

    found: list[tuple[frozenset[object], str | None]] = []
    for guards, atom in options(value if value is not None else NONE):
        if type(atom) is DType:
            found.append((guards, atom.letter))
        elif type(atom) is Constant and atom.value is None:
            found.append((guards, None))
        elif type(atom) is Constant and isinstance(atom.value, str):
            found.append((guards, LETTERS.get(atom.value.removeprefix("torch."), ANY)))
        elif type(atom) is DTypeOf and len(atom.tensor.dtypes) == 1:
            found.append((guards, next(iter(atom.tensor.dtypes))))
        else:
            found.append((guards, ANY))
    return found


# autocast

GRADIENTS_OFF = "no gradients"  # the slot that says whether they are computed, and the context that turns them off
GRADIENTS_ON = "gradients"  # the context that turns them on again


AUTOCASTS = (
    "torch.amp.autocast",
    "torch.cuda.amp.autocast",
    "torch.cpu.amp.autocast",
    "torch.xpu.amp.autocast",
    "torch.npu.amp.autocast",
    "torch_npu.npu.amp.autocast",
)


@call(*AUTOCASTS)
def autocast(m: Machine, name: str, args: Args, place: Place) -> Value:
    new = name == "torch.amp.autocast"
    device_value = args.get(0, "device_type") if new else Constant(name.split(".")[1])
    device = device_of(device_value, m.switches)
    dtype = args.get(1, "dtype")
    enabled = args.get(2, "enabled") if new else args.get(0, "enabled")
    cache = args.get(3, "cache_enabled") if new else args.get(2, "cache_enabled")
    m.emit("autocast made", place, name=name, device=device_value, dtype=dtype, enabled=enabled, args=args)
    kept = not (type(cache) is Constant and cache.value is False)
    default = BFLOAT if device == "cpu" else HALF
    identity = (place, tuple(m.calls[-2:]))
    found: list[tuple[frozenset[object], Value]] = []
    for literals, on in truths(m, enabled if enabled is not None and not args.opaque else TRUE):
        if not on:
            found.append((literals, Autocast(device, None, (), kept, identity)))
            continue
        for guards, letter in dtype_of(dtype):
            chosen = default if letter is None else letter
            if letter is None and (args.opaque or not device):
                chosen = ANY
            if chosen in (SINGLE, DOUBLE):
                found.append((literals | guards, Autocast(device, None, (), kept, identity)))
                continue
            step = Step(place, f"autocast runs in {NAMES.get(chosen, 'half precision')} here")
            found.append((literals | guards, Autocast(device, chosen, (step,), kept, identity)))
    return join(found)  # type: ignore[arg-type]


def device_of(value: Value | None, switches: Mapping[str, Switch]) -> str:
    """The device type of an argument: "cuda" where it may be that, or is by default, else "cpu", …; "" where it is not known."""
    found = []
    for guards, atom in options(value) if value is not None else ():
        if any(key[0] == "true" and sense and str(key[1]).startswith("torch.cuda.is_available") for key, sense in guards):
            found.append("cuda")
        elif type(atom) is Constant and isinstance(atom.value, str):
            found.append(atom.value.partition(":")[0])
        elif type(atom) is Unknown and is_cuda(atom, switches):
            found.append("cuda")
    return "cuda" if "cuda" in found else found[0] if len(found) == 1 else ""


def is_cuda(atom: Unknown, switches: Mapping[str, Switch]) -> bool:
    """Whether a device that is open is CUDA by its name, or by the default of the setting or the machine that decides it."""
    switch = switches.get(atom.symbol)
    left_open = switch is not None and switch.kind == "machine" and not atom.symbol.startswith("torch.accelerator.")
    if switch is not None and not left_open and type(switch.default) is Constant and isinstance(switch.default.value, str):
        return switch.default.value.startswith("cuda")
    return atom.symbol.removeprefix("torch.device(").strip("'").lower().startswith("cuda")


@call("torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.inference_mode")
def without_gradients(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`torch.no_grad()`, as a context or as a decorator."""
    first = args.get(0)
    if type(first) in (Function, Wrapped):
        return Wrapped(first, Context(GRADIENTS_OFF))  # type: ignore[arg-type]
    return Context("null" if first == FALSE else GRADIENTS_OFF)


@call("torch.enable_grad", "torch.autograd.enable_grad")
def with_gradients(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`torch.enable_grad()`, in the midst of `torch.no_grad()`."""
    first = args.get(0)
    return Wrapped(first, Context(GRADIENTS_ON)) if type(first) in (Function, Wrapped) else Context(GRADIENTS_ON)  # type: ignore[arg-type]


@call("torch.set_grad_enabled", "torch.autograd.set_grad_enabled")
def gradients_set(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`with torch.set_grad_enabled(phase == "train")`."""
    mode = args.get(0, "mode")
    ways = truths(m, mode) if mode is not None else []
    return join((literals, Context(GRADIENTS_ON if on else GRADIENTS_OFF)) for literals, on in ways) if ways else Context("null")


@call("torch.is_grad_enabled", "torch.autograd.is_grad_enabled")
def gradients_asked(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`torch.is_grad_enabled()`."""
    return m.each(m.state(GRADIENTS_OFF), lambda off: FALSE if off == TRUE else TRUE)


def gradients_off(m: Machine) -> bool:
    """Whether no gradients are computed, so that no backward runs through what is done."""
    return all(atom == TRUE for atom in atoms(m.state(GRADIENTS_OFF)))


def without_parentheses(m: Machine, function: Value, decorator: Atom, place: Place) -> Value | None:
    """`@torch.no_grad`."""
    if type(decorator) is External and decorator.name in ("torch.no_grad", "torch.inference_mode"):
        return Wrapped(function, Context(GRADIENTS_OFF))
    return None


vocabulary.decorators.append(without_parentheses)
vocabulary.defaults[GRADIENTS_OFF] = FALSE


def enters(m: Machine, atom: Atom, place: Place) -> Entered | None:
    """Autocast and other contexts of PyTorch."""
    if type(atom) is Context and atom.kind in (GRADIENTS_OFF, GRADIENTS_ON):
        return NONE, ((STATE, GRADIENTS_OFF), TRUE if atom.kind == GRADIENTS_OFF else FALSE)
    if type(atom) is External and atom.name in ("torch.amp.autocast", "torch.cuda.amp.autocast"):
        made = autocast(m, atom.name, Args(), place)
        atom = next(iter(atoms(made)))
    if type(atom) is Autocast:
        inside: Value = atom
        before = m.state("autocast")
        outer = next((a for a in atoms(before) if type(a) is Autocast), OFF)
        if atom.dtype is not None:
            inside = replace(atom, chain=(*atom.chain[:1],))
        m.emit("autocast entered", place, autocast=atom, outer=outer)
        return atom, ((STATE, "autocast"), inside)
    if type(atom) is Object and atom.kind == "exit stack":
        return atom, ((STATE, "autocast"), m.state("autocast"))
    if type(atom) is Context and atom.kind == "no autocast":
        return NONE, ((STATE, "autocast"), OFF)
    return None


vocabulary.contexts.append(enters)


def decorates(m: Machine, function: Value, decorator: Atom, place: Place) -> Value | None:
    """`@torch.autocast`: the class itself as a decorator."""
    if type(decorator) is External and m.library.canonical(decorator.name) in AUTOCASTS:  # type: ignore[attr-defined]
        m.emit("autocast without parentheses", place, name=m.library.canonical(decorator.name))  # type: ignore[attr-defined]
    return None


vocabulary.decorators.append(decorates)


IN_FLOAT8 = (
    "transformer_engine.pytorch.fp8_autocast",
    "transformer_engine.pytorch.autocast",
    "torch._scaled_mm",
    "torchao.float8.convert_to_float8_training",
)


@vocabulary.prefix(*IN_FLOAT8)
def in_float8(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """What computes in float8, where it is on."""
    enabled = args.named.get("enabled")
    if enabled is None or any(on for _, on in truths(m, enabled)):
        m.emit("float8 asked", place, name=name.rpartition(".")[2], enabled=enabled)
    return None


OWN_EXPORTS = ("export", "export_for_training", "draft_export")
EXPORTS = ("torch.onnx.export", "torch.onnx.dynamo_export", *(f"torch.export.{name}" for name in OWN_EXPORTS))


@call(*EXPORTS)
def exported(m: Machine, name: str, args: Args, place: Place) -> Value:
    """An export of a model: its program holds nothing of the region around it."""
    model = args.get(0, "mod") or args.get(0, "model")
    m.emit("model exported", place, name=name, model=model, dynamo=args.named.get("dynamo"), autocast=m.state("autocast"))
    return Unknown(f"{name}(){IDENTITY}{place.path}:{place.position}")


def left(m: Machine, atom: Atom, place: Place) -> None:
    """The end of a region."""
    if type(atom) is Autocast:
        m.emit("autocast left", place, autocast=atom)


vocabulary.left.append(left)


def autocast_methods(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Autocast entered and left by hand, and autocast as a decorator."""
    if type(atom) is not Autocast:
        return None
    if name == "__enter__":
        m.emit("autocast entered", place, autocast=atom, by_hand=True, outer=OFF)
        m.set_state("autocast", atom)
    elif name == "__exit__":
        m.emit("autocast left", place, autocast=atom, by_hand=True)
        m.set_state("autocast", OFF)
    return NONE


vocabulary.atom_methods.append(autocast_methods)


def autocast_called(m: Machine, atom: Atom, args: Args, place: Place) -> Value | None:
    """`torch.autocast("cuda")(function)`."""
    if type(atom) is Autocast and args.positional:
        return Wrapped(args.positional[0], atom)
    if type(atom) is Autocast and not args.named and not args.opaque:
        m.emit("autocast called", place, autocast=atom)
    return None


vocabulary.atom_calls.append(autocast_called)


@call("torch.set_autocast_enabled")
def set_enabled(m: Machine, name: str, args: Args, place: Place) -> Value:
    flag = args.get(len(args.positional) - 1, "enabled")
    dtype = m.state("autocast dtype")
    letter = next((letter for _, letter in dtype_of(dtype) if letter), HALF)
    found = []
    for literals, on in truths(m, flag if flag is not None else TRUE):
        step = Step(place, f"autocast runs in {NAMES.get(letter, 'half precision')} from here on")
        found.append((literals, Autocast("", letter if on else None, (step,) if on else ())))
    m.emit("autocast entered", place, autocast=next((a for _, a in found if a.dtype), OFF), by_hand=True, outer=OFF)
    m.set_state("autocast", join(found))
    return NONE


@call("torch.set_autocast_dtype", "torch.set_autocast_gpu_dtype")
def set_dtype(m: Machine, name: str, args: Args, place: Place) -> Value:
    m.set_state("autocast dtype", args.positional[-1] if args.positional else NONE)
    return NONE


@call("torch.is_autocast_enabled", "torch.is_autocast_cpu_enabled", "torch.get_autocast_gpu_dtype", "torch.get_autocast_dtype")
def is_enabled(m: Machine, name: str, args: Args, place: Place) -> Value:
    def one(atom: Atom) -> Value:
        if type(atom) is not Autocast or (atom.by and "dtype" not in name):
            return FALSE
        if "dtype" in name:
            return DType(atom.dtype or HALF)
        return TRUE if atom.dtype is not None else FALSE

    return m.each(m.state("autocast"), one)


# scalers

SCALERS = (
    "torch.amp.GradScaler",
    "torch.cuda.amp.GradScaler",
    "torch.cpu.amp.GradScaler",
    "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler",
    "fairscale.optim.grad_scaler.ShardedGradScaler",
    "fairscale.optim.grad_scaler.GradScaler",
    "torch_xla.amp.GradScaler",
    "torch_npu.npu.amp.GradScaler",
)


@call(*SCALERS)
def new_scaler(m: Machine, name: str, args: Args, place: Place) -> Value:
    made = Object(("scaler", m.identity(place)), "scaler", name, place)
    scaler_made(m, made, name, args, place)
    return made


def scaler_made(m: Machine, made: Object, name: str, args: Args, place: Place, *, own: bool = False) -> None:
    """What a new scaler knows, and that it was made; `own`: by a constructor of the project's, whose parameters are other ones."""
    enabled = enabled_by(name, args, place)
    m.write(made.id, "#enabled", enabled)
    m.write(made.id, "#optimizers", Items(()))
    m.write("scalers", "#made", TRUE)
    m.emit("scaler made", place, scaler=made, enabled=enabled, name=name, args=args, own=own)


def enabled_by(name: str, args: Args, place: Place) -> Value:
    """Whether a scaler is on that gets these arguments."""
    enabled = args.named.get("enabled")
    if enabled is None:
        index = 4 if name == "torch.cuda.amp.GradScaler" or name == "torch.cpu.amp.GradScaler" else 5
        enabled = args.get(index) if not args.opaque else Unknown(f"enabled{IDENTITY}{place.path}:{place.position}")
    return enabled if enabled is not None else TRUE


def raised(m: Machine, place: Place) -> None:
    """Note that a function raises which holds a scaler: `scalers` are the variables that do."""
    code = m.frames[-1].code
    if code is None or m.store.get("scalers", "#made") is None:
        return
    held = [(name, m.read(m.frames[-1].id, name)) for name in sorted(code.locals)]
    scalers = tuple((name, value) for name, value in held if value is not None and any(is_scaler(m, a) for a in atoms(value)))
    if scalers:
        m.emit("scaler refused", place, scalers=scalers)


vocabulary.raises.append(raised)


def of_base(m: Machine, made: Object, bases: object, args: Args, place: Place) -> None:
    """Instances of project classes that extend a scaler, an optimizer or a Function of PyTorch."""
    names = list(bases)  # type: ignore[call-overload]
    if any(name in SCALERS for name in names):
        own = type(made.type) is Class and class_member(m, made.type, "__init__") is not None
        scaler_made(m, made, next(name for name in names if name in SCALERS), args, place, own=own)
    if any(is_optimizer_name(name) for name in names):
        optimizer_made(m, made, next(n for n in names if is_optimizer_name(n)), args, place)


vocabulary.made.append(of_base)


def heir_initialized(m: Machine, instance: Object, args: Args, place: Place) -> None:
    """`super().__init__(enabled=False)` of a scaler of the project: what its base gets decides, and not what the heir was given."""
    name = next((name for name in base_names(m, instance) if name in SCALERS), None)
    if name is None or args.opaque:
        return
    enabled = enabled_by(name, args, place)
    m.write(instance.id, "#enabled", enabled)
    for number, event in enumerate(m.events):
        if event.kind == "scaler made" and event.data["scaler"] == instance:
            m.events[number] = event._replace(data={**event.data, "enabled": enabled})


vocabulary.initialized.append(heir_initialized)


def base_names(m: Machine, value: Value) -> list[str]:
    """The canonical names of the other packages' bases of an instance of a project's class."""
    from mplint.program.expressions import external_bases
    from mplint.program.values import Class

    if type(value) is Object and type(value.type) is Class:
        return [m.library.canonical(name) for name in external_bases(m, value.type)]  # type: ignore[attr-defined]
    return []


def is_scaler(m: Machine, value: Value) -> bool:
    """Whether a value is a loss scaler."""
    if type(value) is Object:
        return value.kind == "scaler" or any(name in SCALERS for name in base_names(m, value))
    return False


def book_read(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """What a scaler's own methods read: whether it is on, and its book of optimizers; what is done in view of that is not followed."""
    if name == "_per_optimizer_states" and (type(atom) is Unknown or is_scaler(m, atom)):
        owner = owner_of(atom)
        for key in met(m, owner):
            m.write(owner, f"@optimizer:{key}", UNTOLD)
        m.write(owner, "@handed on", UNTOLD)
        m.set_state("gradients", ENTRY)
    if name == "_enabled" and type(atom) is Object and is_scaler(m, atom):
        return m.read(atom.id, "#enabled") or TRUE
    return None


vocabulary.atom_attributes.append(book_read)


def when_enabled(m: Machine, scaler: Atom, on: Callable[[], Value], off: Callable[[], Value]) -> Value:
    """Run one of two ways, as the scaler is enabled; both as a fork where that is open."""
    enabled = m.read(scaler.id, "#enabled") if type(scaler) is Object else TRUE
    found = truths(m, enabled if enabled is not None else TRUE)
    if len(found) == 1:
        return on() if found[0][1] else off()
    key = ("place", "enabled", repr(owner_of(scaler)))  # it is on everywhere or nowhere, however little is known of what decides
    return m.fork([(literals | {(key, truth)}, (lambda f: lambda: (True, f()))(on if truth else off)) for literals, truth in found])[1]


def key_of(value: Value | None) -> str:
    """The key under which a scaler knows an optimizer."""
    if type(value) is Object:
        return repr(value.id)
    if type(value) is Unknown:
        return value.symbol
    if type(value) is Alternatives:
        return "|".join(sorted(key_of(a) for a in atoms(value)))
    return repr(value)


def slot_key_of(m: Machine, optimizer: Value | None) -> str:
    """The key of what a scaler knows of an optimizer: where one object stands for several, each round of a loop may take another one."""
    key = key_of(optimizer)
    if optimizer is None or not m.loops:
        return key
    several = by_index(optimizer) or any(is_several(m, atom) for atom in atoms(optimizer))
    return f"{key}{m.round()}" if several else key


def by_index(value: object) -> bool:
    """Whether it depends on an index which item of a container a value is."""
    return any(key[0] == "in" and str(key[1]).startswith("[") for guards, _ in options(value) for key, _ in guards)  # type: ignore[arg-type]


def is_several(m: Machine, optimizer: Atom) -> bool:
    """Whether a value stands for all that a comprehension makes, or a loop that has ended by now, or for any item of a container."""
    if type(optimizer) is not Object:
        return type(optimizer) is Unknown and optimizer.symbol.startswith((f"item{IDENTITY}", SIFTED))
    made = m.read(optimizer.id, "#loops")
    loops = made.data if type(made) is State and isinstance(made.data, tuple) else ()
    return m.read(optimizer.id, SEVERAL) is not None or tuple(place for place, _ in m.loops)[: len(loops)] != loops


def is_any_of_several(m: Machine, optimizer: Value | None) -> bool:
    """Whether one object stands for several optimizers: two calls with it may mean two of them."""
    return optimizer is not None and any(is_several(m, atom) for atom in atoms(optimizer))


def owner_of(scaler: Atom) -> Hashable:
    """Under what the scaler's slots stand."""
    return scaler.id if type(scaler) is Object else scaler


def scaler_method(m: Machine, scaler: Atom, name: str, args: Args, place: Place) -> Value | None:
    """The methods of a scaler."""
    if name == "scale":
        return scale(m, scaler, args, place)
    if name == "unscale_":
        return when_enabled(m, scaler, lambda: unscale(m, scaler, args.get(0), place), lambda: NONE)
    if name == "step":
        optimizer = args.get(0)
        return when_enabled(m, scaler, lambda: scaler_step(m, scaler, optimizer, place), lambda: disabled_step(m, scaler, optimizer, place))
    if name == "update":
        return when_enabled(m, scaler, lambda: update(m, scaler, place), lambda: NONE)
    if name == "state_dict":
        made = Object(("state", owner_of(scaler)), "state_dict", "scaler", place)
        m.write(made.id, "#of", scaler)
        return made
    if name == "load_state_dict":
        m.emit("state loaded", place, object=scaler, what="scaler", state=args.get(0))
        return NONE
    if name == "is_enabled":
        enabled = m.read(scaler.id, "#enabled") if type(scaler) is Object else None
        return enabled if enabled is not None else Unknown(f"is_enabled(){IDENTITY}{owner_of(scaler)!r}")
    if name == "get_scale":
        return Tensor(frozenset({SINGLE}), tags=frozenset({"scale"}))
    if name in (
        "get_growth_factor",
        "get_backoff_factor",
        "get_growth_interval",
        "set_growth_factor",
        "set_backoff_factor",
        "set_growth_interval",
    ):
        return NONE
    return None


@method("scaler")
def of_scaler(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    value = scaler_method(m, receiver, name, args, place)
    return value if value is not None else inherited(m, receiver, name, place, f"scaler.{name}(){IDENTITY}{place}")


@method("instance")
def of_instance(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """Methods that instances of project classes inherit from PyTorch's."""
    names = base_names(m, receiver)
    if any(n in SCALERS for n in names):
        value = scaler_method(m, receiver, name, args, place)
        if value is not None:
            return value
    if any(is_optimizer_name(n) for n in names):
        value = optimizer_method(m, receiver, name, args, place)
        if value is not None:
            return value
    for other in m.library.atom_methods:  # type: ignore[attr-defined]
        found: Value | None = other(m, receiver, name, args, place)
        if found is not None:
            return found
    attribute = Unknown(f"{getattr(receiver.type, 'name', receiver.type)}.{name}{IDENTITY}{at_home(receiver)}{receiver.id!r}"[:240])
    return m.library.invoke(m, attribute, args, place)


def inherited(m: Machine, receiver: Object, name: str, place: Place, symbol: str) -> Value:
    """What a method gives that an object has of another package, and that nobody knows."""
    note(m, Method(receiver, name), place)
    return Unknown(symbol)


def scale(m: Machine, scaler: Atom, args: Args, place: Place) -> Value:
    """`scaler.scale(loss)`."""
    loss = args.get(0)
    if loss is None:
        return NONE
    m.emit("loss scaled", place, scaler=scaler, loss=loss)

    def on() -> Value:
        return m.each(loss, lambda atom: scaled(m, atom, owner_of(scaler)))

    return when_enabled(m, scaler, on, lambda: loss)


def scaled(m: Machine, atom: Atom, scaler: Hashable) -> Value:
    """A loss (or several) multiplied by a scale."""
    if type(atom) is Tensor:
        return atom.but(scaled=scaler)
    items = items_of(m, atom, 0)
    if items is not None:
        return Items(tuple(m.each(v, lambda a: scaled(m, a, scaler)) for v in items))
    return Tensor(frozenset({ANY}), scaled=scaler, forward=history(m, atom))


def history(m: Machine, atom: Value) -> frozenset[str]:
    """The dtypes of the forward passes that made a value."""
    found: set[str] = set()
    for a in atoms(atom):
        if type(a) is Tensor:
            found |= a.forward
        elif type(a) is Items:
            for v in a.items:
                found |= history(m, v)
    return frozenset(found)


def known_of(m: Machine, owner: Hashable, slot: str) -> Value:
    """What a scaler knows of an optimizer."""
    value = m.read(owner, slot)
    return value if value is not None else m.read(owner, "@handed on") or READY


def unscale(m: Machine, scaler: Atom, optimizer: Value | None, place: Place) -> Value:
    """`scaler.unscale_(optimizer)`."""
    owner, key, own = owner_of(scaler), key_of(optimizer), slot_key_of(m, optimizer)
    slot = f"@optimizer:{own}"
    before = known_of(m, owner, slot)
    several = is_any_of_several(m, optimizer)
    m.emit("unscale", place, scaler=scaler, optimizer=optimizer, before=before, gradients=m.state("gradients"), several=several)
    m.write(owner, slot, State(("unscaled", place)))
    remember(m, owner, own)

    mark_unscaled(m, owner, key, place)
    return NONE


def map_value(value: Value, change: Callable[[Atom], Value]) -> Value:
    """A value with each atom changed under its conditions."""

    if type(value) is not Alternatives:
        return change(value)
    return join((guards, change(atom)) for guards, atom in options(value))


def remember(m: Machine, owner: Hashable, key: str) -> None:
    """That a scaler has met an optimizer."""
    keys = met(m, owner)
    if key not in keys:
        m.write(owner, "#optimizers", Items(tuple(Constant(k) for k in (*keys, key))))


def met(m: Machine, owner: Hashable) -> tuple[str, ...]:
    """The keys of the optimizers that a scaler has met on some path."""
    held = m.read(owner, "#optimizers")
    found = (key for atom in atoms(held) if type(atom) is Items for key in atom.items) if held is not None else ()
    return tuple(dict.fromkeys(str(key.value) for key in found if type(key) is Constant))


def scaler_step(m: Machine, scaler: Atom, optimizer: Value | None, place: Place) -> Value:
    """`scaler.step(optimizer)`."""
    owner, key, own = owner_of(scaler), key_of(optimizer), slot_key_of(m, optimizer)
    slot = f"@optimizer:{own}"
    before = known_of(m, owner, slot)
    m.emit(
        "scaler step",
        place,
        scaler=scaler,
        optimizer=optimizer,
        parts=parts_of(m, optimizer),
        key=key,
        before=before,
        gradients=m.state("gradients"),
        autocast=m.state("autocast"),
        several=is_any_of_several(m, optimizer),
    )
    m.write(owner, slot, State(("stepped", place)))
    remember(m, owner, own)
    mark_unscaled(m, owner, key, place)
    return NONE


def parts_of(m: Machine, optimizer: Value | None) -> tuple[Atom, ...]:
    """The optimizers that one of the project's own is put together of."""
    found: dict[Atom, None] = {}
    for whole in atoms(optimizer) if optimizer is not None else ():
        if type(whole) is Object and whole.kind == "instance":
            for name, value in m.store.slots.of(whole.id):
                if not name.startswith(("#", "@")):
                    found.update((atom, None) for atom in parts_in(m, value, 0) if atom != whole)
    return tuple(found)


def parts_in(m: Machine, value: Value, depth: int) -> Iterator[Atom]:
    """The optimizers that an attribute holds, itself or in a list or table."""
    for atom in atoms(value):
        if type(atom) is Object and atom.kind == "optimizer":
            yield atom
        elif type(atom) is Object and atom.kind in ("list", "dict") and depth < 2:
            held = m.read(atom.id, "#items" if atom.kind == "list" else "#entries")
            if held is not None:
                yield from parts_in(m, held, depth + 1)
        elif type(atom) is Items and depth < 3:
            for item in (*atom.items, *([atom.rest] if atom.rest is not None else [])):
                yield from parts_in(m, item, depth + 1)
        elif type(atom) is Entries and depth < 3:
            for _, item in atom.entries:
                yield from parts_in(m, item, depth + 1)


def disabled_step(m: Machine, scaler: Atom, optimizer: Value | None, place: Place) -> Value:
    """`scaler.step(optimizer)` of a scaler that is switched off, which has scaled nothing either."""
    owner = owner_of(scaler)
    ways = [(guards, atom) for guards, atom in options(m.state("gradients")) if not is_scaled_by(atom, owner)]
    return optimizer_step(m, optimizer, place, alternatives(ways) if ways else None)


def is_scaled_by(gradients: Atom, owner: Hashable) -> bool:
    """Whether gradients are those of a loss that a scaler has multiplied."""
    return type(gradients) is State and isinstance(gradients.data, tuple) and gradients.data[:2] == ("scaled", owner)


def mark_unscaled(m: Machine, owner: Hashable, key: str, place: Place) -> None:
    """That the gradients of an optimizer are no longer multiplied by the scale."""

    def one(atom: Atom) -> Value:
        if type(atom) is State and isinstance(atom.data, tuple) and atom.data[0] in ("scaled", "entry"):
            kind, by, where, unscaled = atom.data
            return State((kind, by if by is not None else owner, where or place, tuple(sorted({*unscaled, key}))))
        return atom

    m.set_state("gradients", map_value(m.state("gradients"), one))


def update(m: Machine, scaler: Atom, place: Place) -> Value:
    """`scaler.update()`."""
    owner = owner_of(scaler)
    keys = met(m, owner)
    states = {key: m.read(owner, f"@optimizer:{key}") or READY for key in keys}
    m.emit("scaler update", place, scaler=scaler, states=states)
    for key in keys:
        m.write(owner, f"@optimizer:{key}", READY)
    m.write(owner, "@handed on", READY)
    return NONE


# objects around a scaler, which scale, step and update when they are called with a loss and its optimizer

WRAPPERS = re.compile(r"(^|[.])NativeScaler\w*$|(^|[.])GradScaler$")


def new_wrapper(m: Machine, atom: Atom, args: Args, place: Place) -> Value | None:
    """`NativeScaler()` of timm, or a class called so of another package."""
    if type(atom) is not External or not WRAPPERS.search(atom.name) or atom.name in SCALERS:
        return None
    home = atom.name.partition(".")[0]
    if home in ("torch", "apex", *OTHERS):
        return None
    made = Object(("scaler around", m.identity(place)), "scaler wrapper", atom.name, place)
    scaler = new_scaler(m, "torch.cuda.amp.GradScaler", Args((), {"enabled": TRUE}), place)
    m.write(made.id, "#scaler", scaler)
    return made


vocabulary.atom_calls.insert(0, new_wrapper)


def scaler_within(m: Machine, wrapper: Object) -> Object:
    """The scaler of a wrapper."""
    held = m.read(wrapper.id, "#scaler")
    return next((a for a in atoms(held) if type(a) is Object), wrapper) if held is not None else wrapper


@vocabulary.invoke("scaler wrapper")
def wrapper_called(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """`loss_scaler(loss, optimizer, clip_grad=…, parameters=…)`: unscales before it clips, steps and updates."""
    scaler, optimizer = scaler_within(m, receiver), args.get(1, "optimizer")
    loss = scale(m, scaler, Args((args.get(0, "loss") or NONE,)), place)
    backward(m, loss, place)
    update_grad = args.named.get("update_grad", args.named.get("need_update"))
    if optimizer is not None and (update_grad is None or (type(update_grad) is Constant and update_grad.value)):
        scaler_step(m, scaler, optimizer, place)
        update(m, scaler, place)
    else:
        m.set_state("gradients", ENTRY)
    return NONE


@method("scaler wrapper")
def of_wrapper(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """Its state is that of the scaler; of a scaler of another package, so is all that it has."""
    value = scaler_method(m, scaler_within(m, receiver), name, args, place)
    return value if value is not None else Unknown(f"{name}(){IDENTITY}{place.path}:{place.position}")


# optimizers

OPTIMIZER_HOMES = (
    "torch.optim.",
    "apex.optimizers.",
    "bitsandbytes.optim.",
    "torch_optimizer.",
    "timm.optim.",
    "transformers.optimization.",
    "deepspeed.ops.adam.",
    "lion_pytorch.",
    "prodigyopt.",
    "dadaptation.",
    "heavyball.",
    "pytorch_optimizer.",
    "came_pytorch.",
    "adabelief_pytorch.",
    "ranger.",
    "radam.",
    "madgrad.",
    "schedulefree.",
    "muon.",
    "adamp.",
    "fairscale.optim.",
    "torch.distributed.optim.",
    "torchopt.",
)
NOT_OPTIMIZERS = ("torch.optim.lr_scheduler.", "torch.optim.swa_utils.", "timm.optim.create", "torch_optimizer.lookahead")
vocabulary.members.update({"torch.optim": "torch.optim.Optimizer", "torch.optim.lr_scheduler": "torch.optim.lr_scheduler.LRScheduler"})
OPTIMIZER_NAMES = frozenset({"transformers.AdamW", "transformers.Adafactor", "bitsandbytes.optim.AdamW8bit"})


def is_optimizer_name(name: str) -> bool:
    """Whether a dotted name is an optimizer's class."""
    if name in OPTIMIZER_NAMES:
        return True
    last = name.rpartition(".")[2]
    return name.startswith(OPTIMIZER_HOMES) and not name.startswith(NOT_OPTIMIZERS) and last[:1].isupper()


@vocabulary.prefix(*OPTIMIZER_HOMES, *OPTIMIZER_NAMES)
def new_optimizer(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    if name.startswith("torch.optim.lr_scheduler."):
        return Object(("scheduler", m.identity(place)), "scheduler", name, place)
    if not is_optimizer_name(name):
        return None
    made = Object(("optimizer", m.identity(place)), "optimizer", name, place)
    optimizer_made(m, made, name, args, place)
    return made


def optimizer_made(m: Machine, made: Object, name: str, args: Args, place: Place) -> None:
    """What a new optimizer holds, and that it was made."""
    parameters = args.get(0, "params")
    m.write(made.id, "#parameters", parameters if parameters is not None else NONE)
    if m.loops:
        m.write(made.id, "#loops", State(tuple(where for where, _ in m.loops)))
    m.emit("optimizer made", place, optimizer=made, name=name, parameters=parameters, args=args)


@method("scheduler")
def of_scheduler(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    if name == "state_dict":
        made = Object(("state", receiver.id), "state_dict", "scheduler", place)
        m.write(made.id, "#of", receiver)
        return made
    return NONE


@method("optimizer")
def of_optimizer(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    value = optimizer_method(m, receiver, name, args, place)
    return value if value is not None else inherited(m, receiver, name, place, f"optimizer.{name}(){IDENTITY}{place}")


def optimizer_method(m: Machine, optimizer: Atom, name: str, args: Args, place: Place) -> Value | None:
    """The methods of an optimizer."""
    if name == "step":
        closure = args.get(0, "closure")
        if closure is not None and not (type(closure) is Constant and closure.value is None):
            from mplint.program.calls import call as run

            run(m, closure, Args(), place.position)
        return optimizer_step(m, optimizer, place)
    if name == "zero_grad":
        return zero_grad(m, optimizer, place)
    if name == "state_dict":
        made = Object(("state", owner_of(optimizer)), "state_dict", "optimizer", place)
        m.write(made.id, "#of", optimizer)
        return made
    if name == "load_state_dict":
        m.emit("state loaded", place, object=optimizer, what="optimizer", state=args.get(0))
        return NONE
    if name == "add_param_group":
        m.emit("parameters added", place, optimizer=optimizer, group=args.get(0))
        return NONE
    return None


def optimizer_step(m: Machine, optimizer: Value | None, place: Place, gradients: Value | None = None) -> Value:
    """`optimizer.step()`; `gradients`: as far as more is known of them than the state says."""
    told = gradients
    if told is None:
        told = ENTRY if in_step_of_a_scaler(m) else m.state("gradients")
    m.emit("optimizer step", place, optimizer=optimizer, key=key_of(optimizer), gradients=told, autocast=m.state("autocast"))
    return NONE


def only_reads(m: Machine, optimizer: Atom) -> bool:
    """Whether the `step` of a project's own optimizer only reads gradients (it may gather their squares): no parameter is written."""
    cls = optimizer.type if type(optimizer) is Object and type(optimizer.type) is Class else None
    found = class_member(m, cls, "step") if cls is not None else None
    code = found[0].code if found is not None and type(found[0]) is Function else None
    if code is None or not code.words.isdisjoint(WRITES):
        return False
    in_place = (word for word in code.words if word.endswith("_") and not word.startswith("_"))
    return "grad" in code.words and HARMLESS.issuperset(in_place) and not hands_on(code.body)


WRITES = frozenset({".data=", "super", "step", "_foreach_add_", "data_ptr", "vector_to_parameters"})
HARMLESS = frozenset({"abs_", "sqrt_", "square_", "pow_", "clamp_", "zero_", "detach_", "requires_grad_"})
LOOKS = frozenset({"closure", "isinstance", "len", "print", "range", "zip", "enumerate", "list", "dict", "float", "int", "max", "min"})


def hands_on(body: object) -> bool:
    """Whether lowered code calls functions that may do what it does not, or changes a name in place."""
    pending = [body]
    while pending:
        node = pending.pop()
        if not isinstance(node, tuple):
            continue
        match node:
            case ("call", _, ("name", _, str(name)), *_) if name not in LOOKS:
                return True
            case ("call", _, ("attribute", _, ("name", _, "self"), _), *_) | ("augmented", _, ("name" | "attribute", *_), *_):
                return True
        pending += [part for part in node if isinstance(part, tuple)]
    return False


def in_step_of_a_scaler(m: Machine) -> bool:
    """Whether the `step` of a project's own scaler is running, which may unscale in a closure, or in whatever way it has."""
    from mplint.program.expressions import external_bases

    owners = [frame.owner for frame in m.frames if frame.owner is not None and frame.code is not None and frame.code.name == "step"]
    return any(m.library.canonical(name) in SCALERS for owner in owners for name in external_bases(m, owner))  # type: ignore[attr-defined]


def zero_grad(m: Machine, owner: Atom, place: Place) -> Value:
    """`zero_grad()` of an optimizer or module."""
    m.emit("gradients zeroed", place, of=owner)
    m.set_state("gradients", NO_GRADIENTS)
    return NONE


# backward and what is done to gradients


def backward(m: Machine, loss: Value, place: Place, given: Value | None = None) -> Value:
    """`loss.backward()`, or with a gradient that is `given`."""
    m.emit("backward", place, loss=loss, gradients=m.state("gradients"), autocast=m.state("autocast"), given=given)

    def one(atom: Atom) -> Value:
        if type(atom) is Tensor and atom.scaled is not None:
            return State(("scaled", atom.scaled, place, ()))
        return State(("plain", None, place, ()))

    m.set_state("gradients", map_value(loss, one))
    return NONE


@call("torch.autograd.backward")
def autograd_backward(m: Machine, name: str, args: Args, place: Place) -> Value:
    loss = args.get(0, "tensors")
    if loss is None:
        return NONE
    items = items_of(m, loss, place.position)
    return backward(m, items[0] if items else loss, place, args.get(1, "grad_tensors"))


CLIPS = (
    "torch.nn.utils.clip_grad_norm_",
    "torch.nn.utils.clip_grad_value_",
    "torch.nn.utils.clip_grad_norm",
    "torch.nn.utils.clip_grads_with_norm_",
)


@call(
    *CLIPS,
    "timm.utils.dispatch_clip_grad",
    "timm.utils.adaptive_clip_grad",
    "fairscale.optim.clip_grad_norm_",
    "timm.utils.clip_grad.dispatch_clip_grad",
)
def clip(m: Machine, name: str, args: Args, place: Place) -> Value:
    clipped(m, place, name, args.get(0, "parameters"), args.get(1, "max_norm"), args.get(3, "error_if_nonfinite"))
    return Tensor(frozenset({SINGLE}), tags=frozenset({"gradient norm"}))


def clipped(m: Machine, place: Place, name: str, parameters: Value | None, threshold: Value | None, strict: Value | None = None) -> None:
    """That gradients were clipped; `strict`: whether infinite ones raise."""
    m.emit("clip", place, name=name, parameters=parameters, threshold=threshold, gradients=m.state("gradients"), strict=strict)


GRADIENT = "gradient"  # the tag of what stands in `.grad`
MADE = "made of gradients"  # the tag of what is computed from gradients: to change it changes none of them
# the weight of each of a model's modules, and what stands in a weight that nobody knows
WEIGHT = re.compile(r"\b(?:modules|children)\(\)\[\](?:\[1\]|\[\])?\.(?:weight|bias)$|\.(?:weight|bias)\.data$")
SIZES = frozenset(["abs", "square", "pow", "max", "min", "amax", "sum", "mean"])
CHANGES = frozenset(
    [
        "add_",
        "sub_",
        "nan_to_num_",
        "masked_fill_",
        "sign_",
        "normal_",
        "addcmul_",
        "addcdiv_",
        "addmm_",
        "pow_",
        "sqrt_",
        "copysign_",
        "renorm_",
    ]
)
CLAMPS = frozenset(["clamp_", "clip_", "clamp_min_", "clamp_max_", "hardtanh_"])
SAME = frozenset(
    ["detach", "clone", "data", "float", "to", "cpu", "flatten", "view", "reshape", "contiguous", "mul_", "div_", "mul", "div"]
)


def is_gradient(value: Value | None) -> bool:
    """Whether a value stands in `.grad` (or is made of such values)."""
    return has_tag(value, frozenset({GRADIENT}))


def has_tag(value: Value | None, tags: frozenset[str]) -> bool:
    """Whether a tensor, or one of a tuple, has one of some tags."""
    for atom in atoms(value) if value is not None else ():
        if type(atom) is Items and (any(has_tag(v, tags) for v in atom.items) or has_tag(atom.rest, tags)):
            return True
        if type(atom) is Tensor and tags & atom.tags:
            return True
    return False


def tells_gradients(m: Machine, value: Value | None) -> bool:
    """Whether gradients, what is made of them, or a list of such are given."""
    tags = frozenset({GRADIENT, MADE})
    lists = [a for a in atoms(value) if type(a) is Object and a.kind == "list"] if value is not None else []
    return has_tag(value, tags) or any(has_tag(m.read(a.id, "#items"), tags) for a in lists)


def gradient_attribute(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """`.grad` of a parameter, and the gradient itself behind `.data`."""
    if name == "grad" and (type(atom) in (Unknown, Tensor) or (type(atom) is Object and atom.kind in ("parameter", "layer"))):
        return Tensor(frozenset({ANY}), tags=frozenset({GRADIENT}))
    if name in ("data", "T") and is_gradient(atom):
        return atom
    if type(atom) is Unknown and WEIGHT.search(f"{atom.symbol.partition(IDENTITY)[0]}.{name}"):
        return Tensor(frozenset({ANY}), tags=frozenset({"parameter"}))
    return None


vocabulary.atom_attributes.append(gradient_attribute)


NOT_FINITE, BY_THRESHOLD = "mask of what is not finite", "mask by a threshold"
COMPARISONS = frozenset({"<", "<=", ">", ">="})
LINEAR = frozenset({"made of gradients", "gradient", "times the scale", "scale"})


def changed(m: Machine, name: str, value: Value | None, place: Place) -> None:
    """That gradients are changed by a value, or where a mask says so: unless by something that grows with the scale as they do."""
    if name in ("add_", "sub_") and has_tag(value, LINEAR):
        return
    what = kind_of_change(name, value)
    if what is not None:
        m.emit("gradients changed", place, name=name, what=what, gradients=m.state("gradients"))


def kind_of_change(name: str, value: Value | None) -> str | None:
    """Which change of gradients it is: "noise", "penalty", "nan", "threshold", "" for one of no such kind; None for none."""
    if name == "nan_to_num_" or has_tag(value, frozenset({NOT_FINITE})):
        return "nan"
    if has_tag(value, frozenset({BY_THRESHOLD})):
        return "threshold"
    if has_tag(value, frozenset({"noise"})):
        return "noise"
    if has_tag(value, frozenset({"parameter", "made of a parameter"})):
        return "penalty"
    return None if name in ("add_", "sub_", "masked_fill_", "where", "[]") else ""


def gradient_item_assigned(m: Machine, receiver: Atom, index: Value, value: Value, place: Place) -> bool:
    """`p.grad[mask] = 0`."""
    if is_gradient(receiver):
        changed(m, "[]", index, place)
    return False


vocabulary.item_assigned.append(gradient_item_assigned)


def gradient_methods(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """What is done to a gradient in place, and what is read of it."""
    if type(atom) is not Tensor or not {GRADIENT, MADE} & atom.tags:
        return None
    if name == "norm":
        m.emit("gradients read", place, name="norm", parameters=None, gradients=m.state("gradients"))
        return Tensor(frozenset({SINGLE}), tags=frozenset({"gradient norm"}))
    if name in SIZES:
        return Tensor(frozenset({ANY}), tags=frozenset({MADE}))
    if MADE in atom.tags:
        return atom if name in SAME else None
    if name in CLAMPS:
        clipped(m, place, f"grad.{name}", atom, args.get(0, "min"))
        return atom
    if name in ("isnan", "isinf", "isfinite"):
        return Tensor(frozenset({"?b"}), tags=frozenset({NOT_FINITE}))
    if name in CHANGES:
        changed(m, name, args.get(0), place)
        return atom
    if name == "zero_":
        m.set_state("gradients", NO_GRADIENTS)
        return atom
    if name in ("mul_", "div_") and args.positional and type(args.positional[0]) is not Constant:
        scale_arithmetic(m, "/", atom, next(iter(atoms(args.positional[0]))), place, True)
    return atom if name in SAME else None


vocabulary.atom_methods.append(gradient_methods)


@call("torch.norm", "torch.linalg.norm", "torch.linalg.vector_norm", "torch.nan_to_num", "torch.nan_to_num_", "torch.clamp", "torch.clip")
def of_gradients(m: Machine, name: str, args: Args, place: Place) -> Value:
    first = args.get(0, "input")
    for atom in atoms(first) if first is not None else ():
        measured(m, atom, "norm" if name.endswith("norm") else "", args, place)
    if name.endswith("norm") and tells_gradients(m, first):
        m.emit("gradients read", place, name=name, parameters=first, gradients=m.state("gradients"))
        return Tensor(frozenset({SINGLE}), tags=frozenset({"gradient norm"}))
    items = items_of(m, first, place.position) if first is not None else None
    if is_gradient(first) or (items and any(is_gradient(i) for i in items)):
        if is_gradient(args.get(-1, "out")) or name.endswith("_"):
            changed(m, "nan_to_num_", None, place)
        return first if first is not None else NONE
    return m.library.by_prefix(m, name, args, place)  # type: ignore[attr-defined, no-any-return]


@call("torch.isnan", "torch.isinf", "torch.isfinite")
def finite(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Which gradients are not finite."""
    made: Value = m.library.by_prefix(m, name, args, place)  # type: ignore[attr-defined]
    return Tensor(frozenset({"?b"}), tags=frozenset({NOT_FINITE})) if tells_gradients(m, args.get(0, "input")) else made


@call("torch.cat", "torch.concat", "torch.concatenate", "torch.stack", "torch.hstack", "torch.vstack", "torch.abs", "torch.square")
def together(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Gradients put together to be looked at."""
    made: Value = m.library.by_prefix(m, name, args, place)  # type: ignore[attr-defined]
    if not tells_gradients(m, args.get(0, "tensors")):
        return made
    return map_value(made, lambda a: a.but(tags=a.tags | {MADE}) if type(a) is Tensor else a)


def gradient_assigned(m: Machine, atom: Atom, name: str, value: Value, place: Place) -> None:
    """`parameter.grad = None`."""
    if name == "grad" and type(value) is Constant and value.value is None:
        m.set_state("gradients", NO_GRADIENTS)
    elif name == "grad" and has_tag(value, frozenset({MADE})) and not has_tag(value, frozenset({"times the scale"})):
        changed(m, "where", value, place)


vocabulary.attribute_assigned.append(gradient_assigned)


@call("torch.autograd.grad")
def autograd_grad(m: Machine, name: str, args: Args, place: Place) -> Value:
    given = args.get(0, "outputs")
    outputs = m.each(given, lambda atom: computed_in(m, atom)) if given is not None else None
    m.emit("gradients taken", place, outputs=outputs, create_graph=args.get(4, "create_graph"), autocast=m.state("autocast"), args=args)
    scalers = {a.scaled if type(a) is Tensor else None for a in atoms(outputs)} if outputs is not None else set()
    by = scalers.pop() if len(scalers) == 1 else None
    forward = history(m, outputs) if outputs is not None else frozenset()
    made = Tensor(frozenset({ANY}), scaled=by, forward=forward, tags=frozenset({TAKEN, taken_at(place)}))
    return Items((made,), made)


def computed_in(m: Machine, given: Atom) -> Value:
    """The output that gradients are taken of; of a sequence of outputs the first one that a region has computed."""
    held = m.read(given.id, "#items") if type(given) is Object and given.kind == "list" else given
    if type(held) is not Items:
        return given
    found = [a for item in (*held.items, *([held.rest] if held.rest is not None else [])) for a in atoms(item) if type(a) is Tensor]
    return next((tensor for tensor in found if tensor.forward), found[0] if found else given)


TAKEN = "gradients taken"
MEASURES = frozenset({"norm", "pow", "square", "clamp", "relu", "**"})


def taken_at(place: Place) -> str:
    """The tag of gradients that are taken at a place."""
    return f"taken:{place.path}:{place.position}"


def measured(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Gradients of a scaled loss that are measured as they are."""
    if type(atom) is Tensor and TAKEN in atom.tags and atom.scaled is not None and name in MEASURES:
        m.emit("scaled gradients measured", place, tensor=atom, name=name)
    return None


vocabulary.atom_methods.insert(0, measured)


def begins_a_graph(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """`x.requires_grad_()`: gradients are taken with respect to it, whatever has computed it before."""
    if type(atom) is Tensor and name == "requires_grad_" and atom.forward and args.get(0, "requires_grad") in (None, TRUE):
        return atom.but(forward=frozenset())
    return None


vocabulary.atom_methods.insert(0, begins_a_graph)


def is_scale(value: Value) -> bool:
    """Whether a value is a loss scale, or made of one."""
    return any(type(a) is Tensor and "scale" in a.tags for a in atoms(value))


def is_other_weight(factor: Atom) -> bool:
    """Whether something unknown is a setting by its name, and no loss scale: `1 / cfg.CENTER_LOSS_WEIGHT`."""
    if type(factor) is not Unknown or MAY_UNSCALE.search(name := shown(factor.symbol)):
        return False
    return SETTING.search(name) is not None or DECLARED.search(factor.symbol) is not None


SETTING = re.compile(
    r"(?:^|[^\w.])(?:\w*(?:cfg|config|conf|args|opts?|options|settings|hparams|hps?)|self\.(?:cfg|config|args|opts?|hparams))\.\w", re.I
)
DECLARED = re.compile(r"(?:setting|option):")  # in what identifies a setting that the project declares
MAY_UNSCALE = re.compile(r"scal|inv|factor|coef|norm|clip", re.I)


def scale_arithmetic(m: Machine, op: str, left: Atom, right: Atom, place: Place, in_place: bool) -> Value | None:
    """Arithmetic with a loss scale, and gradients divided by hand."""
    if op in COMPARISONS and has_tag(left, frozenset({GRADIENT, MADE})):
        fixed = type(right) is Constant and right.value != 0
        return Tensor(frozenset({"?b"}), tags=frozenset({BY_THRESHOLD}) if fixed else frozenset())
    if is_gradient(left) and op in ("+", "-") and in_place:
        changed(m, "add_", right, place)
        return left
    if is_gradient(left) and op in ("/", "*") and in_place:
        if is_scale(right):
            m.set_state("gradients", State(("plain", None, place, ())))
        elif type(right) is not Constant and not is_other_weight(right):
            m.set_state("gradients", ENTRY)
        return left
    if op == "**":
        measured(m, left, op, Args(), place)
    if is_scale(left) or is_scale(right):
        other = right if is_scale(left) else left
        if type(other) is Tensor and TAKEN in other.tags and op in ("*", "/"):
            return other.but(scaled=None, tags=other.tags - {TAKEN})
        if type(other) in (Constant, Unknown) or (is_scale(left) and is_scale(right)):
            return left if is_scale(left) else right
    return None


vocabulary.binaries.append(scale_arithmetic)


@call("torch.nn.utils.get_total_norm")
def total_norm(m: Machine, name: str, args: Args, place: Place) -> Value:
    m.emit("gradients read", place, name=name, parameters=args.get(0), gradients=m.state("gradients"))
    return Tensor(frozenset({SINGLE}))


# values that nobody knows: recognized by what is called on them


SCALER_METHODS = frozenset({"scale", "step", "update", "state_dict", "load_state_dict", "is_enabled", "get_scale"})
UNTOLD = State(("untold", None))


def not_none(m: Machine, atom: Unknown, value: Value | None) -> Value | None:
    """A value whose method was called is there, from here on on this path."""
    path = extend(m.path, [(("true", atom.symbol), True)])
    if path is not None:
        m.path = path
    return value


def unknown_methods(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Scalers and optimizers that arrive from outside, told by the methods that only they have."""
    if type(atom) is Tensor and name == "backward":
        return backward(m, atom, place, args.get(0, "gradient"))
    if type(atom) is not Unknown:
        return None
    shown = atom.symbol.partition(IDENTITY)[0].lower()
    last = shown.rpartition(".")[2]
    hint = atom.hint.lower()
    if name == "backward" and len(args.positional) == 1:
        m.emit("backward handed on", place, by=atom, loss=args.positional[0])
    if name == "backward" and len(args.positional) <= 1 and "accelerator" not in shown and "engine" not in shown and "fabric" not in shown:
        if args.positional and type(args.positional[0]) is Tensor:
            return None
        return backward(m, Tensor(frozenset({ANY}), tags=frozenset({"unknown"})), place)
    if name == "unscale_" and args.positional and not shown.startswith(OTHERS):
        m.write(atom, "#scaler", TRUE)  # only a scaler has it
        return not_none(m, atom, scaler_method(m, atom, name, args, place))
    given = shown.endswith((")", "]")) and is_called_scaler(m.written.lower())  # what a call gives has no name of its own
    if name in SCALER_METHODS and (is_named_scaler(atom) or given or m.read(atom, "#scaler") is not None):
        if name in ("scale", "step") and not args.positional:
            return None
        return not_none(m, atom, scaler_method(m, atom, name, args, place))
    if name == "step" and shown.endswith((")", "]")) and is_named_scheduler(m.written):
        return None  # one of several things that a maker of optimizers gives
    if name in ("step", "zero_grad", "state_dict", "load_state_dict") and (is_named_optimizer(last) or hint.endswith("optimizer")):
        return optimizer_method(m, atom, name, args, place)
    if name == "step" and shown.endswith((")", "]")) and is_named_optimizer(m.written.lower()):
        return optimizer_method(m, atom, name, args, place)  # what a call gives has no name of its own
    if name == "zero_grad":
        return zero_grad(m, atom, place)
    return None


def escapes(m: Machine, atom: Atom, args: Args, place: Place) -> Value | None:
    """A scaler that is given to something unknown: what it does there with gradients and scale is unknown."""
    if type(atom) not in (Unknown, External, Method):
        return None
    for value in args.all():
        for given in atoms(value):
            if is_scaler(m, given) or (type(given) is Unknown and is_named_scaler(given)):
                owner = owner_of(given)
                for key in met(m, owner):
                    m.write(owner, f"@optimizer:{key}", UNTOLD)
                m.write(owner, "@handed on", UNTOLD)
                m.set_state("gradients", ENTRY)
                m.emit("scaler handed on", place, scaler=given)
    return None


vocabulary.atom_calls.append(escapes)
CLIPPER = re.compile(r"clip\w*grad|grad\w*clip", re.I)
NORMER = re.compile(r"grad\w*_?norm", re.I)
OTHER_NORMS = re.compile(r"zero|set_|sync|broadcast", re.I)


def clipper(m: Machine, atom: Atom, args: Args, place: Place) -> Value | None:
    """What is called like what clips or measures gradients, and is given parameters: `self.grad_clip(model.parameters())`."""
    name = called_name(m, atom)
    clips = CLIPPER.search(name) is not None
    if not clips and (not NORMER.search(name) or OTHER_NORMS.search(name)):
        return None
    first = args.get(0, "parameters")
    shown = first.symbol.partition(IDENTITY)[0] if type(first) is Unknown else ""
    given = shown.endswith(("parameters()", "params")) or (type(first) is Object and first.kind == "parameters")
    if not given or knows_scale(m, args):
        return None
    if clips:
        clipped(m, place, name, first, args.get(1, "max_norm"))
    else:
        m.emit("gradients read", place, name=name, parameters=first, gradients=m.state("gradients"))
    return Tensor(frozenset({SINGLE}), tags=frozenset({"gradient norm"}))


def called_name(m: Machine, atom: Atom) -> str:
    """The last name of something unknown that is called; what a call or a table gives has none but that by which the source calls it."""
    if type(atom) is Unknown:
        shown = atom.symbol.partition(IDENTITY)[0]
        return (shown.endswith((")", "]")) and m.written) or shown.rpartition(".")[2]
    return atom.name.rpartition(".")[2] if type(atom) in (Method, External) else ""  # type: ignore[union-attr]


def knows_scale(m: Machine, args: Args) -> bool:
    """Whether a call is given a scaler, or a scale."""
    values = [a for value in args.all() for a in atoms(value)]
    named = any("scal" in name for name in args.named)
    return named or any(is_scaler(m, a) or is_scale(a) or (type(a) is Unknown and is_named_scaler(a)) for a in values)


vocabulary.atom_calls.insert(0, clipper)
OTHERS = ("paddle", "oneflow", "mindspore", "jittor", "sklearn", "preprocessing")


def is_named_scaler(atom: Unknown) -> bool:
    """Whether an unknown value's name or annotation says that it is a loss scaler."""
    if atom.hint.lower().endswith("gradscaler"):
        return True
    shown = atom.symbol.partition(IDENTITY)[0].lower()
    if shown.startswith(OTHERS):
        return False
    last = shown.rpartition(".")[2] if not shown.endswith(")") else shown
    if "(" in last:
        return is_called_scaler(last)
    return "scaler" in last or "grad_scal" in last or "gradscal" in last


def is_called_scaler(name: str) -> bool:
    """Whether a name says that something scales losses, and not data."""
    return "gradscaler" in name or "grad_scaler" in name or "loss_scaler" in name


def is_named_scheduler(text: str) -> bool:
    """Whether what stands for a value says that it sets learning rates: "scheduler", or "get_cosine_schedule_with_warmup()"."""
    return "sched" in text.lower()


def is_named_optimizer(name: str) -> bool:
    """Whether an unknown value's name says that it is an optimizer."""
    return ("opt" in name and not any(word in name for word in ("sched", "option", "opts", "adopt"))) or name in ("optim",)


vocabulary.atom_methods.append(unknown_methods)

__all__ = ["DTypeOf", "Entries", "Partial", "Test", "vocabulary"]
