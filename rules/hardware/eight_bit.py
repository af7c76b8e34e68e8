"""Which products work on 8-bit floats, and how: as they are, widened again after rounding, or only stored like that."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from mplint.graph.facts import GraphFacts
from mplint.graph.flow import source
from mplint.graph.model import Node, OpKind, Tensor
from mplint.graph.operations import operation
from mplint.graph.work import kernel_of

THROUGH = (OpKind.MOVE, OpKind.CAST, OpKind.QUANTIZE)
SCALING = ("mul", "div")
REACH = 40  # nodes on the way back from a product to where its operand is rounded


class EightBit(Enum):
    """How a product meets 8-bit floats, the most demanding first."""

    PRODUCT = "product"  # it multiplies them as they are, with scales
    ROUNDED = "rounded"  # what it multiplies was rounded to them and widened again, weights and data: a pair to be fused
    STORED = "stored"  # only its weights are kept in them


def eight_bit(graph: GraphFacts) -> Mapping[EightBit, list[Node]]:
    """The heavy nodes that work on 8-bit floats."""
    found: dict[EightBit, list[Node]] = {}
    for node in graph.heavy:
        how = _meets(node)
        if how is not None:
            found.setdefault(how, []).append(node)
    return {how: found[how] for how in EightBit if how in found}


def is_eight_bit(dtype: str | None) -> bool:
    """Whether a dtype is a float of 8 bits."""
    return dtype is not None and dtype.startswith("float8") and dtype != "float8_e8m0fnu"  # which holds scales


def _meets(node: Node) -> EightBit | None:
    operands = [tensor for tensor in (*node.inputs, *node.weights.values()) if tensor is not None]
    if sum(is_eight_bit(tensor.dtype) for tensor in node.inputs if tensor is not None) > 1:
        return EightBit.PRODUCT
    if node.attributes.get("quantization") == "float8":  # a layer of Keras rounds what goes in, and its kernel
        return EightBit.ROUNDED
    narrow = [tensor for tensor in operands if _was_narrow(tensor)]
    data = [tensor for tensor in narrow if not _is_constant(tensor)]
    if data and len(narrow) > 1:
        return EightBit.ROUNDED
    kernel = kernel_of(node)
    return EightBit.STORED if any(tensor is kernel or _is_constant(tensor) for tensor in narrow) else None


def _was_narrow(tensor: Tensor) -> bool:
    """Whether a tensor is, but for moves, casts and scales, one of 8-bit floats."""
    stack = [tensor]
    for _ in range(REACH):
        if not stack:
            return False
        current = stack.pop()
        if is_eight_bit(current.dtype):
            return True
        node = current.producer
        if node is not None and (node.kind in THROUGH or (operation(node) in SCALING and _has_scale(node))):
            stack += [t for t in node.inputs[:2] if t is not None and not _is_scale(t)][:1]
    return False


def _has_scale(node: Node) -> bool:
    return sum(tensor is not None and _is_scale(tensor) for tensor in node.inputs) == 1


def _is_scale(tensor: Tensor) -> bool:
    """Whether a tensor holds one number, or one a row or column."""
    shape = tensor.shape if tensor.shape is not None else source(tensor).shape
    return shape is not None and sum(dim != 1 for dim in shape) <= 1 and not is_eight_bit(tensor.dtype) and _is_constant(tensor)


def _is_constant(tensor: Tensor) -> bool:
    """Whether nothing but weights goes into a tensor."""
    stack = [tensor]
    for _ in range(REACH):
        if not stack:
            return True
        current = stack.pop()
        if current.weights is not None:
            continue
        if current.producer is None or not any(t is not None for t in current.producer.inputs):
            return False
        stack += [t for t in current.producer.inputs if t is not None]
    return False
