"""How many positions a tensor has for one of the input's: what strides, poolings and upsamplings make of sizes that no file tells."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from mplint.graph.flow import source
from mplint.graph.model import Attribute, Node, OpKind, Tensor
from mplint.graph.operands import INTEGERS
from mplint.graph.operations import chunks, operation
from mplint.graph.work import CHANNELS_LAST, is_turned_back, kernel_of

FACTORS = 8  # of an upsampling, one for each axis
SIZES = INTEGERS | {"bool"}  # the dtypes of sizes, places and masks


class Density(NamedTuple):
    """Positions for one of the input's: along all axes, and along those axes alone whose sizes are not known."""

    whole: float = 1.0
    free: float = 1.0


def densities(nodes: Iterable[Node]) -> dict[int, Density]:
    """The density of every tensor that `nodes`, in the order in which they run, compute, by the tensor's identity."""
    found: dict[int, Density] = {}
    for node in nodes:
        if node.graphs or node.callees:
            continue  # their results are those of their bodies
        steps = _steps(node)
        data = [tensor for tensor in node.inputs if tensor is not None and tensor.dtype not in SIZES and source(tensor).weights is None]
        given = [_of(tensor, found) for tensor in data]
        whole = max((density.whole for density in given), default=1.0)
        free = max((density.free for density in given), default=1.0)
        for output in node.outputs:
            found[id(output)] = Density(whole * prod(steps), free * prod(_along_free(steps, node, output)))
    return found


def _of(tensor: Tensor, found: dict[int, Density]) -> Density:
    for _ in range(100):
        if id(tensor) in found:
            return found[id(tensor)]
        before = tensor.inside or (tensor.given if tensor.producer is None else ())
        if not before:
            break
        tensor = before[0]
    return Density()


def _along_free(steps: tuple[float, ...], node: Node, output: Tensor) -> tuple[float, ...]:
    """The factors of the axes whose sizes are not known."""
    shape = output.shape
    if shape is None or len(shape) < len(steps) + 2 or not steps or not all(steps):
        return steps
    last = node.domain in CHANNELS_LAST and node.attributes.get("data_format") != "channels_first"
    sizes = shape[1 : 1 + len(steps)] if last else shape[-len(steps) :]
    return tuple(step for step, size in zip(steps, sizes, strict=True) if not isinstance(size, int))


def _steps(node: Node) -> tuple[float, ...]:
    """By how much a node multiplies the positions along each axis; (0,) where it leaves one position an input."""
    name = operation(node)
    match node.kind:
        case OpKind.REDUCTION:
            return (0.0,)
        case OpKind.POOLING if "global" in name or "adaptive" in name:
            return (0.0,)
        case OpKind.POOLING:
            named = [node.attributes.get(key) for key in ("strides", "stride", "arg2")]
            window = next((node.attributes.get(key) for key in ("pool_size", "kernel_size", "arg1") if key in node.attributes), None)
            return tuple(1 / step for step in _numbers(next((s for s in named if s not in (None, ())), window), _rank(node)))
        case OpKind.CONV:
            strides = next((s for key in ("strides", "stride", "arg3") if (s := node.attributes.get(key)) is not None), None)
            steps = _numbers(strides, _rank(node))
            return steps if is_turned_back(node) else tuple(1 / step for step in steps)
        case OpKind.MOVE if "upsampl" in name or name == "resize":
            return _enlarged(node)
        case OpKind.MOVE if name in ("depthtospace", "pixelshuffle", "spacetodepth", "pixelunshuffle"):
            keys = ("blocksize", "block_size", "upscale_factor", "downscale_factor", "arg1")
            block = next((b for key in keys if isinstance(b := node.attributes.get(key), int) and b > 0), 1)
            return (block, block) if name in ("depthtospace", "pixelshuffle") else (1 / block, 1 / block)
        case _:
            return ()


def _enlarged(node: Node) -> tuple[float, ...]:
    """The factors of an upsampling, by its attributes or by the operand that ONNX has for them."""
    for key in ("size", "scale_factors", "scales", "arg2", "arg3"):
        given = _numbers(node.attributes.get(key), 2)
        if given:
            return given
    for operand in node.inputs[1:3]:
        if operand is not None and operand.weights is not None and operand.dtype == "float32" and 2 < (operand.size or 0) < FACTORS:
            factors = [float(value) for chunk in chunks(operand) for value in chunk]
            return tuple(factors[2:]) if all(0 < factor < 100 for factor in factors) else ()
    return ()


def _numbers(value: Attribute, rank: int) -> tuple[float, ...]:
    """The factors that an attribute gives for each axis: one number stands for all, and TensorFlow gives one for batch and channels."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = (value,) * rank
    if not isinstance(value, tuple):
        return ()
    numbers = [item for item in value if isinstance(item, int | float) and item > 0]
    if len(numbers) == rank + 2:
        numbers = numbers[1:-1]
    return tuple(map(float, numbers)) if len(numbers) == len(value) or len(numbers) == rank else ()


def _rank(node: Node) -> int:
    """The number of axes that a convolution or a pooling goes along."""
    shape = (kernel.shape if (kernel := kernel_of(node)) is not None else None) if node.kind is OpKind.CONV else None
    shape = shape or next((tensor.shape for tensor in (*node.outputs, *node.inputs) if tensor is not None and tensor.shape), None)
    return len(shape) - 2 if shape else 2
