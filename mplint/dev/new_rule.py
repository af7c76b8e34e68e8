"""`mplint dev new-rule`: the files of a new rule, which works and asks a question that is to be replaced."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from mplint.errors import UsageError
from mplint.findings import Severity
from mplint.rule import registry, rules_package

CODE = re.compile(r"MP\d{3}")
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `mplint dev new-rule`."""
    parser.add_argument("code", metavar="CODE", help="a code that is free, such as MP316")
    parser.add_argument("name", metavar="NAME", help="what is wrong, in words joined by hyphens")
    parser.add_argument("--family", required=True, help="the folder of rules/ that it belongs to")
    severities = tuple(severity.value for severity in Severity)
    parser.add_argument("--severity", choices=severities, default="warning", help="how bad it is (default: warning)")


def run(options: argparse.Namespace) -> int:
    """Write the files, bring the documentation up to date, and say what to do next."""
    root = clone()
    files = files_of(root, options.code, options.name, options.family, options.severity)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {path.relative_to(root)}\n")
    sys.stdout.flush()
    done = subprocess.run([sys.executable, "docs/generate.py"], cwd=root)
    if done.returncode != 0:
        raise UsageError("docs/generate.py failed; run it again when the rule can be imported")
    rule, bad, good, witness = (str(path.relative_to(root)) for path in files)
    sys.stdout.write(NEXT.format(code=options.code, rule=rule, bad=bad, good=good, witness=witness))
    return 0


def clone() -> Path:
    """The root of the source tree that mplint runs from; raises UsageError where it is installed without one."""
    root = Path(next(iter(rules_package().__path__))).resolve().parent
    if not (root / "docs" / "generate.py").is_file() or not (root / "fixtures").is_dir():
        raise UsageError("rules are added in a clone of the repository, with its own mplint: python -m mplint dev new-rule …")
    return root


def files_of(root: Path, code: str, name: str, family: str, severity: str) -> dict[Path, str]:
    """The rule, a fixture of each kind and the witness; raises UsageError where the code or the name can't be taken."""
    if not CODE.fullmatch(code):
        raise UsageError(f'"{code}" is no code: MP and three digits')
    if not NAME.fullmatch(name):
        raise UsageError(f'"{name}" is no name: two or more words in lower case, joined by hyphens')
    for other in registry().values():
        if other.code == code or other.name == name:
            raise UsageError(f"{other.code} {other.name} is there already")
    families = sorted(path.parent.name for path in (root / "rules").glob("*/__init__.py"))
    if family not in families:
        raise UsageError(f'unknown family "{family}"; there are {", ".join(families)}')
    module = name.replace("-", "_")
    values = {
        "code": code,
        "lower": code.lower(),
        "name": name,
        "class_name": "".join(part.capitalize() for part in name.split("-")),
        "words": name.replace("-", " "),
        "severity": severity.upper(),
        "level": severity,
    }
    found = {
        root / "rules" / family / f"{module}.py": RULE,
        root / "fixtures" / code / f"bad_{module}.py": BAD,
        root / "fixtures" / code / f"good_{module}.py": GOOD,
        root / "tests" / "witness" / f"test_{code.lower()}.py": WITNESS,
    }
    for path in found:
        if path.exists():
            raise UsageError(f"{path.relative_to(root)} is there already")
    return {path: fill(text, values) for path, text in found.items()}


def fill(text: str, values: dict[str, str]) -> str:
    """A template with its `<<names>>` replaced."""
    for key, value in values.items():
        text = text.replace(f"<<{key}>>", value)
    return text


RULE = '''\
"""<<code>>: TODO: the mistake in one sentence."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Severity
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace
from mplint.program.values import HALF, Autocast
from mplint.rule import Rule


class <<class_name>>(Rule):
    """TODO: <<words>>

    ## What it does
    TODO: what it finds. As it stands: regions of autocast that compute in float16.

    ## Why is this bad?
    TODO: the harm, with the numbers that the witness shows.

    ## Example
    ```python
    import torch

    def forward(model, x):
        with torch.autocast("cuda", dtype=torch.float16):
            return model(x)
    ```

    ## Use instead
    ```python
    import torch

    def forward(model, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(x)
    ```

    ## Fix safety
    TODO: what the fix changes. No fix is applied as it stands.

    ## Evidence
    Shown on the CPU by tests/witness/test_<<lower>>.py

    ## References
    - <https://docs.pytorch.org/docs/stable/amp.html>
    """

    code = "<<code>>"
    name = "<<name>>"
    severity = Severity.<<severity>>
    fix = Applicability.DISPLAY
    frameworks = ("torch",)
    tokens = ("autocast",)
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report TODO: what. docs/writing-rules.md lists the events and the questions that can be asked."""
        for entry, event in trace.of("autocast entered"):
            region = event.data["autocast"]
            if isinstance(region, Autocast) and region.dtype == HALF:
                yield self._told(trace, entry, event, region)

    def _told(self, trace: Trace, entry: Entry, event: Event, region: Autocast) -> Finding:
        verdict = self.verdict(trace, entry, event.path, event.place)
        return self.at(
            trace,
            event.place,
            f"TODO: what is wrong{verdict.condition()}",
            why="TODO: what happens then",
            help="TODO: what to write instead",
            confidence=Confidence.HIGH if verdict.proven and verdict.script else Confidence.MEDIUM,
            steps=region.chain,
        )
'''
BAD = '''\
"""TODO: the mistake as people make it, with names of its own."""

import torch


def features(backbone, batch):
    with torch.autocast("cuda", dtype=torch.float16):  # expect: <<code>> <<level>>
        return backbone(batch)
'''
GOOD = '''\
"""TODO: what looks like the mistake and is none."""

import torch


def features(backbone, batch):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return backbone(batch)
'''
WITNESS = '''\
"""TODO: the harm, and that it is gone in what the rule advises."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def product(dtype: object) -> float:
    """A dot product of a thousand tens squared under autocast in a dtype."""
    with torch.autocast("cpu", dtype=dtype):
        return float(torch.full((1, 1000), 10.0) @ torch.full((1000, 1), 10.0))


def test_the_mistake_does_harm() -> None:
    assert product(torch.float16) == float("inf")


def test_what_is_advised_does_none() -> None:
    assert product(torch.bfloat16) == pytest.approx(1e5, rel=0.01)
'''
NEXT = """
It works as it stands, and asks a placeholder question. Next:
  1. {witness}: show the harm on the CPU, and that it is gone.
  2. {bad} and {good}: the mistake as people make it, and what only looks like it.
  3. {rule}: the docstring, then the query (docs/writing-rules.md: question, call; `mplint dev facts FILE` shows what there is to ask).
  4. python docs/generate.py
  5. python -m pytest tests/test_rule_docs.py tests/test_fixtures.py tests/test_docs_generated.py {witness}
  6. python -m mplint check --select {code} on real repositories, and read every finding in its source.
"""
