"""ModelGraph: what every loader makes of a model file, and what graph rules and the precision planner read.

A graph is built once by a loader and not changed afterwards. Tensors hold dtypes and shapes; the bytes of
weights stay where they are until someone reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np

Dim = int | str | None  # a number, a symbolic dimension by its name, or unknown
Attribute = bool | int | float | str | bytes | tuple["Attribute", ...] | None


class OpKind(str, Enum):
    """What a node computes, in words that all formats share. The format's own word is `Node.op_type`."""

    MATMUL = "matmul"  # MatMul, Gemm, Dense, linear, einsum
    CONV = "conv"  # convolutions and transposed ones
    ATTENTION = "attention"
    RECURRENT = "recurrent"
    EMBEDDING = "embedding"  # lookups of rows in a table
    SOFTMAX = "softmax"  # softmax, log_softmax
    NORM = "norm"  # batch, layer, group, instance, RMS
    REDUCTION = "reduction"  # sum, mean, var, cumsum, logsumexp
    LOSS = "loss"
    CAST = "cast"
    POOLING = "pooling"
    ACTIVATION = "activation"  # relu, gelu, tanh, sigmoid …
    ELEMENTWISE = "elementwise"  # arithmetic, exp, log, sqrt, pow, clip …
    MOVE = "move"  # reshape, transpose, concat, slice, pad, gather without a table
    SHAPE = "shape"  # arithmetic on sizes and indices
    QUANTIZE = "quantize"
    RANDOM = "random"
    CONTROL = "control"  # If, Loop, Scan, cond, autocast regions
    CALL = "call"  # a local function, a nested model
    CHECK = "check"  # assertions and guards: they look at tensors and compute nothing
    OPAQUE = "opaque"  # a Lambda, a custom layer, an unknown op: never run, nothing assumed


HEAVY = frozenset((OpKind.MATMUL, OpKind.CONV, OpKind.ATTENTION, OpKind.RECURRENT))
HALF = frozenset(("float16", "bfloat16"))
FLOATS = frozenset(("float64", "float32", "float16", "bfloat16"))
BITS: Mapping[str, int] = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"), 8),
    **dict.fromkeys(("int4", "uint4", "float4_e2m1fn"), 4),
    **dict.fromkeys(("int2", "uint2"), 2),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 16),
    **dict.fromkeys(("int32", "uint32", "float32"), 32),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 64),
    "complex128": 128,
}


