"""What a program does in regions of autocast that autocast does by itself, or refuses on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mplint.doctor.uses import PROBABILITIES, Uses
from mplint.doctor.values import CASTING, Operation, Place, Seen
from mplint.doctor.work import Product
from mplint.limits import HALF_MAX
from mplint.runs.record import Recorder

ON_PROBABILITIES = "binary_cross_entropy"
SHOWN = 200


class Cast(NamedTuple):
    """A cast to half precision: where the user's code makes it, to which dtype, and whether a region of autocast of that dtype is on."""

    place: Place
    dtype: str
    inside: bool


class Regions:
    """Looks at operations of the forward pass; `region` says the dtype of the region that is on, "" outside of all, `here` the place."""

    def __init__(
        self,
        recorder: Recorder,
        region: Callable[[], str],
        tell: Callable[..., None],
        exact: Callable[[Any], int],
        uses: Uses,
        here: Callable[[], Place | None],
    ) -> None:
        self._recorder = recorder
        self._region = region
        self._tell = tell
        self._exact = exact
        self._uses = uses
        self._here = here
        self._casts: dict[Cast, dict[str, None]] = {}

    def look(self, operation: Operation, made: Sequence[Seen], product: Product | None) -> None:
        """An operation has run."""
        region = self._region()
        name = operation.name.rstrip("_")
        if name == ON_PROBABILITIES and operation.given:
            self._uses.add(PROBABILITIES, self._here(), wrong=bool(region))
        if name == ON_PROBABILITIES and region and operation.given:
            self._tell("loss-on-probabilities", exact=self._exact(operation.given[0]), number=operation.given[0].numel())
        for seen in made:
            if name in CASTING and seen.dtype in HALF_MAX and seen.place is not None:
                self._casts.setdefault(Cast(seen.place, seen.dtype, seen.dtype == region), {})
            if product is not None:
                for source in seen.sources:
                    self._used(source, operation.name, region)

    def _used(self, source: Seen, name: str, region: str) -> None:
        if source.operation.rstrip("_") in CASTING and source.place is not None:
            cast = Cast(source.place, source.dtype, source.dtype == region)
            if cast in self._casts:
                self._casts[cast][name] = None

    def end(self) -> None:
        """Tell the casts, and the products that took what they gave."""
        rows = [
            {"place": list(cast.place), "dtype": cast.dtype, "inside": cast.inside, "products": list(used)}
            for cast, used in self._casts.items()
        ]
        self._recorder.fact("casts", rows[:SHOWN])
