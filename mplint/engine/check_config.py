"""Checking one configuration file: bytes to findings."""

from __future__ import annotations

from collections.abc import Sequence

from mplint.catalog import Entry
from mplint.configs.file import parse_config
from mplint.configs.trainers.config_file import ConfigFile
from mplint.configs.trainers.sniff import may_set_precision, meant_for_trainer
from mplint.engine.builtin_rules import unreadable
from mplint.engine.results import Fault, FileResult, may_suppress
from mplint.errors import describe
from mplint.findings import Finding
from mplint.python.document import InputError
from mplint.python.load import load
from mplint.targets import Targets


def check_config(path: str, data: bytes, targets: Targets, rules: Sequence[Entry]) -> FileResult:
    """Check the bytes of a JSON or YAML file; one that sets no precision is not parsed."""
    if not may_set_precision(data):
        return FileResult(path)
    text = ""
    try:
        document = load(path, data)
        text = document.text
        file = ConfigFile(document, parse_config(document), targets)
        if not file.trainers:
            return FileResult(path)
    except InputError as error:
        return FileResult(path, (unreadable(path, error),), comments="mplint:" in text, doubtful=not meant_for_trainer(text))
    except MemoryError:
        raise
    except Exception as error:
        return FileResult(path, faults=(Fault(path, "reading", describe(error)),))
    findings: set[Finding] = set()
    faults = []
    for rule in [entry.load() for entry in rules if entry.configs]:
        try:
            findings.update(rule().check_config(file))
        except MemoryError:
            raise
        except Exception as error:  # one rule's fault must not cost the others' findings
            faults.append(Fault(path, rule.code, describe(error)))
    comments = may_suppress(text) and not file.is_json
    shown = tuple(sorted(findings, key=lambda f: f.sort_key))
    return FileResult(path, shown, tuple(faults), comments, sidecars=tuple(dict.fromkeys(file.reads)))
