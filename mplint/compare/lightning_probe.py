"""Has a Trainer of Lightning, or a Fabric, train in the policy of a run, where the program lets it train in half precision."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from mplint.runs.record import Recorder

if TYPE_CHECKING:
    from types import ModuleType

    from mplint.runs.child import Settings

NAMES = {"mixed_float16": "16-mixed", "mixed_bfloat16": "bf16-mixed"}
MODULES = tuple(
    f"{package}.plugins.precision.amp" for package in ("lightning.fabric", "lightning.pytorch", "lightning_fabric", "pytorch_lightning")
)


def install(module: ModuleType, settings: Settings, recorder: Recorder) -> None:
    """Patch the plugin that a mixed precision is handed to.

    Its name decides whether losses are scaled, and the dtype that a Fabric casts what a model is given to.
    """
    kind = module.MixedPrecision
    original, name = kind.__init__, NAMES.get(settings.policy)

    @wraps(original)
    def forced(self: Any, precision: str, device: str, scaler: Any = None) -> None:
        if name is not None and name != precision:
            precision, scaler = name, None
        original(self, precision, device, scaler)
        if name is None and hasattr(self, "_desired_input_dtype"):
            import torch

            self._desired_input_dtype = torch.float32

    kind.__init__ = forced
