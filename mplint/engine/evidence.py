"""What a run that `mplint doctor` has saved says of findings.

A verdict holds for a finding of the same rule on a line with the same text in the same file, wherever that line has moved to.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mplint.engine.baseline import Key, Keys
from mplint.engine.texts import Texts
from mplint.errors import UsageError
from mplint.findings import Evidence, Finding, Severity

VERSION = "1"
VERDICTS = ("confirmed", "refuted", "not reached", "undecided")


class Saved(NamedTuple):
    """A saved run: how many steps it made, the folder that its paths are relative to, and the evidence by finding, in order."""

    steps: int
    folder: str
    evidence: Mapping[Key, Sequence[Evidence]]


class Judged(NamedTuple):
    """Findings with their evidence, how many have each verdict, and how much evidence met no finding."""

    findings: tuple[Finding, ...]
    verdicts: Mapping[str, int]
    unmet: int


def read_evidence(path: str) -> Saved:
    """The run that was saved at `path`. Raises UsageError for a file that is missing or holds none.

    Paths are relative to the current folder, or to that of the file where they are not found there.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            document = json.load(stream)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such run; `mplint doctor SCRIPT --output-format json --output-file {path}` makes one") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not a run: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("findings"), list) or not isinstance(document.get("steps"), int):
        raise UsageError(f"{path}: not a run that `mplint doctor` has saved")
    if document.get("version") != VERSION:
        raise UsageError(f"{path}: a run of version {document.get('version')}; this mplint reads version {VERSION}")
    found: defaultdict[Key, list[Evidence]] = defaultdict(list)
    for entry in document["findings"]:
        match entry:
            case {"code": str(code), "path": str(file), "text": str(text), "verdict": str(verdict), "evidence": str(told)} if (
                verdict in VERDICTS
            ):
                found[Key(file, code, text, "")].append(Evidence(verdict, told))
            case _:
                raise UsageError(f"{path}: not a run that `mplint doctor` has saved: an entry of its findings is no verdict")
    beside = os.path.dirname(os.path.abspath(path))
    here = all(os.path.exists(key.path) for key in found) or not any(os.path.exists(os.path.join(beside, key.path)) for key in found)
    return Saved(document["steps"], os.getcwd() if here else beside, found)


def judge(findings: Sequence[Finding], saved: Saved, texts: Texts) -> Judged:
    """Findings with what the run says of them: refuted ones become info, and each says in a sentence what was seen."""
    keys = Keys(saved.folder, texts)
    left = {key: list(reversed(evidence)) for key, evidence in saved.evidence.items()}
    verdicts = Counter(dict.fromkeys(VERDICTS, 0))
    judged = []
    for finding in findings:
        known = left.get(keys.key(finding)._replace(node=""))
        if known:
            evidence = known.pop()
            verdicts[evidence.verdict] += 1
            finding = _with(finding, evidence, saved.steps)
        judged.append(finding)
    return Judged(tuple(judged), verdicts, sum(map(len, left.values())))


def _with(finding: Finding, evidence: Evidence, steps: int) -> Finding:
    run = f"a run of {steps} steps" if steps != 1 else "a run of one step"
    said = {
        "confirmed": f"Confirmed by {run}: {evidence.text}.",
        "refuted": f"Refuted by {run}: {evidence.text}.",
        "not reached": f"Not judged by {run}: {evidence.text}.",
        "undecided": f"Left open by {run}: {evidence.text}.",
    }[evidence.verdict]
    severity = Severity.INFO if evidence.verdict == "refuted" else finding.severity
    return finding._replace(why=f"{finding.why} {said}".strip(), severity=severity, evidence=evidence)
