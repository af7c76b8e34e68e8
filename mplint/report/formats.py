"""What was found, in the format that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mplint.config import Config
    from mplint.engine.run import CheckResult
    from mplint.report.style import Style
    from mplint.report.summary import LeftOut


class Reported(NamedTuple):
    """What a report is about: the result of a run, and where the text of its findings comes from.

    `given` are the texts, by path, that were checked in the place of files; `faults` are what failed on the way to the result.
    """

    result: CheckResult
    config: Config
    given: Mapping[str, bytes]
    faults: Sequence[str]
    style: Style


def report(reported: Reported, output_format: str, *, statistics: bool = False) -> tuple[str, list[str]]:
    """The report in a format ("text", "concise", "json", "github", "sarif"), and what failed while it was made.

    With `statistics`, which goes with "text" and "concise", it counts the findings of each rule, and sums up the precision of models.
    """
    from mplint.report.summary import LeftOut

    findings, files = reported.result.findings, reported.result.files
    left_out = LeftOut(reported.result.known, reported.result.older, reported.result.unjudged)
    if statistics:
        return _statistics(reported, left_out), []
    match output_format:
        case "concise":
            from mplint.report.lines import concise_report

            return concise_report(findings), []
        case "github":
            from mplint.report.lines import github_report

            return github_report(findings, left_out.unjudged), []
        case "text" if not findings:
            from mplint.report.summary import summary_text

            return summary_text(findings, files, reported.style, left_out), []
    from mplint.engine.select import known_rules, loaded_rules
    from mplint.report.sources import Sources

    sources = Sources(reported.given)
    match output_format:
        case "json":
            from mplint.report.json import json_report

            known = reported.result.known if reported.config.baseline else None
            text = json_report(findings, files, known_rules(reported.config), sources, left_out.unjudged, known)
        case "sarif":
            from mplint.report.sarif import sarif_report

            text = sarif_report(findings, loaded_rules(reported.config), sources, list(reported.faults), left_out.unjudged)
        case _:
            from mplint.report.text import text_report

            text = text_report(findings, files, sources, reported.style, left_out)
    return text, sources.faults


def _statistics(reported: Reported, left_out: LeftOut) -> str:
    from mplint.report.summary import statistics, summary_text

    findings = reported.result.findings
    text = statistics(findings) + summary_text(findings, reported.result.files, reported.style, left_out)
    if reported.result.profiles:
        from mplint.report.profile import profile_text

        text += "".join(map(profile_text, reported.result.profiles))
    return text
