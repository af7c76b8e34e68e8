"""Configuration files through the engine: which ones are read, what is said of broken ones, suppressions, fixes, the cache, reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mplint.api import check, check_text, fix, fix_text
from mplint.config import Config
from mplint.configs.trainers.sniff import may_set_precision
from mplint.engine.discovery import discover
from mplint.python.suffixes import MAX_CONFIG

BAD_JSON = '{\n  "train_batch_size": 8,\n  "zero_optimization": {"stage": 1},\n  "bfloat16": {"enabled": true}\n}\n'
BAD_YAML = "output_dir: out\nnum_train_epochs: 3\nper_device_train_batch_size: 8\nfp16: true\nbf16: true\n"
ALONE = Config(isolated=True, cache=False)


def codes(path: Path, config: Config = ALONE) -> list[tuple[str, int | None, str]]:
    return [(Path(f.location.path).name, f.location.line, f.code) for f in check([str(path)], config).findings]


def test_folders_give_the_files_that_mention_a_precision(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(BAD_JSON)
    (tmp_path / "run.yml").write_text(BAD_YAML)
    (tmp_path / "package.json").write_text('{"name": "x"}')
    (tmp_path / "annotations.json").write_text(json.dumps({"images": [{"id": i} for i in range(2000)]}))
    (tmp_path / "large.json").write_text(BAD_JSON + " " * MAX_CONFIG)
    (tmp_path / ".gitignore").write_text("ignored.yaml\n")
    (tmp_path / "ignored.yaml").write_text(BAD_YAML)
    (tmp_path / ".git").mkdir()
    assert [Path(path).name for path in discover([str(tmp_path)])] == ["ds.json", "run.yml"]
    assert codes(tmp_path) == [("ds.json", 4, "MP110"), ("run.yml", 4, "MP109")]


def test_metrics_called_precision_are_no_trainer(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text('{"precision": 0.9, "recall": 0.8, "num_train_epochs": 3}')
    (tmp_path / "other.yaml").write_text("fp16: true\nbf16: true\nprecision: fp16\n")
    assert codes(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [("ds.json", BAD_JSON.replace("true}", "True}"), 4), ("run.yaml", BAD_YAML + "optim: [adam\nlr: 1\n", 7)],
)
def test_a_broken_file_that_was_meant_for_a_trainer_is_mp001(tmp_path: Path, name: str, text: str, line: int) -> None:
    (tmp_path / name).write_text(text)
    assert codes(tmp_path) == [(name, line, "MP001")]


def test_another_broken_file_is_mp001_only_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("enabled: true\nprecision: {{ .Values.precision }}\n- x\n")
    assert codes(tmp_path) == []
    assert codes(path) == [("values.yaml", 3, "MP001")]
    unrelated = tmp_path / "chart.yaml"
    unrelated.write_text("name: {{ .Release.Name }}\n- x\n")
    assert codes(unrelated) == []  # it says nothing of precision, so it is no input


def test_a_template_in_a_folder_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(BAD_JSON.replace("8", "{{ batch_size }}"))
    (tmp_path / "sized.json").write_text(BAD_JSON.replace("8", "GB_SIZE"))
    assert codes(tmp_path) == [("sized.json", 4, "MP110")]


def test_bytes_that_are_no_text_are_no_trainer_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"fp16": \xff\xfe\x00}')
    (tmp_path / "b.yaml").write_bytes(("fp16: true\n" * 5).encode("utf-16"))
    (tmp_path / "c.json").symlink_to(tmp_path / "missing.json")
    (tmp_path / "d.json").mkdir()
    assert codes(tmp_path) == []


def test_a_comment_suppresses_in_yaml() -> None:
    on_the_line = BAD_YAML.replace("fp16: true", "fp16: true  # mplint: ignore[MP109] the launcher drops it", 1)
    above = BAD_YAML.replace("fp16: true", "# mplint: ignore[conflicting-trainer-precision]\nfp16: true", 1)
    for text in (on_the_line, above, "# mplint: skip-file\n" + BAD_YAML, "# mplint: file-ignore[MP109]\n" + BAD_YAML):
        assert check_text(text, "run.yaml") == []


def test_a_suppression_in_yaml_that_suppresses_nothing_is_mp002() -> None:
    text = BAD_YAML.replace("bf16: true", "bf16: false  # mplint: ignore[MP109]")
    assert [(f.location.line, f.code) for f in check_text(text, "run.yaml")] == [(5, "MP002")]
    assert fix_text(text, "run.yaml", unsafe=False) == BAD_YAML.replace("bf16: true", "bf16: false")


def test_quoted_comments_suppress_nothing() -> None:
    text = BAD_YAML.replace("output_dir: out", 'output_dir: "# mplint: skip-file"') + "note: |\n  # mplint: skip-file\n"
    assert [f.code for f in check_text(text, "run.yaml")] == ["MP109"]


def test_per_file_ignores_suppress_in_json(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(BAD_JSON)
    ignores = (("*.json", ("MP110",)),)
    assert codes(tmp_path, ALONE._replace(root=str(tmp_path), per_file_ignores=ignores)) == []


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_fix_keeps_line_ends_and_byte_order_mark(tmp_path: Path, newline: str, mark: bytes) -> None:
    for name, bad, good in (
        ("ds.json", BAD_JSON, BAD_JSON.replace("bfloat16", "bf16")),
        ("run.yaml", BAD_YAML, BAD_YAML.replace("fp16: true\n", "", 1)),
    ):
        path = tmp_path / name
        path.write_bytes(mark + bad.replace("\n", newline).encode())
        result = fix([str(path)], ALONE, apply=True)
        assert (result.applied, result.faults, result.failures) == (1, (), ())
        assert path.read_bytes() == mark + good.replace("\n", newline).encode()


def test_the_cache_gives_the_same_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "ds.json").write_text(BAD_JSON)
    (tmp_path / "src" / "broken.json").write_text('{"fp16": {"enabled": tru')
    (tmp_path / "src" / "train.py").write_text("import torch\n")
    cached = Config(isolated=True)
    first = codes(tmp_path / "src", cached)
    assert first == codes(tmp_path / "src", cached) == [("ds.json", 4, "MP110")]
    named = check([str(tmp_path / "src"), str(tmp_path / "src" / "broken.json")], cached).findings
    assert [f.code for f in named] == ["MP001", "MP110"]


def test_a_configuration_is_no_module_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\nfrom deepspeed import zero\n\n\ndef mask(scores, m):\n    return scores.masked_fill(m, -1e9)\n"
    )
    (tmp_path / "deepspeed.json").write_text(BAD_JSON)
    assert codes(tmp_path) == [("deepspeed.json", 4, "MP110")]


def test_pins_decide_which_spellings_are_old(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(BAD_JSON)
    (tmp_path / "requirements.txt").write_text("deepspeed==0.5.10\n")
    assert codes(tmp_path) == []


def test_words_are_looked_for_before_anything_is_parsed() -> None:
    assert may_set_precision(b'{"fp16" : {"enabled": true}}')
    assert may_set_precision(b"trainer: {max_epochs: 3, precision: 16}")
    assert not may_set_precision(b'{"precision": 0.9, "recall": 0.8}')
    assert not may_set_precision(b'{"note": "fp16 is on", "precision_recall": [1]}')
