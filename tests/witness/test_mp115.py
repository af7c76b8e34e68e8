"""The API that is imported, or a policy that is built and not set, leaves everything in float32."""

import pytest

torch = pytest.importorskip("torch")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.framework


def test_a_policy_that_is_built_and_not_set_changes_no_layer() -> None:
    policy = keras.mixed_precision.Policy("mixed_float16")
    assert policy.compute_dtype == "float16"
    assert keras.layers.Dense(2).compute_dtype == "float32"


def test_a_policy_that_is_set_does() -> None:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        assert keras.layers.Dense(2).compute_dtype == "float16"
    finally:
        keras.mixed_precision.set_global_policy("float32")


def test_a_scaler_and_an_autocast_that_are_not_used_leave_the_forward_in_float32() -> None:
    torch.amp.GradScaler("cpu"), torch.autocast("cpu", dtype=torch.bfloat16)
    model, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    assert model(x).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(x).dtype == torch.bfloat16
