"""The device table and what it says about a target: names, capabilities, detection on this machine."""

from mplint.hardware.target import resolve_target
from mplint.hardware.values import Target

__all__ = ["Target", "resolve_target"]
