"""Selection: which rules are checked, and which are ignored in which file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from mplint.catalog import Entry, catalog
from mplint.config import Config
from mplint.errors import UsageError, nearest
from mplint.findings import Severity
from mplint.rule import Rule

ALL = "ALL"
ALWAYS = "MP001"  # an input that could not be read is said whatever was selected
EXACT = 100


def known_rules(config: Config) -> dict[str, Entry]:
    """Every rule by code, those of the configured plugins included; raises UsageError for a plugin that can't be loaded."""
    try:
        return catalog(config.plugins)
    except (ImportError, ValueError) as error:
        if not config.plugins:
            raise
        raise UsageError(f"{_origin(config)}plugins: {error}") from None


def loaded_rules(config: Config) -> dict[str, type[Rule]]:
    """The classes of all known rules by code."""
    return {code: entry.load() for code, entry in known_rules(config).items()}


def selected(config: Config, rules: Mapping[str, Entry]) -> frozenset[str]:
    """The codes to check: the default ones (errors and warnings) or `select`, with `extend_select`, without `ignore`.

    The most specific selector decides about a code (a code or name before a longer prefix before a
    shorter one before ALL); between equals `ignore` wins. Raises UsageError for an unknown selector.
    """
    own = severities(config, rules)
    wanted = {code: 0 for code, rule in rules.items() if not config.select and own.get(code, rule.severity) is not Severity.INFO}
    wanted |= {code: 0 for code, severity in own.items() if not config.select and rules[code].severity is not Severity.INFO}
    for key, selectors in (("select", config.select), ("extend-select", config.extend_select)):
        for code, weight in _weights(selectors, rules, config, key).items():
            wanted[code] = max(weight, wanted.get(code, 0))
    ignored = _weights(config.ignore, rules, config, "ignore")
    chosen = {code for code, weight in wanted.items() if weight > ignored.get(code, -1)}
    return frozenset(chosen | ({ALWAYS} - ignored.keys()))


def asked_for(config: Config, rules: Mapping[str, Entry]) -> frozenset[str]:
    """The codes that `select`, `extend_select` or `severities` name: only of these rules is advice (severity info) shown."""
    return frozenset(_weights((*config.select, *config.extend_select), rules, config, "select")) | severities(config, rules).keys()


def severities(config: Config, rules: Mapping[str, Entry]) -> dict[str, Severity]:
    """The severity that the configuration gives to rules, by code; the most specific selector decides, between equals the last one."""
    found: dict[str, tuple[int, Severity]] = {}
    for selector, severity in config.severities:
        for code, weight in _weights([selector], rules, config, "severity").items():
            if weight >= found.get(code, (0, severity))[0]:
                found[code] = weight, severity
    return {code: severity for code, (_, severity) in found.items()}


class FileIgnores:
    """The codes that `per-file-ignores` switch off, file by file."""

    def __init__(self, config: Config, rules: Mapping[str, Entry]) -> None:
        self._root = os.path.abspath(config.root)
        self._entries = [
            (glob_pattern(pattern), frozenset(_weights(selectors, rules, config, f'per-file-ignores."{pattern}"')))
            for pattern, selectors in config.per_file_ignores
        ]

    def codes(self, path: str) -> frozenset[str]:
        """The codes ignored in the file at `path`."""
        if not self._entries:
            return frozenset()
        relative = os.path.relpath(os.path.abspath(path), self._root).replace(os.sep, "/")
        return frozenset(code for pattern, codes in self._entries if pattern.fullmatch(relative) for code in codes)


def expand(selector: str, rules: Mapping[str, Entry]) -> list[str]:
    """The codes that a code, prefix, name or ALL stands for, in order; raises UsageError where it stands for none."""
    text = selector.strip()
    if text.upper() == ALL:
        return list(rules)
    by_name = [code for code, rule in rules.items() if rule.name == text.lower()]
    codes = by_name or [code for code in rules if text and code.startswith(text.upper())]
    if text.upper() in rules:
        codes = [text.upper()]
    if not codes:
        candidates = [ALL, *rules, *(rule.name for rule in rules.values())]
        raise UsageError(f'unknown rule "{text}"{nearest(text, candidates) or "; `mplint rules` lists them"}')
    return codes


@lru_cache(maxsize=64)
def glob_pattern(pattern: str) -> re.Pattern[str]:
    """The expression that a path relative to the root must match in full.

    As in .gitignore, a pattern without a slash matches at any depth, `**` matches any number of
    folders, and a pattern that matches a folder matches what is in it. Raises UsageError for a range that ends before it begins.
    """
    text = pattern.replace("\\", "/").rstrip("/")
    anchored = "/" in text
    text = text.removeprefix("./").removeprefix("/")
    expression = "" if anchored else "(?:.*/)?"
    for piece in re.findall(r"\*\*/|\*\*|\*|\?|\[!?\]?[^]]*\]|.", text):
        if piece == "**/":
            expression += "(?:.*/)?"
        elif piece == "**":
            expression += ".*"
        elif piece == "*":
            expression += "[^/]*"
        elif piece == "?":
            expression += "[^/]"
        elif len(piece) > 1:
            expression += "[" + ("^" if piece[1] == "!" else "") + re.sub(r"([\\^\[])", r"\\\1", piece[1:-1].removeprefix("!")) + "]"
        else:
            expression += re.escape(piece)
    try:
        return re.compile(expression + "(?:/.*)?", re.DOTALL)
    except re.error as error:
        raise UsageError(f'"{pattern}" is no pattern for paths: {error.msg}') from None


def _weights(selectors: Iterable[str], rules: Mapping[str, Entry], config: Config, key: str) -> dict[str, int]:
    """How specific the most specific selector of each code is: ALL 1, a prefix by its length, a code or name `EXACT`."""
    weights: dict[str, int] = {}
    for selector in selectors:
        try:
            codes = expand(selector, rules)
        except UsageError as error:
            raise UsageError(f"{_origin(config)}{key}: {error}") from None
        text = selector.strip().upper()
        for code in codes:
            exact = text in (code, rules[code].name.upper())
            weights[code] = max(EXACT if exact else 1 if text == ALL else len(text), weights.get(code, 0))
    return weights


def _origin(config: Config) -> str:
    return f"{config.source}: " if config.source else ""
