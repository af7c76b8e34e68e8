"""Running ONNX models on the CPU to measure them: sessions, feeds, and how far one result is from another."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np
import onnx
import onnx_ir as ir

from mplint.conversion.memory import trim
from mplint.conversion.onnx.lean import STORE, Lean, forget_pages, lean, value_of
from mplint.conversion.onnx.order import put_late
from mplint.conversion.onnx.read import read
from mplint.conversion.onnx.stepwise import step_by_step
from mplint.processors import processors

if TYPE_CHECKING:
    import onnxruntime as ort

Feed = Mapping[str, np.ndarray]
Outputs = list[object]
INLINE_BYTES = 1 << 30  # protobuf stops at 2 GiB; above this, weights go to a file beside the model
LARGE = 1 << 25  # bytes of weights that are not to be copied by optimizations
COUNTING = 1 << 22  # bytes of weights from which on a copy of them is told from what Python takes
COPYING = ("ConstantFolding", "FuseFp16InitializerToFp32NodeTransformer")  # they make a float32 copy of each half weight

OPEN: WeakSet[Session] = WeakSet()


def close_all() -> None:
    """Close what an interruption has left open."""
    for session in list(OPEN):
        session.close()


class Session:
    """A loaded model, whose weights are the model's own or lie mapped in its files; `close` gives them back."""

    def __init__(self, model: ir.Model | Lean | str, *, optimize: bool = False, profile: str = "") -> None:
        import onnxruntime as ort

        if isinstance(model, str):
            model = read(model)
        thin = model if isinstance(model, Lean) else lean(model)
        step_by_step(thin.proto)
        put_late(thin.proto)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = min(4, processors())
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if profile:
            options.enable_profiling = True
            options.profile_file_prefix = profile
        size = sum(tensor.nbytes for tensor in thin.weights.values())
        large = size >= LARGE
        if large or not optimize:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        if size >= COUNTING:  # an arena keeps every weight that was ever cast
            options.enable_cpu_mem_arena = False
        if not optimize:  # buffers are not shared by shapes that a model declares, which may be wrong
            options.enable_mem_reuse = False
        options.enable_mem_pattern = False  # one buffer for all tensors, as large as they are together
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED  # what looks at a tensor runs when it is there, and keeps it no longer
        held = [value_of(tensor) for tensor in thin.weights.values()]
        if not large:
            options.add_external_initializers(list(thin.weights), held)
        for name, value in zip(thin.weights, held, strict=True):  # without this, it copies them
            options.add_initializer(name, value)
        self.held = held
        off = list(COPYING) if size >= COUNTING else None

        def loaded() -> ort.InferenceSession:
            given = thin.proto.SerializeToString()
            return ort.InferenceSession(given, options, providers=["CPUExecutionProvider"], disabled_optimizers=off)

        with _empty_store(thin, options) if large else nullcontext():
            try:
                self.session = loaded()
            except Exception:
                if optimize:
                    raise
                forget_types(thin.proto)  # what is made to measure needs none
                self.session = loaded()
        OPEN.add(self)
        self.aliases = thin.aliases
        self.inputs = {item.name: item.type for item in self.session.get_inputs()}

    def run(self, feed: Feed) -> Outputs:
        """The outputs in order."""
        named = {self.aliases.get(name, name): np.asarray(value) for name, value in feed.items()}
        given = {name: _fitting(value, self.inputs[name]) for name, value in named.items() if name in self.inputs}
        result: Outputs = self.session.run(None, given)
        return result

    def end_profile(self) -> str:
        """The path of the profile, which is complete now."""
        return str(self.session.end_profiling())

    def close(self) -> None:
        """Free the model, and its weights where nobody else has them."""
        OPEN.discard(self)
        if hasattr(self, "session"):
            del self.session
            forget_pages()
            trim()
        self.held = []


@contextmanager
def _empty_store(thin: Lean, options: ort.SessionOptions) -> Iterator[None]:
    """The file in which a message says that its weights lie, with nothing in it: they are given, and it only asks whether there is one.

    External initializers would be copied while the model is loaded. What folds constants would read the file: it is to be off.
    """
    with tempfile.TemporaryDirectory(prefix="mplint-") as folder:
        with open(os.path.join(folder, STORE), "wb") as stream:
            stream.truncate(max((tensor.nbytes for tensor in thin.weights.values()), default=0))
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        yield


def _fitting(array: np.ndarray, kind: str) -> np.ndarray:
    """Floats in the dtype that an input of a converted model has."""
    wanted = {"tensor(float16)": np.float16, "tensor(float)": np.float32}.get(kind)
    return array.astype(wanted) if wanted is not None and array.dtype.kind == "f" else array


def in_memory(model: ir.Model) -> onnx.ModelProto:
    """A model of less than 1 GiB as one message, with the weights that lie in other files."""
    if external_files(model):
        model = ir.external_data.load_to_model(model.clone())
    return ir.to_proto(model)


def forget_types(proto: onnx.ModelProto) -> None:
    """Take away what a model says of the types between its inputs and outputs, in place."""
    graphs = [proto.graph]
    while graphs:
        graph = graphs.pop()
        del graph.value_info[:]
        for node in graph.node:
            for attribute in node.attribute:
                graphs += [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
    for function in proto.functions:
        del function.value_info[:]


def external_files(model: ir.Model) -> frozenset[str]:
    """The real paths of the files beside the model in which its weights lie."""
    tensors = (value.const_value for body in model.graphs() for value in body.initializers.values())
    return frozenset(os.path.realpath(tensor.path) for tensor in tensors if isinstance(tensor, ir.ExternalTensor))


def weight_bytes(model: ir.Model) -> int:
    """The size of all initializers and constants."""
    total = 0
    for graph in model.graphs():
        total += sum(v.const_value.nbytes for v in graph.initializers.values() if v.const_value is not None)
    return total
