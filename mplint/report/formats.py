"""What was found, in the format that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mplint.config import Config
    from mplint.engine.run import CheckResult
    from mplint.report.sources import Sources
    from mplint.report.style import Style
    from mplint.report.summary import LeftOut


FORMATS = ("text", "full", "grouped", "concise", "json", "github", "gitlab", "azure", "junit", "markdown", "sarif")
PLAIN = ("text", "full", "grouped", "concise")
_LINES = ("concise", "grouped", "github", "azure", "junit")


class Reported(NamedTuple):
    """What a report is about: the result of a run, and where the text of its findings comes from.

    `given` are the texts, by path, that were checked in the place of files; `faults` are what failed on the way to the result.
    """

    result: CheckResult
    config: Config
    given: Mapping[str, bytes]
    faults: Sequence[str]
    style: Style


def report(reported: Reported, output_format: str, *, statistics: bool = False, quiet: bool = False) -> tuple[str, list[str]]:
    """The report in one of `FORMATS`, and what failed while it was made.

    With `statistics`, which goes with those of `PLAIN`, it counts the findings of each rule, and sums up the precision of models.
    With `quiet` those of `PLAIN` have no summary.
    """
    if statistics:
        return _statistics(reported), []
    if quiet and output_format in PLAIN:
        text, faults = report(reported, output_format)
        return text.removesuffix(summary(reported)), faults
    if output_format in ("text", "full") and not reported.result.findings:
        return summary(reported), []
    if output_format in _LINES:
        return _lines(reported, output_format), []
    from mplint.report.sources import Sources

    sources = Sources(reported.given)
    write = _text if output_format in ("text", "full", "markdown") else _data
    return write(reported, output_format, sources), sources.faults


def _lines(reported: Reported, output_format: str) -> str:
    """The formats that need no source."""
    from mplint.report import lines

    findings, files = reported.result.findings, reported.result.files
    match output_format:
        case "concise":
            return lines.concise_report(findings)
        case "grouped":
            return lines.grouped_report(findings, files, reported.style, _left_out(reported))
        case "azure":
            return lines.azure_report(findings, reported.result.unjudged)
        case "github":
            return lines.github_report(findings, reported.result.unjudged)
    from mplint.report.junit import junit_report

    return junit_report(findings, reported.config.fail_on, reported.result.unjudged)


def _text(reported: Reported, output_format: str, sources: Sources) -> str:
    """The formats for people that show source."""
    findings, files, left_out = reported.result.findings, reported.result.files, _left_out(reported)
    if output_format == "markdown":
        from mplint.engine.select import known_rules
        from mplint.report.markdown import markdown_report

        return markdown_report(findings, files, known_rules(reported.config), sources, left_out)
    from mplint.report import text

    write = text.full_report if output_format == "full" else text.text_report
    return write(findings, files, sources, reported.style, left_out)


def _data(reported: Reported, output_format: str, sources: Sources) -> str:
    """The formats for programs that show source."""
    from mplint.engine.select import known_rules, loaded_rules

    result = reported.result
    match output_format:
        case "gitlab":
            from mplint.report.gitlab import gitlab_report

            return gitlab_report(result.findings, sources)
        case "sarif":
            from mplint.report.sarif import sarif_report

            return sarif_report(result.findings, loaded_rules(reported.config), sources, list(reported.faults), result.unjudged)
    from mplint.report.json import json_report

    known = result.known if reported.config.baseline else None
    return json_report(result.findings, result.files, known_rules(reported.config), sources, result.unjudged, known)


def summary(reported: Reported) -> str:
    """How many findings there are, and what could not be judged."""
    from mplint.report.summary import summary_text

    return summary_text(reported.result.findings, reported.result.files, reported.style, _left_out(reported))


def _left_out(reported: Reported) -> LeftOut:
    from mplint.report.summary import LeftOut

    return LeftOut(reported.result.known, reported.result.older, reported.result.unjudged)


def _statistics(reported: Reported) -> str:
    from mplint.report.summary import statistics

    text = statistics(reported.result.findings) + summary(reported)
    if reported.result.profiles:
        from mplint.report.profile import profile_text

        text += "".join(map(profile_text, reported.result.profiles))
    return text
