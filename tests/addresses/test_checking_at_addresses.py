"""Models at addresses are checked as if they lay here: the same findings, under their addresses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

from buckets import buckets_in, save_model  # noqa: E402

from mplint.cli.main import main  # noqa: E402
from mplint.engine.addresses import at_hand, expanded, put  # noqa: E402
from mplint.errors import UsageError  # noqa: E402
from mplint.python.document import InputError  # noqa: E402


def checked(folder: Path, scheme: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mplint", "check", "--policy", "mixed_float16", *arguments]
    environment = buckets_in(folder, scheme)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_an_address_gives_what_the_file_gives(tmp_path: Path, scheme: str) -> None:
    save_model(tmp_path / "buckets" / "store" / "deep" / "large.onnx", 16, 1e6, beside="large.data")
    save_model(tmp_path / "buckets" / "store" / "fine.onnx", 16)
    there = checked(tmp_path, scheme, f"{scheme}://store", "--output-format", "json")
    (tmp_path / "stores").rename(tmp_path / "before")
    here = checked(tmp_path, scheme, "buckets/store", "--output-format", "json")
    assert (there.returncode, there.stderr) == (here.returncode, here.stderr) == (1, "")
    assert there.stdout == here.stdout.replace("buckets/store", f"{scheme}://store")
    assert [found["path"] for found in json.loads(there.stdout)["findings"]] == [f"{scheme}://store/deep/large.onnx"]


def test_every_report_names_the_address(tmp_path: Path) -> None:
    save_model(tmp_path / "large.onnx", 16, 1e6)
    address = (tmp_path / "large.onnx").as_uri()
    for name in ("text", "concise", "grouped", "json", "sarif", "gitlab", "junit", "github", "azure", "markdown"):
        out = tmp_path / f"report.{name}"
        assert main(["check", address, "--policy", "mixed_float16", "--isolated", "--output-format", name, "--output-file", str(out)]) == 1
        text = out.read_text()
        assert address in text.replace("%3A", ":") and text.count("file:/") == text.count(address), name


def test_the_page_draws_a_model_at_an_address(tmp_path: Path) -> None:
    save_model(tmp_path / "buckets" / "store" / "large.onnx", 16, 1e6)
    done = checked(tmp_path, "s3", "s3://store/large.onnx", "--report", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert done.returncode == 1 and "Traceback" not in done.stderr
    here = checked(tmp_path / "buckets", "s3", "store/large.onnx", "--report", str(tmp_path / "here.html"))
    assert here.returncode == 1
    assert page == (tmp_path / "here.html").read_text().replace("store/large.onnx", "s3://store/large.onnx")


def test_the_configuration_of_the_run_holds_for_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(tmp_path / "far" / "large.onnx", 16, 1e6)
    (tmp_path / "far" / "mplint.toml").write_text('ignore = ["MP204"]\n')
    (tmp_path / "near").mkdir()
    monkeypatch.chdir(tmp_path / "near")
    command = ["check", (tmp_path / "far" / "large.onnx").as_uri(), "--policy", "mixed_float16", "--no-cache"]
    assert main(command) == 1
    Path("mplint.toml").write_text('ignore = ["MP204"]\n')
    assert main(command) == 0


def test_what_is_changed_there_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path / "cache"))
    command = ["check", (tmp_path / "models").as_uri(), "--policy", "mixed_float16", "--isolated"]
    save_model(tmp_path / "models" / "a.onnx", 16)
    save_model(tmp_path / "models" / "b.onnx", 16)
    assert main(command) == main(command) == 0
    save_model(tmp_path / "models" / "a.onnx", 16, 1e6)
    assert main(command) == 1


def test_globs_and_folders_stand_for_the_models_in_them(tmp_path: Path) -> None:
    for name in ("a.onnx", "deep/b.onnx", "deep/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    top = tmp_path.as_uri()
    assert [there.name for there in expanded(top)] == ["a.onnx", "deep/b.onnx"]
    assert [there.name for there in expanded(f"{top}/deep/*.onnx")] == ["b.onnx"]
    assert expanded(f"{top}/a.onnx")[0].address == f"{top}/a.onnx"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("{here}/none.onnx", "no such file or folder"),
        ("{here}/*.keras", "no model matches"),
        ("{here}/empty", "no model lies there"),
        ("{here}/train.py", "models are read from addresses, programs from paths"),
        ("nosuch://bucket/a.onnx", "Protocol not known: nosuch"),
    ],
)
def test_what_leads_nowhere_is_one_line(address: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    address = address.format(here=tmp_path.as_uri())
    assert main(["check", address, "--isolated"]) == 2
    assert capsys.readouterr().err == f"mplint: error: {address}: {told}\n"


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    assert main(["check", "s3://bucket/a.onnx", "--isolated"]) == 2
    assert 's3://bucket/a.onnx needs fsspec: pip install "mplint[addresses]"' in capsys.readouterr().err


def test_a_model_comes_with_what_it_leans_on_and_goes(tmp_path: Path) -> None:
    save_model(tmp_path / "outer.onnx", 16, beside="outer.data")
    files = fsspec.filesystem("memory")
    for name in ("outer.onnx", "outer.data"):
        files.put_file(str(tmp_path / name), f"/models/{name}")
    files.put_file(str(tmp_path / "outer.data"), "/models/other.data")
    with at_hand("memory://models/outer.onnx") as here:
        assert sorted(path.name for path in Path(here).parent.iterdir()) == ["outer.data", "outer.onnx"]
        assert Path(here).read_bytes() == (tmp_path / "outer.onnx").read_bytes()
    assert not Path(here).exists()


def test_a_savedmodel_comes_as_a_folder(tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    for name in ("saved_model.pb", "variables/variables.index"):
        files.pipe_file(f"/saved/{name}", b"x")
    with at_hand("memory://saved") as here:
        assert Path(here, "variables", "variables.index").read_bytes() == b"x"
    with at_hand("memory://saved/saved_model.pb") as here:
        assert Path(here).name == "saved_model.pb" and Path(here).with_name("variables").is_dir()
    assert [there.address for there in expanded("memory://saved")] == ["memory://saved"]


def test_a_name_that_leads_out_of_its_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    files = fsspec.filesystem("memory")
    files.pipe_file("/hostile/saved_model.pb", b"x")
    monkeypatch.setattr(type(files), "find", lambda *_: ["/hostile/saved_model.pb", "/hostile/../../evil"])
    with pytest.raises(InputError, match="leads out of its folder"), at_hand("memory://hostile"):
        pass


def test_what_is_put_somewhere_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "made"
    made.mkdir()
    (made / "a.onnx").write_bytes(b"model")
    (made / "a.onnx.data").write_bytes(b"weights")
    put(str(made), str(tmp_path / "there" / "a.onnx"))
    put(str(made), "memory://put/a.onnx")
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["a.onnx", "a.onnx.data"]
    assert fsspec.filesystem("memory").cat("/put/a.onnx") == b"model"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    (made / "a.onnx").write_bytes(b"another")
    with pytest.raises(UsageError, match="can't be written: No space left on device"):
        put(str(made), str(tmp_path / "there" / "a.onnx"))
    assert (tmp_path / "there" / "a.onnx").read_bytes() == b"model" and len(list((tmp_path / "there").iterdir())) == 2
