"""The precision profile as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mplint.graph.profile import Profile, Shares

UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def profile_text(profile: Profile) -> str:
    """Four lines about one model: work, parameters, activations, and how well its sizes suit matrix units."""
    lines = [f"{profile.path}: precision profile"]
    for title, shares, unit in (
        ("FLOPs", profile.flops, ""),
        ("parameters", profile.parameters, ""),
        ("activations", profile.activations, "B"),
    ):
        lines.append(f"  {title:<12} {_shares(shares, unit)}")
    if profile.heavy:
        unknown = profile.heavy - profile.sized
        text = f"{profile.suited} of {profile.sized} heavy ops have sizes that suit {profile.target}" if profile.sized else "none known"
        more = f"; {unknown} of unknown size" if unknown and profile.sized else ""
        lines.append(f"  {'alignment':<12} {text}{more}")
    return "".join(f"{line}\n" for line in lines)


def _shares(shares: Shares, unit: str) -> str:
    total = sum(number for _, number in shares)
    if not total:
        return "none"
    parts = [f"{name} {_percent(number / total)}" for name, number in shares]
    return f"{_short(total)}{unit}: {', '.join(parts)}"


def _percent(share: float) -> str:
    return "<0.1%" if share < 0.001 else f"{100 * share:.1f}%".replace(".0%", "%")


def _short(number: float) -> str:
    for size, letter in UNITS:
        if number >= size:
            return f"{number / size:.1f} {letter}"
    return f"{number:.0f} "
