"""MP404: a mixed policy on Keras 2 without XLA."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mplint.findings import Confidence, Finding, Severity
from mplint.frameworks.keras.policies import compute_letter
from mplint.frameworks.keras.versions import keras_major
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import BFLOAT, HALF, NONE, TRUE, Place, State, Step
from mplint.python.document import is_test_path
from mplint.rule import Consequence, Rule

WHY = "XLA fuses the casts of mixed precision with their neighbors: BERT gained 2.5 times with both, 1.6 without XLA."
HELP = "Call `tf.config.optimizer.set_jit(True)`, or give `compile` `jit_compile=True` where this TensorFlow has it."
# Whoever writes one of these has decided about XLA, or runs on TPUs, where everything is compiled.
DECIDED = re.compile(r"jit|XLA|xla|experimental_compile|TPU|\btpu")


class XlaNotEnabled(Rule):
    """A mixed policy on Keras 2 without XLA

    ## What it does
    Finds `model.compile(...)` under a mixed policy in programs that run on Keras 2 and enable XLA nowhere: no `jit_compile`, no
    `tf.config.optimizer.set_jit`, no XLA flag in the environment. Says nothing under Keras 3, which compiles by itself where it can.

    ## Why is this bad?
    Mixed precision puts casts around many operations, and each is a kernel of its own that reads and writes memory. XLA fuses them with
    their neighbors. On a V100, BERT trained 1.4 to 1.6 times as fast with mixed precision alone and up to 2.5 times with XLA as well.

    ## Example
    ```python
    # fixture: tensorflow=2.10
    from tensorflow import keras

    keras.mixed_precision.set_global_policy("mixed_float16")
    model = keras.Sequential([keras.layers.Dense(1024), keras.layers.Dense(10, dtype="float32")])
    model.compile(optimizer="adam", loss="mse")
    ```

    ## Use instead
    ```python
    # fixture: tensorflow=2.10
    import tensorflow as tf
    from tensorflow import keras

    tf.config.optimizer.set_jit(True)
    keras.mixed_precision.set_global_policy("mixed_float16")
    model = keras.Sequential([keras.layers.Dense(1024), keras.layers.Dense(10, dtype="float32")])
    model.compile(optimizer="adam", loss="mse")
    ```

    ## Evidence
    Shows only on a GPU: time, not results. See the measurement below.

    ## References
    - <https://huggingface.co/transformers/v2.9.1/benchmarks.html>
    - <https://www.tensorflow.org/xla>
    - <https://www.tensorflow.org/api_docs/python/tf/config/optimizer/set_jit>
    """

    code = "MP404"
    name = "xla-not-enabled"
    severity = Severity.INFO
    frameworks = ("keras",)
    tokens = ("set_global_policy", "set_policy")
    program = True
    adoption = Consequence(speed=True)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Yield each `compile` under a mixed policy, where nothing in its program speaks of XLA."""
        for entry, event in trace.of("model compiled"):
            if not is_meant(trace, entry, event):
                continue
            for path, atom in possible(event.data["policy"], event.path):  # type: ignore[arg-type]
                name, where = atom.data if type(atom) is State and isinstance(atom.data, tuple) else ("", None)
                verdict = self.verdict(trace, entry, path, event.place)
                if compute_letter(str(name)) in (HALF, BFLOAT) and not verdict.dead:
                    yield self.at(
                        trace,
                        event.place,
                        f"the model trains under a mixed policy without XLA{verdict.condition()}",
                        why=WHY,
                        help=HELP,
                        confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                        steps=(Step(where, "the policy is set here"),) if isinstance(where, Place) else (),
                    )


def is_meant(trace: Trace, entry: Entry, event: Event) -> bool:
    """Whether a model is compiled for training on Keras 2 and a GPU, by a program that says nothing of XLA."""
    args, file = event.data["args"], trace.file(event.place.path)
    if file is None or is_test_path(event.place.path) or keras_major(file, trace.targets(event.place.path)) != 2:
        return False
    if any(event.data[name] in (None, NONE) for name in ("optimizer", "loss")) or args.named.get("run_eagerly") == TRUE:  # type: ignore[attr-defined]
        return False
    target = trace.targets(event.place.path).hardware
    if target is not None and target.kind != "cuda":
        return False
    return not any(DECIDED.search(trace.source(path).text) for path in {event.place.path, entry.path})
