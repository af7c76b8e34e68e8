"""Has an Accelerator of the package accelerate train in the policy of a run, where the program lets it train in half precision."""

from __future__ import annotations

import os
from functools import wraps
from typing import TYPE_CHECKING, Any

from mplint.runs.record import Recorder

if TYPE_CHECKING:
    from types import ModuleType

    from mplint.runs.child import Settings

NAMES = {"float32": "no", "mixed_float16": "fp16", "mixed_bfloat16": "bf16"}
VARIABLE = "ACCELERATE_MIXED_PRECISION"  # what `accelerate launch` and transformers' Trainer set
PLACE = 2  # of the precision among the arguments of an Accelerator
ON_A_CPU = "accelerate trains in float16 on a GPU only"


def install(accelerate: ModuleType, settings: Settings, recorder: Recorder) -> None:
    """Patch accelerate for one run.

    It decides by the name of a precision whether it scales and has regions of autocast at all: on a CPU it has none for fp16, whatever
    dtype these would be given.
    """
    kind = accelerate.Accelerator
    original, name = kind.__init__, NAMES[settings.policy]

    @wraps(original)
    def forced(self: Any, *args: Any, **options: Any) -> None:
        given = args[PLACE] if len(args) > PLACE else options.get("mixed_precision")
        asked = given or os.environ.get(VARIABLE, "no")
        half = str(getattr(asked, "value", asked)).lower() in ("fp16", "bf16")
        if half and len(args) > PLACE:
            args = (*args[:PLACE], name, *args[PLACE + 1 :])
        elif half:
            options["mixed_precision"] = name
        original(self, *args, **options)
        if half and name == "fp16" and not getattr(self, "native_amp", True):
            recorder.fact("refused", ON_A_CPU)

    kind.__init__ = forced
