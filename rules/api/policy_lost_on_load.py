"""MP114: a model saved under mixed_float16 is loaded for training under another policy."""

from __future__ import annotations

from collections.abc import Iterator
from os.path import dirname

from mplint.findings import Applicability, Confidence, Finding, Severity
from mplint.frameworks.keras.policies import OPEN, UNTOLD
from mplint.frameworks.projects import graph_of, policy_around
from mplint.program.trace import Entry, Trace
from mplint.program.values import Step
from mplint.python.document import is_test_path
from mplint.rule import Consequence, Rule

from .saved_models import Load, Save, loads, policy_names, saves

FLOAT16 = "mixed_float16"


class PolicyLostOnLoad(Rule):
    """A model saved under mixed_float16 and trained on under another policy

    ## What it does
    Finds whole models that are saved under the global policy `mixed_float16`, by this file or another one of the project, and loaded for
    further training where the global policy is another. Models that are loaded for inference only are not reported.

    ## Why is this bad?
    The layers keep their policies and go on in float16; the model itself takes the global policy of the moment, so that `compile()` adds no
    loss scaling. The optimizer's state is skipped with a warning ("10 variables whereas the saved optimizer has 14"): training resumes
    with step 0, empty moments, and gradients below 6e-8 that become 0.

    ## Example
    ```python
    import keras

    def train(data):
        keras.mixed_precision.set_global_policy("mixed_float16")
        model = keras.Sequential([keras.layers.Dense(256), keras.layers.Dense(10, dtype="float32")])
        model.compile("adam", "mse")
        model.fit(data)
        model.save("model.keras")

    def resume(data):
        keras.mixed_precision.set_global_policy("float32")
        model = keras.models.load_model("model.keras")
        model.fit(data)
    ```

    ## Use instead
    ```python
    import keras

    def train(data):
        keras.mixed_precision.set_global_policy("mixed_float16")
        model = keras.Sequential([keras.layers.Dense(256), keras.layers.Dense(10, dtype="float32")])
        model.compile("adam", "mse")
        model.fit(data)
        model.save("model.keras")

    def resume(data):
        keras.mixed_precision.set_global_policy("mixed_float16")
        model = keras.models.load_model("model.keras")
        model.fit(data)
    ```

    ## Fix safety
    No fix is applied: set the policy before the model is loaded; what else is built after it is for the program to say.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp114.py

    ## References
    - <https://keras.io/api/mixed_precision/policy/>
    """

    code = "MP114"
    name = "policy-lost-on-load"
    severity = Severity.WARNING
    fix = Applicability.DISPLAY
    frameworks = ("keras",)
    tokens = ("load_model",)
    program = True
    adoption = Consequence(fatal=False)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each trained model that is loaded under another policy than the one it is saved under, here or near by."""
        written = [(entry, save) for entry in trace.entries if not is_test_path(entry.path) for save in saves(entry)]
        for entry in trace.entries:
            for load in loads(entry):
                names = [name if name != OPEN else "float32" for name in load.policies]
                path = load.event.place.path
                if not names or FLOAT16 in names or UNTOLD in names or (OPEN in load.policies and policy_around(trace, path) is not None):
                    continue
                same = [(other, save) for other, save in written if save.file == load.file]
                own = [(other, save) for other, save in same if save.event.place.path == path]
                near = own or [(other, save) for other, save in same if is_near(trace, save.event.place.path, path)]
                if near and all(under_float16(trace, save) for _, save in near):
                    yield self._report(trace, entry, load, near[0][1], names)

    def _report(self, trace: Trace, entry: Entry, load: Load, save: Save, names: list[str]) -> Finding:
        lost = (
            "the restored optimizer has no loss scaling and none of its state"
            if load.compiled is None
            else "`compile()` adds no loss scaling"
        )
        own = save.event.place.path == load.event.place.path
        verdict = self.verdict(trace, entry, load.event.path, load.event.place)
        here = f"{' or '.join(sorted(names))}{verdict.condition()}"
        return self.at(
            trace,
            load.event.place,
            f"`{load.file}` was saved under mixed_float16 and is loaded for training under {here}",
            why=f"the layers stay in float16, but the model takes the policy in force here: {lost}, and gradients below 6e-8 become 0",
            help="set the global policy to mixed_float16 before the model is loaded",
            confidence=Confidence.HIGH if own and verdict.proven else Confidence.MEDIUM,
            steps=(
                Step(save.event.place, "the model is saved here, under mixed_float16"),
                Step(load.training.place, "the loaded model is trained here"),
            ),
        )


def is_near(trace: Trace, path: str, other: str) -> bool:
    """Whether two programs stand in one folder, or imports connect them."""
    graph = graph_of(trace)
    return dirname(path) == dirname(other) or not graph.above([path]).isdisjoint(graph.above([other]))


def under_float16(trace: Trace, save: Save) -> bool:
    """Whether a model is saved under mixed_float16 for sure, set by its own program or by those that run together with it."""
    names = policy_names(save.event.data["policy"], save.event.path)  # type: ignore[arg-type]
    if names == (OPEN,):
        policy = policy_around(trace, save.event.place.path)
        return policy is not None and policy.name == FLOAT16
    return names == (FLOAT16,)
