"""Several models at once, and models at addresses, are converted as each would be by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fsspec", reason="fsspec is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from buckets import buckets_in, save_model

from mplint.cli.main import main

POLICY = ("--policy", "mixed_float16")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model that can be converted, one with its weights beside it, one that can't, and one that is none."""
    save_model(tmp_path / "models" / "plain.onnx", 16)
    save_model(tmp_path / "models" / "deep" / "outer.onnx", 24, beside="outer.data")
    save_model(tmp_path / "models" / "large.onnx", 16, 1e9)
    (tmp_path / "models" / "broken.onnx").write_bytes(b"\0no model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_several_models_give_what_each_gives(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["models/plain.onnx", "models/broken.onnx", "models/large.onnx", "models/deep/outer.onnx"]
    assert main(["convert", *names, "-o", "half", *POLICY]) == 2
    together = capsys.readouterr()
    assert together.out.endswith("\n4 models: 2 converted and proven, 1 with nothing to convert, 1 could not be read or written.\n")
    (models / "single").mkdir()
    alone = ""
    for name in names:
        main(["convert", name, "-o", f"single/{Path(name).name}", *POLICY])
        alone += capsys.readouterr().out.replace("single/", "half/")
    assert together.out.startswith(alone)
    assert "mplint: models/broken.onnx: error: models/broken.onnx: " in together.err
    assert bytes_in(models / "half") == bytes_in(models / "single") and len(bytes_in(models / "half")) == 3


def test_models_go_from_address_to_address(models: Path) -> None:
    (models / "buckets").mkdir()
    (models / "models" / "broken.onnx").unlink()
    (models / "models").rename(models / "buckets" / "models")
    command = [sys.executable, "-m", "mplint", "convert", "gs://models", "-o", "gs://half", *POLICY]
    done = subprocess.run(command, env=buckets_in(models, "gs"), capture_output=True, text=True, timeout=300)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "gs://models/deep/outer.onnx -> gs://half/deep/outer.onnx" in done.stdout and "@" not in done.stdout + done.stderr
    assert sorted(bytes_in(models / "buckets" / "half")) == ["deep/outer.onnx", "deep/outer.onnx.data", "plain.onnx"]


def test_one_model_keeps_the_name_that_is_given_and_has_a_report(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = ((models / name).as_uri() for name in ("models/plain.onnx", "made/other.onnx"))
    assert main(["convert", source, "-o", target, *POLICY, "--report", "page.html"]) == 0
    assert capsys.readouterr().out.startswith(f"{source} -> {target} (mixed_float16)\n")
    assert (models / "made" / "other.onnx").exists() and source in (models / "page.html").read_text()
    assert "@" not in (models / "page.html").read_text().partition("<body")[2].replace("@media", "")


def test_data_may_lie_at_an_address_and_a_dry_run_writes_nothing(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    np.savez(models / "data.npz", x=np.ones((3, 16), np.float32))
    data = (models / "data.npz").as_uri()
    before = bytes_in(models)
    assert main(["convert", "models/plain.onnx", "--calibration", data, "--dry-run", *POLICY]) == 0
    assert "models/plain.onnx (mixed_float16): not written" in capsys.readouterr().out
    assert bytes_in(models) == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["models/plain.onnx", "models/deep/plain.onnx", "-o", "half"], "would both become half/plain.onnx"),
        (["models/plain.onnx", "models/large.onnx"], "say where to write the results with -o FOLDER"),
        (["models/plain.onnx", "models/none.onnx", "-o", "half"], "models/none.onnx: no such file"),
        (["models/plain.onnx", "models", "-o", "half"], "models: this is a folder, and no SavedModel"),
        (["models/plain.onnx", "train.py", "-o", "half"], "train.py: a program is converted by itself, where it lies"),
        (["models/plain.onnx", "models/large.onnx", "-o", "models"], "is the input itself, which is never overwritten"),
        (["models/plain.onnx", "models/large.onnx", "-o", "half", "--report", "a.html"], "--report goes with one model"),
        (["models/plain.onnx", "models/large.onnx", "-o", "half", "--metric", "a:b"], "--metric goes with one model that lies here"),
        (["models/plain.onnx", "-o", "a.onnx", "--executor", "dask://host:1"], "is a path on this machine: give workers an address"),
        (["models/plain.onnx", "-o", "a.onnx", "--executor", "dask://local", "--target", "auto"], "would ask the machines of the workers"),
        (["models/plain.onnx", "-o", "a.onnx", "--executor", "ray://host:1"], "is not dask://HOST:PORT"),
    ],
)
def test_misuse_is_told_before_anything_is_converted(
    models: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(models / "models" / "deep" / "plain.onnx", 16)
    before = bytes_in(models)
    assert main(["convert", *arguments]) == 2
    said = capsys.readouterr()
    assert told in said.err and said.out == "" and bytes_in(models) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_takes_nothing_is_told(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (models / "locked").mkdir(mode=0o500)
    assert main(["convert", (models / "models" / "plain.onnx").as_uri(), "-o", "locked/a.onnx", *POLICY]) == 2
    assert "locked/a.onnx can't be written: " in capsys.readouterr().err
