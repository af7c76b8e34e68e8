"""Which models run before a loss is scaled, and under which autocast state: noted where the program has made a scaler."""

from __future__ import annotations

import re

from mplint.frameworks.torch.protocol import gradients_off
from mplint.frameworks.torch.tensors import is_module_name
from mplint.program.expressions import ancestors
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.values import NONE, TRUE, Atom, Class, Object, Place, Unknown, Value, atoms

FROM_ELSEWHERE = re.compile(r"[\w.]+\.[A-Z]\w*\([^)]*\)")
PLAIN = ("torch.", "torchvision.", "torchmetrics.")
PRETRAINED = ("transformers.", "diffusers.")  # whose models do so too
PLAIN_MODELS = ("torch.nn.", "torchvision.models.", "timm.")  # whose models compute in the dtype of their parameters


def trains(m: Machine, module: Atom | Value) -> None:
    """That a module is put in training or evaluation mode, or its parameters are asked for."""
    if type(module) is Unknown:
        m.write(module, "#trained", TRUE)


def note_called(m: Machine, module: Atom, args: Args, place: Place, cut_off: bool = False) -> None:
    """Note that a model is called, once at each place.

    `followed`: what its forward does is known, or as good as known; `weights`: what it was loaded with, None for what was not loaded;
    `classes`: the class whose method calls it and its bases, by path and name; `trained`: whether gradients are computed.
    """
    if m.store.get("scalers", "#made") is None or not is_model(m, module, args):
        return
    slot = (("called", place, tuple(m.calls[-2:])), "#model")
    if cut_off or m.store.get(*slot) is None:
        m.write(*slot, NONE)
        followed = not cut_off and is_followed(m, module)
        held = m.read(module.id, "@weights") if is_loaded(module) else None  # type: ignore[union-attr]
        m.emit(
            "model called",
            place,
            model=module,
            autocast=m.state("autocast"),
            followed=followed,
            weights=held,
            classes=classes_of(m),
            trained=not gradients_off(m),
        )


def classes_of(m: Machine) -> tuple[tuple[str, str], ...]:
    """The class whose method runs, and its bases in the project in the order of lookup, by path and name."""
    owner = next((frame.owner for frame in reversed(m.frames) if frame.owner is not None), None)
    line = ancestors(m, owner) if owner is not None else []
    return tuple((cls.path, cls.name) for cls in line if type(cls) is Class)


def is_model(m: Machine, module: Atom, args: Args) -> bool:
    """Whether a call is one of a model, or of something that is given a model."""
    if type(module) is not Unknown:
        return True
    given = (a for value in args.all() for a in atoms(value))
    return is_instance_from_elsewhere(module) or any(is_trained(m, a) for a in (module, *given))


def is_instance_from_elsewhere(unknown: Unknown) -> bool:
    """Whether an unknown value is an instance of another package's class: called, it may be a model that computes in half by itself."""
    shown = unknown.symbol.partition(IDENTITY)[0]
    return not shown.startswith(PLAIN) and FROM_ELSEWHERE.fullmatch(shown) is not None


def is_trained(m: Machine, atom: Atom) -> bool:
    """Whether an unknown value is a model, or its `forward`, by its name or by what is done with it."""
    if type(atom) is not Unknown:
        return False
    return is_module_name(owner_of_member(atom, "forward") or atom) or is_used_as_model(m, atom)


def is_used_as_model(m: Machine, atom: Unknown) -> bool:
    """Whether the program has asked an unknown value for its parameters, or to train or evaluate, which no transform of data can."""
    return m.read(owner_of_member(atom, "forward") or atom, "#trained") is not None


def owner_of_member(atom: Unknown, wanted: str = "") -> Unknown | None:
    """What an unknown is a member of; `wanted`: only a member of that name."""
    shown, _, identity = atom.symbol.partition(IDENTITY)
    owner, dot, member = shown.rpartition(".")
    return Unknown(f"{owner}{IDENTITY}{identity}") if dot and member.isidentifier() and wanted in ("", member) else None


def is_followed(m: Machine, module: Atom, depth: int = 0) -> bool:
    """Whether nothing in the forward of a model, or of those that it holds, can be unknown to have entered a region."""
    if type(module) is Object and not isinstance(module.type, str):
        held = (a for name, value in m.store.slots.of(module.id) if not name.startswith(("@", "#")) for a in atoms(value))
        return depth > 2 or all(is_followed(m, a, depth + 1) for a in held if may_be_model(m, a) and a != module)
    if type(module) is Object:
        return is_loaded(module) or module.type.startswith(PLAIN_MODELS)  # type: ignore[union-attr]
    shown = module.symbol.partition(IDENTITY)[0] if type(module) is Unknown else ""
    return shown.startswith(PLAIN_MODELS) and "__" not in shown  # what classes tell of themselves are the project's own


def is_loaded(module: Atom) -> bool:
    """Whether a model was loaded by a package whose models compute in the dtype of their weights."""
    return type(module) is Object and module.kind == "model" and str(module.type).startswith(PRETRAINED)


def may_be_model(m: Machine, atom: Atom) -> bool:
    """Whether an attribute of a model may be another one: its class is the project's or another package's, or it is called like one."""
    if type(atom) is Object:
        return atom.kind in ("model", "pipeline") or (atom.kind == "instance" and not isinstance(atom.type, str))
    return is_trained(m, atom)
