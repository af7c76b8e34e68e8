"""Mending ONNX models: a copy with other nodes and constants, held against the original under true half semantics on the CPU.

What the original gives is what it gives where each half result is stored in half; where that is no number, since a constant has overflown
or an epsilon vanished, what it stands for counts: the same model in float32.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import onnx
import onnx_ir as ir

from mplint.conversion.distance import NO_NUMBER
from mplint.conversion.feeds import load_feeds
from mplint.conversion.onnx.arrays import required
from mplint.conversion.onnx.convert import typed, verify
from mplint.conversion.onnx.half_emulation import HALVES, to_strict
from mplint.conversion.onnx.lean import fault_of, write_whole
from mplint.conversion.onnx.program import bodies
from mplint.conversion.onnx.read import LEFT_OUT, read
from mplint.conversion.onnx.run import INLINE_BYTES, Outputs, Session, weight_bytes
from mplint.conversion.onnx.samples import Samples, given, samples
from mplint.conversion.policy import POLICIES, ConversionError, Options, Policy
from mplint.conversion.result import Conversion
from mplint.findings import Fix
from mplint.graph.model import ModelGraph
from mplint.graph.onnx.loader import read_model
from mplint.mend.onnx_edit import carry_out
from mplint.mend.proof import STAYS_BROKEN, MendError, Proof
from mplint.replace import Stamp, replace_model

SCANNED = 1 << 22  # elements of a constant
MEANT = 1e9  # what an infinite mask stands for


class OnnxCandidate:
    """A mended copy of an ONNX model; weights in other files stay where they are."""

    def __init__(self, model: ir.Model, original: OnnxOriginal, training: onnx.ModelProto | None) -> None:
        self.model, self.original, self.training = model, original, training

    @cached_property
    def message(self) -> bytes:
        """The file."""
        proto = ir.to_proto(self.model)
        if self.training is not None:
            proto.training_info.extend(self.training.training_info)
        data: bytes = proto.SerializeToString()
        return data

    def graph(self) -> ModelGraph:
        """The copy as rules see it."""
        proto = onnx.ModelProto()
        proto.ParseFromString(self.message)
        return read_model(proto, self.original.path)

    def prove(self, *, exact: bool) -> Proof:
        """Hold it against the original; raises MendError."""
        original = self.original
        model = ir.from_proto(onnx.ModelProto.FromString(self.message))
        ir.external_data.set_base_dir(model.graph, os.path.dirname(original.path))
        first = self._held(
            model, original.references(exact=exact), 0.0 if exact else original.policy.tolerance, original.broken and not exact
        )
        if exact or not first.problems or first.error == float("inf"):
            return first
        # Half itself may be further from float32 than that: then what the copy gives may be nearer.
        second = self._held(model, original.references(meant=True), original.policy.tolerance, True)
        return first if second.problems else second

    def _held(self, model: ir.Model, known: Samples, tolerance: float, broken: bool) -> Proof:
        result = Conversion(replace(self.original.policy, tolerance=tolerance), save=lambda _: None)
        verify(result, model, result.policy, known)
        problems = [STAYS_BROKEN] if broken and result.problems == [NO_NUMBER] else result.problems
        return Proof(float("inf") if result.error is None else result.error, tuple(result.verified), tuple(problems), broken)

    def save(self) -> None:
        """Put it in the place of the original; raises WriteError."""
        replace_model(self.original.path, self.original.stamp, lambda stream: stream.write(self.message))


class OnnxOriginal:
    """An ONNX model in a file."""

    def __init__(self, path: str, options: Options, calibration: Sequence[str]) -> None:
        self.path, self.options, self.calibration = path, options, calibration
        self.stamp = Stamp.of(path)
        self.notes: list[str] = []

    def mended(self, passes: Sequence[Sequence[Fix]]) -> OnnxCandidate:
        """A copy with all the fixes, one pass after the other; raises MendError."""
        model = read(self.path, mapped=False)
        training = onnx.load(self.path, load_external_data=False) if LEFT_OUT in model.meta else None
        for fixes in passes:
            carry_out(model, fixes)
        return OnnxCandidate(model, self, training)

    @cached_property
    def policy(self) -> Policy:
        """How far outputs may move: by the half dtype of the model."""
        values = [value for graph in self._typed.graphs() for node in graph for value in node.outputs]
        bfloat = any(value.dtype == ir.DataType.BFLOAT16 for value in values)
        return POLICIES["mixed_bfloat16" if bfloat else "mixed_float16"]

    @cached_property
    def _typed(self) -> ir.Model:
        model = read(self.path)
        if refused := fault_of(model):
            raise MendError(f"the ONNX checker refuses the model as it is: {refused}")
        return typed(model)

    def references(self, *, exact: bool = False, meant: bool = False) -> Samples:
        """Inputs, and what the original gives for them; not `exact`, what it is `meant` to give where that is no number, or everywhere."""
        feeds, real, wide = self._given
        pairs = zip(real, wide, strict=True)
        if not exact:
            real = [other if _is_finite(other) and (meant or not _is_finite(one)) else one for one, other in pairs]
        return Samples([*feeds], real)

    @property
    def broken(self) -> bool:
        """Whether the original gives what is no number for some input."""
        return not all(map(_is_finite, self._given[1]))

    @cached_property
    def _given(self) -> tuple[list[dict[str, np.ndarray]], list[Outputs], list[Outputs]]:
        """Inputs, what the original gives in half, and what in float32; raises MendError where it can't be run."""
        try:
            wide = self._emulated(rounded=False)
            with tempfile.TemporaryDirectory(prefix="mplint-") as folder:
                feeds = self._feeds(wide, os.path.join(folder, "model.onnx"))
            return feeds, _run(self._emulated(rounded=True), feeds), _run(wide, feeds)
        except ConversionError as error:
            raise MendError(str(error)) from None
        except MendError:
            raise
        except Exception as error:
            raise MendError(f"the model can't be run as it is: {_first_line(error)}") from None

    def _emulated(self, *, rounded: bool) -> ir.Model:
        model = self._typed.clone()
        if not rounded:
            without_infinities(model)
        to_strict(model, rounded=rounded)
        return model

    def _feeds(self, wide: ir.Model, place: str) -> list[dict[str, np.ndarray]]:
        """The inputs that conversion measures on, as far as half inputs can hold them."""
        if weight_bytes(wide) >= INLINE_BYTES:
            ir.save(wide, place, external_data="model.data")
        else:
            write_whole(wide, place)
        halves = {value.name: value.dtype for value in self._typed.graph.inputs if value.dtype in HALVES}
        if self.calibration:
            found = given(place, load_feeds(self.calibration, [value.name or "" for value in required(wide)]))
        else:
            notes: list[str] = []
            found = samples(place, wide, self.options, notes)
            if not found.feeds:
                raise MendError("no generated input fits the model: give --calibration data")
        return [{name: _rounded(np.asarray(array), halves.get(name)) for name, array in feed.items()} for feed in found.feeds]

    def close(self) -> None:
        """Nothing is kept."""


