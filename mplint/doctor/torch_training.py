"""Watches how a training loop of torch uses its scaler: what is scaled, unscaled, clipped, stepped and saved, and in which order."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

import torch

from mplint.doctor.places import MadeAt, Places
from mplint.doctor.scaled_losses import ScaledLosses
from mplint.doctor.torch_values import TENSORS
from mplint.doctor.units import Units
from mplint.doctor.uses import BACKWARD, FUNCTION, OPTIMIZER, SCALED, Uses
from mplint.doctor.values import Place
from mplint.runs.record import Recorder

READING = ("item", "tolist", "numpy", "__float__", "__format__")  # methods that read a tensor's number
BY_HAND = "the program"  # steps in the place of an optimizer
REMADE = 2  # scalers made after training began from which on they count as made again and again


class Divided(NamedTuple):
    """A gradient that was divided by the scale: its parameter, itself, and how often it had been written to then."""

    parameter: weakref.ref[torch.Tensor]
    gradient: weakref.ref[torch.Tensor]
    version: int


class Training:
    """The state of one training loop between its steps, and the mistakes that are seen in it. Each is told once for its place."""

    def __init__(
        self,
        recorder: Recorder,
        places: Places,
        step_done: Callable[[], None],
        gradients: Callable[[], list[torch.Tensor]],
        skipped: Callable[[Any], None],
    ) -> None:
        self._recorder = recorder
        self._places = places
        self._step_done = step_done
        self._gradients = gradients
        self._skipped = skipped
        self._regions: list[bool] = []
        self.turned_off = False  # a region of autocast was entered that is off
        self._quiet = 0  # how many functions run that may touch scaled gradients
        self.units = Units(self._told_units, TENSORS)
        self.uses = Uses(recorder)
        self.losses = ScaledLosses(places, self._told_reading, self.uses)
        self._told: set[tuple[str, object]] = set()
        self._scaled: dict[int, tuple[Any, Any]] = {}  # scaled losses, kept, and what they were before
        self._carrying: dict[int, weakref.ref[torch.Tensor]] = {}  # gradients that are multiplied by the scale
        # By their parameters: gradients that were divided by the scale, and those that a scaled backward pass was added to after that.
        self._divided: dict[int, Divided] = {}
        self._mixed: dict[int, tuple[weakref.ref[torch.Tensor], Place | None]] = {}
        self._made = MadeAt()  # of optimizers
        self._first: object = None
        self._inside_scaler: object = None
        self._unscaled: set[int] = set()
        self._made_after_start = 0
        self._skipped_in_a_row = 0
        self._losses: list[torch.Tensor] = []
        self.scaled_gradients = False
        self.backwards = self.steps = 0
        self.half: torch.dtype | None = None
        self.half_in_step: tuple[torch.dtype, tuple[str, int] | None] | None = None
        self.scaler: Any = None
        self.phase = "forward"
        self._last_region: torch.dtype | None = None

    def tell(self, kind: str, *, at: Place | None = None, **details: object) -> None:
        """Note a mistake at the user's line, once."""
        place = at or self._places.here()
        if (kind, place) not in self._told:
            self._told.add((kind, place))
            self._recorder.event(kind, place=list(place) if place else None, step=self._recorder.made, **details)

    @property
    def gradients_are_scaled(self) -> bool:
        """Whether gradients are multiplied by the loss scale now: the scaler divides them before it steps."""
        return self.scaled_gradients and not self._unscaled and self._inside_scaler is None

    def _told_units(self, kind: str, details: dict[str, object]) -> None:
        if not self._quiet:
            self.tell(kind, **details)  # type: ignore[arg-type]

    def _told_reading(self, place: Place, scale: float) -> None:
        if ("scaled-loss-read", place) not in self._told:
            self._told.add(("scaled-loss-read", place))
            self._recorder.event("scaled-loss-read", place=list(place), step=self._recorder.made, scale=scale)

    @property
    def innermost(self) -> bool | None:
        """Whether the innermost region of autocast is on; None outside of all."""
        return self._regions[-1] if self._regions else None

    def left(self) -> None:
        """A region of autocast is left."""
        if self._regions:
            self._regions.pop()

    def region(self, region: Any) -> None:
        """A region of autocast is entered."""
        self._regions.append(bool(region._enabled))
        self.turned_off = self.turned_off or not region._enabled
        self._last_region = region.fast_dtype if region._enabled else None
        if self.phase == "backward":  # the next part of a batch
            self.phase = "forward"
        if region._enabled and region.fast_dtype in (torch.float16, torch.bfloat16):
            self.half = region.fast_dtype
            self.half_in_step = self.half_in_step or (region.fast_dtype, self._places.here())

    def made_scaler(self, scaler: Any) -> None:
        """A scaler is made."""
        if scaler.is_enabled() and self._recorder.made and self.scaler is not None:
            self._made_after_start += 1
            if self._made_after_start >= REMADE:
                self.tell("scaler-recreated", times=self._made_after_start, scale=float(self.scaler.get_scale()))

    def scaled(self, scaler: Any, outputs: Any, result: Any) -> None:
        """A scaler has scaled a loss."""
        self.scaler = scaler
        self.uses.add(SCALED, self._places.here(), wrong=scaler.is_enabled() and float(scaler.get_scale()) != 1.0)
        if isinstance(outputs, torch.Tensor) and scaler.is_enabled():
            if id(outputs) in self._scaled:
                self.tell("scaled-twice", scale=float(scaler.get_scale()))
            self.units.scale = float(scaler.get_scale())
            self.units.mark(result, 1.0)
        if isinstance(result, torch.Tensor) and isinstance(outputs, torch.Tensor) and scaler.is_enabled():
            self._scaled[id(result)] = result, outputs.detach()
            self.losses.mark(result, float(scaler.get_scale()))
            overflown = bool(torch.isfinite(outputs.detach()).all()) and not bool(torch.isfinite(result.detach()).all())
            if outputs.dtype == torch.float16 and overflown:
                self.tell("scaled-loss-overflows", loss=float(outputs.detach().float().mean()), scale=float(scaler.get_scale()))

    def backward(self, tensors: Any) -> None:
        """A backward pass begins."""
        self.backwards += 1
        losses = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors) if isinstance(tensors, Iterable) else []
        scaled = bool(self._scaled)  # the loss itself, or what was made of it
        enabled = self.scaler is not None and self.scaler.is_enabled()
        self._refresh()
        if enabled and not scaled and losses:
            self.tell("backward-without-scale", scale=float(self.scaler.get_scale()))
        if torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"):
            self.tell("backward-inside-autocast")
        self.scaled_gradients = self.scaled_gradients or scaled
        for loss in losses:
            if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                self._losses.append(self._scaled[id(loss)][1] if id(loss) in self._scaled else loss.detach())
        self._scaled.clear()
        self.phase = "backward"

    def went_back(self) -> None:
        """A backward pass is over: gradients carry what the losses did."""
        if self.scaler is not None and self.scaler.is_enabled():
            self._mix(self._places.here())
        if self.gradients_are_scaled:
            self.units.scale = float(self.scaler.get_scale())
            self.units.mark(self.scaler._scale, 1.0)
            for gradient in self._gradients():
                self.units.mark(gradient, 1.0)
                self._carrying[id(gradient)] = weakref.ref(gradient)

    def _refresh(self) -> None:
        """What the program itself has written to divided gradients is no backward pass; those that it has made zero are as new."""
        for key, known in list(self._divided.items()):
            gradient = known.gradient()
            if gradient is not None and gradient._version != known.version:
                if bool(gradient.any()):
                    self._divided[key] = known._replace(version=gradient._version)
                else:
                    del self._divided[key]

    def _mix(self, place: Place | None) -> None:
        """A backward pass has added to gradients, some of which were divided by the scale."""
        for key, (parameter, gradient, version) in list(self._divided.items()):
            found = gradient()
            held = found is not None and id(getattr(parameter(), "grad", None)) == id(found)
            if found is not None and held and found._version == version:
                continue
            del self._divided[key]
            if held:
                self._mixed[key] = gradient, place

    def _used(self, optimizer: Any) -> None:
        """Gradients of an optimizer are about to be divided, or applied."""
        if self._mixed and self.scaler is not None and self.scaler.is_enabled():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    gradient, place = self._mixed.get(id(parameter), (None, None))
                    if gradient is not None and parameter.grad is not None and gradient() is parameter.grad:
                        self.tell("backward-after-unscale", at=place, scale=float(self.scaler.get_scale()))

    def dropped(self, parameters: Iterable[Any]) -> None:
        """Gradients are about to be set to zero, or were divided by the scale."""
        for parameter in parameters:
            self._carrying.pop(id(parameter.grad), None)
            self._divided.pop(id(parameter), None)
            self._mixed.pop(id(parameter), None)

    def zeroed(self) -> None:
        """The gradients of a model are about to be set to zero: that ends a step where the program changes weights by itself."""
        if self.backwards and self._first in (None, BY_HAND):
            self.stepped(BY_HAND, skipped=False)

    def _carries(self, optimizer: Any) -> bool:
        gradients = [parameter.grad for group in optimizer.param_groups for parameter in group["params"] if parameter.grad is not None]
        return any(known() is gradient for gradient in gradients if (known := self._carrying.get(id(gradient))) is not None)

    def taken(self, outputs: Any, results: Any, *, kept: bool) -> None:
        """Gradients were asked for; `kept`: to go backward through them."""
        if self.scaler is None or not self.scaler.is_enabled():
            return
        tensors = [value for value in ([outputs] if isinstance(outputs, torch.Tensor) else outputs) if isinstance(value, torch.Tensor)]
        if any(self.units.known(value) == 1.0 for value in tensors):
            for result in results:
                if isinstance(result, torch.Tensor):
                    self.units.mark(result, 1.0)
            for value in tensors:
                self._scaled.pop(id(value), None)
        elif kept and self._last_region is torch.float16:
            self.tell("penalty-without-scale", scale=float(self.scaler.get_scale()))

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """While something runs that is told of in its own words, or may change scaled gradients."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def unscaled(self, scaler: Any, optimizer: Any) -> None:
        """A scaler has divided the gradients of an optimizer by its scale."""
        self._used(optimizer)
        if scaler.is_enabled():
            self._unscaled.add(id(optimizer))
            self.units.forget()
            held: Iterator[Any] = (parameter for group in optimizer.param_groups for parameter in group["params"])
            trained = [parameter for parameter in held if parameter.grad is not None]
            again = sum(1 for each in trained if id(each) in self._divided and self._divided[id(each)].gradient() is each.grad)
            if again:
                self.tell("shared-unscaled-twice", number=again, scale=float(scaler.get_scale()))
            self.dropped(trained)
            self._divided |= {id(each): Divided(weakref.ref(each), weakref.ref(each.grad), each.grad._version) for each in trained}

    def clipped(self, parameters: Any, value: float) -> None:
        """Gradients are about to be clipped."""
        self.phase = "update"
        if not self.scaled_gradients or self._unscaled or self.scaler is None or not self.scaler.is_enabled():
            return
        gradients = [p.grad.detach() for p in _parameters(parameters) if p.grad is not None]
        norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g.float()) for g in gradients]))) if gradients else 0.0
        if not math.isfinite(norm):
            return  # the scaler will skip this step
        scale = float(self.scaler.get_scale())
        self.tell("clip-before-unscale", norm=norm, scale=scale, real=norm / scale, limit=float(value))

    def made_optimizer(self, optimizer: Any) -> None:
        """An optimizer is made."""
        self._made.note(optimizer, self._places.here())

    def stepping(self, optimizer: Any) -> None:
        """An optimizer is about to step."""
        self.phase = "update"
        self._used(optimizer)
        half = any(each.dtype == torch.float16 for group in optimizer.param_groups for each in group["params"])
        self.uses.add(OPTIMIZER, self._made.of(optimizer), wrong=half)
        if torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"):
            self.tell("step-inside-autocast")
        enabled = self.scaler is not None and self.scaler.is_enabled()
        if enabled and self._inside_scaler is None and (self.scaled_gradients or self._carries(optimizer)):
            kind = "unscaled-step" if self._carries(optimizer) else "step-past-scaler"
            self.tell(kind, scale=float(self.scaler.get_scale()))
        if not enabled and self.half_in_step is not None and self.half_in_step[0] == torch.float16 and self.backwards:
            self.tell("missing-loss-scaling")

    def through_scaler(self, optimizer: Any) -> None:
        """A scaler is about to step an optimizer, or to skip that; None: it has."""
        self._inside_scaler = optimizer
        if optimizer is not None:
            self._used(optimizer)

    def skipped(self, optimizer: object) -> None:
        """A scaler has skipped a step, since a gradient was not finite."""
        self._skipped(optimizer)
        self.stepped(optimizer, skipped=True)

    def stepped(self, optimizer: object, *, skipped: bool) -> None:
        """An optimizer has stepped, or was skipped: the first one's steps are those of the training."""
        self._first = self._first or optimizer
        self.steps += 1
        self._unscaled.discard(id(optimizer))
        self._skipped_in_a_row = self._skipped_in_a_row + 1 if skipped else 0
        if self._skipped_in_a_row == 10:
            self.tell("every-step-skipped", scale=float(self.scaler.get_scale()))
        if optimizer is not self._first:
            return
        scale = float(self.scaler.get_scale()) if self.scaler is not None and self.scaler.is_enabled() else None
        if scale is not None and self.half is torch.bfloat16:
            self.tell("scaler-with-bfloat16", scale=scale)
        if scale is not None and self.half is None:
            self.tell("scaler-without-autocast", scale=scale)
        losses = [float(loss) for loss in self._losses]
        self._losses.clear()
        self.losses.stepped()
        self.scaled_gradients, self.backwards, self.half_in_step, self.phase = False, 0, None, "forward"
        self._unscaled.clear()
        self.units.forget()
        try:
            self._recorder.step(sum(losses) / len(losses) if losses else None, scale, skipped)
        finally:
            self._step_done()

    def applied(self, function: type, *, back: bool) -> None:
        """An autograd function of the program is about to run, forward or backward."""
        code = getattr(function.forward, "__code__", None)  # type: ignore[attr-defined]
        place = self._places.own(code.co_filename, code.co_firstlineno) if code is not None else None
        self.uses.add(BACKWARD if back else FUNCTION, place, wrong=bool(self.innermost) and not back)

    def saved(self, value: object) -> None:
        """Something is written to a file."""
        if self.scaler is None or not self.scaler.is_enabled():
            return
        found = set(_states(value, 0))
        if "optimizer" in found and "scaler" not in found:
            self.tell("scaler-not-saved", scale=float(self.scaler.get_scale()))


