"""Code that a trainer runs: the methods of classes that are made for it, and what of its own mixed precision such code brings along."""

from __future__ import annotations

from collections.abc import Callable

from mplint.configs.trainers.duties import Kind, kind_of
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.entries import call_open
from mplint.program.expressions import ancestors, bind, class_member, external_bases
from mplint.program.machine import Event, Machine
from mplint.program.values import Class, Object, atoms

vocabulary = Vocabulary()
HOME = "lightning.pytorch.LightningModule"
PLAIN = ("torch.", "abc.", "typing.", "builtins.", "collections.")
STEPS = frozenset({"training_step", "compute_loss"})  # of the user's, which a trainer runs in its own region
BROUGHT = frozenset({"autocast", "GradScaler"})
BY_HAND = frozenset({"automatic_optimization", "manual_backward", "optimizers"})


def host_of(m: Machine) -> tuple[Kind, Class] | None:
    """The trainer that runs the method that runs, and the class of its instance; None where none does."""
    for frame in reversed(m.frames):
        if frame.code is None or frame.owner is None or not frame.code.parameters:
            continue
        held = m.read(frame.id, frame.code.parameters[0][0])
        instance = next((a for a in atoms(held) if type(a) is Object and type(a.type) is Class), None) if held is not None else None
        if instance is None or type(instance.type) is not Class:
            continue
        kind = made_for(m, instance.type, [m.library.canonical(b) for b in external_bases(m, instance.type)])  # type: ignore[attr-defined]
        if kind is not None:
            return kind, instance.type
    return None


def made_for(m: Machine, cls: Class, bases: list[str]) -> Kind | None:
    """The trainer that a class is made for: by its bases, or by Lightning's hooks where nobody knows a base."""
    for base in bases:
        kind = kind_of(base)
        if kind is not None and kind.runs(base):
            return kind
    lightning = kind_of(HOME)
    outside = [base for base in bases if not base.startswith(PLAIN)]
    if outside and lightning is not None and all(class_member(m, cls, hook) is not None for hook in lightning.hooks):
        return lightning
    return None


def is_by_hand(m: Machine, cls: Class) -> bool:
    """Whether a class steps its optimizers itself."""
    return any(type(a) is Class and not BY_HAND.isdisjoint(a.ir_words) for a in ancestors(m, cls))


def opening(m: Machine, cls: Class) -> Callable[[Object, int], None] | None:
    """A trainer runs the steps of the classes that are made for it, on batches that nobody knows."""
    kind = made_for(m, cls, [m.library.canonical(b) for b in external_bases(m, cls)])  # type: ignore[attr-defined]
    held = [found for name in sorted(STEPS) if (found := class_member(m, cls, name)) is not None] if kind is not None else []
    if not held or not any(not BROUGHT.isdisjoint(a.ir_words) for a in ancestors(m, cls) if type(a) is Class):
        return None

    def run(made: Object, position: int) -> None:
        for member, owner in held:
            callee = bind(m, member, made, cls, owner, position)
            for atom in list(atoms(callee))[:1]:
                call_open(m, atom, position)

    return run


vocabulary.openings.append(opening)


@vocabulary.follows("autocast entered", "scaler made", "loss scaled")
def brought_along(m: Machine, event: Event) -> None:
    """A region, a scaler or a scaling of the program's own in code that a trainer runs."""
    found = host_of(m)
    if found is not None:
        kind, cls = found
        functions = tuple(frame.code.name for frame in m.frames if frame.code is not None)
        m.emit("inside a trainer", event.place, event=event, trainer=kind.key, by_hand=is_by_hand(m, cls), functions=functions)
