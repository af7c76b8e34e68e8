"""Forces a precision policy on a torch program that trains in mixed precision, and notes its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mplint.runs.devices import Device
from mplint.runs.record import Recorder

if TYPE_CHECKING:
    from types import ModuleType

    from mplint.runs.child import Settings

OFF = "the program's regions of autocast are off here"
NO_REGION = "the program enters no region of autocast"


def install(torch: ModuleType, settings: Settings, recorder: Recorder) -> None:
    """Patch torch for one run: regions of autocast and gradient scalers follow the policy, every step of the first optimizer is noted."""
    torch.manual_seed(settings.seed)
    probe = _Probe(torch, recorder)
    _force_autocast(torch, settings.policy, recorder, probe)
    _force_scaler(torch, settings.policy, probe)
    _watch_backward(torch, probe)
    import_module("torch.optim.optimizer").register_optimizer_step_post_hook(probe.stepped)
    recorder.fact("torch", str(torch.__version__))


def _force_autocast(torch: ModuleType, policy: str, recorder: Recorder, probe: _Probe) -> None:
    """Regions that the program turns on take the dtype of the policy, or are off for float32; islands that it turns off stay off."""
    region = torch.amp.autocast_mode.autocast
    original = region.__init__
    half = getattr(torch, policy.removeprefix("mixed_")) if policy != "float32" else None
    told: list[bool] = []
    here = _devices(torch)

    def forced(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None) -> None:
        device_type = here(device_type)
        probe.regions += 1
        wanted = enabled and dtype is not torch.float32
        original(self, device_type, half if wanted and half is not None else None, wanted and half is not None, cache_enabled)
        if not told and getattr(self, "_enabled", False):
            told.append(True)
            recorder.fact("half", True)

    def why_not() -> None:
        if not told and probe.steps:
            recorder.fact("without_half", OFF if probe.regions else NO_REGION)

    region.__init__ = forced
    recorder.at_end(why_not)


def _devices(torch: ModuleType) -> Callable[[str], str]:
    """Where a region or a scaler works that is meant for a GPU: on the CPU where there is none, since the program trains there."""
    there = torch.cuda.is_available()
    return lambda device: "cpu" if str(device).startswith("cuda") and not there else device


def _force_scaler(torch: ModuleType, policy: str, probe: _Probe) -> None:
    scaler = torch.amp.grad_scaler.GradScaler
    original, scale, step = scaler.__init__, scaler.scale, scaler.step

    here = _devices(torch)

    def forced(self: Any, *args: Any, **options: Any) -> None:
        device, *args = args or (options.pop("device", "cuda"),)  # type: ignore[assignment]
        args = (here(device), *args)
        if policy != "mixed_float16":
            options["enabled"] = False
            args = args[:5]
        original(self, *args, **options)

    def scaled(self: Any, outputs: Any) -> Any:
        result = scale(self, outputs)
        if isinstance(result, torch.Tensor) and isinstance(outputs, torch.Tensor):
            probe.unscaled[id(result)] = outputs.detach()
        probe.scaler = self
        return result

    def stepped(self: Any, optimizer: Any, *args: Any, **options: Any) -> Any:
        before = probe.steps
        result = step(self, optimizer, *args, **options)
        if self.is_enabled() and probe.steps == before:
            probe.skipped(optimizer)
        return result

    scaler.__init__, scaler.scale, scaler.step = forced, scaled, stepped


def _watch_backward(torch: ModuleType, probe: _Probe) -> None:
    original = torch.autograd.backward

    def watched(tensors: Any, *args: Any, **options: Any) -> Any:
        probe.backward(tensors)
        return original(tensors, *args, **options)

    torch.autograd.backward = watched


class _Probe:
    """What happens between two steps of the first optimizer that steps."""

    def __init__(self, torch: ModuleType, recorder: Recorder) -> None:
        self._torch = torch
        self._recorder = recorder
        self._device = Device(recorder)
        self._first: object = None
        self._losses: list[Any] = []
        self.unscaled: dict[int, Any] = {}
        self.scaler: Any = None
        self.steps = 0
        self.regions = 0  # of autocast that the program has made, on or off

    def backward(self, tensors: Any) -> None:
        """Keep what a backward pass begins with, as it was before it was scaled."""
        for tensor in (tensors,) if isinstance(tensors, self._torch.Tensor) else tensors if isinstance(tensors, Iterable) else ():
            if isinstance(tensor, self._torch.Tensor) and tensor.numel() == 1:
                self._losses.append(self.unscaled.get(id(tensor), tensor.detach()))
        self.unscaled.clear()

    def stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer has stepped."""
        self.steps += 1
        self._note(optimizer, skipped=False)

    def skipped(self, optimizer: Any) -> None:
        """A scaler has kept an optimizer from stepping."""
        self._note(optimizer, skipped=True)

    def _note(self, optimizer: object, *, skipped: bool) -> None:
        self._first = self._first or optimizer
        if optimizer is not self._first:
            return
        if self.steps == 1:
            self._recorder.fact("trained", "torch")
        weight = next((each for group in optimizer.param_groups for each in group["params"]), None)  # type: ignore[attr-defined]
        if weight is not None:
            self._device.torch(self._torch, weight)
            if weight.is_cuda:
                self._torch.cuda.synchronize()
        losses = [float(loss) for loss in self._losses]
        self._losses.clear()
        scale = float(self.scaler.get_scale()) if self.scaler is not None and self.scaler.is_enabled() else None
        self._recorder.step(sum(losses) / len(losses) if losses else None, scale, skipped)
