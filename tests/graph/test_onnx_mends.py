"""Mending ONNX models: what is planted is mended, proven and nothing else changes; what is no mistake or can't be proven stays."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_text import parse

from mplint.api import check, fix
from mplint.cli.main import main
from mplint.config import Config
from mplint.conversion.onnx.run import Session
from mplint.engine.results import FixResult
from mplint.findings import Applicability, Finding

CONFIG = Config(select=("ALL",), cache=False, isolated=True)
HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'

IDLE = """model (float[N, 64] x, float16[64, 64] w) => (float[N, 64] y) {
    a = Cast<to=10>(x)
    b = MatMul(a, w)
    up = Cast<to=1>(b)
    t = Reshape(up, shape)
    down = Cast<to=10>(t)
    d = MatMul(down, w)
    y = Cast<to=1>(d)
}"""
CLIPPED = """model (float[N, 64] x, float16[64, 64] w) => (float[N, 64] y)
<float low = {0.1}, float high = {6.0}> {
    a = Cast<to=10>(x)
    b = MatMul(a, w)
    up = Cast<to=1>(b)
    c = Clip(up, low, high)
    n = Neg(c)
    down = Cast<to=10>(n)
    d = MatMul(down, w)
    e = Cast<to=1>(d)
    y = Clip(e, low, high)
}"""
HALF_SOFTMAX = """model (float16[N, 64] x, float16[64, 8] w, float16[8] wb) => (float16[N, 8] y) {
    b = MatMul(x, w)
    c = Add(b, wb)
    y = Softmax<axis=-1>(c)
}"""
HALF_LINEAR = """model (float16[N, 64] x, float16[64, 64] w1, float16[64, 8] w, float16[8] wb) => (float16[N, 8] y) {
    a = MatMul(x, w1)
    r = Relu(a)
    b = MatMul(r, w)
    y = Add(b, wb)
}"""
CAST_AT_THE_END = """model (float[N, 64] x, float16[64, 8] w) => (float16[N, 8] y) {
    a = Cast<to=10>(x)
    b = MatMul(a, w)
    c = Cast<to=1>(b)
    p = Softmax<axis=-1>(c)
    y = Cast<to=10>(p)
}"""
MASKED = """model (int64[N, 64] mask, float16[N, 64] x, float16[64, 64] w) => (float[N, 64] y)
<float16 one = {15360}, float fill = {-1e9}> {
    m = Cast<to=10>(mask)
    h = Sub(one, m)
    f = Cast<to=10>(fill)
    add = Mul(h, f)
    b = MatMul(x, w)
    s = Add(b, add)
    p = Softmax<axis=-1>(s)
    v = MatMul(p, w)
    y = Cast<to=1>(v)
}"""
NORMED = """model (float16[N, 64] x, float16[64, 64] w) => (float[N, 64] y)
<float eps = {1e-12}> {
    a = MatMul(x, w)
    n = ReduceL2<axes=[-1], keepdims=1>(a)
    e = Cast<to=10>(eps)
    m = Max(n, e)
    d = Div(a, m)
    f = MatMul(d, w)
    y = Cast<to=1>(f)
}"""
# What looks like casts that cancel and is none, and what must not be touched.
TRAPS = {
    "rounded on purpose": """model (float[N, 64] x, float[64, 64] w) => (float[N, 64] y) {
        a = MatMul(x, w)
        low = Cast<to=10>(a)
        up = Cast<to=1>(low)
        y = Relu(up)
    }""",
    "from one half dtype to the other": """model (float16[N, 64] x, float16[64, 64] w, bfloat16[64, 64] w2) => (float[N, 64] y) {
        a = MatMul(x, w)
        up = Cast<to=1>(a)
        down = Cast<to=16>(up)
        b = MatMul(down, w2)
        y = Cast<to=1>(b)
    }""",
    "the float32 value goes out as well": """model (float16[N, 64] x, float16[64, 64] w) => (float[N, 64] up, float[N, 64] y) {
        a = MatMul(x, w)
        up = Cast<to=1>(a)
        down = Cast<to=10>(up)
        b = MatMul(down, w)
        y = Cast<to=1>(b)
    }""",
    "a branch gives out the float32 value": """model (bool c, float16[N, 64] x, float16[64, 64] w) => (float[N, 64] y, float[N, 64] z) {
        y, h = If (c) <
            then_branch = g1 () => (float[N, 64] up, float16[N, 64] down) {
                a = MatMul(x, w)
                up = Cast<to=1>(a)
                down = Cast<to=10>(up)
            },
            else_branch = g2 () => (float[N, 64] u2, float16[N, 64] x2) {
                x2 = Identity(x)
                u2 = Cast<to=1>(x2)
            }
        >
        i = MatMul(h, w)
        z = Cast<to=1>(i)
    }""",
    "leaky": """model (float16[N, 64] x, float16[64, 64] w) => (float[N, 64] y) {
        a = MatMul(x, w)
        up = Cast<to=1>(a)
        l = LeakyRelu<alpha=0.3>(up)
        down = Cast<to=10>(l)
        b = MatMul(down, w)
        y = Cast<to=1>(b)
    }""",
}


def saved(text: str, folder: Path, **more: object) -> Path:
    """A model of ONNX text in a file."""
    proto = parse(HEAD + text)
    if "shape)" in text:
        proto.graph.initializer.append(numpy_helper.from_array(np.array([-1, 64]), "shape"))
    path = folder / "model.onnx"
    onnx.save(proto, path, **more)
    return path


def codes(path: Path) -> list[tuple[str, str | None]]:
    return [(f.code, f.node) for f in check(str(path), CONFIG).findings]


def mend(path: Path, *, unsafe: bool = False, apply: bool = True, select: str = "MP405,MP201,MP204,MP205") -> FixResult:
    return fix([str(path)], CONFIG._replace(select=tuple(select.split(","))), unsafe=unsafe, apply=apply)


def outputs(path: Path, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = Session(str(path))
    return [np.asarray(value, np.float64) for value in session.run({name: np.asarray(array) for name, array in feed.items()})]


def feed_of(path: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    feed = {}
    for info in onnx.load(path, load_external_data=False).graph.input:
        kind = info.type.tensor_type.elem_type
        shape = [dim.dim_value or 4 for dim in info.type.tensor_type.shape.dim]
        drawn = rng.normal(0, 1, shape)
        dtypes = {TensorProto.FLOAT16: np.float16, TensorProto.FLOAT: np.float32, TensorProto.INT64: np.int64, TensorProto.BOOL: np.bool_}
        feed[info.name] = (drawn > 0).astype(dtypes[kind]) if kind in (TensorProto.INT64, TensorProto.BOOL) else drawn.astype(dtypes[kind])
    return feed


@pytest.mark.parametrize(
    ("text", "code", "tolerance", "unsafe"),
    [
        (IDLE, "MP405", 0.0, False),
        (CLIPPED, "MP405", 0.0, False),
        (HALF_SOFTMAX, "MP201", 1e-3, False),
        (HALF_LINEAR, "MP201", 2e-3, False),
        (CAST_AT_THE_END, "MP201", 1e-3, False),
        (NORMED, "MP205", 2e-3, True),
    ],
)
def test_a_mistake_is_mended_and_only_it(text: str, code: str, tolerance: float, unsafe: bool, tmp_path: Path) -> None:
    path = saved(text, tmp_path)
    before, feed = codes(path), feed_of(path)
    expected = outputs(path, feed)
    assert code in {c for c, _ in before}
    shown = mend(path, unsafe=unsafe, apply=False, select=code)
    assert shown.applied == 1 and not shown.unproven and shown.models[0].count("proven by the ONNX checker") == 1
    assert codes(path) == before  # nothing was written
    done = mend(path, unsafe=unsafe, select=code)
    assert done.models == shown.models and done.applied == 1
    onnx.checker.check_model(str(path), full_check=True)
    left = codes(path)
    assert code not in {c for c, _ in left} and {c for c, _ in left} <= {c for c, _ in before}
    for one, other in zip(expected, outputs(path, feed), strict=True):
        assert np.abs(one - other).max() <= tolerance * np.abs(one).max()
    data = path.read_bytes()
    assert mend(path, unsafe=unsafe, select=code).applied == 0
    assert path.read_bytes() == data


def test_clip_keeps_the_constants_that_others_read(tmp_path: Path) -> None:
    path = saved(CLIPPED, tmp_path)
    mend(path)
    graph = onnx.load(path).graph
    constants = {tensor.name: tensor.data_type for tensor in graph.initializer}
    assert constants["low"] == TensorProto.FLOAT and constants["low_float16"] == TensorProto.FLOAT16
    clips = [list(node.input) for node in graph.node if node.op_type == "Clip"]
    assert clips[0][1:] == ["low_float16", "high_float16"] and clips[1][1:] == ["low", "high"]


def test_a_mask_that_overflows_becomes_one_that_fits(tmp_path: Path) -> None:
    path = saved(MASKED, tmp_path)
    feed = feed_of(path)
    assert mend(path, select="MP204").applied == 0  # a product may be with other numbers than 0 and 1
    done = mend(path, unsafe=True, select="MP204")
    assert done.applied == 1 and "+ constant fill: float32[] = -30000" in done.models[0]
    assert "MP204" not in {code for code, _ in codes(path)}
    (result,) = outputs(path, feed)
    assert np.isfinite(result).all()


def test_a_constant_that_others_read_is_written_beside(tmp_path: Path) -> None:
    text = MASKED.replace("=> (float[N, 64] y)", "=> (float[N, 64] y, float[N, 64] z)").replace(
        "y = Cast<to=1>(v)", "y = Cast<to=1>(v)\n    i = Cast<to=1>(x)\n    z = Min(i, fill)"
    )
    path = saved(text, tmp_path)
    done = mend(path, unsafe=True, select="MP204")
    assert done.applied == 1
    values = {t.name: float(numpy_helper.to_array(t)) for t in onnx.load(path).graph.initializer if t.name.startswith("fill")}
    assert values == {"fill": -1e9, "fill_fitting": -3e4}


@pytest.mark.parametrize("name", TRAPS)
def test_what_is_no_mistake_or_changes_values_stays(name: str, tmp_path: Path) -> None:
    path = saved(TRAPS[name], tmp_path)
    data = path.read_bytes()
    done = mend(path, select="MP405")
    assert done.applied == 0 and not done.faults and path.read_bytes() == data


def test_rounding_on_purpose_is_unsafe_and_mended_where_asked(tmp_path: Path) -> None:
    path = saved(TRAPS["rounded on purpose"], tmp_path)
    (finding,) = [f for f in check(str(path), CONFIG).findings if f.code == "MP405"]
    assert finding.fix is not None and finding.fix.applicability is Applicability.UNSAFE
    done = mend(path, unsafe=True)
    assert done.applied == 1 and [node.op_type for node in onnx.load(path).graph.node] == ["MatMul", "Relu"]


def test_bodies_and_functions_are_mended_where_the_casts_stand(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
    model (bool c, float16[N, 64] x, float16[64, 64] w) => (float[N, 64] y) {
        h = If (c) <
            then_branch = g1 () => (float16[N, 64] d1) { a = MatMul(x, w) u = Cast<to=1>(a) r = Relu(u) d1 = Cast<to=10>(r) },
            else_branch = g2 () => (float16[N, 64] d2) { a = MatMul(x, w) u = Cast<to=1>(a) d2 = Cast<to=10>(u) }
        >
        f = own.twice(h)
        i = MatMul(f, w)
        y = Cast<to=1>(i)
    }
    <opset_import: ["" : 17], domain: "own">
    twice (p) => (q) { u = Cast<to=1>(p) r = Relu(u) d = Cast<to=10>(r) q = Add(d, d) }"""
    path = tmp_path / "model.onnx"
    onnx.save(parse(text), path)
    feed = feed_of(path)
    expected = outputs(path, feed)
    assert sum(code == "MP405" for code, _ in codes(path)) == 3
    done = mend(path)
    assert done.applied == 3 and not done.unproven and not done.faults
    assert "MP405" not in {code for code, _ in codes(path)}
    proto = onnx.load(path)
    assert [node.op_type for node in proto.functions[0].node] == ["Relu", "Add"]
    onnx.checker.check_model(str(path), full_check=True)
    assert all(np.array_equal(one, other) for one, other in zip(expected, outputs(path, feed), strict=True))


