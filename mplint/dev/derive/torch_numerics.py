"""Which functions leave the range of float16 for moderate inputs, and what they do with a number that float16 does not have."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mplint.dev.derive.torch_calls import Call, copied, parameters_of

LENGTH = 100_000
BEYOND = (1e6, -1e6)
FACTORS = (
    "alpha",
    "beta",
    "p",
    "ord",
    "dim",
    "dims",
    "axis",
    "eps",
    "gamma",
    "lambd",
    "reduction",
    "n",
    "k",
    "N",
    "size",
    "exponent",
    "weight",
    "margin",
)
Entry = dict[str, Any]
Fill = Callable[[torch.Tensor], torch.Tensor]


def overflow(name: str, known: Sequence[Call], product: bool) -> Entry:
    """The words for inputs that float32 bears and float16 does not.

    exponential: infinite at 12 or 17; square: infinite at 300; accumulation: 100 000 ones; underflow: 1e-4 becomes zero, or
    a sum of products of 1e-5; tail: zero at -20.
    """
    known = [call for call in known[:3] if call.tensors()]
    if not known or name.startswith("torch.nn.init.") or "empty" in name:
        return {}
    probes = {**PROBES, **PRODUCTS} if product else PROBES
    words = {word for word, (fills, vanishes) in probes.items() for call in known for fill in fills if _differs(call, fill, vanishes)}
    if "exponential" in words:
        words.discard("square")
    if any(_accumulates(known[0].function, form) for form in range(7 if product else 4)):
        words.add("accumulation")
    return {"overflow": sorted(words)} if words else {}


def _accumulates(function: Callable[..., Any], form: int) -> bool:
    """Whether many ones are infinite in float16 where the function takes them in this form and does not spread them."""
    few = _result(Call(function, _long(torch.ones(8))[form]), torch.clone, torch.float32)
    return few is not None and few.numel() <= 8 and _differs(Call(function, _long(torch.ones(LENGTH))[form]), torch.clone, False)


def _long(ones: torch.Tensor) -> tuple[tuple[Any, ...], ...]:
    return (
        (ones,),
        (ones, 0),
        (ones, ones),
        (ones[None], ones[None]),
        (ones[None], ones[:, None]),
        (ones[None, None], ones[None, :, None]),
        ("i,i->", ones, ones),
    )


def _filled(value: float) -> Fill:
    return lambda tensor: torch.full_like(tensor, value)


def _scattered(value: float, other: float) -> Fill:
    return lambda tensor: torch.where(torch.rand(tensor.shape) > 0.5, value, other)


PROBES: dict[str, tuple[tuple[Fill, ...], bool]] = {
    "exponential": ((_filled(12.0), _filled(17.0)), False),
    "square": ((_filled(300.0), _scattered(300.0, -300.0)), False),
    "underflow": ((_filled(1e-4), _scattered(1e-4, -1e-4)), True),
    "tail": ((_filled(-20.0), _scattered(0.0, -20.0)), True),
}
# The products of the last are 0 in whatever order and precision a processor adds them.
PRODUCTS = {"underflow": ((*PROBES["underflow"][0], _filled(1e-5)), True)}


def _differs(call: Call, fill: Fill, vanishes: bool) -> bool:
    """Whether float16 is infinite, not a number or zero where float32 is finite and not zero."""
    single, half = (_result(call, fill, dtype) for dtype in (torch.float32, torch.float16))
    if single is None or half is None or half.dtype != torch.float16 or single.shape != half.shape or not half.numel():
        return False
    if vanishes:
        return bool(((half == 0) & (single.abs() > 1e-30) & single.isfinite()).any())
    return bool((~half.isfinite() & single.isfinite() & (single.abs() < 1e12)).any())


def _result(call: Call, fill: Fill, dtype: torch.dtype) -> torch.Tensor | None:
    """The first tensor that the call gives with tensors filled; None where it raises."""
    torch.manual_seed(0)
    changed = call.with_tensors(lambda _, tensor: fill(tensor.detach()).to(dtype), copied)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = changed.run()
    except Exception:
        return None
    if result is None and changed.arguments:
        result = changed.arguments[0]
    return next((leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)), None)


def constants(name: str, known: Sequence[Call]) -> Entry:
    """What a number beyond float16 does as an argument beside float16 tensors: raises, or silently becomes infinite."""
    found = {_constant(call) for one in known for call in _with_numbers(one)}
    if "raises" in found:
        return {"constant": "raises"}
    return {"constant": "inf"} if "inf" in found else {}


def _with_numbers(call: Call) -> Iterator[Call]:
    """The call with a number beyond float16 in place of each number, and of each tensor after the first; factors do not count."""
    names = parameters_of(call.function, optional=True)
    for place, argument in enumerate(call.arguments):
        named = names[place] if place < len(names) else ""
        number = isinstance(argument, int | float) and not isinstance(argument, bool)
        tensor = isinstance(argument, torch.Tensor) and argument.is_floating_point() and place > 0
        listed = isinstance(argument, list) and all(isinstance(item, float) for item in argument)
        if named not in FACTORS and (number or tensor or listed):
            for value in [[value] * len(argument) for value in BEYOND] if isinstance(argument, list) else BEYOND:
                yield Call(call.function, (*call.arguments[:place], value, *call.arguments[place + 1 :]), call.keywords)
    for key, held in call.keywords.items():
        if isinstance(held, int | float) and not isinstance(held, bool) and key not in FACTORS:
            for value in BEYOND:
                yield Call(call.function, call.arguments, call.keywords | {key: value})


def _constant(call: Call) -> str:
    """What the call with a number beyond float16 does, given that float32 bears it."""
    half = call.with_tensors(lambda _, tensor: torch.full_like(tensor, 0.75).to(torch.float16), copied)
    if not call.tensors():
        half.keywords["dtype"] = torch.float16
    single = _result(call, _filled(0.75), torch.float32)
    if single is None:
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = half.run()
    except Exception as error:
        return "raises" if "without overflow" in str(error) or "out of bounds" in str(error) else ""
    if result is None and half.arguments:
        result = half.arguments[0]
    first = next((leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)), None)
    if first is None or first.dtype != torch.float16 or single.shape != first.shape:
        return ""
    return "inf" if bool((first.isinf() & single.isfinite() & (single.abs() < 1e8)).any()) else ""
