"""Sets every instrument of a torch training, and decides which steps are looked at closely."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import torch

from mplint.doctor.places import Places
from mplint.doctor.torch_parameters import Parameters
from mplint.doctor.torch_training import Training
from mplint.doctor.torch_training import install as install_training
from mplint.doctor.torch_values import Values
from mplint.runs.record import Recorder

if TYPE_CHECKING:
    from types import ModuleType

    from mplint.runs.child import Settings

CLOSE = 3  # steps at the beginning that are looked at closely
SLOWER = 2.5  # a run may take so many times its own time
SHOWN = 12


def install(framework: ModuleType, settings: Settings, recorder: Recorder) -> None:
    """Watch a torch program; its random numbers begin with the seed."""
    framework.manual_seed(settings.seed)
    watch = _Watch(settings, recorder)
    watch.install()  # before the loop's own hooks: they end a step
    install_training(watch.training)
    recorder.at_end(watch.end)
    recorder.fact("torch", str(framework.__version__))
    recorder.fact("device", framework.cuda.get_device_name() if framework.cuda.is_available() else "CPU")


class _Watch:
    """Looks closely at the first steps, after something broke, and as often as the time that it takes allows."""

    def __init__(self, settings: Settings, recorder: Recorder) -> None:
        places = Places(os.path.dirname(os.path.abspath(settings.script)))
        self._recorder = recorder
        self._modules: list[str] = []
        self._names: dict[int, str] = {}
        self.training = Training(recorder, places, self.step_done)
        self.parameters = Parameters(recorder)
        self.values = Values(recorder, places, self.module, self.state)
        self._close = False  # this step is looked at
        self._looking = False  # its operations are, which end where the optimizer begins
        self._left = CLOSE
        self._times: dict[bool, list[float]] = {True: [], False: []}
        self._began = time.perf_counter()

    def module(self) -> str:
        """The path of the module that runs."""
        return self._modules[-1] if self._modules else ""

    def state(self) -> dict[str, object]:
        """What the training is doing, for events."""
        scaler = self.training.scaler
        return {"phase": self.training.phase, "scaled": scaler is not None and scaler.is_enabled()}

    def install(self) -> None:
        """Hook into modules and optimizers, and begin to look closely."""
        from importlib import import_module

        modules = import_module("torch.nn.modules.module")
        modules.register_module_forward_pre_hook(self._enter)
        modules.register_module_forward_hook(self._leave, always_call=True)
        optimizers = import_module("torch.optim.optimizer")
        optimizers.register_optimizer_step_pre_hook(self._before_step)
        optimizers.register_optimizer_step_post_hook(self._after_step)

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        if not self._modules:
            self.parameters.name(module)
            for name, inner in module.named_modules():
                self._names.setdefault(id(inner), name or type(module).__name__)
            if self._left and not self._close:
                self.look()
        self._modules.append(self._names.get(id(module), type(module).__name__))

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if self._modules:
            self._modules.pop()

    def look(self) -> None:
        """Look at every operation from here on."""
        self._close = self._looking = True
        self.values.__enter__()

    def _stop_looking(self) -> None:
        if self._looking:
            self._looking = False
            self.values.__exit__(None, None, None)
            self.values.forget()

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._stop_looking()
        if self._close:
            scaler = self.training.scaler
            scale = float(scaler.get_scale()) if scaler is not None and scaler.is_enabled() else None
            self.parameters.before(optimizer, scale, scaled=self.training.gradients_are_scaled)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._close:
            self.parameters.after(optimizer)

    def step_done(self) -> None:
        """A step is over, or was skipped: decide whether the next one is looked at."""
        self._stop_looking()
        now = time.perf_counter()
        self._times[self._close].append(now - self._began)
        self._began = now
        if self._close:
            self._close = False
            self._left -= 1
        if not self._left and self._affordable():
            self._left = 1

    def _affordable(self) -> bool:
        plain, close = self._times[False], self._times[True]
        if not plain:
            return False
        usual = sum(plain) / len(plain)
        spent = sum(plain) + sum(close[1:])
        return spent + sum(close[1:]) / max(1, len(close) - 1) < SLOWER * usual * (len(plain) + len(close))

    def end(self) -> None:
        """Tell what was summed up."""
        self.parameters.end()
        headroom = sorted(self.values.headroom.items(), key=lambda item: -item[1])[:SHOWN]
        self._recorder.fact("headroom", headroom)
        self._recorder.fact("operations", self.values.counts)
        self._recorder.fact("looked_at", len(self._times[True]))
