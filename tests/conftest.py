"""Tests run in a source tree as well as on what is installed: there, the rules stand beside the package.

How fast examples are made says what else the machine does, and nothing of mplint.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from mplint.rule import rules_package

rules_package()
settings.register_profile("mplint", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mplint")


@pytest.fixture(autouse=True, scope="module")
def frozen_objects() -> Iterator[None]:
    """What frameworks hold is left out of collections: mplint collects between files, and children copy what they visit."""
    gc.collect()
    gc.freeze()
    yield
