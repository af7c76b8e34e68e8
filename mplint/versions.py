"""Ranges of library versions, as dependency pins and configuration write them; a leaf module."""

from __future__ import annotations

import re
from typing import NamedTuple

Version = tuple[int, ...]

ANY = 9999  # above every part of a version

_CLAUSE = re.compile(r"\s*(===|==|~=|>=|<=|!=|>|<|=|\^|~)?\s*v?(\d+(?:\.\d+)*)(\.\*)?[\w.+!-]*\s*")


class Versions(NamedTuple):
    """The versions of a library that a project supports: from `lower` to below `upper`; None: no bound is known.

    A question that the known bounds do not answer is answered False.
    """

    lower: Version | None = None
    upper: Version | None = None

    @staticmethod
    def parse(requirement: str) -> Versions | None:
        """The range that a requirement such as ">=2.1,<3", "^2.1" or "2.3" names; None where it names no version."""
        return parse_versions(requirement)

    def requirement(self) -> str:
        """The range as a requirement: ">=2.1,<3"; empty where no bound is known."""
        bounds = ((">=", self.lower), ("<", self.upper))
        return ",".join(operator + ".".join(map(str, bound)) for operator, bound in bounds if bound is not None)

    def before(self, version: str) -> bool:
        """Whether some supported version is certainly older than `version`."""
        return self.below(version) or (self.lower is not None and self.lower < numbers(version))

    def at_least(self, version: str) -> bool:
        """Whether every supported version is at least `version`."""
        return self.lower is not None and self.lower >= numbers(version)

    def below(self, version: str) -> bool:
        """Whether every supported version is older than `version`."""
        return self.upper is not None and self.upper <= numbers(version)

    def decide(self, operator: str, version: str) -> bool | None:
        """Whether a comparison ("<", "==" …) with `version` holds for every supported version; None where that depends on which."""
        bound = numbers(version)
        if not bound:
            return None
        over = _after(bound)
        match operator:
            case "<" | ">=":
                holds = True if self.upper is not None and self.upper <= bound else False if self._from(bound) else None
            case "<=" | ">":
                holds = True if self.upper is not None and self.upper <= over else False if self._from(over) else None
            case "==" | "!=":
                apart = (self.upper is not None and self.upper <= bound) or self._from(over)
                alone = self.lower == bound and self.upper == over
                holds = False if apart else True if alone else None
            case _:
                return None
        return holds if holds is None or operator in ("<", "<=", "==") else not holds

    @property
    def last(self) -> Version | None:
        """A version that is not older than the last minor version that is supported."""
        if self.upper is None:
            return None
        part = next(n for n in reversed(range(len(self.upper))) if self.upper[n] or not n)
        below = (*self.upper[:part], self.upper[part] - 1, *(ANY for _ in self.upper[part + 1 :]))
        return max(below, self.lower or ())

    def _from(self, bound: Version) -> bool:
        return self.lower is not None and self.lower >= bound

    def joined(self, other: Versions) -> Versions:
        """The versions that either pin supports; a bound that only one of them knows: the lower stays, the upper goes."""
        lowers = [bound for bound in (self.lower, other.lower) if bound is not None]
        uppers = [bound for bound in (self.upper, other.upper) if bound is not None]
        return Versions(min(lowers, default=None), max(uppers) if len(uppers) == 2 else None)


def parse_versions(text: str) -> Versions | None:
    """The range that a requirement such as ">=2.1,<3", "==2.10.*", "^2.1" or "2.3" names.

    None where it names no version. A bare "2.3" is every 2.3.x. Of alternatives ("^1.13 || ^2.0") the union.
    """
    if "||" in text:
        ranges = [found for part in text.split("||") if (found := parse_versions(part))]
        joined = ranges[0] if ranges else None
        for found in ranges[1:]:
            joined = joined.joined(found) if joined else found
        return joined
    lowers: list[Version] = []
    uppers: list[Version] = []
    for clause in text.strip().strip("()").split(","):
        match = _CLAUSE.fullmatch(clause)
        if not match:
            if clause.strip() in ("", "*"):
                continue
            return None
        lower, upper = _bounds(match[1] or "", tuple(int(part) for part in match[2].split(".")), bool(match[3]))
        lowers += [_padded(lower)] if lower else []
        uppers += [_padded(upper)] if upper else []
    if not lowers and not uppers:
        return None
    return Versions(max(lowers, default=None), min(uppers, default=None))


def _bounds(operator: str, version: Version, wildcard: bool) -> tuple[Version | None, Version | None]:
    """The lower bound and the exclusive upper bound of one clause."""
    match operator:
        case ">=" | ">":
            return version, None
        case "<":
            return None, version
        case "<=":
            return None, _after(version)
        case "!=":
            return None, None
        case "~=":
            return version, _next(version[:-1] or version)
        case "^":
            leading = next((at for at, part in enumerate(version) if part), len(version) - 1)
            return version, _next(version[: leading + 1])
        case "~":
            return version, _next(version[:2])
        case "==" | "===" if not wildcard:
            return version, _after(version)
        case _:
            return version, _next(version) if wildcard or len(version) < 3 else _after(version)


def numbers(text: str) -> Version:
    """The numbers of the first release that a text names, at least three; () where it names none."""
    match = _CLAUSE.match(text)
    return _padded(tuple(int(part) for part in match[2].split("."))) if match else ()


def _padded(version: Version) -> Version:
    return version + (0,) * (3 - len(version))


def _after(version: Version) -> Version:
    return _next(_padded(version))


def _next(version: Version) -> Version:
    return (*version[:-1], version[-1] + 1)
