"""The pages of `--report`, as text: whole in themselves, the same every time, and harmless whatever names and sources say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from page_samples import EVIL, SCRIPT, adoption_page_of, check_page_of, comparison_page_of, conversion_page_of, write_model, write_project

from mplint.cli.main import main
from mplint.conversion.policy import policy
from mplint.conversion.result import Conversion
from mplint.report.page import conversion_page

VOID = {"meta", "input", "br", "img", "circle", "path", "rect"}
LOADING = re.compile(
    r"""(?:src|srcset|poster|background|xlink:href)\s*=|<link\b|@import|url\(|\bfetch\(|XMLHttpRequest|WebSocket|EventSource"""
)


class Page(HTMLParser):
    """A page taken apart: its elements, the text of it, and its scripts; elements that do not close are a fault."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str | None, str]] = []
        self.seen: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs).get("type"), ""))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag, f"{tag} closes another element, line {self.getpos()}"

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        else:
            self.seen.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.seen).split())

    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.elements if "id" in attributes]


@pytest.fixture(params=("check", "convert", "adopt", "compare"))
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "compare":
        return comparison_page_of(tmp_path, error="ValueError", lost=90)
    if request.param == "check":
        write_model(write_project(tmp_path) / "model.onnx")
        return check_page_of(tmp_path, "--policy", "mixed_float16")
    return conversion_page_of(tmp_path) if request.param == "convert" else adoption_page_of(tmp_path)


def test_a_page_is_well_formed_and_every_place_that_it_links_to_is_there(path: str) -> None:
    page = Page(Path(path).read_text(encoding="utf-8"))
    ids = page.ids()
    assert len(ids) == len(set(ids))
    targets = {attributes["href"] for tag, attributes in page.elements if tag == "a" and (attributes["href"] or "").startswith("#")}
    assert {target[1:] for target in targets if target} <= set(ids)
    labels = {attributes["aria-labelledby"] for _, attributes in page.elements if "aria-labelledby" in attributes}
    assert labels <= set(ids)


def test_a_page_loads_nothing_and_lets_only_its_own_scripts_run(path: str) -> None:
    text = Path(path).read_text(encoding="utf-8")
    page = Page(text)
    assert not any({"src", "srcset", "action"} & attributes.keys() or tag in ("link", "img", "iframe") for tag, attributes in page.elements)
    assert not any(LOADING.search(script) for kind, script in page.scripts if kind is None)
    policy = next(attributes["content"] or "" for tag, attributes in page.elements if attributes.get("http-equiv"))
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy
    for kind, script in page.scripts:
        assert kind == "application/json" or b64encode(sha256(script.encode()).digest()).decode() in policy
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_what_sources_and_models_say_is_text(path: str) -> None:
    page = Page(Path(path).read_text(encoding="utf-8"))
    assert not any(tag == "img" for tag, _ in page.elements)
    (data,) = (script for kind, script in page.scripts if kind == "application/json")
    assert "<" not in data and json.loads(data) is not False


def test_a_page_is_the_same_every_time(tmp_path: Path) -> None:
    write_model(write_project(tmp_path) / "model.onnx")
    pages = {Path(check_page_of(tmp_path)).read_bytes() for _ in range(2)} | {Path(check_page_of(tmp_path, "--statistics")).read_bytes()}
    assert len(pages) == 1
    assert len({Path(conversion_page_of(tmp_path)).read_bytes() for _ in range(2)}) == 1


def test_the_page_of_a_check_shows_findings_with_source_reasons_and_fixes(tmp_path: Path) -> None:
    text = Path(check_page_of(write_project(tmp_path))).read_text(encoding="utf-8")
    page = Page(text)
    assert re.search(r"\d+ errors? and \d+ warnings?", page.text) and "MP304 clip-before-unscale" in page.text
    assert "scaler.unscale_(opt)" in page.text and "safe fix" in page.text
    assert "How it comes to this: " in page.text and "in 2 files" in page.text
    assert EVIL in "".join(page.seen)
    assert "<mark>" in text and "What it finds, and why" in page.text