def install(training: Training) -> None:
    """Patch what a loop calls."""
    _patch_autocast(training)
    _patch_scaler(training)
    _patch_gradients(training)
    _patch_functions(training)
    save = torch.save

    def saving(obj: object, *args: Any, **options: Any) -> None:
        training.saved(obj)
        save(obj, *args, **options)

    torch.save = saving


def _patch_autocast(training: Training) -> None:
    region = torch.amp.autocast_mode.autocast
    enter, leave = region.__enter__, region.__exit__

    def entered(self: Any) -> Any:
        training.region(self)
        return enter(self)

    def left(self: Any, *error: Any) -> Any:
        training.left()
        return leave(self, *error)

    region.__enter__, region.__exit__ = entered, left  # type: ignore[method-assign]


def _patch_functions(training: Training) -> None:
    from torch.autograd.function import BackwardCFunction

    apply, back = torch.autograd.Function.apply.__func__, BackwardCFunction.apply  # type: ignore[attr-defined]

    def applying(kind: Any, *args: Any, **options: Any) -> Any:
        if not torch.compiler.is_compiling():
            training.applied(kind, back=False)
        return apply(kind, *args, **options)

    def going_back(node: Any, *args: Any) -> Any:
        result = back(node, *args)
        training.applied(node._forward_cls, back=True)
        return result

    torch.autograd.Function.apply = classmethod(applying)  # type: ignore[assignment]
    BackwardCFunction.apply = going_back  # type: ignore[method-assign]


