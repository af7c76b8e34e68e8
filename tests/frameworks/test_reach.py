"""What programs come to by names."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any, cast

from mplint.frameworks.torch.reach import Reach
from mplint.program.lower import lower
from mplint.program.project import Project

MANY = 400
TABLES = f"""
from net import Net
WORDS = {[f"word{n}" for n in range(MANY)]}
OTHERS = {[f"word{n}" for n in range(0, MANY, 2)]}
KNOWN = {{"word1": Net}}
"""


def reach_of(files: dict[str, str]) -> Reach:
    project = Project(list(files), lambda path: lower(ast.parse(files[path])), frozenset({"torch"}))
    return Reach(cast("Any", SimpleNamespace(project=project)))


def test_the_words_of_a_large_table_share_what_they_lead_to() -> None:
    reach = reach_of({"words.py": TABLES, "net.py": "class Net: pass\n"})
    own = reach.top("words.py").own
    assert len(own) > MANY
    assert len({id(words) for words in own.values()}) < 10


def test_a_word_of_a_table_leads_to_what_stands_beside_it() -> None:
    files = {"words.py": TABLES, "net.py": "class Net: pass\n", "main.py": "from words import KNOWN\nmodel = KNOWN['word1']()\n"}
    assert ("net.py", "Net") in reach_of(files).of(["main.py"]).names
