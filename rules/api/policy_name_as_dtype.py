"""MP116: the name of a dtype policy, or the policy itself, where a dtype is wanted."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Fix, Replace, Severity, Span
from mplint.frameworks.keras.evidence import programs
from mplint.frameworks.keras.policies import DEFAULT, MIXED, OPEN
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import Object, Place, State, Step
from mplint.python.document import is_test_path
from mplint.rule import Rule


class PolicyNameAsDtype(Rule):
    """The name of a policy where a dtype is wanted

    ## What it does
    Finds `policy.name`, `dtype_policy().name` or a policy itself that is given as a dtype: to `cast`, `constant`, `astype`, `zeros` and
    the like; and comparisons of a policy's name with `"float16"` alone.

    ## Why is this bad?
    The name of a mixed policy is `"mixed_float16"`, which is no dtype: TensorFlow raises TypeError ("Cannot convert 'mixed_float16' to a
    TensorFlow DType"), numpy does as well. It works as long as the policy is float32. A comparison with `"float16"` is never true under
    `mixed_float16`, so that what it guards never runs.

    ## Example
    ```python
    import keras
    from keras import ops

    keras.mixed_precision.set_global_policy("mixed_float16")

    def positions(length):
        return ops.cast(ops.arange(length), keras.mixed_precision.dtype_policy().name)
    ```

    ## Use instead
    ```python
    import keras
    from keras import ops

    keras.mixed_precision.set_global_policy("mixed_float16")

    def positions(length):
        return ops.cast(ops.arange(length), keras.mixed_precision.dtype_policy().compute_dtype)
    ```

    ## Fix safety
    Safe: `compute_dtype` is `"float32"` under a float32 policy, as the name is, and under a mixed policy the line could not run. Unsafe
    for a comparison: what was never true under a mixed policy is then, and the program goes another way.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp116.py.

    ## References
    - https://keras.io/api/mixed_precision/policy/
    """

    code = "MP116"
    name = "policy-name-as-dtype"
    severity = Severity.ERROR
    fix = Applicability.SAFE
    frameworks = ("keras",)
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each policy or name of one that is used as a dtype, where it is read."""
        for entry, event in trace.of("policy as dtype", "policy compared"):
            finding = self.judge(trace, entry, event)
            if finding is not None:
                yield finding

    def judge(self, trace: Trace, entry: Entry, event: Event) -> Finding | None:
        """The finding of one use, where the policy may be a mixed one."""
        known = programs(trace)
        certain = opened = False
        verdict = trace.verdict(entry, event.path)
        for path, atom in possible(event.data["policy"], event.path):  # type: ignore[arg-type]
            name = str(atom.data[0]) if type(atom) is State else ""  # type: ignore[index]
            if name in MIXED and not certain:
                certain, verdict = True, trace.verdict(entry, path)
            opened = opened or name == OPEN or (atom == DEFAULT and known.is_library(event.place.path))
        if not certain and not (opened and known.in_mind(event.place.path)):
            return None
        compared = event.kind == "policy compared"
        if compared and not certain and not known.policies:
            return None
        given = event.data["name" if compared else "given"]
        if type(given) is not Object or given.made is None:
            return None
        place = given.made if given.kind == "policy name" else event.data.get("where") or event.place
        assert isinstance(place, Place)
        text = " ".join(trace.text(place).split())
        words = "is compared with a dtype" if compared else "is used as a dtype"
        steps = (
            ()
            if place.path == event.place.path and trace.span(place).line == trace.span(event.place).line
            else (Step(event.place, "it is compared here" if compared else "it is used as a dtype here"),)
        )
        return self.at(
            trace,
            place,
            f"`{text}` {words}, and a mixed policy's name is none{verdict.condition() if certain else ''}",
            why='under a mixed policy it is "mixed_float16": casts and constructors raise, comparisons with "float16" are never true.',
            help="take the policy's `compute_dtype`",
            severity=Severity.INFO if is_test_path(place.path) else None,
            confidence=Confidence.HIGH if certain and verdict.proven else Confidence.MEDIUM,
            steps=steps,
            fix=repair(trace, place, given, Applicability.UNSAFE if compared else Applicability.SAFE),
        )


def repair(trace: Trace, place: Place, given: Object, how: Applicability) -> Fix | None:
    """`.compute_dtype` in place of `.name`, or behind the policy."""
    line, column = trace.span(place)[2:]
    text = trace.text(place)
    if given.kind == "policy":
        if not text.replace(".", "").replace("_", "").isalnum():
            return None
        return Fix("take the policy's compute dtype", how, (Replace(Span(line, column, line, column), ".compute_dtype"),))
    if not text.endswith(".name"):
        return None
    change = Replace(Span(line, column - len("name"), line, column), "compute_dtype")
    return Fix("take the policy's compute dtype", how, (change,))