def test_a_clean_check_says_so_first(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\n", encoding="utf-8")
    page = Page(Path(check_page_of(tmp_path)).read_text(encoding="utf-8"))
    assert "No mixed-precision mistakes found" in page.text and "1 file was checked." in page.text
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "Nothing to check" in Page(Path(check_page_of(empty)).read_text(encoding="utf-8")).text


def test_the_page_of_a_conversion_shows_what_changed_and_what_stays_and_why(tmp_path: Path) -> None:
    page = Page(Path(conversion_page_of(tmp_path)).read_text(encoding="utf-8"))
    assert "Proven in mixed_float16" in page.text and "3 of 3" in page.text
    assert "What stays float32, and why" in page.text and f"/head/{EVIL}" in page.text
    assert "sample 1" in page.text and "zeros" in page.text and "true float16 semantics" in page.text
    (data,) = (script for kind, script in page.scripts if kind == "application/json")
    (drawn,) = json.loads(data)["maps"]
    words = drawn["words"]
    half = [node["n"] for node in drawn["nodes"] if words[node["d"]] == "float16"]
    assert "/encoder/layers.1/dense/MatMul" in half and "/head/Sqrt" not in half
    casts = {(words[given], words[taken]) for _, _, given, taken in drawn["edges"] if given != taken}
    assert casts == {("float32", "float16"), ("float16", "float32")}
    (square,) = (node for node in drawn["nodes"] if node["n"] == f"/head/{EVIL}")
    (mul,) = (drawn["tensors"][tensor] for tensor in square["i"][:1])
    assert mul["n"].startswith("big") and mul["m"] > 1000
    assert words[square["r"]] == "without calibration data its range is not known"


def test_a_conversion_that_is_not_written_is_drawn_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, report = write_model(tmp_path / "model.onnx"), tmp_path / "a.html"
    assert main(["convert", source, "--dry-run", "--keep", "MatMul", "--keep", "Relu", "--keep", "Add", "--report", str(report)]) == 3
    page = Page(report.read_text(encoding="utf-8"))
    assert "Nothing converted" in page.text and "Nothing was written." in page.text and "asked to stay float32" in page.text
    monkeypatch.setattr("mplint.conversion.judged.LARGEST", 0)
    assert main(["convert", source, "--dry-run", "--report", str(report)]) == 0
    assert "There is no precision map" in Page(report.read_text(encoding="utf-8")).text


def test_a_result_that_was_not_run_is_not_called_proven(tmp_path: Path) -> None:
    source = write_model(tmp_path / "model.onnx")
    counts = {"heavy": 3, "heavy_half": 3, "operations": 13, "operations_half": 13}
    result = Conversion(policy("mixed_float16"), save=lambda target: shutil.copy(source, target), notes=["not verified"], **counts)
    page = Page(conversion_page(result, source, "", written=False))
    assert "Converted, and not run" in page.text and "Proven" not in page.text and "Largest errornot run" in page.text


def test_the_page_of_an_adoption_shows_the_diff_and_what_it_is_for(tmp_path: Path) -> None:
    page = Page(Path(adoption_page_of(tmp_path)).read_text(encoding="utf-8"))
    assert "Adopts mixed_float16" in page.text and "Nothing is written yet" in page.text
    assert "scaler.scale(loss).backward()" in page.text and "small gradients do not become 0" in page.text
    assert "p0l8" in page.ids()
    assert "scaler.step(…)" in page.text and "scaler.update(…)" in page.text and "torch.autocast(…)" in page.text  # as the diff has them


def test_what_an_adoption_leaves_comes_first(tmp_path: Path) -> None:
    script, report = tmp_path / "train.py", tmp_path / "a.html"
    script.write_text(SCRIPT.replace("loss.backward()", "loss.backward(create_graph=True)"), encoding="utf-8")
    assert main(["convert", str(script), "--report", str(report)]) == 1
    page = Page(report.read_text(encoding="utf-8"))
    assert "Nothing was changed" in page.text and "gradients are differentiated again" in page.text and "<mark>" in report.read_text()


def test_a_notebook_is_shown_cell_by_cell(tmp_path: Path) -> None:
    lines = SCRIPT.splitlines(keepends=True)
    parts = (lines[:2], lines[2:4], lines[4:])
    cells = [{"cell_type": "code", "metadata": {}, "source": part, "execution_count": None, "outputs": []} for part in parts]
    notebook, report = tmp_path / "train.ipynb", tmp_path / "a.html"
    notebook.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}), encoding="utf-8")
    assert main(["convert", str(notebook), "--report", str(report)]) == 0
    page = Page(report.read_text(encoding="utf-8"))
    assert "train.ipynb, cell 2" in page.text and "scaler.update()" in page.text


