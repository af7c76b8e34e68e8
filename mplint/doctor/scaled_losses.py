"""Scaled losses whose number the program reads: what it logs or adds up then is the loss times the scale."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any

from mplint.doctor.places import Places
from mplint.doctor.uses import READ, Uses
from mplint.doctor.values import Place


class ScaledLosses:
    """Follows scaled losses until their number is read; `tell` gets the place and the scale.

    A number that is read is not told where the program asks for the scale on the same line: it divides by it.
    """

    def __init__(self, places: Places, tell: Callable[[Place, float], None], uses: Uses | None = None) -> None:
        self._places = places
        self._tell = tell
        self._uses = uses
        self._scales: dict[int, tuple[weakref.ref[Any], float]] = {}
        self._read: dict[Place, float] = {}
        self._asked: set[Place] = set()

    def mark(self, loss: Any, scale: float) -> None:
        """A loss was multiplied by the scale."""
        if len(self._scales) > 1000:
            self._scales = {key: known for key, known in self._scales.items() if known[0]() is not None}
        self._scales[id(loss)] = (weakref.ref(loss), scale)

    def scale_of(self, value: Any) -> float | None:
        """What a value was multiplied by, None for one that is no scaled loss."""
        known = self._scales.get(id(value))
        return known[1] if known is not None and known[0]() is value else None

    def read(self, value: Any) -> None:
        """The number of a tensor is read."""
        scale = self.scale_of(value)
        place = self._places.here() if scale is not None else None
        if scale is not None and place is not None:
            self._read[place] = scale

    def scale_read(self, caller: str) -> None:
        """Code in a file asks for the scale."""
        place = self._places.here()
        if place is not None and os.path.abspath(caller) == place[0]:
            self._asked.add(place)

    def stepped(self) -> None:
        """A step is over: tell what was read in it."""
        for place, scale in self._read.items():
            if self._uses is not None:
                self._uses.add(READ, place, wrong=place not in self._asked)
            if place not in self._asked:
                self._tell(place, scale)
        self._read.clear()

    def watch(self, kind: type, reading: tuple[str, ...], same: tuple[str, ...], compiling: Callable[[], bool]) -> None:
        """See what is read off tensors of a kind, by methods of these names, unless a graph of them is compiled."""
        for name in reading:
            setattr(kind, name, self._reading(getattr(kind, name), compiling))
        for name in same:
            setattr(kind, name, self._passing(getattr(kind, name), compiling))

    def _reading(self, original: Callable[..., Any], compiling: Callable[[], bool]) -> Callable[..., Any]:
        @wraps(original)
        def reading(this: Any, *args: Any, **options: Any) -> Any:
            if id(this) in self._scales and not compiling() and not _ours(sys._getframe(1)):
                self.read(this)
            return original(this, *args, **options)

        return reading

    def _passing(self, original: Callable[..., Any], compiling: Callable[[], bool]) -> Callable[..., Any]:
        @wraps(original)
        def passing(this: Any, *args: Any, **options: Any) -> Any:
            result = original(this, *args, **options)
            if id(this) in self._scales and not compiling() and (scale := self.scale_of(this)) is not None and result is not this:
                self.mark(result, scale)
            return result

        return passing


def _ours(frame: FrameType) -> bool:
    """Whether an instrument asks, and not the program."""
    return str(frame.f_globals.get("__name__", "")).startswith("mplint.")
