"""Watches the operations of torch: the first value that leaves the range of its dtype, and what led there."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mplint.doctor.places import Places
from mplint.runs.record import Recorder

LARGEST = {torch.float16: 65504.0, torch.bfloat16: 3.3895e38}
LEAST = {torch.float16: 2.0**-25, torch.bfloat16: 2.0**-134}  # anything up to it rounds to zero
CHAIN = 6
KEPT = 20_000  # records of one step
FILLING = (
    "masked_fill",
    "full",
    "fill",
    "scalar_tensor",
    "where",
    "empty",
    "lift_fresh",
    "index_put",
    "new_",
    "zeros",
    "ones",
    "random",
    "uniform",
)
ADDING = ("add", "add_", "clamp", "clamp_", "clamp_min", "clamp_min_", "maximum", "sub", "sub_")
MULTIPLYING = ("mul", "mul_", "add", "add_", "sub", "sub_")


class Seen(NamedTuple):
    """One result of one operation: magnitudes are the least and the most of its elements, nan where one is no number."""

    operation: str
    dtype: str
    module: str
    place: tuple[str, int] | None
    least: float
    most: float
    sources: tuple[Seen, ...]

    @property
    def described(self) -> dict[str, object]:
        """As an event tells it."""
        return {
            "operation": self.operation,
            "dtype": self.dtype,
            "module": self.module,
            "place": list(self.place) if self.place else None,
            "least": _plain(self.least),
            "most": _plain(self.most),
        }


def _plain(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)


class Values(TorchDispatchMode):
    """Looks at every result while it is entered; `module` tells the path of the module that runs, `state` what the training is doing."""

    def __init__(self, recorder: Recorder, places: Places, module: Callable[[], str], state: Callable[[], dict[str, object]]) -> None:
        super().__init__()
        self._recorder = recorder
        self._places = places
        self._module = module
        self._state = state
        self._records: dict[int, tuple[weakref.ref[torch.Tensor], Seen]] = {}
        self._told: set[tuple[object, ...]] = set()
        self.headroom: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def forget(self) -> None:
        """A step is over: nothing of it leads to values of the next."""
        self._records.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        name = func._schema.name.partition("::")[2]
        sources = [seen for value in args if (seen := self._of(value)) is not None]
        before = [self._range(value) for value in args if isinstance(value, torch.Tensor)] if name.endswith("_") else []
        result = func(*args, **given)
        if func.is_view or name in ("detach", "alias", "_unsafe_view"):
            self._pass_on(result, sources)
        else:
            self._look(name, args, result, sources, before)
        return result

    def _of(self, value: object) -> Seen | None:
        known = self._records.get(id(value))
        return known[1] if known is not None and known[0]() is value else None

    def _pass_on(self, result: Any, sources: list[Seen]) -> None:
        for tensor in _tensors(result):
            if sources and len(self._records) < KEPT:
                self._records[id(tensor)] = (weakref.ref(tensor), sources[0])

    def _look(self, name: str, args: Any, result: Any, sources: list[Seen], before: list[tuple[float, float]]) -> None:
        if name.startswith(("empty", "_amp_", "isfinite", "aminmax", "_local_scalar_dense", "equal")):
            return
        self._constants(name, args)
        given = None
        for tensor in _tensors(result):
            if not tensor.is_floating_point() or tensor.numel() == 0 or tensor.device.type == "meta":
                continue
            least, most = self._range(tensor)
            seen = Seen(
                name, str(tensor.dtype).removeprefix("torch."), self._module(), self._places.here(), least, most, tuple(sources[:4])
            )
            self._count(tensor.dtype, seen)
            if len(self._records) < KEPT:
                self._records[id(tensor)] = (weakref.ref(tensor), seen)
            if not math.isfinite(most):
                if given is None:
                    given = before or [self._range(value) for value in _tensors(args)]
                self._broken(seen, args, given)

    def _count(self, dtype: torch.dtype, seen: Seen) -> None:
        self.counts[seen.dtype] = self.counts.get(seen.dtype, 0) + 1
        forward = self._state().get("phase") == "forward"  # a gradient carries the loss scale, which may reach any value
        if forward and dtype in LARGEST and math.isfinite(seen.most):
            self.headroom[seen.module] = max(self.headroom.get(seen.module, 0.0), seen.most / LARGEST[dtype])

    def _broken(self, seen: Seen, args: Any, given: list[tuple[float, float]]) -> None:
        kind = "nan" if math.isnan(seen.most) else "inf"
        filled = kind == "inf" and seen.operation.lstrip("_").startswith(FILLING)
        earlier = any(math.isnan(most) for _, most in given) or (kind == "inf" and any(math.isinf(most) for _, most in given))
        if filled or earlier:
            return
        phase = self._state()
        key = (kind, phase.get("phase"), seen.module, seen.operation, seen.place)
        if key in self._told or sum(1 for told in self._told if told[0] == kind) >= 5:
            return
        self._told.add(key)
        tensors = [value for value in _tensors(args) if value.is_floating_point()]
        inputs = [
            {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape), "least": _plain(low), "most": _plain(high)}
            for value, (low, high) in zip(tensors, given, strict=False)
        ]
        chain = [each.described for each in _led(seen)]
        self._recorder.event(kind, step=self._recorder.made, **phase, **seen.described, inputs=inputs, chain=chain)

    def _constants(self, name: str, args: Any) -> None:
        """Numbers that a half tensor can't take as they are: they become 0, or infinite."""
        tensor = next((value for value in args if isinstance(value, torch.Tensor) and value.dtype in LARGEST), None)
        if tensor is None or self._state().get("phase") != "forward":
            return
        for value in args:
            if isinstance(value, bool) or not isinstance(value, int | float) or value == 0 or not math.isfinite(value):
                continue
            if name in ADDING and abs(value) <= LEAST[tensor.dtype]:
                self._tell_constant("constant-becomes-zero", name, value, tensor.dtype)
            elif name in MULTIPLYING and abs(value) > LARGEST[tensor.dtype] * 1.001:
                self._tell_constant("constant-becomes-infinite", name, value, tensor.dtype)

    def _tell_constant(self, kind: str, name: str, value: float, dtype: torch.dtype) -> None:
        place = self._places.here()
        key = (kind, place, value)
        if place is not None and key not in self._told:
            self._told.add(key)
            self._recorder.event(
                kind, operation=name, value=value, dtype=str(dtype).removeprefix("torch."), place=list(place), module=self._module()
            )

    def _range(self, value: torch.Tensor) -> tuple[float, float]:
        if not value.is_floating_point() or value.numel() == 0 or value.is_sparse:
            return 0.0, 0.0
        least, most = torch.aminmax(value.detach().abs())
        return float(least), float(most)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def _led(seen: Seen) -> list[Seen]:
    """The operations that led to a value, the last first: each time the input that was nearest to the end of its range."""
    found: list[Seen] = []
    while seen.sources and len(found) < CHAIN:
        zero = [source for source in seen.sources if source.least == 0]
        seen = (
            zero[0]
            if zero and seen.operation in ("log", "log2", "log10", "div", "reciprocal", "rsqrt", "pow", "sqrt")
            else max(seen.sources, key=lambda source: source.most if math.isfinite(source.most) else math.inf)
        )
        found.append(seen)
    return found
