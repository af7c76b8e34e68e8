"""The baseline: the findings that a project knows and has not mended yet, so that only new ones are reported.

An entry holds the file, the rule and the text of the line (or the node of a model), not its number: it survives edits elsewhere in the
file. The same mistake on equal lines of a file is counted.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from mplint.engine.builtin_rules import UnreadableInput
from mplint.engine.texts import Texts
from mplint.errors import UsageError
from mplint.findings import Finding

FILE_NAME = "mplint-baseline.json"
VERSION = 1


class Key(NamedTuple):
    """What stays the same of a finding while other lines change: file, rule, and its line's text or its node (one of them may be empty).

    `path` is relative to the folder of the baseline, with `/` between folders.
    """

    path: str
    code: str
    line: str
    node: str


Entries = Mapping[Key, int]


class Compared(NamedTuple):
    """The findings that a baseline does not hold, how many it holds, and how often each entry of it was not found again."""

    fresh: list[Finding]
    known: int
    unmet: Counter[Key]


class Keys:
    """The keys of findings; `folder` is that of the baseline."""

    def __init__(self, folder: str, texts: Texts) -> None:
        self._folder = os.path.abspath(folder)
        self._texts = texts

    def path(self, path: str) -> str:
        """How a baseline names a file."""
        return os.path.relpath(os.path.abspath(path), self._folder).replace(os.sep, "/")

    def key(self, finding: Finding) -> Key:
        """The key of a finding; the spaces of its line have no part in it."""
        line = " ".join((self._texts.line(finding.location) or "").split())
        return Key(self.path(finding.location.path), finding.code, line, finding.node or "")

    def count(self, findings: Iterable[Finding]) -> Counter[Key]:
        """The entries of a baseline of these findings; one that says that a file could not be read is in none."""
        return Counter(self.key(finding) for finding in findings if finding.code != UnreadableInput.code)


def compare(findings: Sequence[Finding], entries: Entries, keys: Keys) -> Compared:
    """Tell findings that `entries` hold from those that are new; of more on equal lines than the baseline counts, the last are new."""
    left = Counter(dict(entries))
    fresh = []
    for finding in findings:
        key = keys.key(finding) if left else None
        if key is not None and left[key] > 0 and finding.code != UnreadableInput.code:
            left[key] -= 1
        else:
            fresh.append(finding)
    return Compared(fresh, len(findings) - len(fresh), +left)


def stale(unmet: Entries, checked: Iterable[str], codes: Callable[[str], frozenset[str]], folder: str) -> Counter[Key]:
    """The entries that no longer hold: of rules that ran, in files that could be read (as the baseline names them) or are gone.

    `codes` gives the rules that ran on a file.
    """
    seen = frozenset(checked)
    gone = {key.path for key in unmet if key.path not in seen and not os.path.exists(os.path.join(folder, key.path))}
    return Counter({key: count for key, count in unmet.items() if (key.path in seen or key.path in gone) and key.code in codes(key.path)})


def are_moved(stale: Entries, findings: Iterable[Finding], keys: Keys, folder: str) -> bool:
    """Whether some findings are what entries say of files that are gone, in files of other names."""
    gone = {key._replace(path="") for key in stale if not os.path.exists(os.path.join(folder, key.path))}
    return bool(gone) and any(keys.key(finding)._replace(path="") in gone for finding in findings)


def read(path: str) -> Entries:
    """The entries of a baseline. Raises UsageError for a file that is missing or is none."""
    try:
        with open(path, encoding="utf-8") as stream:
            document = json.load(stream)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such baseline; `mplint baseline create` makes one") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not a baseline: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("findings"), dict):
        raise UsageError(f'{path}: not a baseline: it has no table "findings"')
    if document.get("version") != VERSION:
        raise UsageError(f"{path}: a baseline of version {document.get('version')}; this mplint reads version {VERSION}")
    entries: Counter[Key] = Counter()
    for file, found in document["findings"].items():
        for entry in found if isinstance(found, list) else (None,):
            match entry:
                case {"code": str(code), **rest}:
                    line, node, count = rest.get("line", ""), rest.get("node", ""), rest.get("count", 1)
                    if isinstance(line, str) and isinstance(node, str) and isinstance(count, int):
                        entries[Key(file, code, line, node)] += count
                        continue
            raise UsageError(f"{path}: not a baseline: an entry of {file} is no table with a code and a line or node")
    return entries


def text_of(entries: Entries) -> str:
    """The file of a baseline: one entry a line, in an order that keeps merges small."""
    files: dict[str, list[str]] = {}
    for key, count in sorted(entries.items()):
        entry: dict[str, object] = {"code": key.code}
        if key.line or not key.node:
            entry["line"] = key.line
        if key.node:
            entry["node"] = key.node
        if count > 1:
            entry["count"] = count
        files.setdefault(key.path, []).append(json.dumps(entry, ensure_ascii=False))
    listed = (f"    {json.dumps(path)}: [\n" + ",\n".join(f"      {entry}" for entry in found) + "\n    ]" for path, found in files.items())
    body = "{\n" + ",\n".join(listed) + "\n  }" if files else "{}"
    return f'{{\n  "version": {VERSION},\n  "findings": {body}\n}}\n'
