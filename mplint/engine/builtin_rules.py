"""The engine's own rules: input that cannot be read, and suppressions that suppress nothing."""

from __future__ import annotations

from mplint.findings import Applicability, Confidence, Finding, Fix, Location, Severity
from mplint.python.document import InputError
from mplint.rule import Rule, sentence


class UnreadableInput(Rule):
    """A file, a model or a notebook cell that cannot be read

    ## What it does
    Reports a file that cannot be opened, decoded or parsed, and a notebook cell that is no Python once
    its magics and shell lines are set aside. The other files, and the other cells, are still checked.
    Of JSON and YAML files those that were meant as a trainer's configuration: they set a precision and have other settings of a trainer.
    Comments and trailing commas in JSON are read over, since some loaders take them; templates (`{{ … }}`) are reported only where they
    are named.
    So is a program or a configuration that takes more than 60 seconds of processor time or 4 GiB of memory by itself, and a model that
    takes more than ten minutes.

    ## Why is this bad?
    Nothing in that file or cell was checked, so a run without findings would say too much.
    Programs are read as the Python that runs mplint reads them: syntax that is newer than that is
    reported too, and goes away when mplint runs under a newer Python. A baseline does not hold these. A file that is
    meant to be no program of this Python, such as a template or one for Python 2, is left out by `exclude` in the configuration, or by
    `per-file-ignores = {"old/*" = ["MP001"]}`, which says that it is known to be unchecked.

    ## Example
    ```python
    with torch.autocast("cuda":
        loss = model(x)
    ```

    ## Use instead
    ```python
    with torch.autocast("cuda"):
        loss = model(x)
    ```

    ## Evidence
    The engine's tests read programs with every fault of this kind.

    ## References
    - PEP 263, Defining Python Source Code Encodings: https://peps.python.org/pep-0263/
    - The notebook format: https://nbformat.readthedocs.io/en/latest/format_description.html
    """

    code = "MP001"
    name = "unreadable-input"
    severity = Severity.ERROR


class UnusedSuppression(Rule):
    """A suppression comment that suppresses nothing

    ## What it does
    Reports `# mplint: ignore[…]`, `# mplint: file-ignore[…]` and `# noqa: …` comments that name a rule of
    mplint which has nothing to report there, or a rule that does not exist. Rules that were not enabled in
    the run are left alone, and so are a bare `# noqa`, `# mplint: skip-file` and the codes of other tools.
    A comment without codes (`# mplint: ignore`) stands for every rule, and is reported only where every
    rule was enabled.

    ## Why is this bad?
    A suppression that is no longer needed hides the next mistake on its line, and a code with a typing
    error never hid any.

    ## Example
    ```python
    x = torch.zeros(3)  # mplint: ignore[MP101] moved to torch.amp last year
    ```

    ## Use instead
    ```python
    x = torch.zeros(3)
    ```

    ## Fix safety
    Removing what suppresses nothing changes no finding: safe. A code that does not exist is replaced by the
    nearest one that does with an unsafe fix, since that begins to suppress.

    ## Evidence
    The engine's tests remove and keep suppressions of every form.

    ## References
    - Suppressions in the README: https://github.com/mplint/mplint#suppressions
    """

    code = "MP002"
    name = "unused-suppression"
    severity = Severity.WARNING
    fix = Applicability.SAFE


def unreadable(path: str, error: InputError, why: str = "nothing here was checked") -> Finding:
    """The MP001 for an input that could not be read, or not wholly."""
    return Finding(
        code=UnreadableInput.code,
        name=UnreadableInput.name,
        severity=UnreadableInput.severity,
        confidence=Confidence.HIGH,
        message=error.message,
        location=error.location(path),
        why=sentence(why),
    )


def unused(location: Location, message: str, help: str, fix: Fix) -> Finding:
    """The MP002 for a suppression, or one code of it, that suppresses nothing."""
    return Finding(
        code=UnusedSuppression.code,
        name=UnusedSuppression.name,
        severity=UnusedSuppression.severity,
        confidence=Confidence.HIGH,
        message=message,
        location=location,
        why="A suppression that is not needed hides the next mistake at its place.",
        help=sentence(help),
        fix=fix,
    )
