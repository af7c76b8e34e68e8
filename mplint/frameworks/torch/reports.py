"""Where a scaled loss leaves the training step: what records values, and what reads one out of a tensor."""

from __future__ import annotations

from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.machine import Args, Machine
from mplint.program.values import Atom, Object, Place, Tensor, Unknown, Value, atoms

vocabulary = Vocabulary()

# methods of loggers, metrics and bars that show or keep a value
RECORDS = frozenset(
    {
        "update", "update_state", "add_scalar", "log", "log_dict", "info", "debug", "warning", "write", "set_postfix",
        "set_description", "record", "scalar", "store", "put", "push", "report", "log_metric", "log_metrics",
    }
)  # fmt: skip
READS = frozenset({"detach", "numpy", "cpu"})


def recorded(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Note that a scaled loss is recorded by something else than what has scaled it, or read out of its tensor."""
    if type(atom) is Tensor:
        if name in READS and atom.scaled is not None:
            m.emit("tensor read", place, tensor=atom, how=name)
        return None
    if name not in RECORDS or type(atom) not in (Unknown, Object):
        return None
    values = args.all()
    scaled = [a for value in values for a in atoms(value) if type(a) is Tensor and a.scaled is not None]
    owner = atom.id if type(atom) is Object else atom
    if scaled and all(a.scaled != owner for a in scaled):
        m.emit("shown", place, values=tuple(values))
    return None


vocabulary.atom_methods.append(recorded)


def added_up(m: Machine, op: str, left: Atom, right: Atom, place: Place, in_place: bool) -> Value | None:
    """Note that a scaled loss is added to a sum."""
    if in_place and op == "+" and type(right) is Tensor and right.scaled is not None and getattr(left, "scaled", None) is None:
        m.emit("scaled loss added", place, value=right)
    return None


vocabulary.binaries.append(added_up)
