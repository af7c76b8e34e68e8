"""The Keras 3 loops that the fix gives a loss scale train as they do in float32; those of Keras 2 can't run under this Keras."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from migrated import FIXTURES

pytestmark = pytest.mark.framework


@pytest.fixture
def keras() -> Iterator[Any]:
    pytest.importorskip("tensorflow")
    keras = pytest.importorskip("keras")
    before = keras.config.dtype_policy()
    yield keras
    keras.config.set_dtype_policy(before)


def program(name: str, policy: str) -> dict[str, Any]:
    """The names of a fixture's program under a policy."""
    scope: dict[str, Any] = {"__name__": "program"}
    exec(compile((FIXTURES / "MP301" / name).read_text().replace('"mixed_float16"', f'"{policy}"'), name, "exec"), scope)
    return scope


def network(keras: Any, inputs: int = 8, outputs: int = 4) -> Any:
    keras.utils.set_random_seed(0)
    dense = keras.layers.Dense
    return keras.Sequential([keras.Input((inputs,)), dense(32, activation="tanh"), dense(outputs, dtype="float32")])


def batches(count: int = 8) -> list[tuple[Any, Any]]:
    import tensorflow as tf

    generator = tf.random.Generator.from_seed(1)
    inputs = [generator.normal((32, 8)) for _ in range(count)]
    return [(x, x[:, :4] * 0.5 + 0.1) for x in inputs]


def trainer(keras: Any, scope: dict[str, Any]) -> list[float]:
    return list(scope["Trainer"](network(keras)).fit(batches()))


def accumulation(keras: Any, scope: dict[str, Any]) -> list[float]:
    return list(scope["train"](network(keras), batches(), 2))


def two_optimizers(keras: Any, scope: dict[str, Any]) -> list[float]:
    generator, critic = network(keras, 2, 8), network(keras, 8, 1)
    return list(scope["train"](generator, critic, [(x, x[:, :2]) for x, _ in batches()]))


LOOPS: list[Callable[[Any, dict[str, Any]], list[float]]] = [trainer, accumulation, two_optimizers]


@pytest.mark.parametrize("run", LOOPS, ids=lambda run: run.__name__)
def test_fixed_loop_gives_the_losses_of_the_loop_in_float32(keras: Any, run: Callable[[Any, dict[str, Any]], list[float]]) -> None:
    fixed = run(keras, program(f"bad_keras3_{run.__name__}.fixed.py", "mixed_float16"))
    float32 = run(keras, program(f"bad_keras3_{run.__name__}.py", "float32"))
    assert fixed == pytest.approx(float32, abs=0.01)
    assert fixed[-1] < fixed[0]
