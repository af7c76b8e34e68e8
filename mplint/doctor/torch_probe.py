"""Sets every instrument of a torch training, and decides which steps are looked at closely."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from mplint.doctor.gradients import Gradients, Parameter
from mplint.doctor.places import MadeAt, Places
from mplint.doctor.ranges import Ranges
from mplint.doctor.regions import Regions
from mplint.doctor.sampling import Sampling, Share
from mplint.doctor.torch_training import Training, after_closure, of_keras
from mplint.doctor.torch_training import install as install_training
from mplint.doctor.torch_values import TENSORS, Instruments, Operations
from mplint.doctor.units import Units
from mplint.doctor.values import Operation, Place, Seen, Situation, Values
from mplint.doctor.work import Work
from mplint.limits import HALF_MAX
from mplint.runs.devices import Device
from mplint.runs.record import Recorder

if TYPE_CHECKING:
    from types import ModuleType

    from mplint.runs.child import Settings

SHOWN = 200
COMPILED = "_orig_mod."  # what torch.compile puts before the names of a model's parts


def install(framework: ModuleType, settings: Settings, recorder: Recorder) -> None:
    """Watch a torch program; its random numbers begin with the seed."""
    framework.manual_seed(settings.seed)
    watch = _Watch(settings, recorder)
    watch.install()  # before the loop's own hooks: they end a step
    install_training(watch.training)
    recorder.at_end(watch.end)
    recorder.fact("torch", str(framework.__version__))


class Modules:
    """Which module runs, and where each was made."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._names: dict[int, str] = {}
        self._running: list[int] = []
        self._made = MadeAt()
        self._parameters: dict[int, str] = {}
        self._leaves: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
        self._inside: list[torch.nn.Module] = []

    def made(self, module: torch.nn.Module) -> None:
        """A module is made."""
        self._made.note(module, self._places.here())

    def enter(self, module: torch.nn.Module) -> None:
        """A module begins to run; where none runs, it is a model."""
        if not self._inside:
            for name, inner in module.named_modules():
                self._names.setdefault(id(inner), name.replace(COMPILED, "") or type(module).__name__)
            for path, parameter in module.named_parameters():
                name = path.replace(COMPILED, "")
                if id(parameter) not in self._parameters:
                    taken = name in self._parameters.values()
                    self._parameters[id(parameter)] = f"{type(module).__name__}.{name}" if taken else name
                    self._leaves.add(parameter)
        self._inside.append(module)

    def leave(self) -> None:
        """The module that runs is done."""
        if self._inside:
            self._inside.pop()

    @property
    def idle(self) -> bool:
        """No module runs."""
        return not self._inside

    @property
    def gradients(self) -> list[torch.Tensor]:
        """The gradients of all models."""
        return [leaf.grad for leaf in self._leaves if leaf.grad is not None]

    def path(self) -> str:
        """The path of the module that runs."""
        return self._names.get(id(self._inside[-1]), type(self._inside[-1]).__name__) if self._inside else ""

    def layer(self) -> Place | None:
        """Where the module that runs was made."""
        return self._made.of(self._inside[-1]) if self._inside else None

    def parameter(self, parameter: torch.Tensor) -> str:
        """The name of a parameter."""
        return self._parameters.get(id(parameter), f"a parameter of shape {tuple(parameter.shape)}")


