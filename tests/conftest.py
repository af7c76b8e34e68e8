"""Tests run in a source tree as well as on what is installed: there, the rules stand beside the package.

How fast examples are made says what else the machine does, and nothing of mplint.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from mplint.rule import rules_package

rules_package()
settings.register_profile("mplint", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mplint")


IMPORTED = 100  # modules, of which more are a framework
_frozen_at = 0


@pytest.fixture(autouse=True)
def frozen_objects() -> Iterator[None]:
    """What frameworks hold is left out of collections, of which mplint and Keras ask many; and children copy what they visit."""
    global _frozen_at
    if len(sys.modules) > _frozen_at + IMPORTED:
        _frozen_at = len(sys.modules)
        gc.collect()
        gc.freeze()
    yield
