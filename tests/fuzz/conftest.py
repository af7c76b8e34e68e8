"""How long every reader is tried, and from which seed on: MPLINT_FUZZ_SECONDS (default 8) and MPLINT_FUZZ_SEED (default 0)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

SECONDS = float(os.environ.get("MPLINT_FUZZ_SECONDS", "8"))
FIRST = int(os.environ.get("MPLINT_FUZZ_SEED", "0"))
LEAST = 5  # seeds that are tried however long they take


@pytest.fixture
def seeds() -> Iterator[int]:
    """Seeds, one after the other, until the time is over."""

    def until(end: float) -> Iterator[int]:
        seed = FIRST
        while seed < FIRST + LEAST or time.monotonic() < end:
            yield seed
            seed += 1

    return until(time.monotonic() + SECONDS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what stands in this folder."""
    for item in items:
        if "tests/fuzz/" in item.nodeid:
            item.add_marker(pytest.mark.fuzz)
