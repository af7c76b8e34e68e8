"""Scalers that are given to Lightning's precision plugin for bfloat16: what MP109 says of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Applicability, Fix
from mplint.program.trace import Trace, possible
from mplint.program.values import NONE, Constant, Place
from mplint.python.arguments import drop_argument
from mplint.python.syntax import argument

from .regions import Own


def plugin_scalers(trace: Trace) -> Iterator[Own]:
    """The plugins of the program that get a scaler and bfloat16."""
    for _, event in trace.of("precision plugin made"):
        precision, scaler = event.data["precision"], event.data["scaler"]
        if scaler is None or scaler == NONE or precision is None:
            continue
        given = [atom for _, atom in possible(precision, event.path)]  # type: ignore[arg-type]
        if all(type(atom) is Constant and atom.value in ("bf16", "bf16-mixed") for atom in given):
            place, fix = without_scaler(trace, event.place)
            yield Own(
                place,
                "a scaler for bf16-mixed, which needs none",
                "Lightning raises an error: bf16-mixed does not use a scaler, since bfloat16 has the exponents of float32.",
                "Leave the scaler out.",
                fix=fix,
            )


def without_scaler(trace: Trace, place: Place) -> tuple[Place, Fix | None]:
    """Where the scaler is given in a call, and the change that leaves it out."""
    found = trace.node(place)
    if found is None or not isinstance(found[1], ast.Call):
        return place, None
    file, call = found[0], found[1]
    scaler = argument(call, "scaler", 2)
    if scaler is None:
        return place, None
    return place, Fix("leave the scaler out", Applicability.SAFE, (drop_argument(file, call, scaler),))
