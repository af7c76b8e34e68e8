"""accelerate: the Accelerator, what it prepares, and the work that it does for a training loop."""

from __future__ import annotations

from mplint.frameworks.trainers.managed import (
    code_of,
    dtypes_of_precision,
    new_trainer,
    prepare,
    region_of,
    trainer_backward,
    trainer_clip,
    trainer_unscale,
)
from mplint.frameworks.trainers.settings import note
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.expressions import ancestors
from mplint.program.machine import IDENTITY, Args, Machine, Switch, derived
from mplint.program.store import join
from mplint.program.values import (
    FALSE,
    HALF,
    NONE,
    TRUE,
    Atom,
    Class,
    Code,
    Constant,
    Context,
    DType,
    External,
    Items,
    Object,
    Place,
    Unknown,
    Value,
    atoms,
    options,
)

vocabulary = Vocabulary()
vocabulary.aliases["accelerate.accelerator.Accelerator"] = "accelerate.Accelerator"
NULL = Context("null")


@vocabulary.call("accelerate.Accelerator")
def accelerator(m: Machine, name: str, args: Args, place: Place) -> Value:
    note(m, name, args, place)
    precision = args.get(2, "mixed_precision")
    if precision is None or (type(precision) is Constant and precision.value is None):
        # what accelerate's own configuration says
        precision = Unknown(f"mixed_precision{IDENTITY}accelerate:{place.path}:{place.position}")
        m.switches.setdefault(precision.symbol, Switch("mixed_precision", None, place, "setting", choices=("no", "fp16", "bf16", "fp8")))
    dtypes = dtypes_of_precision(precision, ("fp16",), ("bf16",))
    made = new_trainer(m, name, "accelerate", precision, dtypes, place)
    m.write(made.id, "mixed_precision", precision)
    return made


def is_accelerator(atom: Atom) -> bool:
    """Whether a value is an Accelerator."""
    return type(atom) is Object and atom.kind == "trainer" and atom.type == "accelerate.Accelerator"


def methods(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """The methods of an Accelerator."""
    if not is_accelerator(atom) or type(atom) is not Object:
        return None
    if name in ("prepare", "prepare_model", "prepare_optimizer", "prepare_data_loader", "prepare_scheduler"):
        given = list(args.positional) or list(args.named.values())[:1]
        prepare(m, atom, given, place)
        if args.opaque:
            return Unknown(f"prepare(){IDENTITY}{place.path}:{place.position}")
        return given[0] if len(given) == 1 else Items(tuple(given))
    if name == "backward":
        return trainer_backward(m, atom, args.get(0, "loss"), place)
    if name in ("clip_grad_norm_", "clip_grad_value_"):
        return trainer_clip(m, atom, args.get(0, "parameters"), args.get(1, "max_norm"), place)
    if name == "unscale_gradients":
        trainer_unscale(m, atom)
        return NONE
    if name == "autocast":
        return region_of(m, atom, place)
    if name in ("accumulate", "no_sync", "main_process_first", "local_main_process_first", "profile", "join_uneven_inputs"):
        return NULL
    if name in ("unwrap_model", "gather", "gather_for_metrics", "reduce", "pad_across_processes"):
        return args.get(0, "model") or args.get(0, "tensor") or NONE
    if name in ("save_state", "load_state"):
        m.emit("trainer saved" if name == "save_state" else "trainer loaded", place, trainer=atom)
    if name in ("free_memory", "clear"):
        return Items(args.positional)
    return Unknown(f"accelerator.{name}(){IDENTITY}{place.path}:{place.position}{m.round()}")


vocabulary.atom_methods.append(methods)


def run_past_forward(m: Machine) -> None:
    """Note the models of which a program runs other methods than `forward` only, which alone computes in the precision of an Accelerator.

    A method that calls the model itself calls what has been prepared.
    """
    events = list(m.events)
    called = {e.data.get("model", e.data.get("module")) for e in events if e.kind in ("prepared model called", "module handed on")}
    for event in events:
        if event.kind == "models prepared" and is_accelerator(event.data["trainer"]):  # type: ignore[arg-type]
            for model in (a for value in event.data["prepared"] for a in atoms(value)):  # type: ignore[attr-defined]
                ran = own_methods(m, model) & m.called if model not in called else frozenset()
                if ran and not any("forward" in code.words for code in ran):
                    m.frames = m.frames or [m.module_frame(event.place.path)]
                    m.emit("run past forward", event.place, model=model)


def own_methods(m: Machine, model: Atom) -> frozenset[Code]:
    """The methods of an instance of a project's class, but for the one that makes it and the one that is called by calling it."""
    if type(model) is not Object or type(model.type) is not Class:
        return frozenset()
    line = [cls for cls in ancestors(m, model.type) if type(cls) is Class]
    held = [code_of(value) for cls in line for name, value in m.store.slots.of(cls.id) if name not in ("__init__", "forward")]
    return frozenset(code for code in held if code is not None)


vocabulary.finished.append(run_past_forward)


def read(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """The attributes of an Accelerator."""
    if not is_accelerator(atom) or type(atom) is not Object:
        return None
    if name == "scaler":
        return scaler_of(m, atom)
    if name in ("state", "_state"):
        return atom
    if name == "native_amp":
        held = m.read(atom.id, "#dtypes")
        return join((g, FALSE if type(a) is DType and a.letter == "f" else TRUE) for g, a in options(held)) if held is not None else None
    if name in METHODS:
        return None
    found = derived(Unknown("accelerator"), "." + name)
    return Unknown(found.symbol, "torch.device") if name == "device" else found


METHODS = frozenset(
    [
        "prepare",
        "backward",
        "clip_grad_norm_",
        "clip_grad_value_",
        "autocast",
        "accumulate",
        "unwrap_model",
        "print",
        "log",
        "wait_for_everyone",
        "gather",
        "gather_for_metrics",
        "save_state",
        "load_state",
        "register_save_state_pre_hook",
        "register_load_state_pre_hook",
        "init_trackers",
        "end_training",
        "unscale_gradients",
        "no_sync",
        "prepare_model",
        "prepare_optimizer",
    ]
)


def scaler_of(m: Machine, trainer: Object) -> Value:
    """`accelerator.scaler`: enabled where the precision is float16."""
    made = Object(("scaler", trainer.id), "scaler", "torch.amp.GradScaler", trainer.made)
    held = m.read(trainer.id, "#dtypes")
    if m.read(made.id, "#enabled") is None:
        m.write(made.id, "#optimizers", Items(()))
        m.write(
            made.id,
            "#enabled",
            join((g, TRUE if type(a) is DType and a.letter == HALF else FALSE) for g, a in options(held)) if held is not None else TRUE,
        )
    return made


vocabulary.atom_attributes.append(read)

__all__ = ["External", "atoms", "vocabulary"]