class Weights(Protocol):
    """The bytes of a constant tensor, where they lie. Nothing is read before a method is called."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        ...

    def chunks(self, size: int = 1 << 24) -> Iterator[np.ndarray]:
        """The elements as flat arrays of at most `size` bytes, in order, so that a scan needs no more memory than one of them.

        bfloat16 and float8 come as ml_dtypes arrays. Raises `GraphError` where the file does not hold what it claims.
        """
        ...


@dataclass(slots=True, eq=False)
class Tensor:
    """A value that flows between nodes, or a constant: a weight, or a number written into an operation.

    `dtype` is the canonical lower-case name ("float16", "int64", "string") or None where the file does not tell; `shape` is None where
    even the rank is unknown. `weights` is set for constants; `fixed` ones are buffers: no training changes them.

    Calls, regions and loops have bodies, and `connect` notes what stands for what: `inside` are the results of bodies that an output of
    such a node is, `shown` the outputs of nodes that a result of a body becomes, `passed` the parameters of bodies that get this tensor,
    and `given` the arguments that a parameter gets (none for what a loop carries: it changes from round to round).
    """

    name: str
    dtype: str | None = None
    shape: tuple[Dim, ...] | None = None
    producer: Node | None = field(default=None, repr=False)
    consumers: list[Node] = field(default_factory=list, repr=False)
    weights: Weights | None = None
    fixed: bool = False
    inside: tuple[Tensor, ...] = field(default=(), repr=False)
    shown: tuple[Tensor, ...] = field(default=(), repr=False)
    passed: tuple[Tensor, ...] = field(default=(), repr=False)
    given: tuple[Tensor, ...] = field(default=(), repr=False)

    @property
    def size(self) -> int | None:
        """Number of elements, None where a dimension is not known."""
        total = 1
        for dim in self.shape if self.shape is not None else (None,):
            if not isinstance(dim, int):
                return None
            total *= dim
        return total

    @property
    def nbytes(self) -> int | None:
        """Size in bytes, None where shape or dtype is not known."""
        size, bits = self.size, BITS.get(self.dtype or "")
        return None if size is None or bits is None else (size * bits + 7) // 8

    @property
    def described(self) -> str:
        """dtype and shape as a report shows them: "float16[N, 1003]"; what a size is computed by is left out."""
        dims = "?" if self.shape is None else ", ".join(_shown(dim) for dim in self.shape)
        return f"{self.dtype or 'unknown'}[{dims}]"


def _shown(dim: Dim) -> str:
    """A size as a report shows it: a number or a plain name."""
    return "?" if dim is None or (isinstance(dim, str) and not dim.replace(".", "_").isidentifier()) else str(dim)


@dataclass(slots=True, eq=False)
class Node:
    """One operation, or one layer.

    `inputs` and `outputs` keep the format's positions (None: an optional input that is not given). For a layer, `weights` are its
    variables by name, `compute_dtype` and `variable_dtype` are its policy's; for an operation `compute_dtype` is the dtype that it
    computes in. `layer` is the path of the module or scope that the exporter left ("encoder/layer_0/attention"), "" where it left none.
    `graphs` are the node's own bodies by name, `callees` the functions of the model, or bodies of other nodes, that it calls.

    A number written into the operation is an operand like any other: a tensor without shape whose weights are a `Literal`, at its position.
    """

    name: str
    kind: OpKind
    op_type: str
    domain: str = ""
    inputs: tuple[Tensor | None, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    weights: dict[str, Tensor] = field(default_factory=dict)
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    graphs: dict[str, Graph] = field(default_factory=dict)
    compute_dtype: str | None = None
    variable_dtype: str | None = None
    layer: str = ""
    callees: tuple[Graph, ...] = field(default=(), repr=False)

    @property
    def described(self) -> str:
        """The node as a report names it: its name, its op, and its layer path where there is one."""
        return f"{self.name} ({self.op_type})" + (f" in {self.layer}" if self.layer else "")


@dataclass(slots=True, eq=False)
class Graph:
    """Nodes in an order in which they can run, with the tensors that go in and come out; also the body of an If, a Loop or a function.

    `constants` are the initializers by name. A body may read tensors of the graph around it: they are the same objects. `public` are the
    names by which users of the model know its inputs and outputs, by the identity of the tensor, where the file says so beside them.
    """

    name: str = ""
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)
    public: dict[int, str] = field(default_factory=dict)

    def walk(self) -> Iterator[Node]:
        """Every node, the nodes of the bodies of a node right after it. Needs no recursion, however deep bodies nest."""
        stack = [iter(self.nodes)]
        while stack:
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
                continue
            yield node
            stack.extend(iter(body.nodes) for body in reversed(list(node.graphs.values())))


@dataclass(slots=True, eq=False)
class Optimizer:
    """The optimizer state that a checkpoint carries: what it is called, and its tensors."""

    name: str
    tensors: tuple[Tensor, ...] = ()
    loss_scaling: bool | None = None


@dataclass(slots=True, eq=False, repr=False)
class ModelGraph:
    """A loaded model.

    `format` is one of "onnx", "keras", "keras-h5", "savedmodel", "torch-export", "torchscript", "state-dict", "safetensors". A file
    that holds weights and no operations has a `graph` that is empty but for its constants. `opset` maps operator domains to versions.
    `policy` is the precision policy or autocast dtype that the file names for the whole model ("mixed_float16"). `notes` say what the
    loader could not tell, one sentence each. `mendable`: it came from a file that `mplint fix` can write anew.
    """

    path: str
    format: str
    graph: Graph
    functions: dict[str, Graph] = field(default_factory=dict)
    opset: dict[str, int] = field(default_factory=dict)
    producer: str = ""
    policy: str | None = None
    optimizer: Optimizer | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    mendable: bool = False

    def __repr__(self) -> str:
        nodes = sum(1 for _ in self.nodes())
        policy = f", policy={self.policy!r}" if self.policy else ""
        constants = sum(1 for _ in self.constants())
        return f"<ModelGraph {self.path!r}: format={str(self.format)!r}, nodes={nodes}, constants={constants}{policy}>"

    def nodes(self) -> Iterator[Node]:
        """Every node of the graph, its bodies and the functions."""
        yield from self.graph.walk()
        for function in self.functions.values():
            yield from function.walk()

    def constants(self) -> Iterator[Tensor]:
        """Every weight: initializers of the graph, of bodies and functions, and the variables of layers, each once."""
        seen: set[int] = set()
        for body in (self.graph, *self.functions.values()):
            found = list(body.constants.values())
            for node in body.walk():
                found += node.weights.values()
                for inner in node.graphs.values():
                    found += inner.constants.values()
            for tensor in found:
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield tensor


class GraphError(Exception):
    """A model file that can't be read: `str(error)` says why, in words for its owner, with no traceback."""


