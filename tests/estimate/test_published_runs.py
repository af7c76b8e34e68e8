"""Estimates against what others measured and published. Each row says where."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

keras = pytest.importorskip("keras")

from mplint.estimate.estimate import Report, estimate  # noqa: E402
from mplint.estimate.sizes import sized  # noqa: E402
from mplint.graph.load import load_graph  # noqa: E402
from mplint.hardware import resolve_target  # noqa: E402
from mplint.hardware.figures import figures_of  # noqa: E402

pytestmark = pytest.mark.framework

NVIDIA = "NVIDIA/DeepLearningExamples, PyTorch/Classification/ConvNets/resnet50v1.5/README.md, training performance of one GPU"
PAUL = "Mixed precision training with tf.keras (Sayak Paul): seconds of an epoch"
LESS_RAM = "Mixed Precision Training - Less RAM, More Speed: step times and GPU memory, batch 50, taken to be a Tesla T4"
IN_R = "First experiments with TensorFlow mixed-precision training: seconds of an epoch"


def resnet50() -> Any:
    return keras.applications.ResNet50(weights=None)


def pictures() -> Any:
    """The model of the article about memory."""
    inputs = keras.Input((256, 256, 3))
    x = keras.layers.Conv2D(128, 2)(inputs)
    x = keras.layers.Conv2D(128, 1)(x)
    x = keras.layers.Conv2D(128, 1)(x)
    x = keras.layers.Dense(1)(keras.layers.Flatten()(x))
    return keras.Model(inputs, keras.layers.Activation("sigmoid", dtype="float32")(x))


def large_filters() -> Any:
    """The model of the article in R."""
    layers: list[Any] = [keras.Input((256, 256, 3))]
    for filters, size in ((32, 5), (64, 7), (128, 11)):
        layers.append(keras.layers.Conv2D(filters, size, strides=2, padding="same", activation="relu"))
        layers.append(keras.layers.BatchNormalization())
    head = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10), keras.layers.Activation("softmax", dtype="float32")]
    return keras.Sequential([*layers, *head])


class Run(NamedTuple):
    make: Any
    batch: int
    device: str
    speedup: float
    source: str


RUNS = (
    Run(resnet50, 128, "Tesla V100-SXM2-16GB", 1200 / 367, NVIDIA),
    Run(resnet50, 256, "A100-SXM4-80GB", 2470 / 938, NVIDIA),
    Run(resnet50, 64, "Tesla T4", 770 / 229, PAUL),
    Run(pictures, 50, "Tesla T4", 475 / 183, LESS_RAM),
    Run(large_filters, 128, "Tesla V100-SXM2-16GB", 1.10, IN_R),
    Run(large_filters, 128, "NVIDIA TITAN Xp", 1.04, IN_R),
)


def estimated(make: Any, batch: int, device: str) -> Report:
    target = resolve_target(device)
    return estimate(sized(load_graph(make()), batch, {}), "adam", target, figures_of(target))


@pytest.mark.parametrize("run", RUNS, ids=[f"{run.make.__name__} on {run.device}" for run in RUNS])
def test_no_published_run_gained_more_than_the_ceiling(run: Run) -> None:
    report = estimated(run.make, run.batch, run.device)
    ceiling = report.estimates[1].ceiling
    assert ceiling is not None
    assert run.speedup <= ceiling


def test_a_gpu_without_matrix_units_gains_next_to_nothing() -> None:
    report = estimated(large_filters, 128, "NVIDIA TITAN Xp")
    speedup = report.estimates[1].speedup
    assert speedup is not None
    assert 1.0 < speedup < 1.1


def test_the_memory_of_the_article_about_memory() -> None:
    mixed = estimated(pictures, 50, "Tesla T4").estimates[1]
    assert mixed.memory.peak == pytest.approx(3.57e9, rel=0.1)  # what the article measured
