"""R on the command line: which files are read, what is said without the grammar, comments that suppress, fixes that keep R's form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mplint.api import check_text, fix_text
from mplint.cli.main import main
from mplint.engine.discovery import discover
from mplint.findings import Applicability, Finding, Fix, InsertStatements, MoveStatement, RemoveStatement, Replace, Span, WrapStatements
from mplint.python.load import load
from mplint.python.r import grammar
from mplint.python.r.spelling import NotInR, Spelling
from mplint.rewrite import FixError, apply_edits, realize

LATE = """library(keras)
net <- keras_model_sequential() %>%
  layer_dense(8, input_shape = 4) %>%
  layer_dense(1, dtype = "float32")
tf$keras$mixed_precision$set_global_policy("mixed_fp16")
"""


def codes(text: str, path: str = "a.R") -> list[tuple[str, int | None]]:
    return [(f.code, f.location.line) for f in check_text(text, path)]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def without_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    """R can't be read."""

    def missing() -> None:
        raise grammar.MissingGrammar

    monkeypatch.setattr(grammar, "parser", missing)


def test_a_folder_gives_the_r_files_that_mention_a_precision(project: Path) -> None:
    for name in ("a.R", "b.r", "c.Rmd", "d.qmd"):
        (project / name).write_text('tf$keras$mixed_precision$set_global_policy("mixed_float16")')
    (project / "other.R").write_text("x <- lm(y ~ z)")
    assert discover(["."]) == ["a.R", "b.r", "c.Rmd", "d.qmd"]


MODEL = """library(keras)
build <- function() {
  keras_model_sequential() %>%
    layer_dense(64, activation = "relu", input_shape = 16) %>%
    layer_dense(10, activation = "softmax")
}
net <- build()
"""
POLICY = 'library(keras)\ntf$keras$mixed_precision$set_global_policy("mixed_float16")\n'
TRAIN = 'net %>% compile(loss = "sparse_categorical_crossentropy", optimizer = "adam")\nnet %>% fit(x, y)\n'


@pytest.mark.parametrize(
    "written", ['source("R/model.R")', 'source(file.path("R", "model.R"))', 'source(here::here("R", "model.R"), local = TRUE)']
)
def test_a_file_that_another_runs_is_read_under_its_policy(project: Path, capsys: pytest.CaptureFixture[str], written: str) -> None:
    (project / "R").mkdir()
    (project / "R" / "model.R").write_text(MODEL)
    (project / "train.R").write_text(f"{POLICY}{written}\n{TRAIN}")
    assert discover(["."]) == ["R/model.R", "train.R"]
    main(["check", ".", "--output-format", "json"])
    found = {(f["code"], f["path"], f["line"]) for f in json.loads(capsys.readouterr().out)["findings"]}
    assert ("MP201", "R/model.R", 5) in found
    (project / "train.R").write_text(f"{POLICY.replace('mixed_float16', 'float32')}{written}\n{TRAIN}")
    main(["check", ".", "--output-format", "json"])
    assert [f for f in json.loads(capsys.readouterr().out)["findings"] if f["code"] == "MP201"] == []


def test_a_policy_of_a_file_that_is_run_first_counts(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "setup.R").write_text(POLICY)
    (project / "train.R").write_text(f'source("setup.R")\n{MODEL}{TRAIN}')
    (project / "other.R").write_text("source('nothing.R')\nx <- 1\n")
    assert discover(["."]) == ["setup.R", "train.R"]
    main(["check", ".", "--output-format", "json"])
    assert ("MP201", "train.R", 6) in {(f["code"], f["path"], f["line"]) for f in json.loads(capsys.readouterr().out)["findings"]}


def test_files_that_run_each_other_come_to_an_end(project: Path) -> None:
    (project / "a.R").write_text(f"{POLICY}source('b.R')\n")
    (project / "b.R").write_text("source('a.R')\nx <- 1\n")
    assert discover(["."]) == ["a.R", "b.R"]
    assert main(["check", "."]) == 0


def test_a_program_of_python_is_no_module_of_r(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "model.py").write_text("net = None\n")
    (project / "model.R").write_text(MODEL)
    (project / "train.R").write_text(f"{POLICY}source('model.R')\n{TRAIN}")
    (project / "use.py").write_text("from model import net\n")
    main(["check", ".", "--output-format", "json"])
    assert [(f["code"], f["path"]) for f in json.loads(capsys.readouterr().out)["findings"]] == [("MP201", "model.R")]


@pytest.mark.usefixtures("without_grammar")
def test_a_folder_says_that_r_was_not_checked_and_how_to(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "a.R").write_text(LATE)
    (project / "b.py").write_text("import os\n")
    (project / "other.R").write_text("x <- lm(y ~ z)")
    assert main(["check", "."]) == 0
    out, err = capsys.readouterr()
    shown, reason = " ".join(out.split()), 'a.R: not checked: reading R needs tree-sitter-language-pack: pip install "mplint[r]"'
    assert reason in shown and err == ""
    main(["check", ".", "--output-format", "json"])
    assert reason in capsys.readouterr().err
    assert "in what could be judged of 1 file" in shown
    assert main(["check", "a.R"]) == 2
    assert 'pip install "mplint[r]"' in capsys.readouterr().err


def test_what_was_not_checked_is_once_the_grammar_is_there(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "a.R").write_text(LATE)
    (project / "b.py").write_text("import os\n")
    with monkeypatch.context() as patched:
        patched.setattr(grammar, "parser", lambda: (_ for _ in ()).throw(grammar.MissingGrammar()))
        assert main(["check", "."]) == 0
    assert main(["check", "."]) == 1


