"""TorchScript in: scripted and traced modules become programs of torch.export, and are converted as those."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from mplint.cli.main import main  # noqa: E402


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Linear(8, 4)

    def forward(self, x, scale: float = 1.0):  # type: ignore[no-untyped-def]
        return self.head((torch.relu(self.norm(self.conv(x))) * scale).mean((2, 3)))


def saved(how: str, path: Path) -> Path:
    torch.manual_seed(0)
    net = Net().eval()
    made = torch.jit.script(net) if how == "script" else torch.jit.trace(net, (torch.zeros(1, 3, 8, 8),))
    made.save(str(path))
    return path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["script", "trace"])
def test_torchscript_becomes_a_program_in_half(how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = saved(how, tmp_path / "a.pt"), tmp_path / "b.pt2"
    rows = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=rows)
    assert main(["convert", str(path), "-o", str(out), "--calibration", str(tmp_path / "d.npz")]) == 0, capsys.readouterr()
    told = capsys.readouterr().out
    assert "2 of 2 matmuls and convolutions in float16" in told and "TorchScript became a program" in told
    given = (torch.from_numpy(rows), 1.0)[: 2 if how == "script" else 1]
    got = torch.export.load(out).module()(*given)
    expected = torch.jit.load(str(path))(torch.from_numpy(rows))
    assert float((got - expected).abs().max()) < 0.02 * float(expected.abs().max()) and got.dtype == torch.float32


@pytest.mark.filterwarnings("ignore")
def test_torchscript_asks_for_data_and_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved("script", tmp_path / "a.pt")
    assert main(["convert", str(path), "-o", str(tmp_path / "b.pt2")]) == 2
    assert "give --calibration data with an array for each of x, scale" in capsys.readouterr().err
    assert main(["convert", str(path), "-o", str(tmp_path / "b.pt")]) == 2
    assert "(.pt2) or an ONNX model (.onnx): let it end so" in capsys.readouterr().err
    np.savez(tmp_path / "d.npz", y=np.zeros(2))
    assert main(["convert", str(path), "-o", str(tmp_path / "b.pt2"), "--calibration", str(tmp_path / "d.npz")]) == 2
    assert "d.npz has no array for the input 'x'; it holds y" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ending", ["pt", "pt2"])
def test_a_program_becomes_an_onnx_model_where_the_name_asks_for_one(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxscript")
    ort = pytest.importorskip("onnxruntime")
    rows = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=rows)
    if ending == "pt":
        path = saved("script", tmp_path / "a.pt")
    else:
        path = tmp_path / "a.pt2"
        torch.manual_seed(0)
        torch.export.save(torch.export.export(Net().eval(), (torch.from_numpy(rows),)), path)
    out = tmp_path / "b.onnx"
    assert main(["convert", str(path), "-o", str(out), "--calibration", str(tmp_path / "d.npz")]) == 0, capsys.readouterr()
    told = capsys.readouterr().out
    assert "2 of 2 matmuls and convolutions in float16" in told and "torch's own exporter" in told and "mplint-" not in told
    (got,) = ort.InferenceSession(str(out)).run(None, {"x": rows})
    torch.manual_seed(0)
    expected = Net().eval()(torch.from_numpy(rows)).detach().numpy()
    assert np.abs(got - expected).max() < 0.02 * np.abs(expected).max()
