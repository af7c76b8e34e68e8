"""Notes the steps of Keras loops that are written by hand: tapes of TensorFlow, backward passes of torch, `train_on_batch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol

from mplint.runs.devices import Device

if TYPE_CHECKING:
    from types import ModuleType

    from mplint.runs.record import Recorder


class Backend(Protocol):
    """What a loop's backend says of it."""

    def watch(self, loops: Loops) -> None:
        """Have `differentiated` called with what gradients are taken of, and `looked` when something of the program has run."""

    def symbolic(self) -> bool:
        """Whether a function is traced: nothing is computed."""

    def losses(self) -> float | None:
        """The mean of the losses since this was last asked."""

    def differentiated(self, loss: Any) -> None:
        """Gradients of a loss are taken, which is given as it was before it was scaled."""

    def on_device(self, weight: Any) -> None:
        """Tell the device that a weight is on, and wait for it."""


class Loops:
    """The steps of the first optimizer that the program calls by itself: they are read off what that has counted."""

    def __init__(self, keras: ModuleType, recorder: Recorder, backend: Backend, policy: str) -> None:
        self._recorder = recorder
        self._policy = policy
        self._backend = backend
        self._first: Any = None
        self._counted = 0
        self._scale: float | None = None
        self._inside = 0
        self._unscaled: dict[int, tuple[Any, Any]] = {}
        self.paused = False  # `fit` goes on, whose batches are noted
        self._watch(keras)
        backend.watch(self)

    def _watch(self, keras: ModuleType) -> None:
        from keras.src.optimizers.base_optimizer import BaseOptimizer

        loops = self

        def watched(apply: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(apply)
            def applying(optimizer: Any, *args: Any, **options: Any) -> Any:
                loops._inside += 1
                try:
                    result = apply(optimizer, *args, **options)
                finally:
                    loops._inside -= 1
                if not loops._inside and not loops.paused:
                    loops._first = loops._first or optimizer
                    if not loops._backend.symbolic():
                        loops.looked()
                return result

            return applying

        scaler = keras.mixed_precision.LossScaleOptimizer
        for kind in (BaseOptimizer, scaler):
            kind.apply = watched(kind.apply)
        scale = scaler.scale_loss

        def scaling(optimizer: Any, loss: Any) -> Any:
            result = scale(optimizer, loss)
            if not loops.paused:
                loops._unscaled[id(result)] = result, loss
            return result

        scaler.scale_loss = scaling

    def differentiated(self, loss: Any) -> None:
        """Gradients of something are taken: of a scalar, that is a loss."""
        if not self.paused and tuple(getattr(loss, "shape", (0,))) == ():
            self._backend.differentiated(self._unscaled[id(loss)][1] if id(loss) in self._unscaled else loss)
        self._unscaled.clear()

    def on_device(self, variables: Sequence[Any]) -> None:
        """Tell the device that variables are trained on, and wait until it is done."""
        if variables:
            self._backend.on_device(variables[0].value)

    def looked(self) -> None:
        """Note the steps that were made since this was last called."""
        if self.paused or self._first is None or not self._first.built:
            return
        counted, scale = int(self._first.iterations), scale_of(self._first, self._policy)
        before = self._scale if self._scale is not None else getattr(self._first, "initial_scale", 0.0)
        skipped = scale is not None and counted == self._counted and scale < before
        made, self._counted, self._scale = counted - self._counted, counted, scale
        if made or skipped:
            self.on_device(self._first._trainable_variables)
            self._recorder.step(self._backend.losses(), scale, skipped, times=max(1, made))


def scale_of(optimizer: Any, policy: str) -> float | None:
    """The loss scale of an optimizer, None for one that has none, and under a policy that needs none."""
    held = getattr(optimizer, "dynamic_scale", None) if policy == "mixed_float16" else None
    return None if held is None else float(held)


class TensorFlow:
    """Losses are summed up in variables, which compiled functions can write to as well."""

    def __init__(self, recorder: Recorder) -> None:
        self._sums: list[Any] = []
        self._device = Device(recorder)

    def watch(self, loops: Loops) -> None:
        """See gradients that tapes take, and functions that return."""
        from tensorflow.python.eager import backprop
        from tensorflow.python.eager.polymorphic_function import polymorphic_function

        tape, function = backprop.GradientTape, polymorphic_function.Function
        gradient, call = tape.gradient, function.__call__
        inside: list[object] = []

        @wraps(gradient)
        def taking(this: Any, target: Any, *args: Any, **options: Any) -> Any:
            result = gradient(this, target, *args, **options)
            loops.differentiated(target)
            return result

        @wraps(call)
        def calling(this: Any, *args: Any, **options: Any) -> Any:
            if inside or self.symbolic():
                return call(this, *args, **options)
            inside.append(this)
            try:
                result = call(this, *args, **options)
            finally:
                inside.clear()
            loops.looked()
            return result

        tape.gradient, function.__call__ = taking, calling

    def symbolic(self) -> bool:
        """Whether a function is traced."""
        import tensorflow as tf

        return bool(tf.inside_function())

    def differentiated(self, loss: Any) -> None:
        """Add a loss to the sum, in the graph that is built where one is."""
        import tensorflow as tf

        if tf.distribute.has_strategy():
            return  # a variable of one replica would be another one's
        if not self._sums:
            with tf.init_scope():
                self._sums += [tf.Variable(0.0), tf.Variable(0.0)]
        self._sums[0].assign_add(tf.cast(loss, tf.float32))
        self._sums[1].assign_add(1.0)

    def on_device(self, weight: Any) -> None:
        """Tell the device that a weight is on, and wait for it."""
        import tensorflow as tf

        self._device.tensorflow(weight)
        tf.test.experimental.sync_devices()

    def losses(self) -> float | None:
        """The mean of the losses since this was last asked."""
        total, number = (float(each.numpy()) for each in self._sums) if self._sums else (0.0, 0.0)
        for each in self._sums:
            each.assign(0.0)
        return total / number if number else None


class Torch:
    """Everything runs at once."""

    def __init__(self, recorder: Recorder) -> None:
        self._losses: list[Any] = []
        self._device = Device(recorder)

    def watch(self, loops: Loops) -> None:
        """See backward passes."""
        import torch

        backward = torch.autograd.backward

        def watched(tensors: Any, *args: Any, **options: Any) -> Any:
            for tensor in (tensors,) if isinstance(tensors, torch.Tensor) else tensors:
                loops.differentiated(tensor)
            return backward(tensors, *args, **options)

        torch.autograd.backward = watched

    def symbolic(self) -> bool:
        """Nothing is traced."""
        return False

    def differentiated(self, loss: Any) -> None:
        """Keep a loss."""
        self._losses.append(loss.detach())

    def on_device(self, weight: Any) -> None:
        """Tell the device that a weight is on, and wait for it."""
        import torch

        self._device.torch(torch, weight)
        if weight.is_cuda:
            torch.cuda.synchronize()

    def losses(self) -> float | None:
        """The mean of the losses since this was last asked."""
        found = [float(loss) for loss in self._losses]
        self._losses.clear()
        return sum(found) / len(found) if found else None
