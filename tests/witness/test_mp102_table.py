"""MP102: what the table calls gone is gone in the installed TensorFlow, and what it names instead is there."""

from __future__ import annotations

import importlib

import pytest
from mplint.rules.api.removed_names import Removed, entry_of, table

pytestmark = pytest.mark.framework
tensorflow = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")


def is_there(name: str) -> bool:
    """Whether a dotted name can be imported, or read as an attribute."""
    module, _, rest = name, "", ""
    while module:
        try:
            found = importlib.import_module(module)
            break
        except ImportError:
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}".rstrip(".")
    else:
        return False
    for part in rest.split(".") if rest else ():
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def homes(entry: Removed) -> list[str]:
    """The packages under which a row says that its name is gone."""
    if entry.path.startswith("tensorflow."):
        return ["", "compat.v2."]
    if entry.home:
        return [f"{entry.home}."]
    return [f"{package}keras." for package in ("", "tensorflow.", "tensorflow.compat.v1.", "tensorflow.compat.v2.")]


@pytest.mark.parametrize("entry", table().removed, ids=lambda e: e.home + e.path)
def test_removed_names_are_gone_in_every_home(entry: Removed) -> None:
    for home in homes(entry):
        name = home + entry.path if not entry.path.startswith("tensorflow.") else entry.path.replace("tensorflow.", f"tensorflow.{home}", 1)
        assert not is_there(name)
        assert entry_of(name) is not None


@pytest.mark.parametrize("name", sorted(table().stable))
def test_stable_names_are_there(name: str) -> None:
    assert is_there(f"keras.mixed_precision.{table().renamed.get(name, name)}")


@pytest.mark.parametrize(
    "name",
    [
        "tensorflow.compat.v1.train.experimental.DynamicLossScale",
        "tensorflow.compat.v1.train.experimental.FixedLossScale",
        "tensorflow.compat.v1.mixed_precision.experimental.LossScale",
        "tensorflow.compat.v1.mixed_precision.enable_mixed_precision_graph_rewrite",
        "tensorflow.python.keras.mixed_precision.loss_scale_optimizer.LossScaleOptimizer",
        "keras.mixed_precision.set_global_policy",
        "keras.config.set_dtype_policy",
    ],
)
def test_what_is_still_there_is_not_called_gone(name: str) -> None:
    assert is_there(name)
    assert entry_of(name) is None


def test_the_graph_rewrite_is_gone_but_for_its_first_version() -> None:
    wrapper = "train.experimental.enable_mixed_precision_graph_rewrite"
    assert not is_there(f"tensorflow.{wrapper}")
    assert not is_there(f"tensorflow.compat.v2.{wrapper}")
    assert is_there(f"tensorflow.compat.v1.{wrapper}")


@pytest.mark.parametrize("path", table().keras2["paths"])
def test_what_only_keras_2_has_is_not_in_keras_3(path: str) -> None:
    assert not is_there(f"keras.{path}")
    assert not is_there(f"tensorflow.keras.{path}")


@pytest.mark.parametrize("method", table().keras2["methods"])
def test_what_only_keras_2_calls_is_not_in_keras_3(method: str) -> None:
    assert not hasattr(keras.Sequential([keras.layers.Dense(1)]), method)
    assert not hasattr(keras.optimizers.SGD(), method)


def test_arguments_of_keras_2_are_refused() -> None:
    with pytest.raises(TypeError, match="experimental_aggregate_gradients"):
        keras.optimizers.SGD().apply_gradients([], experimental_aggregate_gradients=False)
    with pytest.raises(ValueError, match="lr"):
        keras.optimizers.SGD(lr=0.1)
