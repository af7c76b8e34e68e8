"""Operators that choose among numbers: TopK, ArgMax, NonMaxSuppression. What they give jumps where two numbers are nearly equal.

An error of what such an operator gives says nothing, be it none: what it chooses from is compared instead, and a choice that the rounding
of half might turn on other inputs is no proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from mplint.conversion.distance import Distance, distance, sizes_of
from mplint.conversion.onnx.constants import tensor_of
from mplint.conversion.onnx.lean import Lean
from mplint.conversion.onnx.program import is_constant, is_float
from mplint.conversion.onnx.run import Feed, Outputs, Session
from mplint.conversion.stress import ILL, NOISE, perturbed

CHOSEN = {"ArgMax": 0, "ArgMin": 0, "TopK": 1, "NonMaxSuppression": 0}  # the output that says what is chosen
DRAWS = 8  # how often numbers are moved by what half moves them by
DIGITS = 2.0**-12  # of a number: what half moves one by that is not 0, at least
SHOWN = "mplint_choice_"


class Chooser(NamedTuple):
    """An operator that chooses, by the name of the output that says what, and the positions of the inputs that are no constants."""

    op_type: str
    name: str
    inputs: tuple[int, ...]


def choosers(model: ir.Model) -> list[Chooser]:
    """The operators of the main graph whose choices something takes."""
    ends = set(model.graph.outputs)
    found = []
    for node in model.graph:
        at = CHOSEN.get(node.op_type)
        if at is None or node.domain not in ("", "ai.onnx") or not is_float(node.inputs[0]):
            continue
        chosen = node.outputs[at]
        if chosen in ends or any(True for _ in chosen.uses()):
            open_ = tuple(position for position, value in enumerate(node.inputs) if value is not None and not is_constant(value))
            found.append(Chooser(node.op_type, chosen.name or "", open_))
    return found


def watch(model: ir.Model, among: Sequence[Chooser]) -> None:
    """Let a model, in place, give what its operators choose from behind its outputs; choices have the names of the original."""
    makers = {value.name: node for node in model.graph for value in node.outputs if value.name}
    outputs = list(model.graph.outputs)
    for number, chooser in enumerate(among):
        node = makers[chooser.name]
        for position in chooser.inputs:
            shown = ir.node("Identity", [node.inputs[position]], outputs=[ir.Value(name=f"{SHOWN}{number}_{position}")])
            value = node.inputs[position]
            assert value is not None
            shown.outputs[0].type = value.type
            model.graph.append(shown)
            outputs.append(shown.outputs[0])
    model.graph.outputs[:] = outputs


class Choices:
    """The operators of a model that choose, what the original lets them choose from, and whether what half makes of that turns a choice."""

    def __init__(self, model: ir.Model, among: Sequence[Chooser]) -> None:
        self.among, self.count = list(among), len(model.graph.outputs)
        self.opsets = dict(model.opset_imports)
        self.makers = {value.name: node for node in model.graph for value in node.outputs}
        twin = model.clone()
        watch(twin, self.among)
        self.session = Session(twin)
        self.known: dict[int, list[np.ndarray]] = {}
        self.alone: dict[int, Session] = {}

    def chosen_from(self, feed: Feed) -> list[np.ndarray]:
        """What the original chooses from on a feed: the inputs of each operator, one after the other."""
        if id(feed) not in self.known:
            self.known[id(feed)] = [np.asarray(one) for one in self.session.run(feed)[self.count :]]
        return self.known[id(feed)]

    def distance(self, feed: Feed, got: Outputs, usual: Sequence[float]) -> Distance:
        """How far what is chosen from is from the original's, against how large it usually is."""
        return distance(self.chosen_from(feed), got, usual, exact=False)

    def steady(self, feed: Feed, like: Feed, usual: Sequence[float]) -> bool:
        """Whether what is chosen from hardly follows noise on a feed, so that an error says something."""
        noisy = self.session.run(perturbed(feed, like, NOISE))[self.count :]
        return distance(self.chosen_from(feed), noisy, usual, exact=False).within(ILL)

    def sizes(self, feeds: Sequence[Feed]) -> tuple[float, ...]:
        """How large what is chosen from usually is."""
        return sizes_of([self.chosen_from(feed) for feed in feeds])

    def turned(self, feed: Feed, got: Outputs) -> Iterator[tuple[Chooser, float]]:
        """The operators that choose something else where their numbers move by as much as half moves them, with that."""
        expected, at = self.chosen_from(feed), 0
        for number, chooser in enumerate(self.among):
            count = len(chooser.inputs)
            ours, theirs = expected[at : at + count], [np.asarray(one) for one in got[at : at + count]]
            at += count
            if any(one.shape != other.shape for one, other in zip(ours, theirs, strict=True)):
                yield chooser, float("inf")
                continue
            moved = [_moved(one, other) for one, other in zip(ours, theirs, strict=True)]
            if any(array.any() for array in moved) and self._turns(number, ours, moved):
                yield chooser, max(float(array.max(initial=0.0)) for array in moved)

    def _turns(self, number: int, given: Sequence[np.ndarray], moved: Sequence[np.ndarray]) -> bool:
        """Whether an operator by itself chooses something else on numbers that are moved this way or that."""
        session, rng = self._session(number), np.random.default_rng(0)
        names = [f"{SHOWN}{position}" for position in self.among[number].inputs]
        chosen = session.run(dict(zip(names, given, strict=True)))[0]
        for _ in range(DRAWS):
            other = {
                name: one if one.dtype.kind != "f" else np.asarray(one + far * rng.choice((-1.0, 1.0), one.shape), one.dtype)
                for name, one, far in zip(names, given, moved, strict=True)
            }
            if not np.array_equal(np.asarray(chosen), np.asarray(session.run(other)[0])):
                return True
        return False

    def _session(self, number: int) -> Session:
        """One operator by itself."""
        if number not in self.alone:
            chooser = self.among[number]
            node = self.makers[chooser.name]
            inputs, constants, names = [], [], []
            for position, value in enumerate(node.inputs):
                name = f"{SHOWN}{position}" if value is not None else ""
                names.append(name)
                tensor = tensor_of(value) if value is not None and position not in chooser.inputs else None
                if position in chooser.inputs and value is not None and value.dtype is not None:
                    inputs.append(helper.make_tensor_value_info(name, int(value.dtype), None))
                elif tensor is not None:
                    constants.append(numpy_helper.from_array(tensor.numpy(), name))
            at = CHOSEN[chooser.op_type]
            made = helper.make_node(
                node.op_type, names, [f"mplint_given_{n}" if n != at else "mplint_chosen" for n in range(len(node.outputs))]
            )
            made.attribute.extend(ir.to_proto(attribute) for attribute in node.attributes.values())
            output = helper.make_tensor_value_info("mplint_chosen", onnx.TensorProto.INT64, None)
            graph = helper.make_graph([made], "choice", inputs, [output], constants)
            opsets = [helper.make_opsetid("", self.opsets.get("", 1))]
            self.alone[number] = Session(Lean(helper.make_model(graph, opset_imports=opsets, ir_version=8), {}))
        return self.alone[number]


