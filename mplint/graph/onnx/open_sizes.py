"""The sizes that an ONNX model leaves open, filled in before shapes are inferred."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def fill_in(proto: onnx.ModelProto, batch: int, named: Mapping[str, int]) -> None:
    """Set the open dimensions of a model's inputs: the first to `batch`, others by their name, or by "input[2]" where they have none.

    What the file says of other tensors in terms of open sizes is forgotten, so that inference says it anew in numbers.
    """
    graph = proto.graph
    constants = {constant.name for constant in graph.initializer}
    symbols = dict(named)
    inputs = [info for info in graph.input if info.name not in constants and info.type.HasField("tensor_type")]
    for info in inputs:
        first = info.type.tensor_type.shape.dim[:1]
        symbols = {dim.dim_param: batch for dim in first if dim.dim_param} | symbols
    for info in inputs:
        for place, dim in enumerate(info.type.tensor_type.shape.dim):
            given = named.get(f"{info.name}[{place}]", symbols.get(dim.dim_param))
            if given is None and place == 0 and is_open(dim):
                given = batch
            if given is not None and is_open(dim):
                dim.dim_value = given
    told = [info for info in graph.value_info if not any(map(is_open, info.type.tensor_type.shape.dim))]
    del graph.value_info[:]
    graph.value_info.extend(told)
    for info in graph.output:
        if any(map(is_open, info.type.tensor_type.shape.dim)):
            info.type.tensor_type.ClearField("shape")


def is_open(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether a dimension has no number; some exporters write -1 for that."""
    return dim.WhichOneof("value") != "dim_value" or dim.dim_value < 0
