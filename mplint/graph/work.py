"""How much work a node does, and the sizes that matrix units see."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from mplint.graph.model import Dim, Node, OpKind, Tensor

BIAS_FIRST = ("addmm", "baddbmm", "addbmm", "addmv")
TRANSPOSED = ("ConvTranspose", "conv_transpose")


class Work(NamedTuple):
    """A product of matrices as the hardware sees it: `inner` and `outer` are the dimensions K and N, or the channels of a convolution.

    `flops` counts a multiplication and an addition as two, with every symbolic dimension taken as 1.
    """

    flops: int
    inner: Dim
    outer: Dim
    groups: int = 1

    def suits(self, multiple: int) -> bool | None:
        """Whether both sizes are multiples of `multiple`; None where one of them is not known."""
        if not isinstance(self.inner, int) or not isinstance(self.outer, int):
            return None
        return self.inner % multiple == 0 and self.outer % multiple == 0


def work(node: Node) -> Work | None:
    """The work of a heavy node; None for others, and where the shapes don't tell."""
    match node.kind:
        case OpKind.MATMUL:
            return _matmul(node)
        case OpKind.CONV:
            return _conv(node)
        case OpKind.ATTENTION:
            return _attention(node)
        case OpKind.RECURRENT:
            return _recurrent(node)
        case _:
            return None


def _matmul(node: Node) -> Work | None:
    source = _input(node, 1 if node.op_type in BIAS_FIRST else 0)
    shape, out = _shape(source) or (), _shape(node.outputs[0] if node.outputs else None) or ()
    if "insum" in node.op_type:
        return None
    inner = outer = None
    if shape:
        inner = shape[0] if node.attributes.get("transA") == 1 and len(shape) == 2 else shape[-1]
    matrix = _shape(kernel_of(node)) or ()
    if len(matrix) == 2:
        given, made = reversed(matrix) if node.attributes.get("transB") == 1 or node.op_type == "linear" else matrix
        inner, outer = (given if inner is None else inner), made
    outer = out[-1] if out and out[-1] is not None else outer
    if inner is None and outer is None:
        return None
    rows = known(out[:-1]) if out else 1
    return Work(2 * rows * known((inner, outer)), inner, outer)


def _conv(node: Node) -> Work | None:
    kernel, out = _shape(kernel_of(node)), _shape(node.outputs[0] if node.outputs else None)
    if kernel is None or out is None or len(kernel) < 3 or len(out) < 2:
        return None
    groups = node.attributes.get("group") or node.attributes.get("groups") or 1
    groups = groups if isinstance(groups, int) and groups > 0 else 1
    if "kernel" in node.weights or "depthwise_kernel" in node.weights:  # Keras: the channels stand last
        each, made = kernel[-2], kernel[-1]
        window = known(kernel[:-2])
        pointwise = _shape(node.weights.get("pointwise_kernel"))
        if node.op_type.startswith(("Depthwise", "Separable")) and isinstance(each, int):
            channels = each * (made if isinstance(made, int) else 1)
            if pointwise is None:
                return Work(2 * known(out) * window, channels, channels, each)
            made = pointwise[-1]
            rows = known(out) // (made if isinstance(made, int) and made else 1)
            return Work(2 * rows * channels * (window + (made if isinstance(made, int) else 1)), channels, made)
    elif node.op_type.startswith(TRANSPOSED):
        each, made = kernel[0], kernel[1]
        window = known(kernel[2:])
    else:
        each, made = kernel[1], kernel[0]
        window = known(kernel[2:])
    inner = each * groups if isinstance(each, int) and not node.op_type.startswith(TRANSPOSED) else each
    return Work(2 * known(out) * (each if isinstance(each, int) else 1) * window, inner, made, groups)


def _attention(node: Node) -> Work | None:
    query, key = _shape(_input(node, 0)), _shape(_input(node, 1))
    if not query or not key or len(query) < 3 or len(key) < 3:
        return None
    length = key[-2]
    return Work(4 * known(query) * (length if isinstance(length, int) else 1), query[-1], length)


def _recurrent(node: Node) -> Work | None:
    sequence = _shape(_input(node, 0))
    given = [t for t in (*node.inputs[1:], *node.weights.values()) if t is not None and t.weights is not None]
    matrices = [t for t in given if len(t.shape or ()) >= 2]
    if sequence is None or not matrices:
        return None
    sizes = [tensor.size or 0 for tensor in matrices]
    width = _shape(matrices[-1])
    return Work(2 * sum(sizes) * known(sequence[:-1]), sequence[-1], width[-1] if width else None)


def kernel_of(node: Node) -> Tensor | None:
    """The weights that a convolution or a product multiplies by."""
    for name in ("kernel", "depthwise_kernel", "weight"):
        if name in node.weights:
            return node.weights[name]
    position = 2 if node.op_type in BIAS_FIRST else 1
    return _input(node, position)


def known(shape: tuple[Dim, ...]) -> int:
    """The product of the dimensions that are numbers."""
    return prod(dim for dim in shape if isinstance(dim, int))


def _input(node: Node, position: int) -> Tensor | None:
    return node.inputs[position] if position < len(node.inputs) else None


def _shape(tensor: Tensor | None) -> tuple[Dim, ...] | None:
    return None if tensor is None else tensor.shape
