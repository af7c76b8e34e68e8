"""Trainers have a switch of their own for mixed precision."""

from __future__ import annotations

from mplint.conversion.source.program import Adopted, Program


def switch_trainers(program: Program, policy: str) -> Adopted:
    """Set the switch of each trainer that the program builds."""
    return Adopted(program)
