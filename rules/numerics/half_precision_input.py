"""MP203: a Keras input that is declared in half precision."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mplint.findings import Applicability, Confidence, Finding, Fix, Severity
from mplint.frameworks.keras.evidence import imports, programs
from mplint.frameworks.keras.policies import MIXED, OPEN, written_letter
from mplint.program.conditions import Path
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import BFLOAT, DTYPE_NAMES, HALF, Place, State, Step
from mplint.program.verdict import Verdict
from mplint.python.arguments import drop_argument
from mplint.python.document import is_test_path
from mplint.python.syntax import argument
from mplint.rule import Consequence, Rule

if TYPE_CHECKING:
    from mplint.graph.facts import GraphFacts

LOSSES = {
    "float16": "float16 keeps 11 bits and turns values above 65504 into inf before the first layer",
    "bfloat16": "bfloat16 keeps 8 bits: of the 65536 levels of a 16-bit image at most a few thousand are left",
}


class HalfPrecisionInput(Rule):
    """Model input declared in half precision

    ## What it does
    Finds `keras.Input(dtype="float16")` and the same with bfloat16.
    In model graphs: inputs of half type, unless they are states (their names say so, or recurrent layers begin with them) or what another
    model computed.

    ## Why is this bad?
    A mixed policy needs no half inputs: every layer casts the floating tensors it gets to its compute dtype. Declared in
    float16, the data are rounded to 11 bits and values above 65504 become inf before any layer sees them, layers that
    are kept in float32 (normalization of raw features) included.

    ## Example
    ```python
    from tensorflow import keras

    keras.mixed_precision.set_global_policy("mixed_float16")
    image = keras.Input(shape=(224, 224, 3), dtype="float16")
    ```

    ## Use instead
    ```python
    from tensorflow import keras

    keras.mixed_precision.set_global_policy("mixed_float16")
    image = keras.Input(shape=(224, 224, 3))
    ```

    ## Fix safety
    Safe: the argument goes, the input is float32, and the first layer casts what it gets. Float16 arrays are still accepted.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp203.py (Keras 3).

    ## References
    - <https://www.tensorflow.org/guide/mixed_precision#building_the_model>
    """

    code = "MP203"
    name = "half-precision-input"
    severity = Severity.WARNING
    fix = Applicability.SAFE
    frameworks = ("keras",)
    graphs = True
    program = True
    tokens = ("Input",)
    adoption = Consequence("the input stays float32; the layers cast it themselves", mends=True)

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield the inputs of a model that take data in half."""
        from mplint.graph.ends import half_inputs

        for name, tensor in half_inputs(graph):
            yield self.graph_finding(
                graph,
                tensor,
                f"the input {name} is {tensor.described}",
                why=LOSSES.get(tensor.dtype or "", LOSSES["float16"]),
                help="Declare the input float32 and let the model cast it.",
            )

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Yield the inputs whose dtype is half by name, where a mixed policy is set, or an excerpt shows none."""
        for entry, event in trace.of("input made"):
            for path, letter in half_dtypes(event):
                finding = self._input(trace, entry, event, path, DTYPE_NAMES[letter])
                if finding is not None:
                    yield finding
                    break

    def _input(self, trace: Trace, entry: Entry, event: Event, path: Path, dtype: str) -> Finding | None:
        set_at, verdict = policy_of(trace, entry, event, path)
        if set_at is None and not is_excerpt(trace, event.place.path):
            return None
        sure = verdict is not None and verdict.proven
        return self.at(
            trace,
            event.place,
            f"`{trace.text(event.place).partition('(')[0]}` declares {dtype} data{verdict.condition() if verdict is not None else ''}",
            why=LOSSES[dtype] + ("; the layers cast float32 input to their compute dtype themselves." if set_at is not None else "."),
            help="Leave the input float32: drop the dtype argument.",
            severity=Severity.INFO if is_test_path(event.place.path) else None,
            confidence=Confidence.HIGH if sure and entry.script else Confidence.MEDIUM,
            steps=(Step(set_at, "the policy is set here"),) if set_at is not None else (),
            fix=without_dtype(trace, event.place),
        )


def half_dtypes(event: Event) -> list[tuple[Path, str]]:
    """The half dtypes that an input is given by name, on each path."""
    given = event.data["dtype"]
    found = [(path, written_letter(atom)) for path, atom in possible(given, event.path)] if given is not None else []  # type: ignore[arg-type]
    return [(path, letter) for path, letter in found if letter in (HALF, BFLOAT)]


def policy_of(trace: Trace, entry: Entry, event: Event, path: Path) -> tuple[Place | None, Verdict | None]:
    """Where the mixed policy is set under which an input is made, and how sure it is; (None, None) where there is none.

    Library code runs under the policy of the programs that it is connected with.
    """
    for both, policy in possible(event.data["policy"], path):  # type: ignore[arg-type]
        name, place = policy.data if type(policy) is State and isinstance(policy.data, tuple) else ("", None)
        if name in MIXED and isinstance(place, Place):
            return place, trace.verdict(entry, both)
        if name == OPEN and not programs(trace).is_program(event.place.path):
            near = programs(trace).connected(event.place.path)
            around = [p for p in programs(trace).policies if p.place.path in near and not is_test_path(p.place.path)]
            if around and all(p.name in MIXED for p in around):
                return around[0].place, around[0].verdict
    return None, None


def is_excerpt(trace: Trace, path: str) -> bool:
    """Whether a program imports nothing: the policy stands in the part that is not shown."""
    ir = trace.project.ir(path) if trace.project is not None else None
    return ir is not None and not any(True for _ in imports(ir))


def without_dtype(trace: Trace, place: Place) -> Fix | None:
    """Leave out the dtype of an input."""
    found = trace.node(place)
    if found is None or not isinstance(found[1], ast.Call):
        return None
    file, call = found[0], found[1]
    given = argument(call, "dtype")
    if given is None:
        return None
    return Fix(f"drop dtype={file.text(given)}", Applicability.SAFE, (drop_argument(file, call, given),))