def test_a_cast_that_makes_an_output_leaves_its_name_and_dtype(tmp_path: Path) -> None:
    text = """model (float16[N, 64] x, float16[64, 64] w) => (float16[N, 64] hidden_state) {
        a = MatMul(x, w)
        up = Cast<to=1>(a)
        hidden_state = Cast<to=10>(up)
    }"""
    path = saved(text, tmp_path)
    assert mend(path, select="MP405").applied == 1
    graph = onnx.load(path).graph
    assert [(n.op_type, list(n.output)) for n in graph.node] == [("MatMul", ["hidden_state"])]
    assert graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT16


def test_weights_in_other_files_stay_where_they_are(tmp_path: Path) -> None:
    path = saved(IDLE, tmp_path, save_as_external_data=True, location="model.data", size_threshold=100)
    data, feed = (tmp_path / "model.data").read_bytes(), feed_of(path)
    expected = outputs(path, feed)
    assert mend(path).applied == 1
    assert (tmp_path / "model.data").read_bytes() == data and path.stat().st_size < 1500
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.data", "model.onnx"]
    assert all(np.array_equal(one, other) for one, other in zip(expected, outputs(path, feed), strict=True))


def test_the_file_keeps_its_mode_and_the_link_that_leads_to_it(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    real = saved(IDLE, tmp_path / "store")
    real.chmod(0o640)
    link = tmp_path / "model.onnx"
    link.symlink_to(real)
    assert mend(link).applied == 1
    assert link.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o640 and "MP405" not in {c for c, _ in codes(real)}
    assert [p.name for p in (tmp_path / "store").iterdir()] == ["model.onnx"]


def test_a_read_only_file_stays_and_is_said_to(tmp_path: Path) -> None:
    path = saved(IDLE, tmp_path)
    path.chmod(0o444)
    data = path.read_bytes()
    done = mend(path)
    assert done.applied == 0 and path.read_bytes() == data
    assert done.failures == (f"{path}: it is read-only; nothing was changed",)
    assert "MP405" in {finding.code for finding in done.remaining}


def test_a_model_that_the_checker_refuses_is_not_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = parse(HEAD + IDLE.replace("Reshape(up, shape)", "Relu(up)"))
    proto.graph.node[1].attribute.append(helper.make_attribute("nonsense", 1))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    data = path.read_bytes()
    assert main(["fix", str(path), "--apply", "--isolated", "--no-cache", "--select", "MP405"]) == 1
    told = capsys.readouterr().err
    assert "Not proven, and not written" in told and "the ONNX checker refuses the model as it is" in told
    assert path.read_bytes() == data


def test_what_moves_outputs_too_far_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scaled = "s = Mul(a, tiny)\n    o = Abs(s)\n    n = ReduceMean<axes=[-1], keepdims=1>(o)"
    text = NORMED.replace("n = ReduceL2<axes=[-1], keepdims=1>(a)", scaled).replace("Max(n, e)", "Add(n, e)")
    text = text.replace("Div(a, m)", "Div(s, m)")
    text = text.replace("<float eps", "<float16 tiny = {1678}, float eps")  # 1e-4: the numbers are as small as the new epsilon
    path = saved(text, tmp_path)
    data = path.read_bytes()
    code = main(["fix", str(path), "--apply", "--unsafe-fixes", "--isolated", "--no-cache", "--select", "MP205"])
    assert code == 1 and path.read_bytes() == data
    assert "MP205 at m is not mended: the outputs are off by" in capsys.readouterr().err


def test_exit_codes_and_what_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(IDLE, tmp_path)
    arguments = ["fix", str(path), "--isolated", "--no-cache", "--select", "MP405"]
    assert main(arguments) == 1
    shown = capsys.readouterr()
    assert "MP405 at up (safe): remove the casts" in shown.out and "    - up: float32[N, 64] = Cast(b)\n" in shown.out
    assert shown.err == f"Would fix 1 finding in 1 file; `mplint fix --apply {' '.join(arguments[1:])}` writes it.\n"
    assert main([*arguments, "--apply"]) == 0
    assert "Fixed 1 finding in 1 file." in capsys.readouterr().out
    assert main(arguments) == 0


def test_check_says_that_fix_can_mend_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(IDLE, tmp_path)
    main(["check", str(path), "--isolated", "--no-cache", "--select", "MP405"])
    shown = capsys.readouterr().out
    assert "= fix: Remove the casts; `mplint fix --apply` does it" in shown and "1 can be fixed" in shown


def test_an_interruption_leaves_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(IDLE, tmp_path)
    data = path.read_bytes()

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        mend(path)
    assert path.read_bytes() == data and [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_fixes_of_programs_and_models_go_together(tmp_path: Path) -> None:
    saved(IDLE, tmp_path)
    program = tmp_path / "train.py"
    program.write_text("import torch\n\nscaler = torch.cuda.amp.GradScaler()\n")
    found: list[Finding] = []
    done = fix([str(tmp_path)], CONFIG._replace(select=("MP405", "MP101")), unsafe=False, apply=True)
    assert done.applied == 2 and len(done.changed) == 2 and list(done.remaining) == found


def test_constants_of_a_mask_that_is_selected_are_mended_safely(tmp_path: Path) -> None:
    text = """model (bool[N, 64] hidden, float16[N, 64] x, float16[64, 64] w) => (float[N, 64] y)
    <float fill = {-1e9}> {
        b = MatMul(x, w)
        f = Cast<to=10>(fill)
        s = Where(hidden, f, b)
        p = Softmax<axis=-1>(s)
        v = MatMul(p, w)
        y = Cast<to=1>(v)
    }"""
    path = saved(text, tmp_path)
    done = mend(path, select="MP204")
    assert done.applied == 1 and not done.unproven
    assert [float(numpy_helper.to_array(t)) for t in onnx.load(path).graph.initializer if t.name == "fill"] == [-3e4]


def test_calibration_data_is_what_a_fix_is_proven_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(MASKED, tmp_path)
    data = tmp_path / "data.npz"
    arguments = ["fix", str(path), "--unsafe-fixes", "--isolated", "--no-cache", "--select", "MP204", "--calibration", str(data)]
    rng = np.random.default_rng(1)
    feed = {"mask": rng.integers(0, 2, (2, 64)), "x": rng.normal(size=(2, 64)).astype(np.float16)}
    np.savez(data, x=feed["x"])
    assert main([*arguments, "--apply"]) == 1
    assert "has no array for the input 'mask'" in capsys.readouterr().err
    np.savez(data, **feed)
    assert main([*arguments, "--apply"]) == 0
    assert "on 1 sample: " in capsys.readouterr().out and "MP204" not in {code for code, _ in codes(path)}


def test_a_head_that_half_alone_reads_stays(tmp_path: Path) -> None:
    text = """model (float16[N, 64] x, float16[64, 64] w) => (float16[N, 64] scores, float[N, 64] y) {
        scores = MatMul(x, w)
        r = Relu(scores)
        v = MatMul(r, w)
        y = Cast<to=1>(v)
    }"""
    path = saved(text, tmp_path)
    assert all(f.fix is None for f in check(str(path), CONFIG).findings if f.code == "MP201")


def test_logits_and_their_probabilities_both_become_float32(tmp_path: Path) -> None:
    text = """model (float16[N, 64] x, float16[64, 8] w) => (float16[N, 8] logits, float16[N, 8] probabilities) {
        logits = MatMul(x, w)
        probabilities = Softmax<axis=-1>(logits)
    }"""
    path = saved(text, tmp_path)
    done = mend(path, select="MP201")
    assert done.applied == 2 and not done.unproven and "MP201" not in {code for code, _ in codes(path)}
    graph = onnx.load(path).graph
    assert [value.type.tensor_type.elem_type for value in graph.output] == [TensorProto.FLOAT] * 2
    assert [node.op_type for node in graph.node] == ["Cast", "MatMul", "Softmax"]
