"""Converting Keras 3 archives: only the dtype policies in config.json change, every other member stays byte for byte.

No framework is imported and nothing of the archive runs, so weights are bit-equal. Inputs and outputs stay float32, and so do layers whose
results depend on sizes that half can't hold.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from functools import partial
from typing import IO

from mplint.conversion.keras.editor import HEAVY, Editor, layers_of
from mplint.conversion.policy import ConversionError, Options, Policy
from mplint.conversion.result import Conversion
from mplint.graph.keras.layers import Config, class_of, layer_config
from mplint.graph.model import GraphError
from mplint.graph.storage import Archive, parse_json

ADVICE = """Loss scaling depends on the policy when the model is loaded. To train it under mixed_float16, before loading:
    keras.mixed_precision.set_global_policy("mixed_float16")
    model = keras.models.load_model({path!r})
  or compile it with keras.mixed_precision.LossScaleOptimizer(optimizer)."""
STATE = "\nThe optimizer's state in the archive is one without loss scaling: Keras warns, and starts with a new one."


def convert(
    path: str,
    target: str,
    policy: Policy,
    options: Options,
    largest: Mapping[str, float],
    reasons: Mapping[str, str] | None = None,
    *,
    known: bool = False,
) -> Conversion:
    """Convert an archive that is to be called `target`; nothing is written.

    `largest` is the largest |value| of inputs by name, as far as data or ranges tell; `reasons` why layers stay float32, by their paths;
    `known`: the classes of custom layers are there, and the result will be run.

    Raises ConversionError for an archive that can't be read, or whose layers are not in its configuration.
    """
    try:
        with Archive(path) as archive:
            config = parse_json(archive.read("config.json"), "config.json")
    except GraphError as error:
        raise ConversionError(f"{path}: {error}") from None
    if not isinstance(config, dict) or (layers_of(config) is None and not (known and has_policy(config))):
        what = f"the layers of {class_of(config)!r} are" if isinstance(config, dict) else "its layers are"
        raise ConversionError(
            f"{path}: {what} made by its own class and are not in the file, so no policy can be set there. "
            f"Convert the live model: make it under keras.mixed_precision.set_global_policy({policy.name!r}) and load the weights"
        )
    editor = Editor(policy, options, largest, reasons or {}, known=known)
    if layers_of(config) is None:
        editor.whole(config)
    else:
        editor.model(config, output=True)
    if not editor.found and not editor.kept:
        raise ConversionError(f"{path}: no layer of it has a dtype policy")
    result = Conversion(policy, save=partial(save, path, json.dumps(config)), kept=editor.kept)
    result.operations, result.operations_half = len(editor.found), sum(half for _, _, half in editor.found)
    result.in_half = [name for _, name, half in editor.found if half]
    result.planned = {name: planned for name, planned in editor.planned.items() if planned}
    heavy = [half for kind, _, half in editor.found if kind.startswith(HEAVY)]
    result.heavy, result.heavy_half = len(heavy), sum(heavy)
    result.size_before = result.size_after = os.path.getsize(path)
    if not result.in_half:
        already = sum("already" in reason for _, reason in editor.kept)
        have = "has" if already == 1 else "have"
        who = f"{already} of its layers {have} another policy already, and the others" if already else "its layers"
        result.notes.append(f"nothing changes: {who} must stay float32")
    else:
        result.notes.append("the variables stay float32, bit for bit, and are cast when they are used: the file does not shrink")
    if policy.half == "float16":
        result.advice = (ADVICE + (STATE if config.get("compile_config") else "")).format(path=target).split("\n")
    return result


def has_policy(config: Config) -> bool:
    """Whether a model that makes its layers itself gets a policy from its configuration."""
    given = layer_config(config).get("dtype")
    return isinstance(given, dict) and given.get("class_name") == "DTypePolicy"


def makes_layers(path: str) -> bool:
    """Whether the model in an archive makes its layers itself, of a configuration that has a policy."""
    try:
        with Archive(path) as archive:
            config = parse_json(archive.read("config.json"), "config.json")
    except GraphError:
        return False
    return isinstance(config, dict) and layers_of(config) is None and has_policy(config)


def save(source: str, config: str, target: str) -> None:
    """Write the archive with another config.json, whole or not at all; the other members are copied as they are."""
    folder = os.path.dirname(os.path.abspath(target))
    handle, partial_path = tempfile.mkstemp(prefix=".mplint-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            write(source, config, stream)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(partial_path, 0o666 & ~umask)
        os.replace(partial_path, target)
    except BaseException:
        os.unlink(partial_path)
        raise


def write(source: str, config: str, stream: IO[bytes]) -> None:
    """Write the archive with another config.json to an open file; the other members are copied as they are."""
    with zipfile.ZipFile(source) as given, zipfile.ZipFile(stream, "w") as made:
        for info in given.infolist():
            if info.filename == "config.json":
                made.writestr(info, config)
                continue
            with given.open(info) as member, made.open(info, "w", force_zip64=True) as copy:
                while block := member.read(1 << 20):
                    copy.write(block)
