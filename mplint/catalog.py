"""What the engine knows of each rule before it imports it: enough to select rules and to tell which ones a file concerns.

Importing every rule with the facts that it asks for costs more than checking a file, so the plain class attributes are taken from the
generated table of the rules' files, or where a file is not the one in the table from its source; a rule is imported when a program holds
one of its tokens.
"""

from __future__ import annotations

import ast
import importlib
import os
from collections.abc import Container, Iterable, Iterator
from functools import cache
from typing import NamedTuple

from mplint.catalog_table import FILES
from mplint.findings import Finding, Severity
from mplint.rule import DOCS_URL, Rule, plugin_modules, registry, rules_in, rules_package


class Entry(NamedTuple):
    """One rule: its selection attributes, and where its class stands."""

    code: str
    name: str
    severity: Severity
    tokens: tuple[str, ...]
    frameworks: tuple[str, ...]
    needs_target: bool
    module: str
    owner: str
    configs: bool = False
    graphs: bool = False
    program: bool = False
    weights: bool = False

    def load(self) -> type[Rule]:
        """The rule's class."""
        rule: type[Rule] = getattr(importlib.import_module(self.module), self.owner)
        return rule

    def url(self) -> str:
        """Where the documentation of this rule stands on the web; "" for a rule of a plugin that does not say."""
        return DOCS_URL.format(name=self.name) if self.module.startswith("mplint.") else self.load().url()


# What a program that uses a framework mentions somewhere, fragments without imports included.
MENTIONS = {
    "torch": ("torch", "lightning", "accelerate", "transformers", "deepspeed", "apex", ".backward(", "GradScaler"),
    "keras": ("keras", "tensorflow", "tf.", "layers.", "mixed_precision"),
}
MENTIONS["tensorflow"] = MENTIONS["keras"]


def concerned(entries: Iterable[Entry], text: Container[str]) -> list[Entry]:
    """The rules that may have something to say about a program: one of their frameworks and one of their tokens occur in it."""
    used = {name for name, words in MENTIONS.items() if any(word in text for word in words)}
    candidates = [entry for entry in entries if not entry.frameworks or not used.isdisjoint(entry.frameworks)]
    seen: dict[str, bool] = {}
    found = []
    for entry in candidates:
        for token in entry.tokens:
            present = seen.get(token)
            if present is None:
                present = seen[token] = token in text
            if present:
                found.append(entry)
                break
        else:
            if not entry.tokens and not entry.graphs:
                found.append(entry)
    return found


def entry_of(rule: type[Rule]) -> Entry:
    """The entry of an imported rule."""
    about = (rule.needs_target, rule.__module__, rule.__name__, rule.configs, rule.graphs, rule.program, rule.weights)
    return Entry(rule.code, rule.name, rule.severity, rule.tokens, rule.frameworks, *about)


@cache
def catalog(plugins: tuple[str, ...] = ()) -> dict[str, Entry]:
    """Every rule by code, in the order of codes; where the rules' source can't be read, by importing them."""
    entries = {}
    for folder in rules_package().__path__:
        for family, item in rule_files(folder):
            for entry in entries_in(family, item):
                entries[entry.code] = entry
    if not entries:
        return {code: entry_of(rule) for code, rule in registry(plugins).items()}
    for module in ("mplint.engine.builtin_rules", *plugin_modules(plugins)):
        for rule in rules_in(module):
            if rule.code in entries or any(rule.name == entry.name for entry in entries.values()):
                raise ValueError(f"two rules are called {rule.code} or {rule.name}")
            entries[rule.code] = entry_of(rule)
    return dict(sorted(entries.items()))


def rule_of(finding: Finding) -> type[Rule]:
    """The rule that a finding is of."""
    return catalog()[finding.code].load()


def rule_files(folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The modules that may define rules, with the family that each is of; none where the folder can't be read."""
    try:
        families = [item for item in os.scandir(folder) if item.is_dir() and item.name.isidentifier()]
    except OSError:
        families = []
    for family in families:
        for item in os.scandir(family.path):
            if item.name.endswith(".py") and item.name != "__init__.py":
                yield family.name, item


def entries_in(family: str, item: os.DirEntry[str]) -> list[Entry]:
    """The rules that a file defines, out of the table where that was made from a file of the same size."""
    module = f"mplint.rules.{family}.{item.name[:-3]}"
    size, rows = FILES.get(f"{family}/{item.name}", (-1, ()))
    if item.stat().st_size != size:
        return read_entries(item.path, module)
    return [Entry(row[0], row[1], Severity[row[2]], row[3], row[4], row[5], module, *row[6:]) for row in rows]


def read_entries(path: str, module: str) -> list[Entry]:
    """The rules that a source file defines; where their attributes are no plain literals, by importing it."""
    with open(path, encoding="utf-8") as stream:
        text = stream.read()
    start = text.find('\n    code = "')
    if start < 0:
        return []
    end = text.find("\n    def ", start)
    attributes = dict(line.strip().split(" = ", 1) for line in text[start:end].split("\n") if line.startswith("    ") and " = " in line)
    owner = text[text.rfind("\nclass ", 0, start) + 7 :].split("(", 1)[0]
    try:
        if text.find('\n    code = "', start + 1) > 0:
            raise ValueError("several rules")
        literals = (attributes["code"], attributes["name"], attributes.get("tokens", "()"), attributes.get("frameworks", "()"))
        code, name, tokens, frameworks = ast.literal_eval(f"({', '.join(literals)})")
        severity = Severity[attributes["severity"].removeprefix("Severity.")]
    except (KeyError, ValueError, SyntaxError):
        return [entry_of(rule) for rule in rules_in(module)]
    flags = ("needs_target", "configs", "graphs", "program", "weights")
    needs_target, *others = (attributes.get(key) == "True" for key in flags)
    return [Entry(code, name, severity, tokens, frameworks, needs_target, module, owner, *others)]
