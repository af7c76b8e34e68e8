"""What would mend a mistake in a model: fixes in its own terms, made where a file can be written anew and nothing else is touched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mplint.findings import Applicability, ComputeIn, Fix, ModelChange, RemoveCast, WriteNumber
from mplint.graph.casts import Island, is_cast_down, is_cast_up
from mplint.graph.facts import GraphFacts
from mplint.graph.flow import is_bias, source
from mplint.graph.model import HALF, Node, OpKind, Tensor
from mplint.graph.numerics import LIMITS, Constant, Epsilon, feeds_softmax
from mplint.graph.operations import operation

# What masks: exp(-3e4) is 0 in every dtype, and where two masks add up, with scores up to 5,504, the sum is still finite.
MASKS = {"float16": 3e4, "bfloat16": 1e9}
EPSILON = 1e-4
LARGEST_HEAD = 60  # nodes: what is more is no head
# What may stand between the last product and an output, and the products that make one.
TAIL = (OpKind.SOFTMAX, OpKind.ACTIVATION, OpKind.ELEMENTWISE, OpKind.REDUCTION, OpKind.NORM, OpKind.MOVE)
PRODUCTS = (OpKind.MATMUL, OpKind.CONV)
LAYERED = ("keras", "keras-h5")  # formats whose nodes are layers with policies


def without_casts(graph: GraphFacts, island: Island) -> Fix | None:
    """The nodes of an island in half, without the casts around them."""
    if not graph.model.mendable:
        return None
    changes: list[ModelChange] = []
    if island.nodes:
        changes.append(ComputeIn(tuple(map(graph.place_of, island.nodes)), island.dtype))
    changes += [RemoveCast(graph.place_of(node)) for node in (*island.up, *island.down)]
    return Fix("remove the casts", Applicability.SAFE, model=tuple(changes), exact=True)


def without_rounding(graph: GraphFacts, down: Node) -> Fix | None:
    """A model without a cast to half, and without those that cast its result back: numbers keep the digits that they lost there."""
    if not graph.model.mendable:
        return None
    casts = (down, *down.outputs[0].consumers)
    return Fix("remove the casts, which round", Applicability.UNSAFE, model=tuple(RemoveCast(graph.place_of(node)) for node in casts))


def float32_head(graph: GraphFacts, output: Tensor) -> Fix | None:
    """The last layer behind an output of the model in float32, up to the output itself."""
    if not graph.model.mendable:
        return None
    head = _layers(output) if graph.model.format in LAYERED else _tail(graph, output)
    if not head:
        return None
    casts = [node for node in head if node.kind is OpKind.CAST and graph.model.format not in LAYERED]
    changes: list[ModelChange] = [RemoveCast(graph.place_of(node)) for node in casts]
    computing = tuple(graph.place_of(node) for node in head if node not in casts)
    changes += [ComputeIn(computing, "float32")] if computing else []
    names = ", ".join(dict.fromkeys(node.op_type for node in reversed(head) if node not in casts and node.kind is not OpKind.MOVE))
    title = f"compute {names} in float32 and emit it so" if names else "emit it in float32, as it is computed"
    return Fix(title, Applicability.SAFE, model=tuple(changes))


def fitting_mask(graph: GraphFacts, members: Sequence[Constant]) -> Fix | None:
    """A number that masks in half as well, in the place of one that it can't hold; None where these are no masks of a softmax."""
    first = members[0]
    if not graph.model.mendable or any(abs(m.value) <= LIMITS[m.dtype].largest or m.dtype != first.dtype for m in members):
        return None
    if not all((member.value < 0) != (operation(member.node) == "sub") and feeds_softmax(member.node) for member in members):
        return None
    operands = tuple((graph.place_of(member.node), place) for member in members for place in _places(member.node, member.tensor))
    # A product may be with other numbers than 0 and 1; in float32, -1e9 makes a row that is masked throughout uniform, which this does not.
    unsafe = graph.is_float or any(operation(member.node) == "mul" for member in members)
    number = MASKS[first.dtype]
    change = WriteNumber(operands, number, beyond=LIMITS[first.dtype].largest)
    title = f"write {'-' if first.value < 0 else ''}{number:g}"
    return Fix(title, Applicability.UNSAFE if unsafe else Applicability.SAFE, model=(change,)) if operands else None


