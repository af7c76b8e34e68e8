"""Trainers inside the user's own loop: Fabric, DeepSpeed, ColossalAI, apex and others, by the table of what each trainer does.

`prepare`, `setup` and the like give back what they get, managed; `backward`, clipping and `autocast` are the trainer's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from mplint.configs.trainers.duties import Kind, kind_of, kinds
from mplint.configs.trainers.duties import trainer as trainer_kind
from mplint.frameworks.options.files import load
from mplint.frameworks.texts import asked
from mplint.frameworks.torch.modules import compute_in
from mplint.frameworks.torch.promotion import named
from mplint.frameworks.trainers.managed import (
    HOSTED,
    MODES,
    manage,
    new_trainer,
    prepare,
    region_of,
    trainer_backward,
    trainer_clip,
    trainer_step,
    trainer_unscale,
)
from mplint.frameworks.trainers.running import host_of, keep, train
from mplint.frameworks.trainers.settings import note, note_deepspeed
from mplint.frameworks.vocabulary import Entered, Vocabulary
from mplint.program.conditions import Path, extend
from mplint.program.expressions import attribute, entries_of, external_bases, truths
from mplint.program.machine import IDENTITY, Args, Machine, Switch
from mplint.program.values import (
    ANY,
    BFLOAT,
    FALSE,
    HALF,
    NONE,
    SINGLE,
    Atom,
    By,
    Class,
    Constant,
    Context,
    DType,
    External,
    Items,
    Method,
    Object,
    Place,
    State,
    Step,
    Tensor,
    Unknown,
    Value,
    atoms,
    options,
)

vocabulary = Vocabulary()
call = vocabulary.call
LETTERS = {  # of a trainer's region: where it casts the model and its data ("pure"), it enters none, and scales nothing
    "float16": HALF,
    "pure float16": ANY,
    "bfloat16": BFLOAT,
    "pure bfloat16": ANY,
    "float32": SINGLE,
    "float64": SINGLE,
    "float8": BFLOAT,
}


# what a trainer is asked for


def precision_of(m: Machine, kind: Kind, args: Args) -> tuple[Value | None, list[tuple[Path, str]]]:
    """What the arguments of a trainer say of its precision, and the dtypes that this means."""
    if kind.precision:
        value = args.named.get(kind.precision)
        if value is None:
            return None, [] if args.opaque else [(frozenset(), LETTERS.get(kind.default, ANY))]
        modes = {name: LETTERS.get(meaning, ANY) for name, meaning in kind.modes}
        return value, list(meanings(value, modes))
    if kind.switch:
        return None, switched(m, kind, args)
    return None, [(frozenset(), LETTERS.get(kind.default, ANY))]


def meanings(value: Value, modes: dict[str, str]) -> list[tuple[Path, str]]:
    """The dtypes that the values of a precision argument mean."""
    found: list[tuple[Path, str]] = []
    for guards, atom in options(value):
        if type(atom) is Constant:
            found.append((guards, modes.get(str(atom.value), MODES.get(str(atom.value), ANY))))
        elif type(atom) is Unknown:
            for letter in (HALF, BFLOAT):
                words = spelled(name for name, meaning in modes.items() if meaning == letter)
                if words:
                    found.append((guards | {(("in", atom.symbol, words), True)}, letter))
            pure = spelled(name for name, meaning in modes.items() if meaning == ANY)
            if pure:
                found.append((guards | {(("in", atom.symbol, pure), True)}, ANY))
            lower = spelled(name for name, meaning in modes.items() if meaning in (HALF, BFLOAT, ANY))
            found.append((guards | {(("in", atom.symbol, lower), False)}, SINGLE))
        else:
            found.append((guards, ANY))
    return found


def spelled(names: Iterable[str]) -> frozenset[str | int]:
    """Names of modes as users give them: those that are numbers as numbers too."""
    given = list(names)
    return frozenset(given) | frozenset(int(name) for name in given if name.isdigit())


def switched(m: Machine, kind: Kind, args: Args) -> list[tuple[Path, str]]:
    """The dtypes that flags such as `fp16=` ask for."""
    found: list[tuple[Path, str]] = []
    off: Path = frozenset()
    for name, meaning in kind.switch:
        value = args.named.get(name)
        if value is None:
            continue
        for literals, on in truths(m, value):
            if on:
                found.append((literals, LETTERS.get(meaning, ANY)))
            else:
                off |= literals
    return found if any(not literals for literals, _ in found) else [*found, (off, SINGLE)]


# Fabric, ColossalAI's Booster, and what else hands out models and optimizers


def register() -> None:
    """Every maker of the table, under each of its homes."""
    for kind in kinds():
        if kind.key in ("accelerate", "transformers", "deepspeed"):
            continue
        for home in kind.homes:
            for maker in sorted(kind.makers):
                if home.endswith(f".{maker}"):
                    vocabulary.calls.setdefault(home, made)
                elif "*" not in maker:
                    vocabulary.calls.setdefault(f"{home}.{maker}", made)
                    for part in ("trainer", "engine", "runner", "booster", "fabric", "optim", "engine.train_loop"):
                        vocabulary.calls.setdefault(f"{home}.{part}.{maker}", made)


def made(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A trainer of the table."""
    note(m, name, args, place)
    return trainer_of(m, name, args, place)


