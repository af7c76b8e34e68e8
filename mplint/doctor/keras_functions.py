"""Watches what TensorFlow offers to loops of one's own: functions, tapes, and clipping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol

from mplint.doctor.keras_training import KerasTraining
from mplint.doctor.sampling import Sampling

IDLE = 3  # calls of a function without a step, after which it is none that trains


class Watch(Protocol):
    """Who watches.

    `inside` counts the functions that run; `fitting`: `fit` notes the steps; `spent`: no more of this step is looked at.
    """

    backend: Any
    training: KerasTraining
    sampling: Sampling
    inside: int
    fitting: bool
    spent: bool

    @property
    def made(self) -> int:
        """How many steps are noted."""

    def returned(self, result: Any) -> None:
        """A function of the program has run."""


def watch_functions(watch: Watch) -> None:
    """Run functions eagerly in the steps that are looked at, and see what becomes of gradients on their way from the tape."""
    from tensorflow.python.eager import backprop
    from tensorflow.python.eager.polymorphic_function import polymorphic_function
    from tensorflow.python.ops import clip_ops

    function = polymorphic_function.Function
    function.__call__ = _called(watch, function.__call__)
    tape = backprop.GradientTape
    tape.gradient = _differentiated(watch, tape.gradient)
    for name in ("clip_by_norm", "clip_by_value", "clip_by_global_norm", "clip_by_average_norm", "global_norm"):
        _patch_everywhere(name, getattr(clip_ops, name), _clipping(watch, getattr(clip_ops, name)))


def _called(watch: Watch, call: Callable[..., Any]) -> Callable[..., Any]:
    idle: dict[int, int] = {}

    @wraps(call)
    def calling(this: Any, *args: Any, **options: Any) -> Any:
        if watch.inside or watch.backend.symbolic():
            return call(this, *args, **options)
        made = watch.made
        eager = watch.sampling.close and not watch.spent and idle.get(id(this), 0) < IDLE
        watch.inside += 1
        try:
            if eager:
                with _eagerly():
                    result = call(this, *_as_traced(args), **_as_traced(options))
            else:
                result = call(this, *args, **options)
        finally:
            watch.inside -= 1
        if not watch.fitting:
            watch.returned(result)
        idle[id(this)] = idle.get(id(this), 0) + 1 if watch.made == made and not watch.fitting else 0
        return result

    return calling


def _as_traced(arguments: Any) -> Any:
    """Arguments as a function that is traced gets them: arrays of numpy are tensors."""
    import numpy as np
    import tensorflow as tf

    def converted(value: Any) -> Any:
        return tf.convert_to_tensor(value) if isinstance(value, np.ndarray) else value

    return tf.nest.map_structure(converted, arguments)


@contextmanager
def _eagerly() -> Iterator[None]:
    """Run functions eagerly inside."""
    from tensorflow.python.eager.polymorphic_function import eager_function_run

    before = eager_function_run.RUN_FUNCTIONS_EAGERLY
    eager_function_run.RUN_FUNCTIONS_EAGERLY = True
    try:
        yield
    finally:
        eager_function_run.RUN_FUNCTIONS_EAGERLY = before


def _differentiated(watch: Watch, gradient: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(gradient)
    def differentiating(this: Any, target: Any, *args: Any, **options: Any) -> Any:
        if watch.backend.symbolic():
            return gradient(this, target, *args, **options)
        training = watch.training
        training.phase, training.units.paused = "backward", True
        try:
            result = gradient(this, target, *args, **options)
        finally:
            training.units.paused = False
        found = result if isinstance(result, list | tuple) else [result]
        training.differentiated([each for each in found if hasattr(each, "dtype") and not hasattr(each, "dense_shape")])
        if training.loss is None and getattr(target, "shape", None) == ():
            training.loss = watch.backend.number(target)
        return result

    return differentiating


def _clipping(watch: Watch, clip: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(clip)
    def clipping(values: Any, *limits: Any, **options: Any) -> Any:
        if watch.backend.symbolic():
            return clip(values, *limits, **options)
        with watch.training.quiet():
            result = clip(values, *limits, **options)
        given = list(values) if isinstance(values, list | tuple) else [values]
        limit = next((each for each in (*limits[::-1], *options.values()) if each is not None and not isinstance(each, str)), None)
        if limit is not None and clip.__name__ != "global_norm":
            made = result[0] if isinstance(result, tuple) else result
            watch.training.clipped(given, limit, list(made) if isinstance(made, list | tuple) else [made])
        return result

    return clipping


def _patch_everywhere(name: str, original: object, patched: object) -> None:
    """Replace a function in every module that has taken it."""
    import sys

    for module in list(sys.modules.values()):
        space = getattr(module, "__dict__", None)
        if isinstance(space, dict) and str(space.get("__name__", "")).startswith("tensorflow") and space.get(name) is original:
            space[name] = patched
