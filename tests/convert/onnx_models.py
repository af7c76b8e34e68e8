"""Small ONNX models that converters break on, built from text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper


def model(text: str, path: Path, *, opset: int = 17, **weights: np.ndarray) -> str:
    """The model whose graph is `text` in ONNX's own syntax, with initializers, checked and saved at `path`."""
    built = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
    for name, array in weights.items():
        built.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    onnx.checker.check_model(built, full_check=True)
    onnx.save(built, path)
    return str(path)


def rng(*shape: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    """Normal float32 numbers."""
    return np.random.default_rng(seed).normal(0.0, scale, shape).astype(np.float32)


def dtypes(path: Path) -> dict[str, str]:
    """The dtype of each value of a model, by name."""
    inferred = onnx.shape_inference.infer_shapes(onnx.load(path))
    values = [*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output]
    found = {value.name: onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower() for value in values}
    return found | {tensor.name: onnx.TensorProto.DataType.Name(tensor.data_type).lower() for tensor in inferred.graph.initializer}