def trainer_of(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The trainer that its maker gives."""
    kind = kind_of(name)
    if kind is None:
        return Unknown(f"{name}(){IDENTITY}{place.path}:{place.position}")
    precision, dtypes = precision_of(m, kind, args)
    trainer = new_trainer(m, name, kind.title, precision, dtypes, place)
    m.write(trainer.id, "#kind", Constant(kind.key))
    keep(m, trainer, kind, args)
    for key in ("model", "module"):
        if key in args.named:
            m.write(trainer.id, "#model", args.named[key])
    return trainer


register()


@call(*(f"{home}.Trainer.from_argparse_args" for home in trainer_kind("lightning").homes))
def from_options(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`Trainer.from_argparse_args(options)`: each argument of the trainer is an option of the command line."""
    given = args.get(0, "args")
    named = dict(args.named)
    if given is not None and "precision" not in named:
        named["precision"] = m.each(given, lambda atom: attribute(m, atom, "precision", place.position))
    note_apex(m, name.rpartition(".")[0], given, args, place)
    return trainer_of(m, name.rpartition(".")[0], Args((), named), place)


APEX_SETTINGS = ("amp_level", "amp_backend")


def note_apex(m: Machine, name: str, given: Value | None, args: Args, place: Place) -> None:
    """Note the level of apex, and the backend, among the options that the program itself gives to its parser."""
    named: dict[str, Value] = {key: args.named[key] for key in APEX_SETTINGS if key in args.named}
    for key in APEX_SETTINGS:
        if given is not None and key not in named:
            held = m.each(given, partial(option_of, m, key))
            if held != NONE:
                named[key] = held
    if "amp_level" in named and any(is_word(m, atom) for atom in atoms(named["amp_level"])):
        note(m, name, Args((), named, opaque=args.opaque), place)


def option_of(m: Machine, name: str, atom: Atom) -> Value:
    """An option that a namespace is known to hold, or None."""
    return (m.read(atom.id, name) if type(atom) is Object else None) or NONE


def is_word(m: Machine, atom: Atom) -> bool:
    """Whether a value is a string, or an option whose default is one."""
    switch = m.switches.get(atom.symbol) if type(atom) is Unknown else None
    given = switch.default if switch is not None else atom
    return type(given) is Constant and isinstance(given.value, str)


def kind_of_trainer(m: Machine, atom: Atom) -> Kind | None:
    """The table's entry for a trainer."""
    if type(atom) is not Object or atom.kind != "trainer" or atom.type == "accelerate.Accelerator":
        return None
    return kind_of(str(atom.type))


def methods(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """The methods of a trainer."""
    kind = kind_of_trainer(m, atom)
    if kind is None or type(atom) is not Object:
        return None
    if name in kind.run:
        train(m, atom, kind, args, place)
    if name in kind.prepares:
        return prepared(m, atom, args, place)
    if kind.backward and name in (kind.backward, "backward"):
        return trainer_backward(m, atom, args.get(0, "loss") or args.get(0, "tensor"), place)
    if name in (kind.clip or "clip_gradients", "clip_grad_norm_"):
        return trainer_clip(m, atom, args.get(0, "model"), args.named.get("max_norm", args.named.get("clip_val")), place)
    if name == "step":
        return trainer_step(m, atom, atom, place)
    if name in ("autocast", "optim_context"):
        return region_of(m, atom, place)
    if name == "launch":
        return m.call(args.positional[0], Args((atom, *args.positional[1:]), args.named), place.position) if args.positional else NONE
    if name in ("no_backward_sync", "no_sync", "init_module", "device"):
        return Context("null")
    if name == (kind.unscale or "unscale_gradients"):
        trainer_unscale(m, atom)
    return Unknown(f"{name}(){IDENTITY}{place.path}:{place.position}{m.round()}")


vocabulary.atom_methods.append(methods)


def prepared(m: Machine, trainer: Object, args: Args, place: Place) -> Value:
    """What is handed out: the arguments, managed."""
    given = [v for v in (*args.positional, *args.named.values()) if not (type(v) is Constant and isinstance(v.value, (bool, str, int)))]
    prepare(m, trainer, given, place)
    return given[0] if len(given) == 1 else Items(tuple(given))


# DeepSpeed


@call("deepspeed.initialize")
def initialize(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`engine, optimizer, loader, scheduler = deepspeed.initialize(…)`."""
    config = args.named.get("config", args.named.get("config_params"))
    config = load(m, config, place) or config
    note_deepspeed(m, config, place)
    chosen = in_config(m, config, place)
    trainer = new_trainer(m, name, "DeepSpeed", config, chosen, place)
    model = args.get(1, "model")
    optimizer = args.get(2, "optimizer")
    m.write(trainer.id, "#model", model if model is not None else NONE)
    if model is not None:
        m.write(trainer.id, "module", model)
        compute_as_chosen(m, model, chosen, place)
    managed = optimizer if optimizer is not None and optimizer != NONE else Unknown(f"optimizer{IDENTITY}{place.path}:{place.position}")
    prepare(m, trainer, [managed] if model is None else [model, managed], place)
    rest = [Unknown(f"{word}{IDENTITY}{place.path}:{place.position}") for word in ("loader", "scheduler")]
    return Items((trainer, managed, *rest))


def compute_as_chosen(m: Machine, model: Value, chosen: Sequence[tuple[Path, str]], place: Place) -> None:
    """Have a model compute in the half dtype that an engine casts it to; the engine keeps float32 masters of its weights."""

    def cast(letter: str) -> tuple[bool, Value]:
        step = Step(place, f"the model computes in {named(letter)}: the engine casts it", By.ENGINE)
        for atom in atoms(model):
            compute_in(m, atom, DType(letter), (step,))
        return True, NONE

    arms: list[tuple[Path, Callable[[], tuple[bool, Value]]]]
    arms = [(literals, partial(cast, letter)) for literals, letter in chosen if letter in (HALF, BFLOAT)]
    if arms and all(literals for literals, _ in arms):
        arms.append((frozenset(), lambda: (True, NONE)))  # as it is
    if arms:
        m.fork(arms)


ENGINE_SECTIONS = (("fp16", HALF), ("bf16", BFLOAT), ("bfloat16", BFLOAT))


def in_config(m: Machine, config: Value | None, place: Place) -> list[tuple[Path, str]]:
    """The dtypes that a DeepSpeed configuration enables."""
    entries = entries_of(m, config) if config is not None else None
    if entries is None:
        return in_files(m, place)
    found: list[tuple[Path, str]] = []
    for section, letter in ENGINE_SECTIONS:
        held = entries.get(section)
        for guards, atom in options(held) if held is not None else ():
            inner = entries_of(m, atom)
            enabled = inner.get("enabled") if inner is not None else None
            ways = [literals for literals, on in truths(m, enabled) if on] if enabled is not None else []
            found += [(both, letter) for literals in ways if (both := extend(guards, literals)) is not None]
    return found or [(frozenset(), SINGLE)]


def in_files(m: Machine, place: Place) -> list[tuple[Path, str]]:
    """What files of the project enable, one of which a user names when he runs the program."""
    given = {(held.dotted, held.value) for held in asked(m.project, ("given", "enabled"))}  # type: ignore[attr-defined]
    found: list[tuple[Path, str]] = []
    for section, letter in ENGINE_SECTIONS:
        name = f"{section}.enabled"
        if (name, True) in given or (name, "auto") in given:
            symbol = f"{name}{IDENTITY}deepspeed"
            m.switches.setdefault(symbol, Switch(name, None, place, "setting"))
            found.append((frozenset({(("true", symbol), True)}), letter))
    return found or [(frozenset(), ANY)]


def engine_called(m: Machine, atom: Atom, args: Args, place: Place) -> Value | None:
    """Calling an engine, or the runner of a trainer, is calling its model."""
    if type(atom) is not Object or atom.kind != "trainer":
        return None
    model = m.read(atom.id, "#model")
    if model is None or model == NONE:
        return None
    return m.call(model, args, place.position)


vocabulary.atom_calls.append(engine_called)


# apex


@call("apex.amp.initialize")
def apex(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`model, optimizer = amp.initialize(model, optimizer, opt_level="O1")`."""
    level, enabled = args.get(3, "opt_level"), args.get(2, "enabled")
    off = type(level) is Constant and level.value == "O0"
    trainer = new_trainer(m, name, "apex", level, [(frozenset(), SINGLE if off else HALF)], place)
    m.set_state("apex", trainer)
    models, optimizers = args.get(0, "models"), args.get(1, "optimizers")
    scales = not (type(level) is Constant and level.value in ("O0", "O3")) and not (type(enabled) is Constant and enabled.value is False)
    if scales:
        each = tuple(items_in_all(m, optimizers)) if optimizers is not None else ()
        scale = args.get(8, "loss_scale")
        m.emit("apex initialized", place, models=models, optimizers=each, level=level, enabled=enabled, scale=scale)
    if level is not None and optimizers not in (None, NONE) and enabled != FALSE and "master_weights" not in args.named:
        note_pure(m, level, place)
    given = [v for v in (models, optimizers) if v is not None]
    for value in given:
        for atom in atoms(value):
            for inner in items_in(m, atom):
                manage(m, trainer, inner)
    return given[0] if len(given) == 1 else Items(tuple(given))


def note_pure(m: Machine, level: Value, place: Place) -> None:
    """Note a level of apex that has no float32 weights, O3: one that stands there, or the default of an option."""
    for guards, atom in options(level):
        switch = m.switches.get(atom.symbol) if type(atom) is Unknown else None
        chosen: Path = frozenset({(("in", atom.symbol, frozenset({"O3"})), True)}) if type(atom) is Unknown else frozenset()
        if (switch.default if switch is not None else atom) == Constant("O3"):
            m.emit("apex in pure half", place, guards=guards | chosen)


def items_in_all(m: Machine, value: Value) -> list[Value]:
    """The single values that a value, or the items of a list of values, may be."""
    return [inner for atom in atoms(value) for inner in items_in(m, atom)]


def items_in(m: Machine, atom: Atom) -> list[Value]:
    """A value, or the items of a list of values."""
    if type(atom) is Items:
        return list(atom.items)
    if type(atom) is Object and atom.kind == "list":
        held = m.read(atom.id, "#items")
        return [v for a in atoms(held) if type(a) is Items for v in a.items] if held is not None else []
    return [atom]


@call("apex.amp.scale_loss")
def scale_loss(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The context that gives the scaled loss, and unscales the gradients behind it."""
    return Context("apex scaled loss", args.get(0, "loss"))


def enters(m: Machine, atom: Atom, place: Place) -> Entered | None:
    """`with amp.scale_loss(loss, optimizer) as scaled_loss`."""
    if type(atom) is Context and atom.kind == "apex scaled loss":
        loss = atom.value if atom.value is not None else NONE
        m.emit("loss scaled by a trainer", place, loss=loss)
        history = frozenset(letter for a in atoms(loss) if type(a) is Tensor for letter in a.forward)
        return Tensor(frozenset({SINGLE}), scaled="apex", forward=history), None
    return None


def left(m: Machine, atom: Atom, place: Place) -> None:
    """Behind `scale_loss`, the gradients are as they were."""
    if type(atom) is Context and atom.kind == "apex scaled loss":
        m.set_state("gradients", State(("managed", "apex", place, ("all",))))


vocabulary.contexts.append(enters)
vocabulary.left.append(left)


AROUND_APEX = re.compile(r"[.]ApexScaler\w*$")


def around_apex(m: Machine, atom: Atom, args: Args, place: Place) -> Value | None:
    """`ApexScaler()` of timm, or a class called so of another package."""
    if type(atom) is not External or not AROUND_APEX.search(atom.name):
        return None
    return Object(("apex scaler", m.identity(place)), "apex scaler", atom.name, place)


@vocabulary.invoke("apex scaler")
def around_apex_called(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """`loss_scaler(loss, optimizer, clip_grad=…, parameters=…)`: the backward of apex's scaled loss, and a step."""
    loss, optimizer = args.get(0, "loss"), args.get(1, "optimizer")
    if loss is None or optimizer is None:
        return NONE

    def run(scaled: Value) -> bool:
        m.call_method(scaled, "backward", Args(), place.position, place.position)
        return True

    m.enter(scale_loss(m, "apex.amp.scale_loss", Args((loss, optimizer)), place), place.position, run)
    m.call_method(optimizer, "step", Args(), place.position, place.position)
    return NONE


@vocabulary.method("apex scaler", "state_dict", "load_state_dict")
def of_apex(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """Its state is that of apex."""
    return m.library.call(m, f"apex.amp.{name}", args, place)


vocabulary.atom_calls.insert(0, around_apex)


@call("apex.amp.master_params")
def master_params(m: Machine, name: str, args: Args, place: Place) -> Value:
    return Unknown(f"master_params(){IDENTITY}{place.path}:{place.position}")


FP16_OPTIMIZERS = (
    "apex.fp16_utils.FP16_Optimizer",
    "apex.contrib.optimizers.FP16_Optimizer",
    "deepspeed.runtime.fp16.fused_optimizer.FP16_Optimizer",
)


@call(*FP16_OPTIMIZERS)
def fp16_optimizer(m: Machine, name: str, args: Args, place: Place) -> Value:
    """An optimizer with master weights in float32, which scales by its own `backward`."""
    optimizer = args.get(0, "init_optimizer")
    trainer = new_trainer(m, name, "FP16_Optimizer", None, [(frozenset(), HALF)], place)
    if optimizer is not None:
        manage(m, trainer, optimizer)
    return trainer


# Lightning's modules


def of_module(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """What a LightningModule's own methods do in manual optimization."""
    if name not in MODULE_METHODS or type(atom) is not Object or type(atom.type) is not Class:
        return None
    if not any(base.rpartition(".")[2] == "LightningModule" for base in external_bases(m, atom.type)):
        return None
    trainer = host_of(m, atom) or Object((HOSTED, atom.id), "trainer", "lightning.pytorch.Trainer", atom.made)
    if name == "manual_backward":
        return trainer_backward(m, trainer, args.get(0, "loss"), place)
    if name == "clip_gradients":
        threshold = args.get(1, "gradient_clip_val")
        m.emit("trainer clip", place, trainer=trainer, parameters=NONE, threshold=threshold, gradients=m.state("gradients"))
        return NONE  # the gradients stay scaled until the step
    if name == "optimizers":
        optimizer = Unknown(f"optimizers(){IDENTITY}{atom.id!r}"[:160])
        manage(m, trainer, optimizer)
        for index in range(3):
            manage(m, trainer, Unknown(f"optimizers()[{index}]{IDENTITY}{atom.id!r}"[:160]))
        return optimizer
    return NONE


MODULE_METHODS = frozenset({"manual_backward", "clip_gradients", "optimizers", "log", "log_dict", "toggle_optimizer", "untoggle_optimizer"})
vocabulary.atom_methods.insert(0, of_module)


def of_plugin(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """`self.trainer.precision_plugin.scaler.get_scale()`: the scale of the trainer's own scaler."""
    scales = type(atom) is Method and atom.name == "scaler" and name == "get_scale"
    return Tensor(frozenset({SINGLE}), tags=frozenset({"scale"})) if scales else None


vocabulary.atom_methods.append(of_plugin)
