"""Numbers as people read them."""

from __future__ import annotations

SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
COUNTS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def size(count: float) -> str:
    """Bytes: `22.7 MB`."""
    return next((f"{count / unit:.1f} {name}" for unit, name in SIZES if abs(count) >= unit), f"{count:.0f} B")


def number(count: float) -> str:
    """A count: `1.5 G`; small ones in full."""
    return next((f"{count / unit:.1f} {name}" for unit, name in COUNTS if abs(count) >= max(unit, 1e4)), f"{count:,.0f}")


def percent(share: float) -> str:
    """A share of 1: `12.5%`, never 0% of what is there and never 100% of what is not all."""
    if 0 < share < 0.001:
        return "<0.1%"
    if 0.999 < share < 1:
        return ">99.9%"
    return f"{100 * share:.1f}%".replace(".0%", "%")


def counted(count: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
