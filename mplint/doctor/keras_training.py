"""Watches how a training loop of Keras uses its optimizers: what is scaled, changed and applied, and which layers compute in half."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from mplint.doctor.gradients import HALF, Parameter
from mplint.doctor.places import Places
from mplint.doctor.scaled_losses import ScaledLosses
from mplint.doctor.units import Units
from mplint.doctor.values import Place, Tensors
from mplint.runs.record import Recorder

SKIPPED = 10  # steps in a row that a scaler skips, from which on it finds no scale


class Counted(NamedTuple):
    """What an optimizer has counted: its steps, and its loss scale where it has one."""

    steps: int
    scale: float | None


class Layers:
    """Which layer runs, where each was made, and what its variables compute in."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._running: list[Any] = []
        self._computed: dict[int, str] = {}
        self.half: str | None = None
        self.last: tuple[Any, str] | None = None  # a layer that gave its result to none, and the dtype of that
        self._deepest: Any = None
        self._of_keras = 0

    @contextmanager
    def of_keras(self) -> Iterator[None]:
        """Inputs that are made in this context are Keras's own choice, and none of the program's."""
        self._of_keras += 1
        try:
            yield
        finally:
            self._of_keras -= 1

    def made(self, layer: Any) -> None:
        """A layer is made."""
        chosen_by_keras = self._of_keras and type(layer).__name__ == "InputLayer"
        if not chosen_by_keras and getattr(layer, "_mplint_made", None) is None:
            object.__setattr__(layer, "_mplint_made", self._places.here())

    @property
    def idle(self) -> bool:
        """No layer runs."""
        return not self._running

    def enter(self, layer: Any) -> None:
        """A layer begins to run."""
        self._running.append(layer)

    def leave(self, dtype: str) -> None:
        """The layer that runs is done, and has given a tensor of a dtype, "" for none."""
        layer = self._running.pop()
        computed = str(layer.compute_dtype)
        if computed in HALF:
            self.half = computed if self.half is None or self.half == computed else "float16"
        for variable in layer._trainable_variables:
            self._computed[id(variable)] = computed if layer.autocast and computed in HALF else str(variable.dtype)
        if dtype in HALF and not getattr(layer, "_layers", None):
            self._deepest = layer
        if not self._running:
            self.last = (self._deepest or layer, dtype)
            self._deepest = None

    def computed(self, variable: Any) -> str:
        """The dtype that a variable's gradient is computed in."""
        return self._computed.get(id(variable), str(variable.dtype))

    @property
    def computed_now(self) -> str:
        """The dtype that the layer that runs computes in."""
        return str(self._running[-1].compute_dtype) if self._running else ""

    def path(self) -> str:
        """The path of the layer that runs."""
        return str(self._running[-1].path or self._running[-1].name) if self._running else ""

    def layer(self) -> Place | None:
        """Where the layer that runs was made."""
        return getattr(self._running[-1], "_mplint_made", None) if self._running else None


