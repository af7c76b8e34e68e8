"""The memory of a training step, followed operation by operation through its forward and its backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mplint.estimate.precision import FLOAT32, TORCH, Precision
from mplint.estimate.saved import Storages, total
from mplint.estimate.sizes import Sized
from mplint.graph.model import FLOATS, HEAVY, Node, OpKind


class Optimizer(NamedTuple):
    """What an optimizer holds for each parameter, in float32 numbers: between steps, and while it steps all at once on a GPU."""

    state: float
    temporary: float


# Adafactor keeps a row and a column of each matrix, which is next to nothing.
OPTIMIZERS = {
    "sgd": Optimizer(0, 0),
    "momentum": Optimizer(1, 0),
    "rmsprop": Optimizer(1, 1),
    "adagrad": Optimizer(1, 1),
    "adam": Optimizer(2, 1),
    "adamw": Optimizer(2, 1),
    "lion": Optimizer(1, 1),
    "adafactor": Optimizer(0, 1),
    "none": Optimizer(0, 0),
}


class Memory(NamedTuple):
    """Bytes of a training step. `peak` is the most that is held at one time, which is less than the sum of the rest.

    `weights` are float32 in every policy: the master weights; `copies` are what a policy makes of them in half. `activations` is what
    the forward pass keeps for the backward pass. `least` is what a step takes however small the batch, and each sample more adds
    `sample` to what the two passes hold at most, which is `passes` at this batch.
    """

    weights: float
    copies: float
    gradients: float
    optimizer: float
    activations: float
    peak: float
    least: float
    passes: float
    sample: float

    def largest_batch(self, batch: int, usable: float) -> int:
        """The largest batch that takes no more than `usable` bytes, where these are the figures of `batch`."""
        if self.least > usable or not self.sample:
            return 0
        return max(0, int(batch + (usable - self.passes) / self.sample))


def memory(sized: Sized, policy: Precision, optimizer: Optimizer) -> Memory:
    """The memory that one training step takes."""
    run = _Run(sized, policy)
    moving = run.moving_peak()
    doubled = _Run(sized._replace(scale=2 * sized.scale), policy).moving_peak()
    state = run.trainable * 4 * optimizer.state
    static = run.weights + state
    stepping = static + run.trainable * 4 * (1 + optimizer.temporary if sized.model.format in TORCH else 1)
    return Memory(
        weights=run.weights,
        copies=run.copies,
        gradients=run.trainable * 4.0,
        optimizer=state,
        activations=run.activations,
        peak=max(static + moving, stepping),
        least=stepping,
        passes=static + moving,
        sample=(doubled - moving) / sized.batch,
    )


class _Run:
    """One training step of a model."""

    def __init__(self, sized: Sized, policy: Precision) -> None:
        self._model = sized.model
        self._policy = policy
        self._storages = Storages(sized.model, policy, sized.scale)
        self._nodes = [node for node in sized.model.nodes() if node.outputs]
        constants = [tensor for tensor in sized.model.constants() if tensor.dtype in FLOATS and tensor.size]
        self.weights = sum(self._storages.bytes_of(tensor, FLOAT32) for tensor in constants)
        self._training = [tensor for tensor in constants if not tensor.fixed and tensor.shape]
        self.trainable = float(sum(tensor.size or 0 for tensor in self._training))
        self._grad = self._with_gradients()
        self._kept = [list(self._storages.kept(node)) if self._needs(node) else [] for node in self._nodes]
        self.copies = sum(size for _, size in self._copied())
        self.activations = total(one for held in self._kept for one in held)

    def _needs(self, node: Node) -> bool:
        return any(id(tensor) in self._grad for tensor in node.outputs)

    def _with_gradients(self) -> set[int]:
        """The tensors that depend on a weight, by identity."""
        trained = {id(tensor) for tensor in self._training}
        found: set[int] = set()
        for node in self._nodes:
            given = (*node.inputs, *node.weights.values())
            if any(tensor is not None and (id(tensor) in found or id(tensor) in trained) for tensor in given):
                found |= {id(tensor) for tensor in node.outputs if tensor.dtype in FLOATS or tensor.dtype is None}
        return found

    def _copied(self) -> Iterator[tuple[int, float]]:
        """The weights that are held in half too, each once, with the bytes of the copy."""
        seen: set[int] = set()
        for node in self._nodes:
            dtype = self._policy.computes.get(id(node))
            if node.kind not in HEAVY or dtype is None or dtype == FLOAT32:
                continue
            for tensor in (*node.inputs, *node.weights.values()):
                if tensor is not None and tensor.weights is not None and tensor.shape and tensor.dtype in FLOATS and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield id(tensor), self._storages.bytes_of(tensor, dtype)

    def moving_peak(self) -> float:
        """The most bytes of activations, gradients and copies at one time."""
        last = self._last_uses()
        held = {one.key: one.size for kept in self._kept for one in kept}
        first_keeper: dict[tuple[int, str, int], int] = {}
        for place, kept in enumerate(self._kept):
            for one in kept:
                first_keeper.setdefault(one.key, place)
        live, peak = self._inputs(), self.copies + sum(self._inputs().values())
        for place, node in enumerate(self._nodes):
            live |= self._made(node)
            live |= {one.key: one.size for one in self._kept[place]}
            passing = 0.0 if self._kept[place] else sum(self._passing(node))
            peak = max(peak, self.copies + sum(live.values()) + passing)
            for key in last.get(place, ()):
                if key not in held:
                    live.pop(key, None)
        return max(peak, self._backward(live, first_keeper))

    def _backward(self, live: dict[tuple[int, str, int], float], first_keeper: dict[tuple[int, str, int], int]) -> float:
        gradients = {id(self._storages.root(tensor)): self._storages.bytes_of(tensor) for tensor in self._model.graph.outputs}
        weights, peak = 0.0, 0.0
        for place in reversed(range(len(self._nodes))):
            node = self._nodes[place]
            if self._needs(node) and not self._storages.is_view(node):
                roots = [self._storages.root(tensor) for tensor in node.inputs if tensor is not None and id(tensor) in self._grad]
                added = sum(self._storages.bytes_of(root) for root in roots if id(root) in gradients)
                gradients |= {id(root): self._storages.bytes_of(root) for root in roots}
                weights += self._weight_gradients(node)
                peak = max(peak, self.copies + sum(live.values()) + sum(gradients.values()) + added + weights + self._workspace(node))
            for tensor in node.outputs:
                gradients.pop(id(tensor), None)
            for one in self._kept[place]:
                if first_keeper[one.key] == place:
                    live.pop(one.key, None)
        return peak

    def _workspace(self, node: Node) -> float:
        """What the kernels of the CPU lay out anew for the gradient of a convolution: both factors (torch 2.13, measured)."""
        if self._policy.device != "cpu" or node.kind is not OpKind.CONV:
            return 0.0
        return sum(self._storages.bytes_of(tensor) for tensor in (*node.inputs[:1], *node.outputs[:1]))

    def _weight_gradients(self, node: Node) -> float:
        given = (*node.inputs, *node.weights.values())
        return sum(
            4.0 * (t.size or 0) for t in given if t is not None and t.weights is not None and not t.fixed and t.shape and t.dtype in FLOATS
        )

    def _inputs(self) -> dict[tuple[int, str, int], float]:
        return {(id(tensor), "", 0): self._storages.bytes_of(tensor) for tensor in self._model.graph.inputs}

    def _made(self, node: Node) -> dict[tuple[int, str, int], float]:
        if self._storages.is_view(node) or node.kind in (OpKind.SHAPE, OpKind.CHECK):
            return {}
        return {(id(tensor), "", 0): self._storages.bytes_of(tensor) for tensor in node.outputs}

    def _passing(self, node: Node) -> Iterator[float]:
        """The casts that a node makes of its inputs and forgets."""
        wanted = self._policy.computes.get(id(node))
        for tensor in node.inputs:
            if tensor is not None and tensor.weights is None and tensor.dtype in FLOATS and wanted != self._policy.dtype_of(tensor):
                yield self._storages.bytes_of(tensor, wanted)

    def _last_uses(self) -> dict[int, list[tuple[int, str, int]]]:
        """The storages that nobody reads after a node, by its place."""
        last: dict[int, int] = {}
        for place, node in enumerate(self._nodes):
            for tensor in (*node.outputs, *node.inputs):
                if tensor is not None and tensor.weights is None:
                    last[id(self._storages.root(tensor))] = place
        for tensor in self._model.graph.outputs:
            last.pop(id(self._storages.root(tensor)), None)
        found: dict[int, list[tuple[int, str, int]]] = {}
        for key, place in last.items():
            found.setdefault(place, []).append((key, "", 0))
        return found
