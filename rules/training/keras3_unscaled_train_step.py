"""MP313: a Keras 3 LossScaleOptimizer divides gradients by a scale that the loss was never multiplied by."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Fix, Severity
from mplint.frameworks.keras import steps as keras_steps
from mplint.frameworks.keras.evidence import programs
from mplint.frameworks.keras.steps import Misused
from mplint.frameworks.keras.versions import loop_major
from mplint.frameworks.projects import policy_around
from mplint.program.trace import Entry, Trace
from mplint.program.values import Constant, Step
from mplint.recipes.loss_in_tape import loop_of, scale_in_tape
from mplint.rule import Consequence, Rule

SCALING = frozenset(["scale_loss", "get_scaled_loss"])  # words of programs in which a loss that nobody knows may be scaled


class Keras3UnscaledTrainStep(Rule):
    """A Keras 3 training loop that never scales the loss

    ## What it does
    Finds custom training loops under Keras 3 that hand gradients to a loss-scaling optimizer without scaling the loss:
    a `train_step` that applies them to `self.optimizer` under a mixed_float16 policy, where `compile()` wraps the optimizer
    in a `LossScaleOptimizer`; a loop around an explicit `LossScaleOptimizer`; an optimizer with `loss_scale_factor=`. The
    gradients may come from a TensorFlow tape or, on the torch backend, from `loss.backward()`.

    ## Why is this bad?
    In Keras 3 `apply()` and `apply_gradients()` divide the gradients by the loss scale, 32768 to begin with. What was never
    multiplied is divided all the same, with no warning: a step of SGD that should move a weight from 1 to 0.95 leaves it at
    0.9999985, and Adam's epsilon swallows gradients that small. Small float16 gradients are lost as well, since nothing lifts them.

    ## Example
    ```python
    import keras
    import tensorflow as tf

    keras.config.set_dtype_policy("mixed_float16")

    class Classifier(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}
    ```

    ## Use instead
    ```python
    import keras
    import tensorflow as tf

    keras.config.set_dtype_policy("mixed_float16")

    class Classifier(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
                scaled_loss = self.optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled_loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}
    ```

    ## Fix safety
    Safe: `scale_loss` is what `fit()` itself calls, and it returns the loss unchanged where the optimizer doesn't scale. The
    scaled loss gets a name of its own where the loss is used again. Updates become 32768 times larger, which is their intended
    size; a learning rate that was raised to make up for it has to come down.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp313.py

    ## References
    - <https://keras.io/api/mixed_precision/loss_scale_optimizer/>
    - <https://keras.io/guides/custom_train_step_in_tensorflow/>
    """

    code = "MP313"
    name = "keras3-unscaled-train-step"
    severity = Severity.ERROR
    fix = Applicability.SAFE
    frameworks = ("keras",)
    tokens = ("GradientTape", ".backward(")

    program = True
    adoption = Consequence(mends=True, scaling=True)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each update through a loss-scaling optimizer whose loss no way scales."""
        for entry in trace.entries:
            if not entry.of("gradients applied"):
                continue
            plain = not programs(trace).connected_mention(entry.path, SCALING)
            policy = policy_around(trace, entry.path)
            mixed = policy is not None and policy.name == "mixed_float16"
            for misused in keras_steps.divided_unscaled(entry, plain, mixed):
                path = misused.event.place.path
                file = trace.file(path)
                if file is not None and loop_major(file, trace.targets(path)) == 3:
                    yield self._divided(trace, entry, misused)

    def _divided(self, trace: Trace, entry: Entry, misused: Misused) -> Finding:
        verdict = self.verdict(trace, entry, misused.path, misused.event.place)
        made = keras_steps.made_at(misused)
        factor = misused.event.data["factor"]
        held = loop_of(trace, misused.event, keras_steps.taken_at(entry, misused, plain=True))
        changes = scale_in_tape(*held, "scale_loss") if held is not None else None
        receiver = held[0].text(held[1].receiver) if held is not None else "optimizer"
        scale = f"its loss scale, {factor.value}," if isinstance(factor, Constant) else "the loss scale, 32768 to begin with,"
        made_here = "gets its fixed loss scale" if factor is not None else "becomes a LossScaleOptimizer"
        return self.at(
            trace,
            misused.event.place,
            f"`{trace.text(misused.event.place).partition('(')[0]}` divides by a loss scale that the loss was never multiplied by"
            + verdict.condition(),
            why=f"Keras 3 divides the gradients by {scale} whether they were scaled or not: training almost stands still, with no warning",
            help=f"scale the loss first, inside the tape if there is one: take the gradients of `{receiver}.scale_loss(loss)`",
            confidence=Confidence.HIGH if verdict.proven and entry.script else Confidence.MEDIUM,
            steps=(
                Step(misused.cause.place, "these gradients are of the loss as it is, not of the scaled loss"),
                *((Step(made, f"the optimizer {made_here} here"),) if made is not None else ()),
            ),
            fix=Fix(f"Scale the loss with `{receiver}.scale_loss`", Applicability.SAFE, changes) if changes else None,
        )
