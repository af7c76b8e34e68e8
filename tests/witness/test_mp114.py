"""A model that is saved under mixed_float16 and loaded under float32 trains on in float16, without loss scaling and from step 0."""

from pathlib import Path

import pytest

keras = pytest.importorskip("keras")
np = pytest.importorskip("numpy")
pytestmark = pytest.mark.framework


def resumed(folder: Path, policy: str) -> "keras.Model":
    """A model that was trained and saved under mixed_float16, loaded under `policy`."""
    try:
        keras.mixed_precision.set_global_policy("mixed_float16")
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1, dtype="float32")])
        model.compile("adam", keras.losses.MeanSquaredError())
        model.train_on_batch(np.ones((8, 4)), np.ones((8, 1)))
        model.save(folder / "model.keras")
        keras.mixed_precision.set_global_policy(policy)
        return keras.models.load_model(folder / "model.keras")
    finally:
        keras.mixed_precision.set_global_policy("float32")


@pytest.mark.filterwarnings("ignore:Skipping variable loading")
def test_under_another_policy_the_layers_stay_in_float16_and_nothing_scales(tmp_path: Path) -> None:
    model = resumed(tmp_path, "float32")
    assert model.layers[0].compute_dtype == "float16"
    assert not isinstance(model.optimizer, keras.mixed_precision.LossScaleOptimizer)
    model.compile("adam", keras.losses.MeanSquaredError())
    assert not isinstance(model.optimizer, keras.mixed_precision.LossScaleOptimizer)


@pytest.mark.filterwarnings("ignore:Skipping variable loading")
def test_the_state_of_the_optimizer_comes_back_only_under_the_same_policy(tmp_path: Path) -> None:
    same, other = resumed(tmp_path, "mixed_float16"), resumed(tmp_path, "float32")
    assert isinstance(same.optimizer, keras.mixed_precision.LossScaleOptimizer)
    assert len(same.optimizer.variables) > len(other.optimizer.variables)
    assert all(not np.any(np.asarray(v)) for v in other.optimizer.variables if "momentum" in v.path)
