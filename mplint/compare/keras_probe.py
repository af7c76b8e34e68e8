"""Forces a precision policy on a Keras 3 program, and notes the batches that `fit` trains on and the steps of loops written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

from mplint.compare.keras_loops import Backend, Loops, TensorFlow, Torch, scale_of
from mplint.runs.fit_losses import FitLosses
from mplint.runs.record import Recorder

if TYPE_CHECKING:
    from types import ModuleType

    from mplint.runs.child import Settings

HALF = ("float16", "bfloat16")
BACKENDS: Mapping[str, Callable[[Recorder], Backend]] = {"tensorflow": TensorFlow, "torch": Torch}


def install(keras: ModuleType, settings: Settings, recorder: Recorder) -> None:
    """Patch Keras for one run: the global policy is the run's whatever the program sets, every step is noted."""
    keras.utils.set_random_seed(settings.seed)
    keras.config.set_dtype_policy(settings.policy)
    _force_policy(keras, settings.policy, recorder)
    _watch_layers(keras, recorder)
    backend = keras.config.backend()
    if settings.policy != "mixed_float16":
        _without_scale(keras)
    loops = Loops(keras, recorder, BACKENDS[backend](recorder), settings.policy) if backend in BACKENDS else None
    _watch_fit(keras, recorder, loops, settings.policy)
    recorder.fact("keras", f"{keras.__version__} on {backend}")


def _force_policy(keras: ModuleType, policy: str, recorder: Recorder) -> None:
    from keras.src.dtype_policies import dtype_policy

    for module, name in (
        (keras.config, "set_dtype_policy"),
        (keras.mixed_precision, "set_global_policy"),
        (keras.mixed_precision, "set_dtype_policy"),
        (dtype_policy, "set_dtype_policy"),
    ):
        if hasattr(module, name):
            setattr(module, name, lambda given: recorder.fact("asked_policy", str(getattr(given, "name", given))))


def _without_scale(keras: ModuleType) -> None:
    """A LossScaleOptimizer of the program leaves losses and gradients alone: float32 and bfloat16 need no scale."""
    scaler = keras.mixed_precision.LossScaleOptimizer

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> None:
        if not self.built:
            self.build(trainable_variables)
            self.built = True
        self.inner_optimizer.apply(grads, trainable_variables)

    scaler.apply, scaler.scale_loss = apply, lambda self, loss: loss


def _watch_layers(keras: ModuleType, recorder: Recorder) -> None:
    """Note whether any layer computes in half."""
    made = keras.Layer.__init__
    told: list[bool] = []

    @wraps(made)
    def making(self: Any, **options: Any) -> None:  # Keras asks for the names of arguments, and for these
        made(self, **options)
        if not told and not isinstance(self, keras.Model) and self.compute_dtype in HALF:
            told.append(True)
            recorder.fact("half", True)

    keras.Layer.__init__ = making


def _watch_fit(keras: ModuleType, recorder: Recorder, loops: Loops | None, policy: str) -> None:
    class Watch(keras.callbacks.Callback):  # type: ignore[name-defined, misc]
        """Hands each batch on."""

        def __init__(self) -> None:
            super().__init__()
            self.losses = FitLosses()
            self.scale: float | None = None

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.losses.begin()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            loss = self.losses.of_batch(self.model, batch, logs)
            scale = scale_of(self.model.optimizer, policy)
            before = self.scale if self.scale is not None else getattr(self.model.optimizer, "initial_scale", 0.0)
            skipped = scale is not None and scale < before
            self.scale = scale
            if loops is not None:
                loops.on_device(self.model.trainable_weights)
            recorder.step(loss, scale, skipped)

    original = keras.Model.fit

    def fit(self: Any, *args: Any, **options: Any) -> Any:
        callbacks = options.get("callbacks")
        given = getattr(callbacks, "callbacks", callbacks) or []
        options["callbacks"] = [*(given if isinstance(given, list | tuple) else [given]), Watch()]
        if loops is not None:
            loops.paused = True
        try:
            return original(self, *args, **options)
        finally:
            if loops is not None:
                loops.paused = False

    keras.Model.fit = fit
