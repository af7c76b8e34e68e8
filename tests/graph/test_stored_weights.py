"""Files that hold only weights: what names, shapes and dtypes prove is found in every container, and what was not judged is said."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from onnx_text import config, expectations
from weight_files import STATE, containers, tensors, write, write_safetensors

import mplint
from mplint.catalog import catalog
from mplint.cli.main import main
from mplint.config import Config
from mplint.findings import Finding, Severity
from mplint.graph.model import Graph, ModelGraph, Tensor
from mplint.graph.stored import Stored

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CASES = [(path, one) for path in sorted(FIXTURES.glob("MP*/*.weights")) for one in containers(path.read_text())]
ISOLATED = Config(cache=False, isolated=True)
MLP = "0.weight float32[16, 8]\n0.bias float32[16]\n2.weight float32[4, 16]\n2.bias float32[4]\n"


def findings(text: str, folder: Path, container: str = "safetensors") -> tuple[Finding, ...]:
    return mplint.check(write(folder, container, text), config(text)).findings


@pytest.mark.parametrize(("path", "container"), CASES, ids=[f"{path.parent.name}-{path.stem}-{one}" for path, one in CASES])
def test_weights_give_the_findings_that_their_comments_name(path: Path, container: str, tmp_path: Path) -> None:
    text = path.read_text()
    expected = expectations(text)
    wanted = {e.code for e in expected}
    found = [f for f in findings(text, tmp_path, container) if f.severity is not Severity.INFO or f.code in wanted]
    assert sorted((f.code, f.severity.value, f.node) for f in found) == [tuple(e) for e in expected]
    assert path.name.startswith("bad_") == bool(expected)


def test_every_rule_on_stored_weights_has_bad_and_good_ones() -> None:
    for code in (entry.code for entry in catalog().values() if entry.weights):
        names = [path.name for path in (FIXTURES / code).glob("*.weights")]
        assert any(name.startswith("bad_") for name in names), code
        assert any(name.startswith("good_") for name in names), code


def test_finding_names_the_weight_its_reader_and_its_share(tmp_path: Path) -> None:
    text = (FIXTURES / "MP401/bad_stored_feed_forward.weights").read_text()
    (finding,) = [f for f in findings(text, tmp_path) if f.code == "MP401"]
    assert "model.layers.0.mlp.gate_proj.weight (float16[171, 64]) is 171 wide" in finding.message
    assert "hold 29 % of the products' parameters" in finding.message
    assert finding.related[0].message == "model.layers.0.mlp.down_proj.weight: reads it"


def test_no_mistakes_is_said_only_of_what_was_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path, "safetensors", MLP))
    for format in ("text", "concise", "github", "json", "sarif"):
        assert main(["check", "--isolated", "--no-cache", path, "--output-format", format]) == 0
        out, err = capsys.readouterr()
        match format:
            case "text":
                assert out.startswith("No mixed-precision mistakes found in what could be judged of 1 file.\nNot judged:\n")
                assert "weights and no operations" in out
                assert "MP201" in out
                assert "MP604" not in out
            case "concise":
                assert out == ""
                assert "not judged: it holds weights and no operations" in err
            case "github":
                assert out.startswith("::notice file=")
            case "json":
                (left,) = json.loads(out)["unjudged"]
                assert left["path"] == path
                assert "MP201" in left["reason"]
            case "sarif":
                (note,) = json.loads(out)["runs"][0]["invocations"][0]["toolExecutionNotifications"]
                assert note["level"] == "note"
                assert json.loads(out)["runs"][0]["invocations"][0]["executionSuccessful"] is True


def test_same_reason_is_given_once_for_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.safetensors", "b.safetensors", "c.safetensors"):
        write_safetensors(tmp_path / name, tensors(MLP))
    main(["check", "--isolated", "--no-cache", str(tmp_path)])
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("weights and no operations") == 1
    assert "a.safetensors and 2 others: it holds" in out


def test_packed_weights_and_adapters_are_said_to_be_unjudged(tmp_path: Path) -> None:
    packed = "a.up_proj.qweight int32[32, 256]\na.up_proj.qzeros int32[2, 32]\na.up_proj.scales float16[2, 256]\n"
    (reason,) = [text for _, text in mplint.check(write(tmp_path, "safetensors", packed), ISOLATED).unjudged if "packed" in text]
    assert reason.startswith("2 of 3 tensors hold packed or quantized weights")
    adapter = (FIXTURES / "MP401/good_stored_adapter.weights").read_text()
    reasons = [text for _, text in mplint.check(write(tmp_path, "safetensors", adapter), ISOLATED).unjudged]
    assert any(text.startswith("4 of 4 matrices are halves of low-rank adapters") for text in reasons)


def test_optimizer_state_that_a_trainer_saved_beside_the_weights_counts(tmp_path: Path) -> None:
    weights = "model.up_proj.weight bfloat16[256, 64]\nmodel.down_proj.weight bfloat16[64, 256]\n"
    state = f"{STATE}exp_avg bfloat16[256, 64]\n{STATE}exp_avg_sq bfloat16[256, 64]\n"
    path = write(tmp_path, "safetensors", weights)
    assert mplint.check(path, ISOLATED).findings == ()
    write(tmp_path, "checkpoint", state).rename(tmp_path / "optimizer.pt")
    assert [f.code for f in mplint.check(path, ISOLATED).findings] == ["MP604"]
    (left,) = mplint.check(tmp_path / "optimizer.pt", ISOLATED).unjudged
    assert "the state of an optimizer and no weights" in left[1]


def test_folder_of_a_sharded_model_is_judged_as_one_by_its_index(tmp_path: Path) -> None:
    shards = {
        "model-00001-of-00002.safetensors": "model.layers.0.mlp.up_proj.weight float16[171, 64]\n",
        "model-00002-of-00002.safetensors": "model.layers.0.mlp.down_proj.weight float16[64, 171]\n",
    }
    places = {}
    for name, text in shards.items():
        write_safetensors(tmp_path / name, tensors(text))
        places |= {one.name: name for one in tensors(text)}
    assert mplint.check(tmp_path, ISOLATED).findings == ()
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    result = mplint.check(tmp_path, ISOLATED)
    assert [(f.code, f.location.path) for f in result.findings] == [("MP401", str(index))]
    assert result.files == 1
    (tmp_path / "model-00002-of-00002.safetensors").unlink()  # an index without all its files counts only where it is named
    assert mplint.check(tmp_path, ISOLATED).findings == ()
    assert [f.code for f in mplint.check(index, ISOLATED).findings] == ["MP001"]


def test_checkpoints_by_their_other_names_are_found_in_folders(tmp_path: Path) -> None:
    text = (FIXTURES / "MP401/bad_stored_names_that_say_nothing.weights").read_text()
    for name in ("pytorch_model.bin", "last.ckpt"):
        write(tmp_path, "checkpoint", text).rename(tmp_path / name)
    (tmp_path / "data.bin").write_bytes(bytes(100))
    (tmp_path / "model.ckpt").write_bytes(b"a table of TensorFlow 1")
    assert sorted(f.code for f in mplint.check(tmp_path, ISOLATED).findings) == ["MP401", "MP401"]


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("a.weight float16[24, 16]\na.bias float16[24]\n", (16, 24)),
        ("a.weight float16[16, 24]\na.bias float16[24]\n", (16, 24)),
        ("a.weight float16[24, 16]\n", (16, 24)),
        ("a/kernel float16[16, 24]\n", (16, 24)),
        ("a.weight float16[24, 16, 3, 3]\n", (16, 24)),
        ("up.weight float16[16, 24, 2, 2]\nup.bias float16[24]\n", (16, 24)),
        ("conv2d/vars/0 float16[3, 3, 16, 24]\nconv2d/vars/1 float16[24]\n", (16, 24)),
        ("attn.in_proj_weight float16[72, 24]\n", (24, 72)),
        ("arr_0 float16[16, 24]\narr_1 float16[24, 9]\n", (16, 24)),
        ("p0 float16[24, 16]\np1 float16[9, 24]\n", (16, 24)),
    ],
)
def test_sides_are_told_by_layout_bias_and_neighbours(text: str, sides: tuple[int, int], tmp_path: Path) -> None:
    stored = Stored(mplint.load_graph(write(tmp_path, "safetensors", text)))
    assert (stored.matrices[0].takes, stored.matrices[0].makes) == sides


def test_nothing_that_a_header_may_say_is_a_fault_or_takes_long() -> None:
    draw = random.Random(12)
    words = ("weight", "bias", "lora_A", "in_proj_weight", "weight_ih_l0", "weight_hh_l0", "kernel", "vars", "0", "experts", "lm_head", "")
    config = ISOLATED._replace(select=("ALL",), target="Tesla T4")
    for _ in range(150):
        constants = {}
        for _ in range(draw.randrange(1, 30)):
            name = draw.choice("./_:").join(draw.choice(words) for _ in range(draw.randrange(0, 6)))
            shape = tuple(draw.choice((0, 1, 9, 12, 33, 99, 1001)) for _ in range(draw.randrange(0, 7)))
            constants[name] = Tensor(name, draw.choice(("float16", "bfloat16", "float8_e4m3fn", "int32", None)), shape)
        assert mplint.check(ModelGraph("m", draw.choice(("safetensors", "state-dict")), Graph(constants=constants)), config).faults == ()
    many = {f"x.c{n}.weight": Tensor(f"x.c{n}.weight", "float16", (n + 9, 5 + n % 7, 1, 1)) for n in range(10_000)}
    many |= {f"{n}.fc.weight": Tensor(f"{n}.fc.weight", "float16", (n + 9, n + 10)) for n in range(10_000)}
    started = time.process_time()
    assert mplint.check(ModelGraph("m", "safetensors", Graph(constants=many)), config).faults == ()
    assert time.process_time() - started < 30  # a second or two; hours if sizes were compared with all others in all places
