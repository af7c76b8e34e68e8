"""What findings rest on: a weak guess makes them silent by default, and what a program says without guesses stays as sure as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from mplint.api import check
from mplint.config import Config
from mplint.engine.grounds import lowered
from mplint.findings import Confidence, Finding
from mplint.program.trace import Guess

FIXTURES = Path(__file__).resolve().parent.parent.parent / "fixtures"


def found(place: str, code: str) -> list[Finding]:
    """The findings of a code in a fixture, those of low confidence as well."""
    config = Config(select=(code,), cache=False, isolated=True, min_confidence=Confidence.LOW)
    return [finding for finding in check([str(FIXTURES / code / place)], config).findings if finding.code == code]


@pytest.mark.parametrize(
    ("code", "place", "guess"),
    [
        ("MP204", "good_call_by_names", Guess.UNMADE),
        ("MP205", "good_helper_with_other_uses", Guess.UNMADE),
        ("MP205", "good_class_left_out_of_its_package", Guess.UNMADE),
        ("MP206", "good_criterion_of_a_method", Guess.UNMADE),
        ("MP212", "good_module_of_a_package", Guess.UNREACHED),
        ("MP304", "good_unscale_in_a_try.py", Guess.FAILING),
    ],
)
def test_a_weak_guess_is_told_and_silent_by_default(code: str, place: str, guess: Guess) -> None:
    findings = found(place, code)
    assert [finding.confidence for finding in findings] == [Confidence.LOW]
    assert guess.value in findings[0].why


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("MP204", "bad_call_by_names"),
        ("MP205", "bad_helper_with_other_uses"),
        ("MP206", "bad_criterion_of_a_method"),
        ("MP212", "bad_module_of_a_package"),
        ("MP304", "bad_clip_where_it_raises.py"),
    ],
)
def test_what_names_lead_to_is_shown(code: str, place: str) -> None:
    findings = found(place, code)
    assert findings
    assert all(finding.confidence is not Confidence.LOW for finding in findings)
    assert not any(guess.value in finding.why for finding in findings for guess in Guess if guess.weak)


def test_two_guesses_weigh_as_much_as_a_weak_one() -> None:
    sure = found("bad_clip_where_it_raises.py", "MP304")[0]
    assert sure.confidence is Confidence.HIGH
    assert lowered(sure, [Guess.CHOSEN]).confidence is Confidence.MEDIUM
    assert lowered(sure, [Guess.CHOSEN, Guess.CHOSEN]).confidence is Confidence.LOW
    assert lowered(sure, [Guess.UNMADE]).confidence is Confidence.LOW
    assert lowered(sure, []).confidence is Confidence.MEDIUM
    assert lowered(sure, [Guess.UNMADE]).why.endswith("This assumes that something makes this class, which no name leads to.")
