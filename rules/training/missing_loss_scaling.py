"""MP301: gradients of a float16 forward pass are computed without loss scaling."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from mplint.findings import Applicability, Confidence, Finding, Severity
from mplint.rule import Rule
from mplint.source.file import SourceFile
from mplint.source.torch.autocast import Region
from mplint.source.torch.forward import region_behind
from mplint.source.torch.gradients import RESCALE
from mplint.source.torch.loop import BACKWARD, STEP, ZERO_GRAD, Act, TrainingLoop, receiver

from . import keras_loops
from .torch_scaler_fix import scale_the_loss

# Any of these says that something in the program scales the loss, or could.
SCALING = re.compile(
    r"\b\w*?(?<!standard)(?<!minmax)(?<!robust)(?<!maxabs)(?:scaler|loss_?scale|scale_?loss|scaled_?loss)\w*", re.IGNORECASE
)


class MissingLossScaling(Rule):
    """
    ## What it does
    Finds training in float16 without loss scaling: in PyTorch a loss from a float16 autocast region whose plain `backward()` feeds an
    optimizer's step; in Keras and TensorFlow gradients of a loss under `mixed_float16` that no LossScaleOptimizer scales. `fit()` scales
    by itself, but only where the model's own policy is mixed_float16: layers that get the policy one by one, a `DTypePolicyMap` and
    optimizers that go through an overridden `compile()` are reported as warnings.

    ## Why is this bad?
    Gradients below 6e-8 are 0 in float16, and those below 6e-5 lose bits. Activation gradients are often that small: parts of the network
    stop learning, without an error. A loss scale, 65536 to begin with in PyTorch and 32768 in Keras, lifts them into range.

    ## Example
    ```python
    import torch

    def train(model, loader):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
    ```
    ```python
    import tensorflow as tf

    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = tf.keras.Sequential([tf.keras.layers.Dense(128), tf.keras.layers.Dense(1, dtype="float32")])
    optimizer = tf.keras.optimizers.SGD(0.1)

    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    ```

    ## Use instead
    ```python
    import torch

    def train(model, loader):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```
    ```python
    import tensorflow as tf

    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = tf.keras.Sequential([tf.keras.layers.Dense(128), tf.keras.layers.Dense(1, dtype="float32")])
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))

    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            scaled_loss = optimizer.scale_loss(loss)  # get_scaled_loss in Keras 2, and get_unscaled_gradients below
        gradients = tape.gradient(scaled_loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    ```

    ## Fix safety
    Unsafe: the fix builds a scaler before the loop (or beside the optimizer of a class), and scales, unscales before clipping, steps and
    updates through it. Steps with infinite gradients are skipped from then on, and checkpoints should hold the scaler's state. There is
    no fix for several losses or optimizers. In Keras the fix wraps the optimizer and scales the loss in the tape, where the version of
    Keras is known; Keras 2 also unscales the gradients.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp301.py, for Keras by tests/witness/test_mp301_keras.py

    ## References
    - <https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling>
    - <https://arxiv.org/abs/1710.03740>
    - <https://www.tensorflow.org/guide/mixed_precision#training_the_model_with_a_custom_training_loop>
    """

    code = "MP301"
    name = "missing-loss-scaling"
    severity = Severity.ERROR
    fix = Applicability.UNSAFE
    frameworks = ("torch", "keras")
    tokens = ("autocast", *keras_loops.TOKENS)

    def check_source(self, file: SourceFile) -> Iterator[Finding]:
        """Report the backward passes and tapes whose float16 gradients nothing scales."""
        text = file.document.text
        if "autocast" in text and ".backward(" in text and ".step(" in text and not SCALING.search(text):
            yield from self._torch(file)
        yield from keras_loops.missing_loss_scaling(self, file)

    def _torch(self, file: SourceFile) -> Iterator[Finding]:
        loop = file.torch.loop
        if loop.optimizers.managed or loop.scalers.built or loop.scalers.used:
            return
        cases: dict[ast.AST, Case] = {}
        for path in loop.paths():
            for index, act in enumerate(path):
                step = step_after(path, index) if act.kind == BACKWARD else None
                if step is not None and act.node not in cases and (region := float16_region(file, loop, act)) is not None:
                    cases[act.node] = Case(act, step, region)
        for node, case in cases.items():
            sure = case.region.sure
            yield self.finding(
                file,
                node,
                f"`{file.text(node)}` computes gradients of a float16 forward pass, and nothing scales the loss",
                why="float16 gradients below 6e-8 become 0; a loss scale, 65536 to begin with, would lift them",
                help="scale the loss with `torch.amp.GradScaler`, and step and update through it",
                confidence=Confidence.HIGH if sure else Confidence.MEDIUM,
                related=(
                    (case.region.expression, "autocast runs the forward pass in float16 here"),
                    (case.step.node, "the optimizer applies the gradients here"),
                ),
                fix=scale_the_loss(file, loop, case.act, case.step, case.region) if len(cases) == 1 else None,
            )


class Case(NamedTuple):
    """A plain backward, the step that applies its gradients, and the float16 region of its forward."""

    act: Act
    step: Act
    region: Region


def step_after(path: tuple[Act, ...], index: int) -> Act | None:
    """The optimizer's step that applies the gradients of a backward, where nothing rescales them by hand."""
    for act in path[index + 1 :]:
        if act.kind == STEP:
            return act
        if act.kind in (RESCALE, ZERO_GRAD):
            return None
    return None


def float16_region(file: SourceFile, loop: TrainingLoop, act: Act) -> Region | None:
    """The region that certainly runs the forward in float16 wherever it is enabled."""
    loss = receiver(act)
    if loss is None or any(isinstance(n, ast.Mult) for n in ast.walk(loss)):
        return None
    region = loop.region_around(act) or region_behind(file, loop.scalers.subjects.bound(loss, act.calls)[0])
    if region is None or region.foreign:
        return None
    lowered = [autocast for autocast in region.autocasts if autocast.half]
    return region if lowered and all(autocast.dtypes == {"float16"} for autocast in lowered) else None
