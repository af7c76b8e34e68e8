"""The constants of an ONNX model in half, read when they are written, so that no second copy of large weights stands in memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from mplint.conversion.onnx.lean import array_of, release
from mplint.conversion.policy import Policy
from mplint.limits import FLOAT16_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray


def tensor_of(value: ir.Value) -> ir.TensorProtocol | None:
    """The tensor that a constant holds: an initializer's, or that of a Constant node in any of its attributes."""
    node = value.producer()
    if node is None:
        return value.const_value
    if "value" in node.attributes:
        return node.attributes["value"].as_tensor()
    for name in ("value_float", "value_floats"):
        if name in node.attributes:
            return ir.tensor(np.array(node.attributes[name].value, dtype=np.float32))
    return None


PIECE = 1 << 18  # elements that are rounded at once: nothing of the size of a weight is made besides


def rounded(array: NDArray[np.float32], half: str) -> NDArray[np.generic]:
    """`array` in half. Finite numbers beyond the range become the largest finite one: a mask of -1e9 stays a mask and makes no -inf."""
    if half != "float16":
        import ml_dtypes

        return array.astype(ml_dtypes.bfloat16)
    made = np.empty(array.shape, np.float16)
    source, target = array.reshape(-1), made.reshape(-1)
    for start in range(0, source.size, PIECE):
        part = source[start : start + PIECE]
        target[start : start + PIECE] = np.where(np.isfinite(part), np.clip(part, -FLOAT16_MAX, FLOAT16_MAX), part)
    return made


def in_half(tensor: ir.TensorProtocol, dtype: ir.DataType, name: str) -> ir.LazyTensor:
    """The half form of a float32 tensor, made when it is written."""
    made = partial(_rounded_tensor, tensor, dtype.name.lower(), dtype)
    return ir.LazyTensor(made, dtype=dtype, shape=shape_of(tensor), name=name)


def _rounded_tensor(tensor: ir.TensorProtocol, half: str, dtype: ir.DataType) -> ir.TensorProtocol:
    made = ir.tensor(rounded(array_of(tensor), half), dtype=dtype)
    release(tensor)
    return made


def shape_of(tensor: ir.TensorProtocol) -> ir.Shape:
    """The shape of a tensor that is in the file."""
    return ir.Shape([int(dim) for dim in tensor.shape.numpy()])


def damage(tensor: ir.TensorProtocol, policy: Policy) -> str:
    """Why a large constant loses too much in half; "" where it does not: no value overflows, and what is rounded away is small.

    Reads the tensor once, in blocks.
    """
    found = _damage(array_of(tensor).reshape(-1), policy)
    release(tensor)
    return found


def _damage(array: NDArray[np.float32], policy: Policy) -> str:
    lost = total = 0.0
    for start in range(0, array.size, PIECE):
        block = array[start : start + PIECE].astype(np.float32, copy=False)
        largest = float(np.max(np.abs(block), initial=0.0, where=np.isfinite(block)))
        if largest > policy.largest:
            return f"it holds {largest:.3g}, beyond the {policy.largest:.5g} of {policy.half}"
        back = rounded(block, policy.half).astype(np.float32)
        finite = np.isfinite(block)
        lost += float(np.sum(np.square(block - back, dtype=np.float64), where=finite))
        total += float(np.sum(np.square(block, dtype=np.float64), where=finite))
    share = (lost / total) ** 0.5 if total else 0.0
    return f"rounding to {policy.half} changes it by {share:.1%}" if share > (0.002 if policy.half == "float16" else 0.016) else ""