def _patch_scaler(training: Training) -> None:
    scaler = torch.amp.grad_scaler.GradScaler
    made, scale, unscale, step = scaler.__init__, scaler.scale, scaler.unscale_, scaler.step
    asked = scaler.get_scale

    def asking(self: Any) -> float:
        training.losses.scale_read(sys._getframe(1).f_code.co_filename)
        with training.quiet():  # the scale itself carries the scale, and may well be read
            return float(asked(self))

    def making(self: Any, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        training.made_scaler(self)

    def scaling(self: Any, outputs: Any) -> Any:
        with training.quiet():
            result = scale(self, outputs)
        training.scaled(self, outputs, result)
        return result

    def unscaling(self: Any, optimizer: Any) -> None:
        with training.quiet():
            unscale(self, optimizer)
        training.unscaled(self, optimizer)

    def stepping(self: Any, optimizer: Any, *args: Any, **options: Any) -> Any:
        steps = getattr(optimizer, "_mplint_steps", 0)
        training.through_scaler(optimizer)
        try:
            with training.quiet():
                result = step(self, optimizer, *args, **options)
        finally:
            training.through_scaler(None)
        if self.is_enabled() and getattr(optimizer, "_mplint_steps", 0) == steps:
            training.skipped(optimizer)
        return result

    scaler.__init__, scaler.scale, scaler.unscale_, scaler.step = making, scaling, unscaling, stepping  # type: ignore[method-assign]
    scaler.get_scale = asking  # type: ignore[method-assign]
    training.losses.watch(torch.Tensor, READING, ("detach", "cpu"), torch.compiler.is_compiling)


def _patch_gradients(training: Training) -> None:
    from importlib import import_module

    backward = torch.autograd.backward

    def going_back(tensors: Any, *args: Any, **options: Any) -> None:
        training.backward(tensors)
        training.units.paused = True
        try:
            backward(tensors, *args, **options)
        finally:
            training.units.paused = False
        training.went_back()

    torch.autograd.backward = going_back
    take = torch.autograd.grad

    def taking(outputs: Any, *args: Any, **options: Any) -> Any:
        training.units.paused = True
        try:
            results = take(outputs, *args, **options)
        finally:
            training.units.paused = False
        training.taken(outputs, results, kept=bool(options.get("create_graph")))
        return results

    torch.autograd.grad = taking
    for module in (torch.nn.utils, import_module("torch.nn.utils.clip_grad")):
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            setattr(module, name, _clipping(getattr(module, name), training))
    optimizers = import_module("torch.optim.optimizer")

    def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
        return after_closure(args, kwargs, lambda: training.stepping(optimizer))

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        optimizer._mplint_steps = getattr(optimizer, "_mplint_steps", 0) + 1
        training.stepped(optimizer, skipped=False)

    make = optimizers.Optimizer.__init__

    def making(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        training.made_optimizer(self)

    optimizers.Optimizer.__init__ = making
    optimizers.Optimizer.zero_grad = _zeroing(optimizers.Optimizer.zero_grad, training)
    torch.nn.Module.zero_grad = _zeroing(torch.nn.Module.zero_grad, training)  # type: ignore[method-assign]
    optimizers.register_optimizer_step_pre_hook(before)
    optimizers.register_optimizer_step_post_hook(after)


def after_closure(args: tuple[Any, ...], kwargs: dict[str, Any], call: Callable[[], None]) -> tuple[Any, Any] | None:
    """Call something when the gradients of a step are first there: now, or after a closure that the optimizer is given to compute them.

    `args` and `kwargs` are those of the optimizer's `step`; those to use in their place come back.
    """
    closure = args[1] if len(args) > 1 else kwargs.get("closure")
    if closure is None:
        call()
        return None
    waiting = [call]

    @wraps(closure)
    def closing() -> Any:
        result = closure()
        while waiting:
            waiting.pop()()
        return result

    return ((args[0], closing, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": closing})


def of_keras(kind: type) -> bool:
    """Whether a kind of module is a layer of Keras, which its own probe watches."""
    known = _OF_KERAS.get(kind)
    if known is None:
        known = _OF_KERAS[kind] = any(base.__module__.startswith("keras.") for base in kind.__mro__)
    return known


_OF_KERAS: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()  # asked for every call of a module


def _zeroing(original: Any, training: Training) -> Any:
    def zeroing(this: Any, *args: Any, **options: Any) -> None:
        if isinstance(this, torch.nn.Module):
            if not of_keras(type(this)):
                training.zeroed()
            training.dropped(this.parameters())
        else:
            training.dropped(parameter for group in this.param_groups for parameter in group["params"])
        original(this, *args, **options)

    return zeroing


def _clipping(original: Any, training: Training) -> Any:
    if getattr(original, "_mplint", False):
        return original

    def clipping(parameters: Any, limit: float, *args: Any, **options: Any) -> Any:
        kept = list(_parameters(parameters))
        with training.quiet():
            training.clipped(kept, limit)
            return original(kept, limit, *args, **options)

    clipping._mplint = True  # type: ignore[attr-defined]
    return clipping


def _parameters(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [each for each in value if isinstance(each, torch.Tensor)]


def _states(value: object, depth: int) -> Iterable[str]:
    """What of a training a saved value holds: the state of an optimizer, of a scaler."""
    if isinstance(value, Mapping):
        if "param_groups" in value and "state" in value:
            yield "optimizer"
        if "growth_factor" in value and "scale" in value:
            yield "scaler"
        if depth < 4:
            for inner in value.values():
                yield from _states(inner, depth + 1)
    elif isinstance(value, list | tuple) and depth < 4 and len(value) < 100:
        for inner in value:
            yield from _states(inner, depth + 1)
