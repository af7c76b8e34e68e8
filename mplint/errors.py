"""The error that ends a run with exit code 2, the hint at the right name, and what a fault is called; a leaf module."""

from __future__ import annotations

from collections.abc import Iterable


class UsageError(Exception):
    """Misuse: a missing path, an unknown name, a bad configuration. Its text is the one line that the user sees."""


DIGITS = str.maketrans("oil", "011")  # what is typed, or read, for digits of a code


def nearest(word: str, candidates: Iterable[str]) -> str:
    """`; did you mean "…"?` for the candidate most like `word`, or "" where none is."""
    found = closest(word, candidates)
    return f'; did you mean "{found}"?' if found else ""


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `word`, or None where none is like it."""
    from difflib import get_close_matches

    by_key = {candidate.casefold(): candidate for candidate in candidates}
    if meant := by_key.get(word.casefold().translate(DIGITS)):
        return meant
    found = get_close_matches(word.casefold(), by_key, n=1, cutoff=0.6)
    return by_key[found[0]] if found else None


def describe(error: BaseException) -> str:
    """The error's type, first line and innermost place, on one line: what a user is asked to report."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        where = ""
    else:
        module = trace.tb_frame.f_globals.get("__name__", "?")
        where = f" (in {trace.tb_frame.f_code.co_name} of {module}, line {trace.tb_lineno})"
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}{text and ': '}{text}{where}"


class InternalErrorWarning(RuntimeWarning):
    """A mistake of mplint's own: a rule or a fix failed, and what it would have said is missing."""