class NotAModel(GraphError):
    """A file that is sound but holds no model that a loader knows; in a folder, such a file is passed over."""


class Literal(NamedTuple):
    """A number that the file writes into an operation, as weights.

    `exact`: the operation computes with the number as it is, in float32 or wider, whatever the dtype of the tensor beside it (torch);
    otherwise the number takes that dtype first (Keras, TensorFlow).
    """

    value: float
    exact: bool = False

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return 8

    def chunks(self, size: int = 1 << 24) -> Iterator[np.ndarray]:
        """The number as an array of one element."""
        import numpy as np

        yield np.array([self.value], np.float64)


def literal(value: float, dtype: str | None, *, exact: bool = False) -> Tensor:
    """The operand that a number written into an operation is; `dtype` is that of the tensors beside it."""
    return Tensor(f"{value:.9g}", dtype, (), weights=Literal(float(value), exact))


# Nodes whose bodies run again and again, what they carry changing from round to round.
LOOPS = frozenset(("Loop", "Scan", "While", "StatelessWhile", "while_loop", "scan", "map", "associative_scan"))
# How many of a node's inputs, and of its bodies' results, stand before those that are handed in and out.
FIRST_INPUT = {"If": 1, "StatelessIf": 1, "Case": 1, "StatelessCase": 1}
FIRST_RESULT = {"Loop": 1}


def connect(graph: Graph) -> None:
    """Fill `producer` and `consumers` of every tensor from the nodes of `graph` and of its bodies, and what stands for what in bodies."""
    for node in graph.walk():
        for tensor in node.outputs:
            tensor.producer = node
        for source in (*node.inputs, *node.weights.values()):
            if source is not None and (not source.consumers or source.consumers[-1] is not node):
                source.consumers.append(node)
        for body in (*node.graphs.values(), *node.callees):
            _enter(node, body)


def _enter(node: Node, body: Graph) -> None:
    if node.kind is OpKind.OPAQUE:
        return
    loops = node.op_type in LOOPS
    arguments = node.inputs if loops else node.inputs[FIRST_INPUT.get(node.op_type, 0) :]
    for argument, parameter in zip(arguments, body.inputs, strict=False):
        if argument is not None and argument is not parameter:
            argument.passed += (parameter,)
            if not loops:
                parameter.given += (argument,)
    results = body.outputs[FIRST_RESULT.get(node.op_type, 0) :]
    if len(results) != len(node.outputs):
        return
    for outer, inner in zip(node.outputs, results, strict=True):
        if outer is not inner and (outer.dtype is None or inner.dtype is None or outer.dtype == inner.dtype):
            outer.inside += (inner,)
            inner.shown += (outer,)
