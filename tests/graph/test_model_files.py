"""Model files among the files of a run: found, reported, cached, and passed over where a package is missing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import onnx
import pytest
from onnx_text import parse

import mplint
from mplint.cli.main import main
from mplint.config import Config
from mplint.engine import check_model as models
from mplint.graph import load as loading

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
ISOLATED = Config(cache=False, isolated=True)


def save(path: Path, fixture: str = "MP401/bad_hidden_width") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(parse((FIXTURES / f"{fixture}.onnxtxt").read_text()).SerializeToString())
    return path


def test_models_in_a_folder_are_checked_beside_its_programs(tmp_path: Path) -> None:
    save(tmp_path / "runs" / "best.onnx")
    (tmp_path / "train.py").write_text("import torch\n\nscaler = torch.cuda.amp.GradScaler()\n")
    result = mplint.check(tmp_path, ISOLATED)
    assert [(os.path.basename(f.location.path), f.code, f.node) for f in result.findings] == [
        ("best.onnx", "MP401", "b"),
        ("train.py", "MP101", None),
    ]
    assert result.files == 2


def test_content_decides_and_not_the_name(tmp_path: Path) -> None:
    result = mplint.check(save(tmp_path / "model.bin"), ISOLATED)
    assert [f.code for f in result.findings] == ["MP401"]


def test_bad_model_is_mp001_and_the_run_goes_on(tmp_path: Path) -> None:
    save(tmp_path / "good.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"\0" * 100)
    result = mplint.check(tmp_path, ISOLATED)
    assert [(os.path.basename(f.location.path), f.code) for f in result.findings] == [("bad.onnx", "MP001"), ("good.onnx", "MP401")]


def test_files_that_are_no_models_count_only_where_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "pointer.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    (tmp_path / "data.h5").write_bytes(b"no HDF5")
    (tmp_path / "cache.pt").write_bytes(b"no pickle")
    assert mplint.check(tmp_path, ISOLATED).findings == ()
    named = [str(tmp_path / name) for name in ("pointer.onnx", "data.h5", "cache.pt")]
    assert [f.code for f in mplint.check(named, ISOLATED).findings] == ["MP001"] * 3


def test_missing_package_is_misuse_for_a_named_file_and_a_note_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(package: str, path: str, found: loading.Format) -> None:
        raise loading.MissingExtra(path, found.name, found.extra, package)

    monkeypatch.setattr(loading, "require", missing)
    save(tmp_path / "a.onnx")
    save(tmp_path / "b.onnx")
    assert main(["check", "--isolated", str(tmp_path / "a.onnx")]) == 2
    assert 'pip install "mplint[onnx]"' in capsys.readouterr().err
    assert main(["check", "--isolated", "--no-cache", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "2 files could not be judged" in told.out
    assert " ".join(told.out.split()).count("a.onnx and 1 other: not checked: reading a file of the format onnx needs onnx") == 1


def test_results_are_cached_until_the_model_or_its_weights_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path / "cache"))
    model = parse((FIXTURES / "MP401/bad_hidden_width.onnxtxt").read_text())
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    read: list[str] = []
    check = models.check_graph

    def counted(path: str, *rest: object) -> object:
        read.append(path)
        return check(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(models, "check_graph", counted)
    config = Config(isolated=True)
    first = mplint.check(path, config)
    assert mplint.check(path, config) == first
    assert len(read) == 1
    os.utime(tmp_path / "m.data", ns=(1, 1))
    assert mplint.check(path, config) == first
    assert len(read) == 2
    mplint.check(path, config._replace(runtime="tensorrt"))
    assert len(read) == 3


def test_reports_name_the_node_and_have_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(save(tmp_path / "m.onnx"))
    main(["check", "--isolated", path, "--output-format", "json"])
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["path"], finding["node"], finding["line"], finding["code"]) == (path, "b", None, "MP401")
    main(["check", "--isolated", path, "--output-format", "sarif"])
    (result,) = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    (place,) = result["locations"]
    assert place["logicalLocations"][0]["name"] == "b"
    assert "region" not in place["physicalLocation"]
    main(["check", "--isolated", path, "--output-format", "concise"])
    assert capsys.readouterr().out.startswith(f"{path}: MP401[warning] b (MatMul) is 1001 wide")
    main(["check", "--isolated", path, "--output-format", "github"])
    assert capsys.readouterr().out.startswith("::warning file=")
    main(["check", "--isolated", path])
    assert " = node: b" in capsys.readouterr().out


def test_statistics_sum_up_the_precision_of_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--isolated", "--statistics", str(save(tmp_path / "m.onnx"))]) == 1
    text = capsys.readouterr().out
    assert "FLOPs        148.1 k: float16 100%" in text
    assert "parameters   74.1 k: float16 100%" in text
    assert "0 of 2 heavy ops have sizes that suit NVIDIA Tensor Cores" in text


def test_options_for_models_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(save(tmp_path / "m.onnx"))
    for wrong in (["--runtime", "trt"], ["--policy", "half"], ["--input-range", "x"], ["--input-range", "x=3:1"], ["--model", "nowhere"]):
        assert main(["check", "--isolated", path, *wrong]) == 2
        assert wrong[0] in capsys.readouterr().err


def test_range_for_an_input_that_is_not_there_is_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "--isolated", "--no-cache", str(save(tmp_path / "m.onnx")), "--input-range", "pixels=0:255"])
    assert 'no input "pixels" to bound; it has x' in capsys.readouterr().err


def test_objects_and_graphs_are_checked_through_the_api(tmp_path: Path) -> None:
    graph = mplint.load_graph(save(tmp_path / "m.onnx"))
    assert [f.code for f in mplint.check(graph, ISOLATED).findings] == ["MP401"]
    with pytest.raises(mplint.GraphError):
        mplint.check(object(), ISOLATED)


def test_suppressing_a_rule_by_file_works_for_models(tmp_path: Path) -> None:
    save(tmp_path / "m.onnx")
    config = ISOLATED._replace(per_file_ignores=(("*.onnx", ("MP401",)),), root=str(tmp_path))
    assert mplint.check(tmp_path, config).findings == ()


@pytest.mark.framework
def test_model_that_a_factory_makes_is_checked_and_the_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "own_factories.py").write_text(
        "import torch\n\n"
        "def model():\n    return torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.Softmax(-1)).half()\n\n"
        "def called():\n    return model(), (torch.zeros(2, 64, dtype=torch.float16),)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["check", "--isolated", "--model", "own_factories:called", "--output-format", "concise"]) == 1
    out, err = capsys.readouterr()
    assert "own_factories:called: MP201[error]" in out
    assert "runs your code" in err
    assert main(["check", "--isolated", "--model", "own_factories:model"]) == 0
    assert "example inputs" in capsys.readouterr().err
    assert main(["check", "--isolated", "--model", "own_factories:missing"]) == 2


def test_fix_leaves_models_alone(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx")
    before = path.read_bytes()
    result = mplint.fix([str(path)], ISOLATED, unsafe=True, apply=True)
    assert [f.code for f in result.remaining] == ["MP401"]
    assert path.read_bytes() == before


def test_a_float32_model_passes_until_its_conversion_is_asked_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = "a = Mul(mask, low) b = Add(x, a) y = Softmax<axis=-1>(b)"
    text = f'<ir_version: 8, opset_import: ["" : 17]> m (float[4] x, float[4] mask) => (float[4] y) <float low = {{-1e9}}> {{ {nodes} }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")

    def found(*options: str) -> tuple[int, str]:
        code = main(["check", "--isolated", "--no-cache", "--output-format", "concise", *options, str(tmp_path / "m.onnx")])
        return code, capsys.readouterr().out

    assert found() == (0, "")
    code, advice = found("--select", "ALL")
    assert code == 0 and "MP204[info]" in advice
    code, warned = found("--policy", "mixed_float16")
    assert code == 1 and "MP204[warning]" in warned and "would become -inf in float16" in warned
    assert found("--policy", "mixed_bfloat16") == (0, "")  # -1e9 is well within bfloat16