def without_infinities(model: ir.Model) -> None:
    """Let constants in half that are infinite hold the large numbers that they stand for, in place: half has rounded those to infinity."""
    for body, _ in bodies(model):
        for value in body.initializers.values() if isinstance(body, ir.Graph) else ():
            if value.const_value is not None and (made := _finite(value.const_value)) is not None:
                value.const_value = made
        for node in body:
            attribute = node.attributes.get("value") if node.op_type == "Constant" else None
            if attribute is not None and not attribute.is_ref() and (made := _finite(attribute.as_tensor())) is not None:
                node.attributes["value"] = ir.AttrTensor("value", made)


def _finite(tensor: ir.TensorProtocol) -> ir.TensorProtocol | None:
    if tensor.dtype not in HALVES or tensor.size > SCANNED:
        return None
    array = tensor.numpy().astype(np.float32)
    infinite = np.isinf(array)
    return ir.tensor(np.where(infinite, np.copysign(np.float32(MEANT), array), array), name=tensor.name) if infinite.any() else None


def _rounded(array: np.ndarray, dtype: ir.DataType | None) -> np.ndarray:
    return array if dtype is None else array.astype(dtype.numpy()).astype(np.float32)


def _run(model: ir.Model, feeds: Sequence[dict[str, np.ndarray]]) -> list[Outputs]:
    session = Session(model)
    try:
        return [session.run(feed) for feed in feeds]
    finally:
        session.close()


def _is_finite(outputs: Outputs) -> bool:
    return all(np.isfinite(array).all() for array in outputs if isinstance(array, np.ndarray) and array.dtype.kind == "f")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
