"""What `--target` names: a GPU as nvidia-smi prints it, a compute capability, "tpu", "cpu" or "auto"."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mplint.errors import UsageError, nearest
from mplint.hardware.table import nvidia, rows, thresholds, tpu, words
from mplint.hardware.values import Capability, Target, capability

CPU = Target("cpu", "CPU", None, False, half_fast=False, bf16_native=None, tf32=False, fp8=False)
_CAPABILITY = re.compile(r"(?i)(?:(?:cc|compute capability) ?)?(\d{1,2}\.\d)|(?:sm|compute)_?(\d{1,2})(\d)a?")
# What a driver adds to a name without changing what the device can compute.
_SUFFIX = re.compile(r"(?i) (?:laptop gpu|mobile|with max-q design|max-q|mig [\w.]+)$")
# Where people leave out a space: RTX3090, GTX1080Ti.
_JOINED = re.compile(r"(?i)(?<=\b[RG]TX)(?=\d)|(?<=\d)(?=(?:ti|super)\b)")


def resolve_target(text: str) -> Target:
    """The target that `text` names; raises UsageError for what is no device, fits several, or is not found on this machine."""
    name = " ".join(text.split())
    if name.lower() == "auto":
        from mplint.hardware.detect import detect

        return detect()
    if name.lower() == "cpu":
        return CPU
    if name.lower() in ("tpu", "cloud tpu"):
        return tpu("TPU", certainty="part-checked")
    if number := _CAPABILITY.fullmatch(name):
        return _by_capability(capability(number[1] or f"{number[2]}.{number[3]}"), name)
    target = find(name)
    if target is None:
        raise UsageError(f'unknown target "{text}"{_hint(name)}')
    return target


def find(name: str) -> Target | None:
    """The device called `name`, as its driver prints it or as people write it; None where the table has none.

    Raises UsageError where the name fits devices that differ in what they can compute.
    """
    plain = _JOINED.sub(" ", _SUFFIX.sub("", name))
    for row in rows():
        if row.pattern.search(plain):
            return _called(row.target, name)
    typed = words(plain)
    fitting = [row.target for row in rows() if typed and typed <= row.words]
    exact = [row.target for row in rows() if typed and typed == row.words]
    return _agreed(exact or fitting, name)


def _agreed(targets: list[Target], name: str) -> Target | None:
    """The one target that all candidates are, but for their names."""
    if not targets:
        return None
    if len({_called(target, "", "") for target in targets}) > 1:
        raise UsageError(f'the target "{name}" fits several devices: {_listed(target.name for target in targets)}')
    return targets[0] if len(targets) == 1 else _called(targets[0], name, _weakest(target.certainty for target in targets))


def _by_capability(cc: Capability, name: str) -> Target:
    known = sorted({row.target.capability for row in rows() if row.target.capability})
    if cc not in known and cc < known[-1]:
        shown = [f"{major}.{minor}" for major, minor in known]
        raise UsageError(f'no GPU has compute capability "{name}"; known are {", ".join(shown)}')
    label = f"compute capability {cc[0]}.{cc[1]}"
    return nvidia(label, cc, tensor_cores=cc >= thresholds().float16, certainty="checked" if cc in known else "unsure")


def _called(target: Target, name: str, certainty: str | None = None) -> Target:
    from dataclasses import replace

    return replace(target, name=name, certainty=target.certainty if certainty is None else certainty)


def _weakest(certainties: Iterable[str]) -> str:
    order = ("unsure", "memory", "part-checked", "checked")
    return min(certainties, key=order.index)


def _hint(name: str) -> str:
    names = [row.target.name.removeprefix("NVIDIA ") for row in rows()]
    return (
        nearest(name, [*names, "cpu", "tpu", "auto"])
        or '; give a GPU name as nvidia-smi prints it, a compute capability ("7.5"), tpu, cpu or auto'
    )


def _listed(names: Iterable[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:5]) + (", …" if len(unique) > 5 else "")
