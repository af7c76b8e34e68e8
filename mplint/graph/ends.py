"""The inputs and outputs of a model that are half: which of them people read, and which go to the next step or the next model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from mplint.graph.facts import GraphFacts
from mplint.graph.flow import is_bias, makers, source, users
from mplint.graph.model import HALF, Node, OpKind, Tensor
from mplint.graph.operations import operation
from mplint.graph.stored import names, parts_of
from mplint.graph.work import kernel_of, work

# Words of names. A state goes out of one step and into the next; the words of `PAIRED` also mean other things, and count where
# the other side has a tensor of the same shape with such a name.
STATES = frozenset((
    "past", "present", "cache", "caches", "memory", "memories", "mem", "mems", "carry", "hidden", "hiddens", "kv",
))  # fmt: skip
PAIRED = frozenset(("state", "states", "cell", "history", "buffer", "h", "c", "hn", "cn", "hx", "cx", "hs", "cs", "hc"))
ATTENDED = frozenset(("query", "key", "value", "q", "k", "v", "queries", "keys", "values"))  # where two of them stand side by side
# What one model computes for another.
GIVEN = frozenset((
    "embeds", "embed", "embedding", "embeddings", "latent", "latents", "residual", "residuals", "encoded", "encoding", "encodings",
))  # fmt: skip
FEATURES = GIVEN | frozenset(("feature", "features", "feat", "feats", "representation", "representations", "pooled", "pooler"))
RECTIFIERS = ("relu", "relu6", "leakyrelu", "prelu", "elu", "selu", "gelu", "swish", "hardswish", "mish")
FEW = 64  # results; features are more
MEANS = ("reducemean", "mean")  # as which poolings of whole maps are exported
PROBABILITIES = ("softmax", "logsoftmax", "sigmoid", "logsigmoid", "hardsigmoid")
UNNAMED = ("torch-export", "torchscript")  # the names of outputs are those of the operations
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_MADE_UP = re.compile(r"/|::|^(?:Identity|StatefulPartitionedCall|PartitionedCall|output)(?:_\d+)?(?::\d+)?$|^\d+$")


class End(NamedTuple):
    """An input or output, what a finding calls it, and the name that tells what it is: "" where an exporter made it up."""

    tensor: Tensor
    shown: str
    name: str


def half_outputs(graph: GraphFacts) -> Iterator[tuple[str, Tensor, Node]]:
    """The outputs in half that are results: the name, the tensor, and the operation that computes it."""
    given, made = _ends(graph)
    for end in made:
        if end.tensor.dtype not in HALF or is_state(end, made, given) or words(end.name) & FEATURES:
            continue
        computing = [node for maker in makers(end.tensor) if (node := _computing(maker, end)) is not None]
        node = next((node for node in computing if is_probability(node)), next(iter(computing), None))
        if node is not None and not _is_recurrent_state(node, end.tensor):
            yield end.shown, end.tensor, node


def _computing(maker: Node, end: End) -> Node | None:
    """The operation that computes results; None for what looks rows up, is not known, or gives features: pooled or rectified ones.

    Scores are pooled, too: those of a convolution that no rectifier follows, or that its names or the output's call a head. And a
    rectifier gives results where it is called so, or where they are few.
    """
    if maker.kind in (OpKind.EMBEDDING, OpKind.OPAQUE):
        return None
    pooled = maker.kind is OpKind.POOLING or operation(maker) in MEANS
    last = _behind(maker) if pooled else maker
    rectified = last is not None and operation(last) in RECTIFIERS
    if not pooled and not rectified:
        return maker
    product = _behind(last) if last is not None and rectified else last
    while product is not None and (is_bias(product) or product.kind is OpKind.NORM):
        product = _behind(product)
    size = work(product) if product is not None and product.kind in (OpKind.CONV, OpKind.MATMUL) else None
    if product is None or size is None:
        return None
    if rectified and not _is_called_result(product, end):
        return maker if not pooled and isinstance(size.outer, int) and size.outer < FEW else None
    return product if pooled else maker


def _is_called_result(product: Node, end: End) -> bool:
    """Whether the name of an output, or of the layer or the weights that make it, is one of heads."""
    kernel = kernel_of(product)
    paths = (product.layer, source(kernel).name if kernel is not None else "")
    named = words(end.name).union(part.lower() for path in paths for part in parts_of(path))
    return bool(named & names("words")["result"])


def _behind(node: Node) -> Node | None:
    """The operation that computes what a node reads first."""
    read = next((tensor for tensor in node.inputs if tensor is not None and source(tensor).weights is None), None)
    return next(iter(makers(read)), None) if read is not None else None


def half_inputs(graph: GraphFacts) -> Iterator[tuple[str, Tensor]]:
    """The inputs in half that carry data from outside, not a state nor what another model computed, with their names."""
    given, made = _ends(graph)
    for end in given:
        if end.tensor.dtype not in HALF or is_state(end, given, made) or words(end.name) & GIVEN or _begins_recurrence(end.tensor):
            continue
        yield end.shown, end.tensor


def _ends(graph: GraphFacts) -> tuple[list[End], list[End]]:
    """The inputs and the outputs of a model."""
    public, ends = graph.model.graph.public, graph.model.graph
    named = graph.model.format not in UNNAMED
    given = [_end(tensor, public.get(id(tensor), tensor.name)) for tensor in ends.inputs]
    made = [_end(tensor, public.get(id(tensor), tensor.name), told=named or id(tensor) in public) for tensor in ends.outputs]
    return given, made


def _end(tensor: Tensor, shown: str, *, told: bool = True) -> End:
    return End(tensor, shown, shown if told and not _MADE_UP.search(shown) else "")


def is_state(end: End, beside: list[End], across: list[End]) -> bool:
    """Whether an end goes from one step to the next, by the words of its name; `beside` are the ends of its side, `across` the others."""
    own = words(end.name)
    if own & STATES:
        return True
    if own & PAIRED:
        shape = end.tensor.shape
        return any(words(other.name) & PAIRED and (shape is None or other.tensor.shape in (None, shape)) for other in across)
    return len(own) == 1 and bool(own & ATTENDED) and sum(len(w) == 1 and bool(w & ATTENDED) for w in (words(o.name) for o in beside)) > 1


def words(name: str) -> frozenset[str]:
    """The words of a name in lower case, without numbers: "past_key_values.0.key" and "pastKeyValues" alike."""
    return frozenset(word.lower() for word in _WORD.findall(name) if not word.isdecimal())


def _is_recurrent_state(node: Node, tensor: Tensor) -> bool:
    """Whether a tensor is the last state of a recurrent layer, not its outputs."""
    return node.kind is OpKind.RECURRENT and len(node.outputs) > 1 and source(tensor) in node.outputs[1:]


def _begins_recurrence(tensor: Tensor) -> bool:
    """Whether recurrent layers alone read an input, as the state that they begin with."""
    readers = list(users(tensor, (OpKind.MOVE, OpKind.CAST)))
    data = [t for node in readers if node.kind is OpKind.RECURRENT for t in node.inputs[:1]]
    return bool(readers) and all(node.kind is OpKind.RECURRENT for node in readers) and not any(t is tensor for t in data if t is not None)


def is_probability(node: Node) -> bool:
    """Whether a node computes probabilities or their logarithms."""
    activation = node.attributes.get("activation")
    return operation(node) in PROBABILITIES or activation in ("softmax", "sigmoid", "log_softmax")
