"""How much work a node does, and the sizes that matrix units see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from mplint.graph.model import HEAVY, Dim, Node, OpKind, Tensor
from mplint.graph.operations import operation

BIAS_FIRST = ("addmm", "baddbmm", "addbmm", "addmv")
GENERAL = ("convolution",)  # torch's operator for all of them: transposed and groups are arguments of it
CHANNELS_LAST = ("keras", "tensorflow")
TURNS = ("t", "transpose", "mt", "numpyt", "permute", "adjoint", "swapaxes", "swapdims")  # of a matrix
KEEPS = ("identity", "alias", "detach", "contiguous", "clone", "to", "liftfresh")
REACH = 200
BATCH = 256  # stands for a symbolic batch
LAUNCH = 4e7  # FLOPs that a T4 does in float32 (8 TFLOPS) while one kernel is launched (5 microseconds)


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


class Busiest(NamedTuple):
    """The heavy node that does most, with its operations, and what batch was taken where none is said."""

    node: Node
    flops: int
    batch: str


def busiest(heavy: Sequence[Node], inputs: Sequence[Tensor], batch: int = BATCH) -> Busiest | None:
    """Which of the heavy nodes of a model with these inputs does most; None where one of them does not say what it does."""
    found = [(node, size.flops) for node in heavy if (size := work(node)) is not None]
    if not found or len(found) < len(heavy) or any(is_free(node) for node, _ in found):
        return None
    symbolic = any(not isinstance(dim, int) for tensor in inputs for dim in tensor.shape or ())
    node, flops = max(found, key=lambda item: item[1])
    return Busiest(node, flops * (batch if symbolic else 1), f" for a batch of {batch}" if symbolic else "")


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
    name = operation(node)
    place = 1 if name in BIAS_FIRST else 0
    shape, out = _shape(_input(node, place)) or (), _shape(node.outputs[0] if node.outputs else None) or ()
    inner, outer = _contracted(node) if "einsum" in name else _sides(node, name, place)
    if shape and "einsum" not in name:
        turned = len(shape) == 2 and any(node.attributes.get(key) in (1, True) for key in ("transA", "transpose_a", "adj_x"))
        inner = (shape[0] if turned else shape[-1]) or inner
    if out and "einsum" not in name:
        outer = out[-1] if out[-1] is not None else outer
    if inner is None and outer is None:
        return None
    made = max(1, known(out) // outer) if isinstance(outer, int) and outer else known(out[:-1])
    rows = max(made, known(shape) // inner if isinstance(inner, int) and inner else 1)
    return Work(2 * rows * known((inner, outer)), inner, outer)


def _sides(node: Node, name: str, place: int) -> tuple[Dim, Dim]:
    """What the matrix of a product takes and makes: by the operation, by the moves behind it, by a bias, by what computes its input."""
    kernel = kernel_of(node)
    shape, turns = _stored(kernel)
    if shape is None or len(shape) < 2:
        return None, None
    rows, columns = shape[-2:]
    if turns is None and rows != columns:
        return _settled(node, rows, columns, place)
    turned = name == "linear" or any(node.attributes.get(key) in (1, True) for key in ("transB", "transpose_b", "adj_y"))
    return (columns, rows) if turned is not bool(turns) else (rows, columns)


def _stored(tensor: Tensor | None) -> tuple[tuple[Dim, ...] | None, bool | None]:
    """The shape of a matrix, else that in which it is stored; and whether it is turned in between, None where that is unsure."""
    turned: bool | None = False
    for _ in range(20):
        if tensor is None or tensor.shape is not None:
            break
        node = tensor.producer
        if node is None or node.kind not in (OpKind.MOVE, OpKind.CAST) or not node.inputs:
            break
        if node.kind is OpKind.MOVE:
            turned = not turned if turned is not None and operation(node) in TURNS else turned if operation(node) in KEEPS else None
        tensor = node.inputs[0]
    return _shape(tensor), turned


def _settled(node: Node, rows: Dim, columns: Dim, place: int) -> tuple[Dim, Dim]:
    """The sides of a matrix that may or may not be turned: a bias has the size that is made, what comes before makes the size taken."""
    sizes = [bias[0] for bias in _biases(node, place) if len(bias) == 1 and bias[0] in (rows, columns)]
    if sizes:
        return (rows, columns) if sizes[0] == columns else (columns, rows)
    before = _input(node, place)
    for _ in range(REACH):
        maker = before.producer if before is not None else None
        if maker is None:
            break
        size = work(maker) if maker.kind in HEAVY else None
        if size is not None:
            return (rows, columns) if size.outer == rows else (columns, rows) if size.outer == columns else (None, None)
        before = next((t for t in maker.inputs if t is not None and t.weights is None), None)
    return None, None


def _biases(node: Node, place: int) -> Iterator[tuple[Dim, ...]]:
    """The shapes of what is added to a product: its own bias, or that of the sum right behind it."""
    added = [_input(node, 0 if place else 2)]
    for output in node.outputs:
        for user in output.consumers:
            if operation(user) == "add":
                added += user.inputs
    yield from (tensor.shape for tensor in added if tensor is not None and tensor.weights is not None and tensor.shape)


def _contracted(node: Node) -> tuple[Dim, Dim]:
    """The sides of an einsum with a weight: the axes that it shares with the data and loses, and those that it adds."""
    equation = next((value for value in node.attributes.values() if isinstance(value, str) and "->" in value), "")
    terms, _, result = equation.replace(" ", "").replace("...", "").partition("->")
    letters = terms.split(",")
    tensors = [*node.inputs, *(t for key, t in node.weights.items() if key == "kernel")]
    for place, (term, tensor) in enumerate(zip(letters, tensors, strict=False)):
        others = "".join(letters[:place] + letters[place + 1 :])
        if len(letters) != 2 or tensor is None or tensor.weights is None or tensor.shape is None or len(tensor.shape) != len(term):
            continue
        taken = [dim for letter, dim in zip(term, tensor.shape, strict=True) if letter in others and letter not in result]
        made = [dim for letter, dim in zip(term, tensor.shape, strict=True) if letter not in others and letter in result]
        if taken and made and all(isinstance(dim, int) for dim in (*taken, *made)):
            return known(tuple(taken)), known(tuple(made))
    return None, None


def _conv(node: Node) -> Work | None:
    name = operation(node)
    kernel, out = _shape(kernel_of(node)), _shape(node.outputs[0] if node.outputs else None)
    if kernel is None or len(kernel) < 3:
        return None
    transposed = is_turned_back(node)
    last = node.domain in CHANNELS_LAST
    one, other = (kernel[-2], kernel[-1]) if last else (kernel[1], kernel[0])  # the usual order: what a group takes, what is made
    each, made = (other, one) if transposed else (one, other)
    window = known(kernel[:-2] if last else kernel[2:])
    positions = known(out) if out is not None and len(out) > 1 else None
    if last and ("depthwise" in name or "separable" in name):
        return _channelwise(node, each, made, window, positions)
    groups = node.attributes.get("group") or node.attributes.get("groups") or _argument(node, 8 if name in GENERAL else 6) or 1
    groups = groups if isinstance(groups, int) and groups > 0 else 1
    rows = positions if positions is not None else made if isinstance(made, int) else 1
    inner = each * groups if isinstance(each, int) and not transposed else each
    outer = made * groups if isinstance(made, int) and transposed else made
    return Work(2 * rows * (each if isinstance(each, int) else 1) * window, inner, outer, groups)


def is_turned_back(node: Node) -> bool:
    """Whether a convolution is a transposed one."""
    name = operation(node)
    asked = name in GENERAL and node.attributes.get("transposed", _argument(node, 6)) is True
    return asked or "transpose" in name or "backpropinput" in name


def _channelwise(node: Node, each: Dim, made: Dim, window: int, positions: int | None) -> Work:
    """A convolution of Keras or TensorFlow that keeps channels apart, and the product of one position that may follow it."""
    channels = each * (made if isinstance(made, int) else 1) if isinstance(each, int) else 1
    pointwise = _shape(node.weights.get("pointwise_kernel"))
    if pointwise is None:
        return Work(2 * (positions if positions is not None else channels) * window, channels, channels, channels)
    outer = pointwise[-1]
    across = outer if isinstance(outer, int) and outer else 1
    rows = positions // across if positions is not None else 1
    return Work(2 * rows * channels * (window + across), channels, outer)


def _argument(node: Node, place: int) -> object:
    """A number that TorchScript gives to an operation at a place."""
    return node.attributes.get(f"arg{place}")


def _attention(node: Node) -> Work | None:
    query, key = _shape(_input(node, 0)), _shape(_input(node, 1))
    heads = next((t.shape for name, t in node.weights.items() if "query" in name and t.shape is not None and len(t.shape) == 3), None)
    if heads is not None:  # a layer of Keras, with the products around the attention
        kernels = sum(t.size or 0 for t in node.weights.values() if t.shape is not None and len(t.shape) == 3)
        return Work(2 * kernels * (known(query[:-1]) if query else 1), heads[0], known(heads[1:]))
    if not query or not key or len(query) < 3 or len(key) < 3:
        return None
    length = key[-2]
    return Work(4 * known(query) * (length if isinstance(length, int) else 1), query[-1], length)


def _recurrent(node: Node) -> Work | None:
    sequence = _shape(_input(node, 0))
    given = [t for t in (*node.inputs[1:], *node.weights.values()) if t is not None and t.weights is not None]
    shapes = [t.shape[-2:] for t in given if t.shape is not None and len(t.shape) >= 2]
    states = [min(a, b) for a, b in shapes if isinstance(a, int) and isinstance(b, int) and _is_state(a, b)]
    if not states:
        return None
    size = states[-1]
    rows = known(sequence[:-1]) if sequence else 1
    return Work(2 * rows * sum(t.size or 0 for t in given if len(t.shape or ()) >= 2), sequence[-1] if sequence else None, size)


def _is_state(one: int, other: int) -> bool:
    """Whether the sides of a matrix are those of a recurrence on its own state: as many gates as an LSTM, a GRU or a plain cell has."""
    return min(one, other) > 1 and max(one, other) in [gates * min(one, other) for gates in (1, 3, 4)]


def kernel_of(node: Node) -> Tensor | None:
    """The weights that a convolution or a product multiplies by."""
    for name in ("kernel", "depthwise_kernel", "weight"):
        if name in node.weights:
            return node.weights[name]
    return _input(node, 2 if operation(node) in BIAS_FIRST else 1)


def is_free(node: Node) -> bool:
    """Whether what a node makes grows with the input beyond its batch, or is not known."""
    shape = _shape(node.outputs[0] if node.outputs else None)
    return shape is None or any(not isinstance(dim, int) for dim in shape[1:])


def known(shape: tuple[Dim, ...]) -> int:
    """The product of the dimensions that are numbers."""
    return prod(dim for dim in shape if isinstance(dim, int))


def _input(node: Node, position: int) -> Tensor | None:
    return node.inputs[position] if position < len(node.inputs) else None


def _shape(tensor: Tensor | None) -> tuple[Dim, ...] | None:
    return None if tensor is None else tensor.shape
