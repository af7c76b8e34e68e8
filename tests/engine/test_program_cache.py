"""What whole programs gave is found again by the contents of all their files, and made anew when one changes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from mplint.api import check
from mplint.config import Config
from mplint.engine import tracing
from mplint.findings import Confidence
from mplint.frameworks.texts import Texts

TRAIN = """\
import torch
from steps import finish

def train(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        finish(scaler, optimizer, model)
"""
CLIPS_EARLY = """\
import torch

def finish(scaler, optimizer, model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
WITHOUT = CLIPS_EARLY.replace("    scaler.unscale_(optimizer)\n", "")
LATE = WITHOUT.replace("    torch.nn", "    scaler.unscale_(optimizer)\n    torch.nn")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "steps.py").write_text(CLIPS_EARLY)
    monkeypatch.chdir(folder)
    return folder


def codes() -> list[str]:
    return [finding.code for finding in check(["."], Config(isolated=True)).findings]


def test_a_second_run_gives_the_same_without_interpreting(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = check(["."], Config(isolated=True)).findings
    assert "MP304" in [finding.code for finding in first]

    def never(*_: object) -> None:
        raise AssertionError("interpreted again")

    monkeypatch.setattr("mplint.engine.tracing.interpret", never)
    assert check(["."], Config(isolated=True)).findings == first


def test_a_change_in_another_file_is_seen(project: Path) -> None:
    assert "MP304" in codes()
    (project / "steps.py").write_text(LATE)
    assert "MP304" not in codes()
    (project / "steps.py").write_text(CLIPS_EARLY)
    assert "MP304" in codes()


def test_an_unchanged_run_is_answered_without_reading(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mplint.engine.cache.SETTLED", -BEFORE)
    first = check(["."], Config(isolated=True))
    assert "MP304" in [finding.code for finding in first.findings]

    def never(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("mplint.engine.run.examine_files", never)
    assert check(["."], Config(isolated=True)) == first


def test_an_answer_ends_with_a_change_of_a_file_or_of_the_pins(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mplint.engine.cache.SETTLED", -BEFORE)
    assert "MP304" in codes()
    (project / "steps.py").write_text(LATE)
    assert "MP304" not in codes()
    (project / "steps.py").write_text(CLIPS_EARLY)
    assert "MP304" in codes()
    (project / "new.py").write_text("import torch\nscaler = torch.cuda.amp.GradScaler()\n")
    assert "MP101" in codes()


def test_an_import_of_another_package_in_a_file_that_no_program_reads_changes_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "notes.py").write_text("print(1)\n")
    assert "MP304" in codes()
    (project / "notes.py").write_text("import json\n\nprint(json.dumps(1))\n")

    def interpreted(*_: object) -> None:
        raise LookupError

    monkeypatch.setattr("mplint.engine.tracing.interpret", interpreted)
    result = check(["."], Config(isolated=True))
    assert "MP304" in [finding.code for finding in result.findings] and not result.faults
    (project / "notes.py").write_text("import steps\n\nprint(steps.finish)\n")
    assert "LookupError" in str(check(["."], Config(isolated=True)).faults)


def test_a_comment_that_moves_nothing_is_no_change_for_programs_whose_text_no_finding_shows(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = "LIMIT = 1.0  # of the norm\n"
    (project / "sizes.py").write_text(sizes)
    (project / "steps.py").write_text("from sizes import LIMIT\n" + CLIPS_EARLY.replace("1.0", "LIMIT"))
    first = check(["."], Config(isolated=True)).findings
    assert "MP304" in [finding.code for finding in first]
    real = tracing.interpret
    runs: list[int] = []

    def noted(*given: object) -> object:
        runs.append(1)
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("mplint.engine.tracing.interpret", noted)
    (project / "sizes.py").write_text(sizes.replace("of the norm", "at which gradients are clipped"))
    assert check(["."], Config(isolated=True)).findings == first
    assert not runs
    (project / "sizes.py").write_text("\n" + sizes)
    assert check(["."], Config(isolated=True)).findings == first
    assert len(runs) == 1
    (project / "steps.py").write_text("from sizes import LIMIT  # a size\n" + CLIPS_EARLY.replace("1.0", "LIMIT"))
    assert check(["."], Config(isolated=True)).findings == first
    assert len(runs) == 2, "findings show the text of this one"


def test_another_hardware_is_another_question(project: Path) -> None:
    (project / "train.py").write_text(TRAIN.replace('torch.autocast("cuda")', 'torch.autocast("cuda", dtype=torch.bfloat16)'))

    def found(target: str | None) -> list[str]:
        return [finding.code for finding in check(["."], Config(isolated=True, target=target)).findings]

    assert "MP503" not in found(None)
    assert "MP503" in found("Tesla T4")
    assert "MP503" not in found("A100")


BEFORE = 60_000_000_000  # nanoseconds: files that have just been written are taken for settled


FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that programs were interpreted."""
    real, runs = tracing.interpret, []

    def noted(*given: object) -> object:
        runs.append(1)
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("mplint.engine.tracing.interpret", noted)
    return runs


@pytest.mark.parametrize(
    ("fixture", "text", "idle", "telling"),
    [
        ("MP206/bad_criterion_of_a_method", "NOTES.md", "Install it.\n", "See `nets.notes.NoteLoss`.\n"),
        ("MP205/bad_library_by_its_readme", "README.md", "Mixed precision works.\n", "# spectral\n"),
    ],
)
def test_a_text_that_is_edited_counts_only_where_it_says_something_else_of_what_was_asked(
    project: Path, interpreted: list[int], fixture: str, text: str, idle: str, telling: str
) -> None:
    folder = project.parent / "copied"
    shutil.copytree(FIXTURES / fixture, folder)
    (folder / text).touch()

    def found() -> set[str]:
        return {finding.code for finding in check([str(folder)], Config(isolated=True, min_confidence=Confidence.LOW)).findings}

    code = fixture.partition("/")[0]
    assert code in found() and len(interpreted) == 1
    (folder / text).write_text((folder / text).read_text() + idle)
    assert code in found() and len(interpreted) == 1
    (folder / text).write_text(telling)
    found()
    assert len(interpreted) == 2


def settled(folder: Path) -> None:
    """Let all files and folders look as if they had been there for a while."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - BEFORE))


@pytest.mark.parametrize(
    ("fixture", "text", "said", "counts"),
    [
        ("MP206/bad_criterion_of_a_method", "more/INSTALL.md", "Install it.\n", False),
        ("MP206/bad_criterion_of_a_method", "more/NOTES.md", "See `nets.notes.NoteLoss`.\n", True),
        ("MP205/bad_library_by_its_readme", "docs/half.md", "Runs without mixed precision, too.\n", False),
        ("MP205/bad_library_by_its_readme", "README.md", "All of it runs in mixed precision.\n", True),
    ],
)
def test_a_text_that_appears_counts_where_it_says_something_of_what_was_asked(
    project: Path, interpreted: list[int], fixture: str, text: str, said: str, counts: bool
) -> None:
    folder = project.parent / "copied"
    shutil.copytree(FIXTURES / fixture, folder)
    (folder / "README.md").unlink(missing_ok=True)
    (folder / "more").mkdir()
    settled(folder)

    def found() -> tuple[object, ...]:
        return check([str(folder)], Config(isolated=True, min_confidence=Confidence.LOW)).findings

    found()
    assert found() == found() and len(interpreted) == 1
    (folder / text).parent.mkdir(exist_ok=True)
    (folder / text).write_text(said)
    after = found()
    assert len(interpreted) == 1 + counts
    assert after == check([str(folder)], Config(isolated=True, cache=False, min_confidence=Confidence.LOW)).findings


def test_a_configuration_that_appears_beside_others_counts(project: Path, interpreted: list[int]) -> None:
    folder = project.parent / "composed"
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "small.yaml").write_text("precision: float32\n")
    (folder / "train.py").write_text(
        "import hydra\nimport torch\n\n\n@hydra.main(config_path='conf')\ndef main(cfg):\n    model = torch.nn.Linear(8, 8).cuda()\n"
        "    with torch.autocast('cuda', enabled=cfg.precision == 'float16'):\n"
        "        print(model(torch.ones(8, 8)).masked_fill(x, -1e9))\n"
        "\n\nif __name__ == '__main__':\n    main()\n"
    )
    (folder / "other.py").write_text("import torch\n")
    settled(folder)
    check([str(folder)], Config(isolated=True))
    check([str(folder)], Config(isolated=True))
    assert len(interpreted) == 1
    (folder / "conf" / "half.yaml").write_text("precision: float16\n")
    after = check([str(folder)], Config(isolated=True)).findings
    assert len(interpreted) == 2
    assert after == check([str(folder)], Config(isolated=True, cache=False)).findings


def test_what_mplint_wrote_says_nothing_of_a_project(tmp_path: Path) -> None:
    texts, question = Texts(str(tmp_path)), ("word", "Notes")
    said = json.dumps({"version": 1, "findings": {"a.py": [{"code": "MP204", "line": "class Notes:"}]}}, indent=2)
    (tmp_path / "known.json").write_text(said)
    (tmp_path / "mplint.toml").write_text("# Notes\n")
    assert texts.answers([question]) == {question: False}
    (tmp_path / "settings.json").write_text('{"net": "Notes"}')
    assert texts.answers([question]) == {question: True}
