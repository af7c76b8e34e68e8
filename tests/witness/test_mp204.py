"""Constants beyond 65504 raise, become -inf, or turn whole rows into NaN."""

import pytest

pytestmark = pytest.mark.framework


def test_masked_fill_raises_in_float16_and_the_dtype_aware_constant_masks() -> None:
    torch = pytest.importorskip("torch")
    scores = torch.zeros(2, 4, dtype=torch.float16)
    mask = torch.tensor([[False, True, False, True]] * 2)
    with pytest.raises(RuntimeError, match="without overflow"):
        scores.masked_fill(mask, -1e9)
    filled = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    assert filled.softmax(-1).tolist() == [[0.5, 0.0, 0.5, 0.0]] * 2


def test_where_is_silently_infinite_and_a_fully_masked_row_becomes_nan() -> None:
    torch = pytest.importorskip("torch")
    scores = torch.zeros(1, 3, dtype=torch.float16)
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    assert torch.where(nothing, scores, -1e9).softmax(-1).isnan().all()
    assert torch.where(nothing, scores, torch.finfo(scores.dtype).min).softmax(-1).isfinite().all()


def test_a_float32_product_added_in_place_is_infinite_in_the_half_tensor() -> None:
    torch = pytest.importorskip("torch")
    scores, mask = torch.zeros(1, 3, dtype=torch.float16), torch.zeros(1, 3)
    assert (scores + (1.0 - mask) * -1e9).softmax(-1).isfinite().all()  # a new tensor, in float32
    scores += (1.0 - mask) * -1e9
    assert scores.dtype == torch.float16 and scores.softmax(-1).isnan().all()


def test_arithmetic_mask_is_nan_in_every_row_in_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow")
    scores = tf.zeros((1, 3), tf.float16)
    mask = tf.constant([[1.0, 1.0, 0.0]], tf.float16)
    assert bool(tf.reduce_any(tf.math.is_nan(tf.nn.softmax(scores + (1.0 - mask) * -1e9))))
    fixed = tf.nn.softmax(scores + (1.0 - mask) * scores.dtype.min)
    assert fixed.numpy().tolist() == [[0.5, 0.5, 0.0]]
