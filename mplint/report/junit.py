"""JUnit's XML, which nearly every system for continuous integration lists as tests that fail."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from mplint.findings import Finding, Severity
from mplint.report.summary import place

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_report(findings: Sequence[Finding], fail_on: Severity, unjudged: Sequence[tuple[str, str]] = ()) -> str:
    """A suite for each file; a finding is a test, which fails where its severity is at least `fail_on`; what was not judged is skipped.

    Where nothing is found there is one test that passes.
    """
    root = Element("testsuites", name="mplint")
    suites: dict[str, Element] = {}
    for finding in findings:
        suite = _suite(root, suites, finding.location.path)
        case = SubElement(suite, "testcase", name=f"{finding.code} {finding.name}", classname=_text(place(finding.location)))
        if finding.location.line is not None and finding.location.cell is None:
            case.set("line", str(finding.location.line))
        body = "\n".join(sentence for sentence in (place(finding.location), finding.node, finding.why, finding.help) if sentence)
        if finding.severity.rank >= fail_on.rank:
            failure = SubElement(case, "failure", type=finding.severity.value, message=_text(finding.message))
            failure.text = _text(body)
        else:
            SubElement(case, "system-out").text = _text(f"{finding.message}\n{body}")
    for path, reason in unjudged:
        case = SubElement(_suite(root, suites, path), "testcase", name="not judged", classname=_text(path))
        SubElement(case, "skipped", message=_text(reason))
    if not suites:
        SubElement(_suite(root, suites, "mplint"), "testcase", name="no mixed-precision mistakes", classname="mplint")
    for suite in suites.values():
        _count(suite)
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suite(root: Element, suites: dict[str, Element], path: str) -> Element:
    if path not in suites:
        suites[path] = SubElement(root, "testsuite", name=_text(path))
    return suites[path]


def _count(suite: Element) -> None:
    for attribute, kind in (("tests", "testcase"), ("failures", "testcase/failure"), ("skipped", "testcase/skipped")):
        suite.set(attribute, str(len(suite.findall(kind))))
    suite.set("errors", "0")


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