class KerasTraining:
    """The state of a training between its steps, and the mistakes that are seen in it. Each is told once for its place."""

    def __init__(self, recorder: Recorder, places: Places, tensors: Tensors, numbers: Callable[[Any], float]) -> None:
        self._recorder = recorder
        self._places = places
        self._number = numbers
        self._told: set[tuple[str, object]] = set()
        self._scaled: set[int] = set()
        self._quiet = 0
        self._skipped_in_a_row = 0
        self._counted: Counted | None = None
        self.layers = Layers(places)
        self.units = Units(self._told_units, tensors)
        self.losses = ScaledLosses(places, self._told_reading)
        self.phase = "forward"
        self.first: Any = None
        self.loss: float | None = None
        self.compiled: Place | None = None
        self.fitted: Place | None = None
        self.scaling = False

    def tell(self, kind: str, *, at: Place | None = None, **details: object) -> None:
        """Note a mistake at the user's line, once."""
        place = at or self.place()
        if (kind, place) not in self._told:
            self._told.add((kind, place))
            self._recorder.event(kind, place=list(place) if place else None, step=self._recorder.made, **details)

    def place(self) -> Place | None:
        """The user's line; where that is the call of `fit`, the line that made the layer that runs, or the model ready to train."""
        here = self._places.here()
        if here is not None and here != self.fitted:
            return here
        return self.layers.layer() or (self.compiled if self.phase == "update" else None) or here

    def _told_reading(self, place: Place, scale: float) -> None:
        self.tell("scaled-loss-read", at=place, scale=scale)

    def _told_units(self, kind: str, details: dict[str, object]) -> None:
        if not self._quiet:
            self.tell(kind, **details)  # type: ignore[arg-type]

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """While something runs that is told of in its own words, or may change scaled gradients."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def wrapped(self, inner: Any) -> None:
        """A LossScaleOptimizer is made around another optimizer."""
        if hasattr(inner, "dynamic_growth_steps"):
            self.tell("scaled-twice", scale=float(inner.initial_scale))

    def scale_of(self, optimizer: Any) -> float | None:
        """The loss scale of an optimizer, None for one that has none."""
        if hasattr(optimizer, "dynamic_growth_steps"):
            return self._number(optimizer.dynamic_scale) if optimizer.built else float(optimizer.initial_scale)
        factor = optimizer.loss_scale_factor
        return float(factor) if factor is not None else None

    def scaled(self, optimizer: Any, loss: Any, result: Any, *, recorded: bool) -> None:
        """An optimizer has scaled a loss; `recorded`: a tape goes on."""
        scale = self.scale_of(optimizer)
        if scale is None:
            return
        self._scaled.add(id(optimizer))
        self.units.scale = scale
        self.units.mark(result, 1.0)
        self.losses.mark(result, scale)
        if not recorded:
            self.tell("scaled-outside-tape", scale=scale)

    @property
    def goes_scaled(self) -> bool:
        """Whether a loss was scaled in this step."""
        return bool(self._scaled)

    def differentiated(self, gradients: Sequence[Any]) -> None:
        """A tape has given gradients, of a loss that was scaled or not."""
        self.phase = "update"
        if self._scaled:
            for gradient in gradients:
                self.units.mark(gradient, 1.0)

    def clipped(self, gradients: Sequence[Any], limit: Any, results: Sequence[Any]) -> None:
        """Gradients were clipped to a limit."""
        powers = {power for power in (*map(self.units.known, gradients), self.units.of(limit)) if power is not None}
        if self.units.any and len(powers) > 1 and any(map(self.units.known, gradients)):
            self.tell("scaled-gradients-clipped", scale=self.units.scale)
        for gradient, result in zip(gradients, results, strict=False):
            self.units.mark(result, self.units.known(gradient) or 0.0)

    def applying(self, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """An optimizer is about to apply gradients."""
        self.phase = "update"
        scale = self.scale_of(optimizer)
        halves = {self.layers.computed(variable) for variable in variables} & set(HALF)
        self.scaling = id(optimizer) in self._scaled
        if scale is not None and not self.scaling:
            self.tell("unscaled-loss-divided", scale=scale)
        elif scale is not None and any(self.units.known(gradient) == 0.0 for gradient in gradients):
            self.tell("unscaled-twice", scale=scale)
        if scale is not None and halves == {"bfloat16"}:
            self.tell("optimizer-scales-bfloat16", scale=scale)
        if scale is None and "float16" in halves:
            self.tell("missing-loss-scaling")
        if self.layers.last is not None and self.layers.last[1] in HALF:
            layer, dtype = self.layers.last
            self.tell("output-in-half", at=getattr(layer, "_mplint_made", None), layer=str(layer.name), dtype=dtype)

    def applied(self, optimizer: Any) -> None:
        """An optimizer has applied gradients, or skipped that."""
        self._scaled.discard(id(optimizer))
        self.units.forget()

    def stepped(self) -> bool:
        """Note a step of the first optimizer, if it has made one, or skipped one, since this was last asked."""
        if self.first is None or not self.first.built:
            return False
        before = self._counted or Counted(0, None)
        inner = getattr(self.first, "inner_optimizer", self.first)
        scale = self._number(self.first.dynamic_scale) if inner is not self.first else None
        now = self._counted = Counted(int(self._number(inner._iterations)), scale)
        started = float(self.first.initial_scale) if scale is not None else None
        used = before.scale or started  # in this step; what the optimizer has now is for the next one
        skipped = scale is not None and now.steps == before.steps and scale < (used or scale)
        if now.steps == before.steps and not skipped:
            return False
        self._skipped_in_a_row = self._skipped_in_a_row + 1 if skipped else 0
        if self._skipped_in_a_row == SKIPPED:
            self.tell("every-step-skipped", scale=scale)
        self.phase, loss, self.loss = "forward", self.loss, None
        self.layers.last = None
        self.losses.stepped()
        self._recorder.step(loss, used, skipped)
        return True

    def parameters(self, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any], flat: Callable[[Any], Any]) -> list[Parameter]:
        """What an optimizer is about to change."""
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        rate = self._number(inner.learning_rate)

        def read(value: Any) -> Callable[[], Any]:
            return lambda: None if value is None else flat(value)

        return [
            Parameter(
                id(variable), str(variable.path), read(variable), read(gradient), self.layers.computed(variable), str(variable.dtype), rate
            )
            for gradient, variable in zip(gradients, variables, strict=False)
        ]