def test_the_page_of_a_comparison_shows_verdicts_figures_and_curves(tmp_path: Path) -> None:
    text = Path(comparison_page_of(tmp_path)).read_text(encoding="utf-8")
    page = Page(text)
    assert "mixed_float16 and mixed_bfloat16: faster on this CPU" in page.text
    assert "they say nothing of a GPU" in page.text and "between 1.86 and 2.00 over 2 repeats" in page.text
    assert "peak memory of the host1.00 GB" in page.text and "loss scale at the end-8192-" in page.text
    drawn = [attributes for tag, attributes in page.elements if tag == "path" and attributes.get("data-of")]
    assert [each["data-of"] for each in drawn].count("mixed_float16") == 3 and all((each["d"] or "").startswith("M") for each in drawn)
    (data,) = (script for kind, script in page.scripts if kind == "application/json")
    loss, scale, times = json.loads(data)["charts"]
    assert loss["count"] == 120 and loss["lines"]["float32"][20] == "1"
    assert scale["lines"] == {"mixed_float16": ["32,768", *["16,384"] * 59, *["8,192"] * 60]}
    assert times["lines"]["float32"][:13] == [*[""] * 12, "40"]  # the first steps are left out


def test_losses_that_are_no_numbers_and_runs_that_fail_come_first(tmp_path: Path) -> None:
    lost = Page(Path(comparison_page_of(tmp_path, lost=90, interrupted=True)).read_text(encoding="utf-8"))
    assert "The losses of mixed_float16 are no numbers" in lost.text and "Interrupted: this is what was measured" in lost.text
    marks = [attributes for tag, attributes in lost.elements if tag == "i" and "lost" in (attributes.get("class") or "")]
    assert 1 < len(marks) < 30  # not one for each step
    failed = Page(Path(comparison_page_of(tmp_path, error=EVIL)).read_text(encoding="utf-8"))
    assert "mixed_float16 failed" in failed.text and failed.text.count(EVIL) >= 3


def test_thousands_of_steps_are_drawn_as_means_of_neighbors(tmp_path: Path) -> None:
    text = Path(comparison_page_of(tmp_path, steps=20_000, lost=19_999)).read_text(encoding="utf-8")
    assert len(text) < 400_000
    (data,) = (script for kind, script in Page(text).scripts if kind == "application/json")
    loss = json.loads(data)["charts"][0]
    assert (loss["each"], loss["count"]) == (34, 589) and loss["lines"]["mixed_float16"][-1] == "no number"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare", "script.py", "--report", "page.json"), "does not end with .html"),
        (("compare", "script.py", "--report", "none/page.html"), "does not exist"),
        (("check", ".", "--report", "page.json"), "does not end with .html"),
        (("check", ".", "--report", "none/page.html"), "does not exist"),
        (("check", ".", "--report", "a.html", "--output-file", "a.html"), "is the file that the result is written to"),
        (("convert", "script.py", "--report", "page.txt"), "does not end with .json or .html"),
        (("check", ".", "--output-format", "html"), "invalid choice"),
    ],
)
def test_misuse_is_exit_2(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    assert main(list(arguments)) == 2
    assert message in capsys.readouterr().err


def test_a_run_without_a_page_imports_no_templates(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SCRIPT, encoding="utf-8")
    code = "import sys; from mplint.cli.main import main; main(['check', sys.argv[1], '--no-cache']); print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "False"


def test_an_interruption_while_the_page_is_made_says_that_the_model_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("mplint.report.page.conversion_page", interrupt)
    source, target, report = write_model(tmp_path / "model.onnx"), tmp_path / "half.onnx", tmp_path / "a.html"
    assert main(["convert", source, "-o", str(target), "--report", str(report)]) == 130
    assert f"{target} is written, and {report} is not" in capsys.readouterr().err and target.exists()
