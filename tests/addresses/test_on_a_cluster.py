"""Models on a dask cluster: the same results as here, byte for byte, whatever becomes of the cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from clusters import LIMIT, NEEDS, cluster, first_at_work

pytest.importorskip("distributed", reason=NEEDS)
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from buckets import buckets_in, save_model

CONVERTS = "mplint.cli.errand"  # the module that a worker begins for a model
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="finds the processes of Linux")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Three models in a bucket, one of which can't be converted, and the environment in which s3:// leads there."""
    for number, largest in enumerate((1.0, 1e9, 0.5)):
        save_model(tmp_path / "buckets" / "models" / f"model{number}.onnx", 16 + 8 * number, largest, beside=f"model{number}.data")
    return buckets_in(tmp_path)


def begun(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    """A run of mplint."""
    command = [sys.executable, "-m", "mplint", *arguments, "--policy", "mixed_float16"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(run: subprocess.Popen[str], target: str = "\0") -> tuple[int, str, str]:
    """The exit code of a run and what it wrote; the name of the target stands for itself in it."""
    out, err = run.communicate(timeout=LIMIT)
    return run.returncode, out.replace(target, "TARGET"), err.replace(target, "TARGET")


def written(environment: dict[str, str], target: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(environment["TEST_BUCKETS"], target).iterdir()}


@pytest.mark.cluster
@LINUX
def test_models_are_converted_as_here_whoever_is_killed(environment: dict[str, str]) -> None:
    command = ("convert", "s3://models", "-o")
    here = ended(begun(environment, *command, "s3://here"), "here")
    assert here[0] == 3 and "3 models: 2 converted and proven, 1 with nothing to convert.\n" in here[1]
    with cluster(environment) as dask:
        run = begun(environment, *command, "s3://first", "--executor", dask.address)
        os.kill(first_at_work(run, CONVERTS, dask.workers), signal.SIGKILL)
        assert ended(run, "first") == here
        run = begun(environment, *command, "s3://second", "--executor", dask.address)
        first_at_work(run, CONVERTS, None, dask.scheduler.pid)
        os.killpg(dask.scheduler.pid, signal.SIGKILL)
        code, out, err = ended(run, "second")
    assert (code, out) == here[:2] and "is converted here" in err and "Traceback" not in err
    names = ["model0.onnx", "model0.onnx.data", "model2.onnx", "model2.onnx.data"]
    assert written(environment, "here") == written(environment, "first") == written(environment, "second")
    assert sorted(written(environment, "here")) == names


@pytest.mark.cluster
def test_models_are_checked_as_here(environment: dict[str, str]) -> None:
    command = ("check", "s3://models", "--isolated", "--no-cache", "--output-format", "json")
    here = ended(begun(environment, *command))
    assert here[0] == 1 and here[1].count('"MP204"') == 1 and here[2] == ""
    assert ended(begun(environment, *command, "--executor", "dask://local?workers=2")) == here


@pytest.mark.cluster
def test_a_cluster_of_this_machine_reads_its_paths(environment: dict[str, str], tmp_path: Path) -> None:
    environment = environment | {"PWD": str(tmp_path)}
    name = str(tmp_path / "buckets" / "models" / "model0.onnx")
    run = begun(environment, "convert", name, "-o", str(tmp_path / "half.onnx"), "--executor", "dask://local?workers=1")
    code, out, _ = ended(run)
    assert code == 0 and (tmp_path / "half.onnx").exists(), out
