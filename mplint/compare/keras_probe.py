"""Forces a precision policy on a Keras 3 program, and notes the batches that `fit` trains on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mplint.runs.record import Recorder

if TYPE_CHECKING:
    from types import ModuleType

    from mplint.runs.child import Settings


def install(keras: ModuleType, settings: Settings, recorder: Recorder) -> None:
    """Patch Keras for one run: the global policy is the run's whatever the program sets, every batch of `fit` is noted."""
    keras.utils.set_random_seed(settings.seed)
    keras.config.set_dtype_policy(settings.policy)
    _force_policy(keras, settings.policy, recorder)
    _watch_fit(keras, recorder)
    recorder.fact("keras", f"{keras.__version__} on {keras.config.backend()}")
    recorder.fact("half", settings.policy != "float32")


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


def _watch_fit(keras: ModuleType, recorder: Recorder) -> None:
    class Watch(keras.callbacks.Callback):  # type: ignore[name-defined, misc]
        """Undoes the running mean that Keras reports, and hands each batch on."""

        def __init__(self) -> None:
            super().__init__()
            self.before = 0.0
            self.scale: float | None = None

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.before = 0.0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            mean = float((logs or {}).get("loss", float("nan")))
            loss = mean * (batch + 1) - self.before
            self.before = mean * (batch + 1)
            held = getattr(self.model.optimizer, "dynamic_scale", None)
            scale = None if held is None else float(held)
            skipped = scale is not None and self.scale is not None and scale < self.scale
            self.scale = scale
            recorder.step(loss, scale, skipped)

    original = keras.Model.fit

    def fit(self: Any, *args: Any, **options: Any) -> Any:
        callbacks = options.get("callbacks")
        given = getattr(callbacks, "callbacks", callbacks) or []
        options["callbacks"] = [*(given if isinstance(given, list | tuple) else [given]), Watch()]
        return original(self, *args, **options)

    keras.Model.fit = fit
