"""The sizes that a model leaves open, filled in: its batch, and the dimensions that the user names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from mplint.errors import UsageError, nearest
from mplint.graph.load import format_of, load_graph
from mplint.graph.model import GraphError, ModelGraph, Tensor

DEFAULT_BATCH = 32


class Sized(NamedTuple):
    """A model whose shapes are numbers, for a batch.

    Where the file fixes its own batch, `scale` is how many times the asked one is of it: whatever flows grows by that factor.
    `unknown` counts the operations whose results have no known size all the same.
    """

    model: ModelGraph
    batch: int
    scale: float
    unknown: int


def load_sized(path: str, batch: int | None, named: Mapping[str, int]) -> Sized:
    """Read a model file with its open sizes filled in; raises GraphError, and UsageError where one is open or named in vain."""
    if format_of(path).name != "onnx":
        return sized(load_graph(path), batch, named)
    from mplint.graph.onnx.file import read_proto
    from mplint.graph.onnx.loader import read_model
    from mplint.graph.onnx.open_sizes import fill_in

    proto = read_proto(path)
    before = read_model(read_proto(path), path)
    _check_names(before.graph.inputs, named)
    fill_in(proto, batch or DEFAULT_BATCH, named)
    return _filled(read_model(proto, path), batch, named, fixed=_own_batch(before.graph.inputs))


def sized(model: ModelGraph, batch: int | None, named: Mapping[str, int]) -> Sized:
    """Fill in the sizes of a model that nobody else reads: its tensors are changed."""
    _check_names(model.graph.inputs, named)
    return _filled(model, batch, named, fixed=_own_batch(model.graph.inputs))


def _filled(model: ModelGraph, batch: int | None, named: Mapping[str, int], *, fixed: int | None) -> Sized:
    if not any(True for _ in model.nodes()):
        raise GraphError("it holds weights and no operations; give what makes the model: PACKAGE.MODULE:FACTORY")
    inputs = model.graph.inputs
    count = batch or fixed or DEFAULT_BATCH
    symbols = {dim: count for tensor in inputs for dim in (tensor.shape or ())[:1] if isinstance(dim, str)} | dict(named)
    for tensor in tensors_of(model):
        if tensor.shape is not None:
            shape = [symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in tensor.shape]
            shape[:1] = [count if dim is None and fixed is None else dim for dim in shape[:1]]
            tensor.shape = tuple(shape)
    for tensor in inputs:
        _require_closed(tensor)
    unknown = sum(1 for node in model.nodes() if any(tensor.size is None for tensor in node.outputs))
    return Sized(model, count, count / fixed if fixed else 1.0, unknown)


def _own_batch(inputs: list[Tensor]) -> int | None:
    """The first size of the inputs where the model fixes it in all of them."""
    firsts = [tensor.shape[0] for tensor in inputs if tensor.shape]
    return next((dim for dim in firsts if isinstance(dim, int)), None) if all(isinstance(dim, int) and dim for dim in firsts) else None


def tensors_of(model: ModelGraph) -> Iterator[Tensor]:
    """Every tensor that flows, each once."""
    seen: set[int] = set()
    ends = chain.from_iterable((*body.inputs, *body.outputs) for body in (model.graph, *model.functions.values()))
    between = chain.from_iterable((*node.inputs, *node.outputs) for node in model.nodes())
    for tensor in chain(ends, between):
        if tensor is not None and tensor.weights is None and id(tensor) not in seen:
            seen.add(id(tensor))
            yield tensor


def _check_names(inputs: list[Tensor], named: Mapping[str, int]) -> None:
    known = {name for tensor in inputs for place in range(len(tensor.shape or ())) for name in _names(tensor, place)}
    for name in named:
        if name not in known:
            listed = f"; open are {', '.join(sorted(known))}" if known else "; the model leaves none open"
            raise UsageError(f'--size: no input has the size "{name}"{nearest(name, known) or listed}')


def _names(tensor: Tensor, place: int) -> tuple[str, ...]:
    """How a user may call an open size: by its name in the file, or by its place; none for a size that is a number."""
    dim = (tensor.shape or ())[place]
    return () if isinstance(dim, int) else (f"{tensor.name}[{place}]", *((dim,) if isinstance(dim, str) else ()))


def _require_closed(tensor: Tensor) -> None:
    for place in range(len(tensor.shape or ())):
        names = _names(tensor, place)
        if names:
            raise UsageError(f"the input {tensor.name} ({tensor.described}) leaves a size open: give it with --size '{names[-1]}=N'")
