"""Data of a project, as vocabularies are, costs little beside its programs."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from mplint.config import Config
from mplint.engine.run import check_paths
from mplint.frameworks.known import project_of
from mplint.frameworks.options import namespaces
from mplint.frameworks.torch.candidates import Candidates
from mplint.frameworks.torch.reach import Reach
from mplint.program.lower import lower
from mplint.python.parse import parse_text

WORDS = {f"word{n}": n for n in range(4_000)}


def test_a_program_that_spells_out_a_vocabulary_is_followed_in_little_memory() -> None:
    text = f"from torch import nn\n\nWORDS = {list(WORDS)!r}\nINDEX = {WORDS!r}\n\n\nclass Net(nn.Module):\n    size = len(WORDS)\n"
    project = project_of(["words.py"], lambda path: lower(parse_text(text)), None)
    reach = Reach(Candidates(project, lambda path, asked: True))
    tracemalloc.start()
    try:
        found = reach.of_classes([("words.py", "Net")])
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()
    assert ("words.py", "word17") in found.names


def test_a_file_of_thousands_of_words_holds_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    plain = namespaces.note_key
    monkeypatch.setattr(namespaces, "note_key", lambda m, holder, key: (noted.append(key), plain(m, holder, key)))
    (tmp_path / "train.py").write_text(
        "import json\nimport torch\n\nsettings = json.load(open('train.json'))\nscaler = torch.amp.GradScaler(enabled=settings['amp'])\n"
    )
    (tmp_path / "train.json").write_text(json.dumps({"amp": True, "words": WORDS, "few": {"width": 3}}))
    check_paths([str(tmp_path)], Config(select=("MP301",), cache=False, isolated=True))
    assert sorted(noted) == ["amp", "few", "width", "words"]