def _moved(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """By how much half moves each number: what was seen, and no less than its digits allow. What is equal to 0 stays so."""
    if one.dtype.kind != "f":
        return np.zeros(one.shape)
    size = np.where(np.isfinite(one), np.abs(one), 0.0).astype(np.float64)
    with np.errstate(invalid="ignore"):
        seen = np.abs(one.astype(np.float64) - other)
    return np.maximum(np.where(np.isfinite(seen), seen, 0.0), DIGITS * size)


def near_ties(choices: Choices, feeds: Sequence[tuple[str, Feed]], got: Mapping[str, Outputs]) -> Iterator[str]:
    """Why choices on feeds, by their names, are no proof; `got` is what the half model chooses from on each.

    On data every near tie counts; made-up inputs have some by chance, and are no proof where they show no clear choice at all.
    """
    found: dict[Chooser, list[tuple[str, float]]] = {}
    for sample, feed in feeds:
        for chooser, far in choices.turned(feed, got[sample]):
            found.setdefault(chooser, []).append((sample, far))
    given = any(getattr(feed, "file", "") for _, feed in feeds)
    for chooser, turned in found.items():
        if given or len(turned) == len(feeds):
            sample, far = turned[0]
            yield (
                f"{chooser.op_type} {chooser.name!r} chooses among what is nearly equal on {sample}: half moves that by up to "
                f"{far:.2g}, which decides. Give data on which the choice is clear, or a --metric that judges what you do with it"
            )
