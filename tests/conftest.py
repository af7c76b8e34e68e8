"""Tests run in a source tree as well as on what is installed: there, the rules stand beside the package.

How fast examples are made says what else the machine does, and nothing of mplint.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from mplint.rule import rules_package

rules_package()
settings.register_profile("mplint", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mplint")
