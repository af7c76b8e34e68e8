"""Sets every instrument of a training with Keras 3, on TensorFlow or torch, and decides which steps are looked at closely.

On TensorFlow functions that train run eagerly in those steps, so that every operation shows; in the others they run as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

from mplint.doctor.gradients import Gradients
from mplint.doctor.keras_training import KerasTraining
from mplint.doctor.places import Places
from mplint.doctor.ranges import Ranges
from mplint.doctor.sampling import Sampling, Share
from mplint.doctor.scaled_losses import ScaledLosses
from mplint.doctor.values import Operation, Seen, Situation, Tensors, Values
from mplint.doctor.work import Product, Work
from mplint.limits import HALF_MAX
from mplint.runs.devices import Device
from mplint.runs.fit_losses import FitLosses
from mplint.runs.record import Recorder

if TYPE_CHECKING:
    from types import ModuleType

    from mplint.runs.child import Settings

SHOWN = 200


def install(keras: ModuleType, settings: Settings, recorder: Recorder) -> None:
    """Watch a Keras program; its random numbers begin with the seed."""
    backend = keras.config.backend()
    if backend not in ("tensorflow", "torch"):
        recorder.fact("unwatched", f"the {backend} backend of Keras")
        return
    keras.utils.set_random_seed(settings.seed)
    watch = _Watch(keras, settings, recorder, _TensorFlow() if backend == "tensorflow" else _Torch())
    watch.install()
    recorder.at_end(watch.end)
    recorder.fact("keras", f"{keras.__version__} on {backend}")


class _TensorFlow:
    """What differs where TensorFlow computes."""

    name = "tensorflow"

    def __init__(self) -> None:
        from mplint.doctor.tf_values import TENSORS

        self.tensors: Tensors = TENSORS

    def symbolic(self) -> bool:
        """A function is traced: nothing is computed."""
        import tensorflow as tf

        return bool(tf.inside_function())

    def recorded(self) -> bool:
        """A tape goes on."""
        from tensorflow.python.eager import record

        return bool(record.could_possibly_record())

    def on_device(self, device: Device, variable: Any) -> None:
        """Tell the device that a variable is on."""
        device.tensorflow(variable.value)

    def watch_readings(self, losses: ScaledLosses) -> None:
        """See what is read off tensors."""
        from tensorflow.python.framework import ops

        losses.watch(ops._EagerTensorBase, ("numpy", "__float__", "__format__"), (), lambda: False)

    def flat(self, value: Any) -> Any:
        """A tensor, a variable or slices of one, as an array."""
        value = getattr(value, "values", None) if hasattr(value, "dense_shape") else value
        return value.numpy().astype("float64").reshape(-1)

    def number(self, value: Any) -> float:
        """A scalar as a number."""
        return float(value.numpy()) if hasattr(value, "numpy") else float(value)

    @contextmanager
    def watched(self, watch: _Watch) -> Iterator[None]:
        """Tell the instruments of every operation inside."""
        from mplint.doctor.tf_values import Operations

        with Operations(watch.looked, watch.values, watch.took).entered():
            yield


class _Torch:
    """What differs where torch computes."""

    name = "torch"

    def __init__(self) -> None:
        from mplint.doctor.torch_values import TENSORS

        self.tensors: Tensors = TENSORS

    def symbolic(self) -> bool:
        """Tensors of no device stand for shapes and dtypes: nothing is computed."""
        from keras.src.backend.common.global_state import get_global_attribute

        return bool(get_global_attribute("torch_device") == "meta")

    def recorded(self) -> bool:
        """A graph is recorded."""
        import torch

        return bool(torch.is_grad_enabled())

    def on_device(self, device: Device, variable: Any) -> None:
        """Tell the device that a variable is on."""
        import torch

        device.torch(torch, variable.value)

    def watch_readings(self, losses: ScaledLosses) -> None:
        """See what is read off tensors."""
        import torch

        from mplint.doctor.torch_training import READING

        losses.watch(torch.Tensor, READING, ("detach", "cpu"), torch.compiler.is_compiling)

    def flat(self, value: Any) -> Any:
        """A tensor or a variable as an array."""
        return getattr(value, "value", value).detach().double().reshape(-1).clone()

    def number(self, value: Any) -> float:
        """A scalar as a number."""
        value = getattr(value, "value", value)
        return float(value.detach() if hasattr(value, "detach") else value)

    @contextmanager
    def watched(self, watch: _Watch) -> Iterator[None]:
        """Tell the instruments of every operation inside."""
        from mplint.doctor.torch_values import Instruments, Operations

        layer = watch.training.layers.layer
        with Operations(Instruments(watch.values, watch.work, watch.training.units, watch.at, layer, watch.why, took=watch.took)):
            yield


class _Watch:
    """Looks closely at some steps: operation by operation up to the optimizer, whose gradients and weights it looks at then."""

    def __init__(self, keras: ModuleType, settings: Settings, recorder: Recorder, backend: _TensorFlow | _Torch) -> None:
        places = Places(settings.script)
        self._keras = keras
        self._places = places
        self._recorder = recorder
        self._device = Device(recorder)
        self.backend = backend
        self.sampling = Sampling(settings.every)
        self.training = KerasTraining(recorder, places, backend.tensors, backend.number)
        self.at = Situation(self.training.layers.path, self.training.place, self.state)
        self.gradients = Gradients(recorder)
        self.ranges = Ranges(recorder)
        self.values = Values(recorder, backend.tensors, self.at, self.ranges.add)
        self.work = Work(recorder)
        self._share = Share()
        self._in_part = 0  # steps in which looking ended before they did
        self.spent = False  # no more of this step is looked at
        self._stepped = False
        self._looking = ExitStack()
        self._looks = False
        self._applying = 0
        self.inside = 0  # functions of TensorFlow that run
        self.fitting = False

    def state(self) -> Mapping[str, object]:
        """What the training is doing, for events."""
        return {"phase": self.training.phase, "scaled": self.training.goes_scaled}

    def why(self, operation: Operation, made: Sequence[Seen]) -> str:
        """Why an operation of a program that computes in half ran in float32, "" where it did not, or is no matter of the model."""
        layers = self.training.layers
        if layers.half is None or self.training.phase != "forward" or not made or made[0].dtype != "float32" or layers.idle:
            return ""
        if layers.computed_now not in HALF_MAX:
            return "the policy of its layer is float32"
        given = {self.backend.tensors.dtype(value) for value in operation.given}
        return "one of its operands is float32" if given & HALF_MAX.keys() else "its layer casts to float32, or is given float32"

    def looked(self, operation: Operation, product: Product | None) -> None:
        """An operation has run."""
        if self.training.units.any:
            self.training.units.look(operation, self.training.place())
        made = self.values.look(operation)
        self.work.add(operation, made, product, self.training.layers.layer(), self.why(operation, made))

    def took(self, seconds: float) -> bool:
        """Looking at an operation took so long; where all took too long, the rest of this step is not looked at."""
        self._share.took(seconds)
        self.spent = self._share.used_up
        self._in_part += self.spent
        return not self.spent

    def look(self) -> None:
        """Look at every operation from here on."""
        if not self._looks and not self.spent and self.sampling.close and not self.backend.symbolic():
            self._looks = True
            self._looking.enter_context(self.backend.watched(self))

    def stop_looking(self) -> None:
        """The optimizer begins, or the step is over."""
        if self._looks:
            self._looks = False
            self._looking.close()
            self.values.forget()

    def install(self) -> None:
        """Hook into layers, optimizers, models, and what the backend has."""
        self._watch_layers()
        self._watch_optimizers()
        self._watch_models()
        self.backend.watch_readings(self.training.losses)
        if self.backend.name == "tensorflow":
            from mplint.doctor.keras_functions import watch_functions

            watch_functions(self)
        else:
            self._watch_backward()

    def _watch_layers(self) -> None:
        layer = self._keras.layers.Layer
        made, call = layer.__init__, layer.__call__
        watch, training, backend = self, self.training, self.backend

        @wraps(made)
        def making(self: Any, **kwargs: Any) -> None:  # Keras asks for the names of arguments, and for these
            made(self, **kwargs)
            training.layers.made(self)

        @wraps(call)
        def calling(this: Any, *args: Any, **options: Any) -> Any:
            if backend.symbolic() or any(isinstance(value, watch._keras.KerasTensor) for value in args):
                return call(this, *args, **options)
            if training.layers.idle:
                watch.entered(this)
            training.layers.enter(this)
            result = None
            try:
                result = call(this, *args, **options)
            finally:
                training.layers.leave(backend.tensors.dtype(result) if hasattr(result, "dtype") else "")
            return result

        layer.__init__, layer.__call__ = making, calling
        build = self._keras.Sequential.build

        @wraps(build)
        def building(this: Any, *args: Any, **options: Any) -> Any:  # makes an input in the dtype of the first layer, which casts anyway
            with training.layers.of_keras():
                return build(this, *args, **options)

        self._keras.Sequential.build = building

    def entered(self, model: Any) -> None:
        """A model, or a layer that stands for itself, begins to run."""
        if self._applying:
            return
        self.training.phase = "forward"
        if self.backend.recorded():
            self.look()
        if self.sampling.close:
            for layer in getattr(model, "_layers", ()):
                if type(layer).__name__ == "InputLayer" and str(layer.dtype) in HALF_MAX and getattr(layer, "_mplint_made", None):
                    self.training.tell("input-in-half", at=layer._mplint_made, dtype=str(layer.dtype))

    def _watch_optimizers(self) -> None:
        scaler = self._keras.optimizers.LossScaleOptimizer
        base = next(each for each in self._keras.optimizers.Optimizer.__mro__ if "apply" in vars(each) and "scale_loss" in vars(each))
        make, training = scaler.__init__, self.training

        @wraps(make)
        def making(self: Any, inner_optimizer: Any, *args: Any, **options: Any) -> None:
            training.wrapped(inner_optimizer)
            make(self, inner_optimizer, *args, **options)

        scaler.__init__ = making
        for kind in (base, scaler):
            kind.apply = self._applied(kind.apply)
            kind.scale_loss = self._scaled(kind.scale_loss)

    def _scaled(self, scale: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(scale)
        def scaling(this: Any, loss: Any) -> Any:
            with self.training.quiet():
                result = scale(this, loss)
            if not self.backend.symbolic():
                with suppress(TypeError, ValueError):
                    self.training.loss = self.backend.number(loss) if self.sampling.close else None
                self.training.scaled(this, loss, result, recorded=self.backend.recorded())
            return result

        return scaling

    def _applied(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(apply)
        def applying(this: Any, grads: Any, trainable_variables: Any = None) -> Any:
            if self._applying:
                return apply(this, grads, trainable_variables)
            self.training.first = self.training.first or this
            if self.backend.symbolic():
                return apply(this, grads, trainable_variables)
            variables = list(trainable_variables or this._trainable_variables)
            self._begin_update(this, list(grads), variables)
            self._applying += 1
            try:
                with self.training.quiet():
                    result = apply(this, grads, trainable_variables)
            finally:
                self._applying -= 1
            if self.sampling.close:
                self.gradients.after(self._parameters(this, grads, variables))
            self.training.applied(this)
            if not self.inside and not self.fitting:
                self.step()
            return result

        return applying

    def _parameters(self, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        return self.training.parameters(optimizer, gradients, variables, self.backend.flat)

    def _begin_update(self, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        self.stop_looking()
        if variables:
            self.backend.on_device(self._device, variables[0])
        self.training.applying(optimizer, gradients, variables)
        if self.sampling.close:
            scale = self.training.scale_of(optimizer)
            self.gradients.before(self._parameters(optimizer, gradients, variables), scale, scaled=self.training.scaling)

    def step(self) -> None:
        """A step may be over: note it, and decide whether the next one is looked at."""
        made = self._recorder.made
        try:
            self.training.stepped()
        finally:
            if self._recorder.made > made:
                self._stepped = True
                self.stop_looking()
                self.sampling.done()
                self.spent = False

    @property
    def made(self) -> int:
        """How many steps are noted."""
        return self._recorder.made

    def returned(self, result: Any) -> None:
        """A function of the program has run, which may have made a step; a single number is its loss."""
        if self.training.loss is None and getattr(result, "shape", None) == () and hasattr(result, "numpy"):
            self.training.loss = self.backend.number(result)
        self.step()

    def _watch_models(self) -> None:
        model = self._keras.Model
        fit, ready = model.fit, model.compile
        watch = self

        class Batches(self._keras.callbacks.Callback):  # type: ignore[name-defined, misc]
            """Notes the step of each batch."""

            def __init__(self) -> None:
                super().__init__()
                self.losses = FitLosses()

            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.losses.begin()
                watch.sampling.put_off()

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                watch.training.loss = self.losses.of_batch(self.model, batch, logs)
                watch.step()

        @wraps(fit)
        def fitting(this: Any, *args: Any, **options: Any) -> Any:
            callbacks = options.get("callbacks")
            given = getattr(callbacks, "callbacks", callbacks) or []
            options["callbacks"] = [Batches(), *(given if isinstance(given, list | tuple) else [given])]
            self.training.fitted, self.fitting = self._places.here(), True
            try:
                return fit(this, *args, **options)
            finally:
                self.training.fitted, self.fitting = None, False

        @wraps(ready)
        def compiling(this: Any, *args: Any, **options: Any) -> Any:
            self.training.compiled = self._places.here()
            return ready(this, *args, **options)

        model.fit, model.compile = fitting, compiling

    def _watch_backward(self) -> None:
        import torch

        back = torch.autograd.backward
        training = self.training

        @wraps(back)
        def going_back(tensors: Any, *args: Any, **options: Any) -> None:
            training.phase = "backward"
            training.units.paused = True
            try:
                back(tensors, *args, **options)
            finally:
                training.units.paused = False
            training.phase = "update"

        torch.autograd.backward = going_back

    def end(self) -> None:
        """Tell what was summed up."""
        self.stop_looking()
        if not self._stepped and not self.values.counts:
            return  # Keras is imported alone, as by what writes for TensorBoard, and another probe watches
        self.gradients.end()
        self.work.end()
        self.ranges.end()
        headroom = sorted(self.values.headroom.items(), key=lambda item: -item[1])[:SHOWN]
        self._recorder.fact("headroom", headroom)
        self._recorder.fact("operations", self.values.counts)
        self._recorder.fact("looked_at", self.sampling.looked_at)
        self._recorder.fact("looked_in_part", self._in_part)
