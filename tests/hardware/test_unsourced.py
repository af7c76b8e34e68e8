"""No number of the device table is without a source, and what is derived is reckoned as it says."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import mplint.data
from mplint.hardware.figures import figures_of, origins
from mplint.hardware.table import derivations, rows, sources

TABLE = tomllib.loads(Path(mplint.data.__file__).with_name("hardware.toml").read_text(encoding="utf-8"))
ROWS = [row for section in TABLE.values() if isinstance(section, dict) for key in ("gpus", "rows") for row in section.get(key, ())]
FIGURES = {"memory_gb": "memory", "bandwidth_gbs": "bandwidth"} | {key: key for key in ("cc", "fp32", "tf32", "fp16", "bf16")}
RECKONED_WITH = {"sms", "boost_mhz"}


def called(row: dict[str, Any]) -> str:
    return str(row.get("example") or row["name"])


@pytest.mark.parametrize("row", ROWS, ids=called)
def test_every_number_has_a_source(row: dict[str, Any]) -> None:
    numbers = {key for key, value in row.items() if key in FIGURES or (isinstance(value, int | float) and not isinstance(value, bool))}
    assert numbers - RECKONED_WITH <= set(FIGURES)
    assert [key for key in numbers - RECKONED_WITH if row[key] and not list(origins(row, FIGURES[key]))] == []
    assert row["certainty"] in ("checked", "part-checked")


@pytest.mark.parametrize("row", ROWS, ids=called)
def test_sources_name_figures_that_the_row_has(row: dict[str, Any]) -> None:
    named = {figure for source in sources() if source != "table" for figure in row.get(source, ())}
    named |= {figure for each in row.get("cited", ()) for figure in each["figures"]}
    assert {figure for figure in named if not any(row.get(key) for key, name in FIGURES.items() if name == figure)} == set()


@pytest.mark.parametrize("row", [row for row in ROWS if "derived" in row], ids=called)
def test_derived_rates_are_reckoned_as_they_say(row: dict[str, Any]) -> None:
    way = derivations()[row["derived"]]
    for key in ("tf32", "fp16", "bf16"):
        expected = row["sms"] * row["boost_mhz"] * float(str(way.get(key, 0))) / 1e6
        assert row[key] == pytest.approx(expected, rel=0.02), key


@pytest.mark.parametrize("row", [row for row in ROWS if "half_of_float16" in row or "as_bfloat16" in row], ids=called)
def test_what_follows_from_another_rate_follows(row: dict[str, Any]) -> None:
    assert row["tf32"] == pytest.approx(row["fp16"] / 2, rel=0.001)
    assert row["fp16"] == row["bf16"]


def test_every_figure_of_a_device_comes_with_its_source() -> None:
    for row in rows():
        if (device := figures_of(row.target)) is not None:
            known = {"bandwidth", *device.rates, *(["memory"] if device.memory else [])}
            assert set(device.sources) == known, device.name