def larger_epsilon(graph: GraphFacts, members: Sequence[Epsilon]) -> Fix | None:
    """An epsilon that float16 can hold and divide by."""
    if not graph.model.mendable:
        return None
    operands = tuple((graph.place_of(member.node), place) for member in members for place in _places(member.node, member.tensor))
    return Fix(f"write {EPSILON:g}", Applicability.UNSAFE, model=(WriteNumber(operands, EPSILON),)) if operands else None


def _places(node: Node, constant: Tensor) -> Iterator[int]:
    """The positions at which a node reads a constant, or a moved or cast copy of it."""
    return (place for place, tensor in enumerate(node.inputs) if tensor is not None and (tensor is constant or source(tensor) is constant))


def _tail(graph: GraphFacts, output: Tensor) -> list[Node]:
    """The nodes from the last product to an output, the last first; with the product where nothing but a bias and moves follows it."""
    own = {id(node) for node in graph.model.graph.nodes}
    outputs = {id(tensor) for tensor in graph.model.graph.outputs}
    if any(not is_cast_up(user) for user in output.consumers):
        return []  # the model goes on to compute with it
    found = _grown([output], own, outputs - {id(output)}, TAIL)
    if all(node.kind is OpKind.MOVE or is_bias(node) for node in found):
        found = _grown([output], own, outputs - {id(output)}, (*TAIL, *PRODUCTS))
        if not any(node.kind in PRODUCTS or is_cast_down(node) for node in found):
            return []
    computing = [node for node in found if node.kind not in (OpKind.MOVE, OpKind.CAST)]
    return found if len(found) <= LARGEST_HEAD and all(node.compute_dtype in HALF for node in computing) else []


def _grown(ends: Iterable[Tensor], own: set[int], outputs: set[int], kinds: tuple[OpKind, ...]) -> list[Node]:
    """The nodes of some kinds from which nothing leads elsewhere than to `ends`; what stands before a product or a cast is not asked."""
    found: dict[int, Node] = {}
    waiting = [tensor.producer for tensor in ends]
    known = {id(tensor) for tensor in ends}
    while waiting and len(found) <= LARGEST_HEAD:
        node = waiting.pop()
        if node is None or id(node) in found or id(node) not in own or not (node.kind in kinds or is_cast_down(node)) or node.graphs:
            continue
        leaving = [t for t in node.outputs if id(t) in outputs or (id(t) not in known and any(id(u) not in found for u in t.consumers))]
        if leaving:
            continue
        found[id(node)] = node
        if node.kind not in PRODUCTS and not is_cast_down(node):
            waiting += [tensor.producer for tensor in node.inputs if tensor is not None and tensor.dtype in HALF]
    return list(found.values())


# Layers that hand values on, and those that an activation may stand in behind the last product.
HANDING = frozenset(("Reshape", "Flatten", "Permute", "Identity", "Dropout", "RepeatVector", "Cropping1D", "Cropping2D", "Concatenate"))


def _layers(output: Tensor) -> list[Node]:
    """The layers of a Keras model that make an output, the last first: up to the first that computes."""
    found: list[Node] = []
    stack = [output]
    while stack and len(found) <= LARGEST_HEAD:
        tensor = stack.pop()
        node = tensor.producer
        body = node.graphs.get("body") if node is not None else None
        if node is None or node in found:
            continue
        if body is not None and len(body.outputs) == len(node.outputs):
            stack += [inner for inner, outer in zip(body.outputs, node.outputs, strict=True) if outer is tensor]
            continue
        if node.kind in (OpKind.OPAQUE, OpKind.CALL) and not node.graphs:
            return []  # code, or the second call of a model
        has_policy = node.variable_dtype is not None
        if has_policy:
            found.append(node)
        if not has_policy or node.op_type in HANDING:
            stack += [t for t in node.inputs if t is not None and t.dtype in HALF]
    return found
