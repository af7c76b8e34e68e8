"""Functional Keras losses compute in the dtype of the predictions, the classes of losses in float32; and a cast that comes too late."""

import pytest

pytestmark = pytest.mark.framework


def test_a_functional_loss_overflows_on_float16_predictions_and_the_class_does_not() -> None:
    keras = pytest.importorskip("keras")
    predictions = keras.ops.convert_to_tensor([[400.0]], dtype="float16")
    targets = keras.ops.zeros((1, 1), dtype="float32")
    assert float(keras.losses.mean_squared_error(targets, predictions)[0]) == float("inf")
    assert float(keras.losses.mean_squared_error(targets, keras.ops.cast(predictions, "float32"))[0]) == 160000.0
    assert float(keras.losses.MeanSquaredError()(targets, predictions)) == 160000.0


def test_cross_entropy_of_a_confident_float16_probability_is_infinite() -> None:
    keras = pytest.importorskip("keras")
    sure = keras.ops.convert_to_tensor([[0.9999]], dtype="float32")
    wrong = keras.ops.zeros((1, 1))
    assert float(keras.losses.binary_crossentropy(wrong, sure)[0]) == pytest.approx(9.2, abs=0.1)
    assert float(keras.losses.binary_crossentropy(wrong, keras.ops.cast(sure, "float16"))[0]) == float("inf")


def test_a_cast_after_the_softmax_restores_nothing() -> None:
    keras = pytest.importorskip("keras")
    logits = keras.ops.convert_to_tensor([[0.0, 20.0]], dtype="float16")
    late = keras.ops.cast(keras.ops.softmax(logits), "float32")
    early = keras.ops.softmax(keras.ops.cast(logits, "float32"))
    assert float(late[0, 0]) == 0.0 and float(late[0, 1]) == 1.0
    assert float(early[0, 0]) == pytest.approx(2.06e-9, rel=0.01)
