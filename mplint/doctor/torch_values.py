"""Watches the operations of torch."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from mplint.doctor.units import Units
from mplint.doctor.values import Ends, Operation, Place, Seen, Situation, Tensors, Values
from mplint.doctor.work import Product, Work

UNWATCHED = ("empty", "new_empty", "_amp_", "aminmax", "equal", "set_", "resize_", "record_stream")
VIEWS = ("detach", "alias", "_unsafe_view", "lift_fresh")


class Instruments(NamedTuple):
    """What is told of every operation, and what it is told with it."""

    values: Values
    work: Work
    units: Units
    at: Situation
    layer: Callable[[], Place | None]
    why: Callable[[Operation, list[Seen]], str]
    noted: Callable[[Operation, list[Seen], Product | None], None] = lambda operation, made, product: None
    took: Callable[[float], bool] = lambda seconds: True  # looking took so long, the operation left out; False: look at no more


class Operations(TorchDispatchMode):
    """Tells the instruments of every operation while it is entered; `leaves` are the dtypes that parameters were cast to."""

    def __init__(self, instruments: Instruments) -> None:
        super().__init__()
        self._to = instruments
        self.leaves: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        self.off = False

    @property
    def innermost(self) -> bool:
        """No other mode was entered since this one."""
        return _get_current_dispatch_mode() is self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.off:
            return func(*args, **(kwargs or {}))
        entered = time.perf_counter()
        name = func._schema.name.partition("::")[2]
        given = list(tensors_in(args))
        before = [ends(value) for value in given] if name.endswith("_") else []
        began = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        if any(value.is_cuda for value in tensors_in(result)):
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        results = [value for value in tensors_in(result) if value.device.type != "meta"]
        if func.is_view or name in VIEWS:
            self._to.values.pass_on(given, results)
            self._to.units.look(Operation("view", given, (), results), None)
        elif not name.startswith(UNWATCHED):
            numbers = [float(value) for value in args if isinstance(value, int | float) and not isinstance(value, bool)]
            self._look(Operation(name, given, numbers, results, before, seconds))
        self.off = not self._to.took(time.perf_counter() - entered - seconds)
        return result

    def _look(self, operation: Operation) -> None:
        to = self._to
        if to.units.any:
            to.units.look(operation, to.at.place())
        if operation.name.startswith(("isfinite", "_local_scalar_dense")):
            return
        if operation.name == "_to_copy" and operation.given and operation.given[0].is_leaf:
            leaf = operation.given[0]
            self.leaves[id(leaf)] = (weakref.ref(leaf), str(operation.results[0].dtype).removeprefix("torch."))
        made = to.values.look(operation)
        product = _product(operation)
        to.work.add(operation, made, product, to.layer(), to.why(operation, made))
        to.noted(operation, made, product)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in what an operation is given, or gives."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)


def ends(value: torch.Tensor) -> Ends:
    """The ends of the magnitudes of a tensor."""
    if value.is_complex() or value.dtype == torch.bool or value.numel() == 0 or value.is_sparse or value.is_quantized:
        return 0.0, 0.0
    least, most = torch.aminmax(value.detach().abs())
    return float(least), float(most)


def _whole(value: torch.Tensor) -> bool:
    return value.numel() > 1 and (not value.is_floating_point() or bool((value.detach() == value.detach().round()).all()))


TENSORS = Tensors(lambda value: str(value.dtype).removeprefix("torch."), lambda value: tuple(value.shape), ends, _whole)


def _product(operation: Operation) -> Product | None:
    """The sizes and the work of a product."""
    name, given = operation.name, operation.given
    if name in ("mm", "bmm", "addmm", "baddbmm", "addbmm"):
        left, right = given[-2:]
        sizes = (left.shape[-2], left.shape[-1], right.shape[-1])
        batch = left.shape[0] if left.dim() == 3 else 1
        return Product(sizes, 2.0 * batch * sizes[0] * sizes[1] * sizes[2])
    if name == "convolution" and len(given) > 1 and operation.results:
        weight, result = given[1], operation.results[0]
        positions = result.numel() // max(1, result.shape[1])
        return Product((positions, weight.shape[1], weight.shape[0]), 2.0 * positions * weight.numel())
    if name == "convolution_backward":
        gradient, _, weight = given[:3]
        positions = gradient.numel() // max(1, gradient.shape[1])
        work = sum(1 for result in operation.results if result.dim() > 1)
        return Product((positions, weight.shape[1], weight.shape[0]), 2.0 * positions * weight.numel() * work)
    return None
