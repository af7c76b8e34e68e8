"""The error that ends a run with exit code 2, and the hint at the right name; a leaf module."""

from __future__ import annotations

from collections.abc import Iterable


class UsageError(Exception):
    """Misuse: a missing path, an unknown name, a bad configuration. Its text is the one line that the user sees."""


def nearest(word: str, candidates: Iterable[str]) -> str:
    """`; did you mean "…"?` with the candidate most like `word`, or "" where none is like it."""
    import difflib

    by_lower = {candidate.lower(): candidate for candidate in candidates}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f'; did you mean "{by_lower[found[0]]}"?' if found else ""
