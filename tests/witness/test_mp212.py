"""MP212: half precision makes neighbouring positions the same."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.framework


@pytest.mark.parametrize(("dtype", "exact"), [("float16", 2048), ("bfloat16", 256)])
def test_neighbours_become_the_same_beyond_the_exact_range(dtype: str, exact: int) -> None:
    torch = pytest.importorskip("torch")
    half = getattr(torch, dtype)
    positions = torch.arange(exact + 4)
    assert len(positions[: exact + 1].to(half).unique()) == exact + 1
    assert len(positions.to(half).unique()) < exact + 4
    assert len(positions.float().unique()) == exact + 4


def test_a_buffer_is_cast_with_its_module() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Module()
    module.register_buffer("rates", torch.ones(2))
    module.half()
    assert torch.arange(4096).type_as(module.rates).dtype is torch.float16


def test_autocast_casts_the_operands_of_einsum_and_leaves_outer_alone() -> None:
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), torch.no_grad():
        positions, rates = torch.empty(1024, device="cuda"), torch.empty(2, device="cuda")
        torch.set_autocast_enabled("cuda", True)
        try:
            assert torch.einsum("i,j->ij", positions, rates).dtype is torch.float16
            assert torch.outer(positions, rates).dtype is torch.float32
        finally:
            torch.set_autocast_enabled("cuda", False)


@pytest.mark.parametrize(("dtype", "off"), [("float16", 0.1), ("bfloat16", 1.0)])
def test_rounded_frequencies_turn_away(dtype: str, off: float) -> None:
    torch = pytest.importorskip("torch")
    exact = 1 / 10000 ** (torch.arange(0, 128, 2).double() / 128)
    module = torch.nn.Module()
    module.register_buffer("speeds", exact.float())
    module.to(getattr(torch, dtype))
    angles = 1000 * module.speeds.double()  # what a cast to a wider dtype does not bring back
    assert (angles - 1000 * exact).abs().max() > off
    assert (1000 * exact.float().double() - 1000 * exact).abs().max() < 1e-3


def test_sines_of_half_positions_are_off_in_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow")
    positions = tf.range(1000)
    exact = tf.sin(tf.cast(positions, tf.float32) * 0.75)
    rounded = tf.sin(tf.cast(positions, tf.float16) * tf.constant(0.75, tf.float16))
    assert float(tf.reduce_max(tf.abs(exact - tf.cast(rounded, tf.float32)))) > 0.1
    late = tf.cast(exact, tf.float16)
    assert float(tf.reduce_max(tf.abs(exact - tf.cast(late, tf.float32)))) < 0.001


def test_a_number_of_elements_is_infinite_in_float16() -> None:
    tf = pytest.importorskip("tensorflow")
    count = tf.reduce_prod(tf.constant([64, 64, 16, 2]))
    assert tf.math.is_inf(tf.cast(count, tf.float16))
    assert float(tf.constant(3.0, tf.float16) / tf.cast(count, tf.float16)) == 0


@pytest.mark.parametrize(("dtype", "off"), [("float16", 0.05), ("bfloat16", 0.5)])
def test_powers_by_half_exponents_turn_later_positions_to_other_angles(dtype: str, off: float) -> None:
    torch = pytest.importorskip("torch")
    steps = torch.arange(0, 96, 2)
    exact = 1.0 / 10000.0 ** (steps.float() / 96)
    rounded = 1.0 / 10000.0 ** (steps.to(getattr(torch, dtype)) / 96).float()
    assert ((exact - rounded) * 1000).abs().max() > off
