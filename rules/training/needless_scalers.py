"""Scalers that nothing needs: where one has only losses of bfloat16 to scale, its mistakes are mended by leaving it out, as MP306 says."""

from __future__ import annotations

from mplint.program.machine import Event
from mplint.program.trace import Entry
from mplint.program.values import BFLOAT, Object, Tensor, atoms


def is_needless(entry: Entry, use: Event) -> bool:
    """Whether the scaler that an event uses scales nothing but losses that were computed in bfloat16."""
    scaler = use.data.get("scaler")
    if type(scaler) is not Object:
        return False
    losses = [event.data["loss"] for event in entry.of("loss scaled") if event.data["scaler"] == scaler]
    found = [atom for loss in losses for atom in atoms(loss)]  # type: ignore[arg-type]
    return bool(found) and all(type(atom) is Tensor and atom.forward == {BFLOAT} for atom in found)


def or_left_out(entry: Entry, use: Event, advice: str) -> str:
    """What to do about a mistake in the use of a scaler."""
    return f"leave the scaler out, since bfloat16 needs none; where it is to stay, {advice}" if is_needless(entry, use) else advice
