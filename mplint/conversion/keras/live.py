"""Converting a keras.Model in memory, through an archive of it."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from mplint.conversion.policy import Options, Policy
from mplint.conversion.result import Conversion


def convert_live(model: Any, policy: Policy, options: Options, calibration: list[str]) -> Conversion:
    """Convert a keras.Model in memory, through an archive of it; the model itself does not change."""
    from mplint.conversion.command import convert_keras

    folder = tempfile.TemporaryDirectory(prefix="mplint-")
    source = os.path.join(folder.name, "model.keras")
    model.save(source)
    result = convert_keras(source, "converted.keras", policy, options, calibration)
    write = result.save

    def keeping(target: str, _folder: object = folder) -> None:  # the archive must live as long as it may be written
        write(target)

    result.save = keeping
    return result
