"""The documentation names every device of which a rate was compared with no published table."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import mplint.data

PAGE = Path(__file__).parents[2] / "docs" / "estimating.md"
TABLE = tomllib.loads(Path(mplint.data.__file__).with_name("hardware.toml").read_text(encoding="utf-8"))
RATES = ("tf32", "fp16", "bf16")


def test_devices_whose_matrix_rates_have_no_source_are_named() -> None:
    gpus = TABLE["nvidia"]["gpus"]
    without = {
        row["example"].removeprefix("NVIDIA ")
        for row in gpus
        for rate in RATES
        if row[rate]
        and "tc" not in row["checked"]
        and not any(rate in row.get(source, ()) for source in ("torch", "lightning", "techpowerup"))
    }
    page = PAGE.read_text(encoding="utf-8")
    said = " ".join(page.partition("compared with no published table are")[2].partition("\n\n")[0].split())
    assert f"{len(without)} of {len(gpus)}" in said
    assert set(re.findall(r"`([^`]+)`", said)) == without