def test_reports_have_r_s_places(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "a.Rmd").write_text(f"# Late\n\n```{{r}}\n{LATE}```\n")
    main(["check", "a.Rmd", "--output-format", "json"])
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert (found["code"], found["line"], found["column"], found["cell"]) == ("MP108", 8, 44, None)
    main(["check", "a.Rmd", "--output-format", "sarif"])
    (result,) = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 8


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ('tf$keras$mixed_precision$set_global_policy("mixed_fp16")  # mplint: ignore[MP108]', []),
        ('# mplint: ignore\ntf$keras$mixed_precision$set_global_policy("mixed_fp16")', []),
        ('tf$keras$mixed_precision$set_global_policy(\n  "mixed_fp16"\n)  # mplint: ignore[MP108]', []),
        ('"# mplint: ignore[MP108]"\ntf$keras$mixed_precision$set_global_policy("mixed_fp16")', [("MP108", 2)]),
        ("x <- 1  # mplint: ignore[MP108]", [("MP002", 1)]),
        ('# mplint: file-ignore[MP108]\n\nf <- function() {\n  tf$keras$mixed_precision$set_global_policy("mixed_fp16")\n}', []),
    ],
)
def test_comments_suppress_as_in_python(line: str, left: list[tuple[str, int]]) -> None:
    assert codes(line) == left


def test_a_comment_after_a_block_s_head_says_nothing_of_the_block() -> None:
    text = 'if (TRUE) {  # mplint: ignore[MP108]\n  tf$keras$mixed_precision$set_global_policy("mixed_fp16")\n}\n'
    assert codes(text) == [("MP002", 1), ("MP108", 2)]


def test_messages_speak_r() -> None:
    text = 'library(keras)\ntf$keras$mixed_precision$set_global_policy("float16")\n'
    text += 'net <- keras_model_sequential() %>% layer_dense(1, dtype = "float32")\nnet %>% compile(loss = "mse", optimizer = "sgd")\n'
    (found,) = [f for f in check_text(text, "a.R") if f.code == "MP105"]
    assert found.help == 'Use `keras$mixed_precision$set_global_policy("mixed_float16")`.'


@pytest.mark.parametrize(
    ("python", "r"),
    [
        ("tf.keras.mixed_precision.Policy", "tf$keras$mixed_precision$Policy"),
        (', dtype="float32"', ', dtype = "float32"'),
        ("opt.get_scaled_loss(train.loss)", "opt$get_scaled_loss(train.loss)"),
        ("train.loss.numpy()", "train.loss$numpy()"),
        ("f(dynamic=False, scale=None)", "f(dynamic = FALSE, scale = NULL)"),
        ("f((8, 8), [1, 2], x[0])", "f(c(8, 8), c(1, 2), x[0])"),
        ("3.5e-4 * x", "3.5e-4 * x"),
        ('"a.b = True"', '"a.b = True"'),
    ],
)
def test_code_is_spelled_in_r(python: str, r: str) -> None:
    assert Spelling("train.loss <- f(x)  # tf.keras.mixed_precision").code(python) == r


@pytest.mark.parametrize("code", ["a if b else c", "lambda x: x", "x is None", "not x"])
def test_what_r_can_t_say_is_no_fix(code: str) -> None:
    with pytest.raises(NotInR):
        Spelling("").code(code)


STEPS = """f <- function() {
  a <- 1
  b <- g(
    a
  )
  # of c
  c <- 3; d <- 4
}
"""
A, B, C = Span(2, 2, 2, 8), Span(3, 2, 5, 3), Span(7, 2, 7, 8)


def changed(*changes: InsertStatements | MoveStatement | RemoveStatement | WrapStatements | Replace) -> str:
    document = load("a.R", STEPS.encode())
    edits = realize(document, Fix("", Applicability.SAFE, changes))
    return apply_edits("a.R", STEPS.encode(), edits).decode()


def test_statements_of_r_are_put_in_taken_out_moved_and_wrapped() -> None:
    assert changed(InsertStatements(B, ("n <- 0",))) == STEPS.replace("  b <-", "  n <- 0\n  b <-")
    assert changed(InsertStatements(B, ("n <- 0",), after=True)) == STEPS.replace("  )\n", "  )\n  n <- 0\n")
    assert changed(RemoveStatement(B)) == STEPS.replace("  b <- g(\n    a\n  )\n", "")
    assert changed(MoveStatement(B, A)) == STEPS.replace("  b <- g(\n    a\n  )\n", "").replace("  a <-", "  b <- g(\n    a\n  )\n  a <-")
    assert changed(WrapStatements(A, B, "with(s$scope(), {")) == STEPS.replace(
        "  a <- 1\n  b <- g(\n    a\n  )\n", "  with(s$scope(), {\n    a <- 1\n    b <- g(\n      a\n    )\n  })\n"
    )
    assert changed(InsertStatements(A, ("n <- 0",)), Replace(Span(2, 2, 2, 3), "aa")) == STEPS.replace("  a <-", "  n <- 0\n  aa <-")


def test_a_statement_that_shares_its_line_stays() -> None:
    with pytest.raises(FixError, match="something else stands"):
        changed(RemoveStatement(C))


def test_line_ends_and_what_stands_around_a_fix_stay() -> None:
    text = '# é\r\nlibrary(keras3)\r\nconfig_set_dtype_policy( "mixed-float16" )  # half\r\n'
    assert fix_text(text, "a.R") == text.replace("mixed-float16", "mixed_float16")


def named(findings: list[Finding]) -> list[str]:
    return [f.code for f in findings]


def test_a_program_without_keras_attached_is_understood() -> None:
    text = 'tf <- reticulate::import("tensorflow")\ntf$keras$mixed_precision$experimental$set_policy("mixed_float16")\n'
    assert named(check_text(text, "a.R")) == ["MP102"]
