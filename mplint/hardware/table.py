"""The device table `mplint/data/hardware.toml`, read when a target is first named."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mplint.hardware.values import Capability, Target, capability

# Sections of the table with one row a device, and the kind of target that a row becomes.
OTHER_MAKERS = {"amd": "rocm", "apple": "mps", "intel_xpu": "xpu"}


class Row(NamedTuple):
    """One device: the names it goes by, the name to show, what it can do, and its figures as the table writes them.

    `pattern` is matched at the start of a name as the driver prints it, after "NVIDIA " where that stands.
    """

    pattern: re.Pattern[str]
    words: frozenset[str]
    target: Target
    figures: dict[str, object]


class Thresholds(NamedTuple):
    """NVIDIA compute capabilities from which a format has matrix units."""

    float16: Capability
    bfloat16: Capability
    tf32: Capability
    float8: Capability


@cache
def rows() -> tuple[Row, ...]:
    """Every device of the table, in its order."""
    found = [_nvidia(row) for row in _rows("nvidia", "gpus")]
    found += [_tpu(row) for row in _rows("tpu", "rows")]
    found += [_other(row, kind) for section, kind in OTHER_MAKERS.items() for row in _rows(section, "rows")]
    return tuple(found)


def sources() -> dict[str, str]:
    """What figures of devices agree with, in words, by the name that rows use."""
    return {name: str(text) for name, text in _section("sources").items()}


def derivations() -> dict[str, dict[str, object]]:
    """How many operations the matrix units of a kind of GPU do a clock and SM, by dtype; "as" says what shows it."""
    return {name: way for name, way in _section("derived").items() if isinstance(way, dict)}


@cache
def thresholds() -> Thresholds:
    """From which compute capability each format is fast."""
    table = _section("capability")
    keys = ("fp16_tensor_cores", "bf16_tensor_cores", "tf32_tensor_cores", "fp8_tensor_cores")
    return Thresholds(*(capability(str(table[key])) for key in keys))


def nvidia(name: str, cc: Capability, *, tensor_cores: bool, certainty: str) -> Target:
    """An NVIDIA GPU: what its compute capability and its matrix units make fast."""
    limits = thresholds()
    return Target(
        kind="cuda",
        name=name,
        capability=cc,
        tensor_cores=tensor_cores,
        half_fast=tensor_cores,
        bf16_native=tensor_cores and cc >= limits.bfloat16,
        tf32=tensor_cores and cc >= limits.tf32,
        fp8=tensor_cores and cc >= limits.float8,
        certainty=certainty,
        float16_rate=float16_rate(cc),
    )


def float16_rate(cc: Capability) -> float:
    """How many float16 operations the cores of a GPU do for each one in float32, outside of Tensor Cores."""
    table = _section("capability")
    version = "{}.{}".format(*cc)
    for key, rate in (("fp16_double_rate_cuda_cores", 2.0), ("fp16_slow_1_64", 1 / 64), ("fp16_storage_only", 0.0)):
        listed = table[key]
        if isinstance(listed, list) and any(_covers(str(entry), version, cc) for entry in listed):
            return rate
    return 0.0


def _covers(entry: str, version: str, cc: Capability) -> bool:
    """Whether "6.0", "3.x" or "7.0+" stands for a compute capability."""
    if entry.endswith("+"):
        return cc >= capability(entry.removesuffix("+"))
    return version == entry or (entry.endswith(".x") and version.startswith(entry.removesuffix("x")))


def words(name: str) -> frozenset[str]:
    """The words of a device name, for names that a person types."""
    text = name.lower().replace("nvidia", " ").replace("(r)", " ").replace("(tm)", " ")
    return frozenset(re.findall(r"[a-z0-9.]+", text)) - {"gpu", "with"}


def _nvidia(row: dict[str, object]) -> Row:
    example = str(row["example"])
    target = nvidia(example, capability(str(row["cc"])), tensor_cores=row["tensor_cores"] is True, certainty=str(row["certainty"]))
    return Row(re.compile(f"(?:^|NVIDIA )(?:{row['pattern']})"), words(example), target, row)


def _tpu(row: dict[str, object]) -> Row:
    name = str(row["name"])
    aliases = row.get("aliases", [])
    spellings = [name, *(str(alias) for alias in aliases)] if isinstance(aliases, list) else [name]
    pattern = re.compile(rf"(?i)^(?:(?:cloud |google )*tpu[ -]?)?(?:{'|'.join(map(re.escape, spellings))})(?:-\d+)?$")
    return Row(pattern, frozenset(("tpu", name)), tpu(f"TPU {name}", certainty=str(row["certainty"]), fp8=bool(row.get("fp8"))), row)


def tpu(name: str, *, certainty: str, fp8: bool | None = None) -> Target:
    """A TPU: its matrix unit multiplies bfloat16; float16 has no fast path."""
    return Target("tpu", name, None, False, half_fast=True, bf16_native=True, tf32=False, fp8=fp8, certainty=certainty)


def _other(row: dict[str, object], kind: str) -> Row:
    name = str(row["name"])
    matrix = row.get("matrix") is True or kind == "xpu"
    known = "fp16" in row
    target = Target(
        kind=kind,
        name=f"Apple {name}" if kind == "mps" else name,
        capability=None,
        tensor_cores=matrix,
        half_fast=True if matrix else None,
        bf16_native=bool(row.get("bf16")) if known else None,
        tf32=bool(row.get("tf32")),
        fp8=bool(row.get("fp8")),
        certainty=str(row["certainty"]),
    )
    return Row(re.compile(rf"(?i)^(?:AMD |Apple |Intel )?{re.escape(name)}$"), words(target.name), target, row)


def _rows(section: str, key: str) -> list[dict[str, object]]:
    value = _section(section)[key]
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _section(name: str) -> dict[str, object]:
    value = _table()[name]
    return value if isinstance(value, dict) else {}


@cache
def _table() -> dict[str, object]:
    import tomllib

    path = Path(__file__).parent.parent / "data" / "hardware.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
