"""The page on R names the rules that have no fix in R."""

from __future__ import annotations

import re
from pathlib import Path

from mplint.rule import registry

PAGE = Path(__file__).parents[2] / "docs" / "r.md"
READ = [f"MP{n}" for n in (102, 103, 105, 106, 108, 201, 203, 301, 401, 402, 403, 404, 501, 502, 503)]


def test_rules_that_read_r_and_have_no_fix_are_named() -> None:
    rules = registry()
    said = re.search(r"(MP[^.]*) have no fix, in R as in Python", PAGE.read_text(encoding="utf-8"))
    assert said is not None
    assert re.findall(r"MP\d+", said[1]) == [code for code in READ if rules[code].fix is None]