class _Watch:
    """Looks closely at some steps: operation by operation up to the optimizer, whose gradients and weights it looks at then."""

    def __init__(self, settings: Settings, recorder: Recorder) -> None:
        places = Places(settings.script)
        self._recorder = recorder
        self._device = Device(recorder)
        self._sampling = Sampling(settings.every)
        self.modules = Modules(places)
        self.training = Training(recorder, places, self.step_done, lambda: self.modules.gradients, self.skipped)
        at = Situation(self.modules.path, places.here, self.state)
        self.gradients = Gradients(recorder)
        self.ranges = Ranges(recorder)
        self.values = Values(recorder, TENSORS, at, self.ranges.add)
        self.work = Work(recorder)
        self.units: Units = self.training.units
        self.regions = Regions(recorder, self.region, self.training.tell, _exact, self.training.uses, places.here)
        self._share = Share()
        layer, noted = self.modules.layer, self.regions.look
        instruments = Instruments(self.values, self.work, self.units, at, layer, self.why, noted, self._took)
        self._operations = Operations(instruments)
        self._looking = False
        self._forked_off = False
        self._in_part = 0  # steps in which looking ended before they did

    def state(self) -> Mapping[str, object]:
        """What the training is doing, for events."""
        scaler = self.training.scaler
        return {"phase": self.training.phase, "scaled": scaler is not None and scaler.is_enabled()}

    def region(self) -> str:
        """The dtype of the region of autocast that is on in a forward pass, "" where none is."""
        training = self.training
        on = training.innermost and training.phase == "forward" and training.half is not None
        return str(training.half).removeprefix("torch.") if on else ""

    def why(self, operation: Operation, made: list[Seen]) -> str:
        """Why an operation of a program that computes in half ran in float32, "" where it did not, or is no matter of the model."""
        training = self.training
        if training.half is None or training.phase != "forward" or not made or made[0].dtype != "float32" or self.modules.idle:
            return ""
        given = {str(value.dtype).removeprefix("torch.") for value in operation.given if value.is_floating_point()}
        if training.innermost is None:
            return "it runs outside of the region of autocast"
        if not training.innermost:
            return "autocast is turned off there"
        if given & HALF_MAX.keys():
            return "one of its operands is float32"
        if any(source.operation == "_to_copy" and source.sources and source.sources[0].dtype in HALF_MAX for source in made[0].sources):
            return "autocast runs it in float32"
        return "what it is given is float32"

    def install(self) -> None:
        """Hook into modules and optimizers, and begin to look closely."""
        from importlib import import_module

        made = torch.nn.Module.__init__
        modules = self.modules

        def making(module: torch.nn.Module, *args: Any, **options: Any) -> None:
            made(module, *args, **options)
            modules.made(module)

        torch.nn.Module.__init__ = making  # type: ignore[assignment,method-assign]
        hooks = import_module("torch.nn.modules.module")
        hooks.register_module_forward_pre_hook(self._enter)
        hooks.register_module_forward_hook(self._leave, always_call=True)
        optimizers = import_module("torch.optim.optimizer")
        optimizers.register_optimizer_step_pre_hook(self._before_step)
        optimizers.register_optimizer_step_post_hook(self._after_step)
        self._recorder.in_child(self._forked)

    def _forked(self) -> None:
        """This process was forked: what goes on here is a step of its own, or the work of a loader."""
        self._operations.off = self._forked_off = True

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        if of_keras(type(module)):
            return
        if self._looking and self._operations.off and self._operations.innermost:
            self._stop_looking()
        if self.modules.idle and self._sampling.close and torch.is_grad_enabled() and not self._operations.off:
            self.look()
        self.modules.enter(module)

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if not of_keras(type(module)):
            self.modules.leave()

    def _took(self, seconds: float) -> bool:
        """Looking at an operation took so long; where all took too long, the rest of this step is not looked at."""
        self._share.took(seconds)
        used_up = self._share.used_up
        self._in_part += used_up
        return not used_up

    def look(self) -> None:
        """Look at every operation from here on."""
        if not self._looking:
            self._looking = True
            self._operations.__enter__()

    def _stop_looking(self) -> None:
        if self._looking:
            self._looking = False
            self._operations.__exit__(None, None, None)
            self.values.forget()

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        return after_closure(args, kwargs, lambda: self._gradients_done(optimizer))

    def _gradients_done(self, optimizer: Any) -> None:
        """The gradients of a step are there, and the optimizer is about to take them."""
        self._stop_looking()
        weight = next((each for group in optimizer.param_groups for each in group["params"]), None)
        if weight is not None:
            self._device.torch(torch, weight)
        if self._sampling.close:
            scaler = self.training.scaler
            scale = float(scaler.get_scale()) if scaler is not None and scaler.is_enabled() else None
            self.gradients.before(self._trained(optimizer), scale, scaled=self.training.gradients_are_scaled)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._sampling.close:
            self.gradients.after(self._trained(optimizer))

    def skipped(self, optimizer: Any) -> None:
        """A scaler has skipped a step of an optimizer, which no hook of it saw."""
        self._stop_looking()
        self.gradients.skipped(self._trained(optimizer))

    def _trained(self, optimizer: Any) -> Iterator[Parameter]:
        for group in optimizer.param_groups:
            rate = group.get("lr")
            for parameter in group["params"]:
                if parameter.requires_grad:
                    kept = str(parameter.dtype).removeprefix("torch.")
                    known = self._operations.leaves.get(id(parameter))
                    computed = known[1] if known is not None and known[0]() is parameter else kept
                    name = self.modules.parameter(parameter)
                    speed = float(rate) if rate is not None else None
                    yield Parameter(id(parameter), name, _flat(parameter), _gradient(parameter), computed, kept, speed)

    def step_done(self) -> None:
        """A step is over, or was skipped: decide whether the next one is looked at."""
        self._stop_looking()
        self._sampling.done()
        if not self._forked_off:
            self._operations.off = False

    def end(self) -> None:
        """Tell what was summed up."""
        if self.training.steps == 0 and not self.values.counts:
            return  # another probe watches, as that of Keras
        self._operations.off = True
        self.gradients.end()
        self.work.end()
        self.regions.end()
        self.training.uses.end()
        self.ranges.end()
        headroom = sorted(self.values.headroom.items(), key=lambda item: -item[1])[:SHOWN]
        self._recorder.fact("headroom", headroom)
        self._recorder.fact("operations", self.values.counts)
        if self.training.half is None and self.training.turned_off:
            self._recorder.fact("without_half", "the program's regions of autocast are off here")
        self._recorder.fact("looked_at", self._sampling.looked_at)
        self._recorder.fact("looked_in_part", self._in_part)
        self._operations.off = False


def _exact(value: torch.Tensor) -> int:
    """How many probabilities are 0 or 1."""
    return int(((value == 0) | (value == 1)).sum())


def _flat(parameter: torch.Tensor) -> Callable[[], Any]:
    return lambda: parameter.detach().double().reshape(-1).clone()


def _gradient(parameter: torch.Tensor) -> Callable[[], Any]:
    def read() -> Any:
        gradient = parameter.grad
        return (
            None if gradient is None else (gradient.coalesce().values() if gradient.is_sparse else gradient).detach().double().reshape(-1)
        )

    return read
