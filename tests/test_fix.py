"""Fixing files: what is applied, what is taken back, and what is said about it."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from fixture_files import FIXTURES

from mplint.api import check_text, config_for, fix, fix_text
from mplint.engine.fix import fix_files
from mplint.engine.results import FixResult
from mplint.findings import AddImport, Applicability, Change, Confidence, Finding, Fix, Location, Replace, Severity, Span
from mplint.python.document import Document, InputError
from mplint.python.load import load, parse
from mplint.python.parse import parse_text

Rule = tuple[str, str, Callable[[Document, Span], tuple[Change, ...]]]


class Toy:
    """A project whose rules are words: each occurrence of the word is a finding, with a fix made from its place."""

    def __init__(self, folder: Path, *rules: Rule, applicability: Applicability = Applicability.SAFE, errors: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.rules = rules
        self.applicability = applicability
        self.errors = errors
        self.passes = 0

    def file(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def __call__(self, contents: Mapping[str, bytes]) -> list[Finding]:
        self.passes += 1
        paths = {str(path) for path in self.folder.iterdir() if path.suffix in (".py", ".ipynb")} | set(contents)
        found = []
        for path in sorted(paths):
            data = contents[path] if path in contents else Path(path).read_bytes()
            try:
                document = load(path, data)
                parse(document)
            except InputError as error:
                found.append(Finding("MP001", "unreadable", Severity.ERROR, Confidence.HIGH, error.message, error.location(path)))
                continue
            for number, line in enumerate(document.text.split("\n"), 1):
                for code, word, changes in self.rules:
                    for match in re.finditer(rf"\b{word}\b", line):
                        span = Span(number, match.start(), number, match.end())
                        severity = Severity.ERROR if code in self.errors else Severity.WARNING
                        made = Fix("toy", self.applicability, changes(document, span))
                        found.append(Finding(code, "toy", severity, Confidence.HIGH, "m", document.location(span), fix=made))
        return found

    def fixed(self, *, unsafe: bool = False, apply: bool = True, given: Mapping[str, bytes] | None = None) -> FixResult:
        return fix_files(self, given or {}, unsafe=unsafe, apply=apply)


def by(text: str) -> Callable[[Document, Span], tuple[Change, ...]]:
    return lambda document, span: (Replace(span, text),)


OLD: Rule = ("T1", "old", by("new"))


def test_nothing_is_written_without_apply(tmp_path: Path) -> None:
    toy = Toy(tmp_path, OLD)
    path = toy.file("a.py", "x = old\n")
    result = toy.fixed(apply=False)
    assert path.read_text() == "x = old\n"
    assert result.applied == 1 and result.changed == (str(path),) and not result.remaining
    assert result.mended == ((str(path), "T1", 1),)
    assert result.diffs == (f"--- a/{str(path)[1:]}\n+++ b/{str(path)[1:]}\n@@ -1 +1 @@\n-x = old\n+x = new\n",)


def test_apply_writes_and_a_second_run_finds_nothing_to_do(tmp_path: Path) -> None:
    toy = Toy(tmp_path, OLD)
    path = toy.file("a.py", "x = old\ny = old + old\n")
    assert toy.fixed().applied == 3
    assert path.read_text() == "x = new\ny = new + new\n"
    again = toy.fixed()
    assert (again.applied, again.diffs, again.changed) == (0, (), ())


@pytest.mark.parametrize(
    ("applicability", "unsafe", "applied"),
    [(Applicability.UNSAFE, False, 0), (Applicability.UNSAFE, True, 1), (Applicability.DISPLAY, True, 0), (Applicability.SAFE, True, 1)],
)
def test_only_the_fixes_that_are_allowed_are_applied(tmp_path: Path, applicability: Applicability, unsafe: bool, applied: int) -> None:
    toy = Toy(tmp_path, OLD, applicability=applicability)
    toy.file("a.py", "x = old\n")
    result = toy.fixed(unsafe=unsafe)
    assert (result.applied, len(result.remaining)) == (applied, 1 - applied)


def test_a_fix_that_is_only_shown_comes_as_the_lines_that_it_would_change_in_the_fixed_file(tmp_path: Path) -> None:
    toy = Toy(tmp_path, ("T1", "old", by("new")), applicability=Applicability.DISPLAY)
    path = toy.file("a.py", "x = 1\ny = old\n")
    ((finding, diff),) = toy.fixed().shown
    assert (finding.code, finding.location.line) == ("T1", 2)
    assert diff.splitlines()[2:] == ["@@ -1,2 +1,2 @@", " x = 1", "-y = old", "+y = new"]
    assert path.read_text() == "x = 1\ny = old\n"


def test_overlapping_fixes_wait_for_the_next_pass(tmp_path: Path) -> None:
    outer: Rule = ("T2", "f", lambda document, span: (Replace(Span(span.line, span.column, span.line, span.column + 6), "g(old)"),))
    toy = Toy(tmp_path, OLD, outer)
    path = toy.file("a.py", "f(old)\n")
    assert toy.fixed().applied == 2
    assert path.read_text() == "g(new)\n"


def test_fixes_that_need_the_same_import_share_it(tmp_path: Path) -> None:
    toy = Toy(tmp_path, ("T1", "old", lambda document, span: (AddImport("torch"), Replace(span, "torch.new"))))
    path = toy.file("a.py", "import os\n\nx = old\ny = old\n")
    assert toy.fixed().applied == 2
    assert path.read_text() == "import os\nimport torch\n\nx = torch.new\ny = torch.new\n"
    assert toy.passes == 2


def test_a_fix_that_breaks_the_program_is_taken_back_and_named_while_the_others_stand(tmp_path: Path) -> None:
    toy = Toy(tmp_path, OLD, ("T2", "bad", by("b a d")))
    path, other = toy.file("a.py", "x = old\ny = bad\n"), toy.file("b.py", "x = old\n")
    result = toy.fixed()
    assert path.read_text() == "x = new\ny = bad\n"
    assert other.read_text() == "x = new\n"
    assert result.applied == 2
    assert sorted(f.code for f in result.remaining) == ["T2"]
    assert len(result.faults) == 1
    assert result.faults[0].startswith(f"the fix of T2 on {path} was taken back: the result does not parse")


def test_a_fix_after_which_the_finding_is_still_there_is_taken_back(tmp_path: Path) -> None:
    toy = Toy(tmp_path, OLD, ("T2", "same", lambda document, span: (Replace(span, "(same)"),)))
    path = toy.file("a.py", "x = old\ny = same\nz = same\n")
    result = toy.fixed()
    assert path.read_text() == "x = new\ny = same\nz = same\n"
    assert result.applied == 1
    assert "T2 is still reported" in result.faults[0]


def test_one_of_three_equal_fixes_that_fails_leaves_the_other_two(tmp_path: Path) -> None:
    broken: Rule = ("T1", "old", lambda document, span: (Replace(span, "(" if "(" not in document.text and span.line == 2 else "new"),))
    toy = Toy(tmp_path, broken)
    path = toy.file("a.py", "x = old\ny = old\nz = old\n")
    result = toy.fixed()
    assert path.read_text() == "x = new\ny = old\nz = new\n"
    assert result.applied == 2 and len(result.faults) == 1


def test_a_fix_that_only_moves_its_finding_is_taken_back(tmp_path: Path) -> None:
    toy = Toy(tmp_path, ("T2", "same", lambda document, span: (Replace(span, "(\n\n    same\n)"),)))
    path = toy.file("a.py", "y = same\n")
    assert toy.fixed().faults
    assert path.read_text() == "y = same\n"


def test_an_equal_finding_elsewhere_does_not_count_against_a_fix(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path, ("T1", "old", lambda document, span: (Replace(span, "a\nb") if span.line == 1 else Replace(Span(9, 9, 9, 9), "x"),))
    )
    path = toy.file("a.py", "old\nold\nold\n")
    result = toy.fixed()
    assert path.read_text() == "a\nb\nold\nold\n"
    assert result.applied == 1 and len(result.remaining) == 2 and len(result.refused) == 1 and not result.faults


def test_a_fix_that_brings_about_another_error_is_left_to_the_user_and_the_others_are_applied(tmp_path: Path) -> None:
    toy = Toy(tmp_path, ("T1", "old", by("worse")), ("T2", "bad", by("good")), ("T3", "worse", lambda document, span: ()), errors=("T3",))
    path = toy.file("a.py", "x = old\ny = bad\nz = old\n")
    result = toy.fixed()
    assert path.read_text() == "x = old\ny = good\nz = old\n"
    assert result.refused == (f"{path}: fixing T1 alone would bring about T3: m",) and not result.faults
    assert (result.applied, len(result.remaining)) == (1, 2)


def test_a_fix_stays_that_uncovers_an_error_elsewhere() -> None:
    model = "inputs = keras.Input((8,))\n"
    model += 'outputs = keras.layers.Dense(8, activation="softmax"{})(inputs)\n'
    model += "model = keras.Model(inputs, outputs)\n"
    program = 'import keras\n\nkeras.mixed_precision.set_global_policy("{}")\n' + model + 'model.compile("adam", "mse")\n'
    fixed = fix_text(program.format("mixed_fp16", ""), select=("MP108", "MP201"))
    assert fixed == program.format("mixed_float16", ', dtype="float32"')


def test_fixes_that_never_settle_end_after_ten_passes(tmp_path: Path) -> None:
    toy = Toy(tmp_path, ("T1", "ping", by("pong")), ("T2", "pong", by("ping")))
    path = toy.file("a.py", "x = ping\n")
    result = toy.fixed()
    assert toy.passes == 11
    assert path.read_text() == "x = ping\n"
    assert len(result.remaining) == 1 and not result.changed


def test_a_fix_that_does_not_suit_the_code_is_refused_and_the_others_are_applied(tmp_path: Path) -> None:
    toy = Toy(tmp_path, OLD, ("T2", "torch", lambda document, span: (AddImport("torch"),)))
    path = toy.file("a.py", "torch = old\n")
    result = toy.fixed()
    assert path.read_text() == "torch = new\n"
    assert result.refused == (f"T2: {path}:1: the name 'torch' is taken, so it can't be imported",)
    assert not result.faults


def test_a_fix_that_crashes_is_a_fault_and_no_traceback(tmp_path: Path) -> None:
    toy = Toy(tmp_path, OLD, ("T2", "bad", lambda document, span: ({"no": "change"},)))  # type: ignore[arg-type,return-value]
    path = toy.file("a.py", "x = old + bad\n")
    result = toy.fixed()
    assert path.read_text() == "x = new + bad\n"
    assert result.faults[0].startswith(f"the fix of T2 on {path} failed: ")


def test_standard_input_is_fixed_and_not_written(tmp_path: Path) -> None:
    toy = Toy(tmp_path, OLD)
    result = toy.fixed(given={"<stdin>": b"\xef\xbb\xbfx = old\r\n"})
    assert result.output == {"<stdin>": b"\xef\xbb\xbfx = new\r\n"}
    assert not list(tmp_path.iterdir())


def test_the_bytes_around_a_fix_stay(tmp_path: Path) -> None:
    toy = Toy(tmp_path, OLD)
    path = toy.file("a.py", "\ufeff# é\r\nx = old\n\tdef".replace("\n\tdef", "\r\n\r\ny = 'ü'"))
    toy.fixed()
    assert path.read_bytes() == "\ufeff# é\r\nx = new\r\n\r\ny = 'ü'".encode()


@pytest.mark.parametrize("text", ["x = old\ny\n", "x = old", "a\n\n\n\n\n\nb\nx = old\n", "# é\r\nx = old\r\n"])
def test_the_diff_is_one_that_git_applies(tmp_path: Path, text: str) -> None:
    toy = Toy(tmp_path, OLD)
    path = toy.file("a.py", text)
    result = toy.fixed(apply=False)
    diff = result.diffs[0].replace(str(path)[1:], "a.py")
    subprocess.run(["git", "apply", "--unsafe-paths", "-"], cwd=tmp_path, input=diff.encode(), check=True)
    assert path.read_bytes() == text.replace("old", "new").encode()


def test_a_notebook_is_diffed_by_its_json(tmp_path: Path) -> None:
    toy = Toy(tmp_path, OLD)
    cell = '{"cell_type": "code", "outputs": [],\n "source": [\n  "x = 1\\n",\n  "y = old"\n ]}'
    path = toy.file("a.ipynb", f'{{"cells": [{cell}],\n "nbformat": 4}}')
    result = toy.fixed()
    assert '-  "y = old"\n+  "y = new"\n' in result.diffs[0]
    assert path.read_text() == f'{{"cells": [{cell}],\n "nbformat": 4}}'.replace("old", "new")


def test_a_replaced_file_keeps_its_mode_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    toy = Toy(tmp_path, OLD)
    path = toy.file("a.py", "x = old\n")
    path.chmod(0o750)
    toy.fixed()
    assert path.read_text() == "x = new\n" and stat.S_IMODE(path.stat().st_mode) == 0o750
    assert [p.name for p in tmp_path.iterdir()] == ["a.py"]


def test_a_symbolic_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    target = tmp_path / "target.txt"
    target.write_text("x = old\n")
    link = tmp_path / "project" / "a.py"
    link.symlink_to("../target.txt")
    Toy(tmp_path / "project", OLD).fixed()
    assert link.is_symlink() and target.read_text() == "x = new\n"


def test_a_read_only_file_is_reported_and_left(tmp_path: Path) -> None:
    toy = Toy(tmp_path, OLD)
    path = toy.file("a.py", "x = old\n")
    path.chmod(0o444)
    result = toy.fixed()
    assert path.read_text() == "x = old\n"
    assert result.failures == (f"{path}: it is read-only; nothing was changed",)
    assert (result.applied, result.changed, len(result.remaining)) == (0, (), 1)


def test_a_file_that_changes_or_vanishes_meanwhile_is_reported_and_left(tmp_path: Path) -> None:
    toy = Toy(tmp_path, OLD)
    changing, vanishing = toy.file("a.py", "x = old\n"), toy.file("b.py", "x = old\n")

    def check(contents: Mapping[str, bytes]) -> list[Finding]:
        found = toy(contents)
        if contents and vanishing.exists():
            changing.write_text("x = old  # edited\n")
            vanishing.unlink()
        return found

    result = fix_files(check, {}, unsafe=False, apply=True)
    assert changing.read_text() == "x = old  # edited\n" and not vanishing.exists()
    assert result.failures == (
        f"{changing}: it was changed while it was checked; nothing was changed",
        f"{vanishing}: no such file or directory; nothing was changed",
    )


def test_a_file_that_is_gone_before_it_is_read_is_reported(tmp_path: Path) -> None:
    place = Location(str(tmp_path / "gone.py"), 1, 1, 1, 2)
    finding = Finding(
        "T1", "toy", Severity.ERROR, Confidence.HIGH, "m", place, fix=Fix("f", Applicability.SAFE, (Replace(Span(1, 0, 1, 1), "x"),))
    )
    result = fix_files(lambda contents: [finding], {}, unsafe=False, apply=True)
    assert result.failures == (f"{place.path}: can't be read: no such file or directory",)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Toy(tmp_path, OLD)
    path = toy.file("a.py", "x = old\n")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = toy.fixed()
    assert result.failures == (f"{path}: no space left on device; nothing was changed",)
    assert [p.name for p in tmp_path.iterdir()] == ["a.py"] and path.read_text() == "x = old\n"


def test_fixing_all_fixtures_leaves_programs_that_parse_and_nothing_to_fix_again(tmp_path: Path) -> None:
    for path in FIXTURES.glob("MP*/*.py"):
        shutil.copyfile(path, tmp_path / f"{path.parent.name}_{path.name}")
    config = config_for({}, ("ALL",))
    result = fix([str(tmp_path)], config, unsafe=True, apply=True)
    assert result.applied and not result.faults and not result.failures
    for path in tmp_path.iterdir():
        parse_text(path.read_text(encoding="utf-8"))
    assert fix([str(tmp_path)], config, unsafe=True, apply=True).applied == 0


def test_text_is_fixed_through_the_api() -> None:
    assert fix_text("import torch\nx = torch.cuda.amp.autocast()\n", select=["MP101"]) == 'import torch\nx = torch.amp.autocast("cuda")\n'
    assert fix_text("x = 1\n") == "x = 1\n"


ROUND = """
import torch


def train(net, other, pairs, both):
    first, second = torch.optim.SGD(net.parameters(), 0.1), torch.optim.SGD(other.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x, y in pairs:
        with torch.autocast("cuda", dtype=torch.float16):
            one, two = net(x).float().pow(2).mean(), other(y).float().pow(2).mean()
        scaler.scale(one).backward()
        scaler.scale(two).backward()
        scaler.step(first)
        scaler.update()
{rest}
"""


@pytest.mark.parametrize(
    ("rest", "shown"),
    [
        ("        scaler.step(second)\n        scaler.update()", True),
        ("        if both:\n            scaler.step(second)\n            scaler.update()", False),
    ],
)
def test_an_update_is_shown_as_one_too_many_only_where_the_one_that_stays_runs_as_often(rest: str, shown: bool) -> None:
    (found,) = (f for f in check_text(ROUND.format(rest=rest), "train.py") if f.code == "MP310")
    assert (found.fix is not None and found.fix.title == "Leave this call out") is shown


def test_unscaling_is_not_shown_to_move_behind_what_meets_the_gradients_before_the_step() -> None:
    program = """
import torch


def train(net, optimizer, batches, limit):
    scaler = torch.amp.GradScaler("cuda")
    for number, x in enumerate(batches):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(x).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        {between}torch.nn.utils.clip_grad_norm_(net.parameters(), limit)
        if number % 4 == 3:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
"""
    shown = []
    for between in ("", "if limit > 0:\n            "):
        found = [f for f in check_text(program.format(between=between), "train.py") if f.code == "MP310"]
        shown.append([f.fix is not None for f in found])
    assert shown == [[True], [False]]
