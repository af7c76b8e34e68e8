"""MP105 pure-half-policy."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import AddImport, Applicability, Change, Confidence, Finding, Fix, Replace, Severity
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, constant_of, possible
from mplint.program.values import State, Step
from mplint.rule import Rule
from mplint.source.file import SourceFile
from mplint.source.framework_names import keras_path
from mplint.source.keras.policy import KerasPolicy
from mplint.source.keras.policy_names import Setter
from mplint.source.keras.purpose import last_name, purpose
from mplint.source.torch.half_training import HalfTraining
from mplint.source.values import UNKNOWN

PURE = ("float16", "half")
CONFIDENCE = {"trains": Confidence.HIGH, "open": Confidence.MEDIUM, "runs": None}
TORCH_INFERENCE = {"no_grad", "inference_mode", "eval", "generate", "from_pretrained", "load_state_dict"}
WHY = "A float16 weight loses every update below 1/2048 of its value, and gradients under 6e-8 become 0: training stalls or diverges."

MIXED = {"mixed_float16", "mixed_bfloat16"}
DEFAULTS = ("torch.set_default_dtype", "torch.set_default_tensor_type")


def is_plain(entry: Entry, event: Event) -> bool:
    """Whether the optimizer applies gradients that come from a backward pass as they are."""
    step = next((e for e in entry.of("optimizer step") if e.place == event.place and e.path <= event.path), None)
    if step is None:
        return False
    states = [state.data[0] for _, state in possible(step.data["gradients"], event.path) if type(state) is State]  # type: ignore[arg-type, index]
    return "plain" in states


def is_named_by_user(trace: Trace, event: Event) -> bool:
    """Whether a flag whose choices are dtypes has to name float16: what else than its default a flag names is its user's choice."""
    for (kind, *rest), sense in event.path:
        switch = trace.switches.get(rest[0]) if kind == "in" and sense else None
        if switch is not None and switch.choices and rest[1] <= set(PURE) and rest[1].isdisjoint(constant_of(switch.default) or ()):
            return True
    return False


def has_mixed_policy(file: SourceFile, setter: Setter) -> bool:
    """Whether a mixed policy is set wherever the default dtype is: layers follow the policy, and keep their weights in float32."""
    others = [s for s in file.fact(KerasPolicy).setters.values() if s.kind == "policy" and s.names and s.names <= MIXED]
    return any(file.names.runs_with(s.node, setter.node) for s in others)


class PureHalfPolicy(Rule):
    """Training in pure float16, without float32 master weights

    ## What it does
    Finds training in pure float16: `set_floatx("float16")`, the Keras policy `"float16"`, `torch.set_default_dtype(torch.float16)`, and a
    module turned into float16 by `.half()` or `.to(torch.float16)` whose parameters an optimizer then updates without float32 master
    weights.

    ## Why is this bad?
    A float16 weight keeps 11 significant bits: an update smaller than 1/2048 of the weight is rounded away, gradients under 6e-8 become 0
    and values above 65504 become infinite. Mixed precision keeps the weights in float32 and computes in float16, at the same speed.

    ## Example
    ```python
    import tensorflow as tf

    tf.keras.backend.set_floatx("float16")
    model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(1, dtype="float32")])
    model.compile("sgd", "mse")
    ```

    ## Use instead
    ```python
    import tensorflow as tf

    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(1, dtype="float32")])
    model.compile("sgd", "mse")
    ```

    ## Fix safety
    Unsafe: the weights become float32, which changes the numbers and doubles the memory they take. Not offered for PyTorch modules, where
    the training step has to be put under `torch.autocast` as well.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp105.py.

    ## References
    - https://arxiv.org/abs/1710.03740
    - https://keras.io/api/utils/config_utils/
    """

    code = "MP105"
    name = "pure-half-policy"
    severity = Severity.ERROR
    fix = Applicability.UNSAFE
    frameworks = ("keras", "torch")
    tokens = ("float16", "half")
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report the places that put parameters in float16 which a plain step then updates."""
        for entry in trace.entries:
            for event in entry.of("half parameters"):
                if event.data["how"] != "optimizer step" or not is_plain(entry, event) or is_named_by_user(trace, event):
                    continue
                chain = event.data["chain"]
                last = chain[-1]  # type: ignore[index]
                verdict = trace.verdict(entry, event.path)
                yield self.at(
                    trace,
                    last.place,
                    f"these weights are trained in pure float16{verdict.condition()}",
                    why=WHY,
                    help="keep the weights in float32 and run the forward pass under `torch.autocast`, with a GradScaler",
                    confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                    steps=(*chain[:-1], Step(event.place, "the optimizer updates the float16 weights here")),  # type: ignore[index]
                )

    def check_source(self, file: SourceFile) -> Iterator[Finding]:
        """Report global settings, then trained modules."""
        severity = Severity.INFO if file.is_test else None
        for setter in file.fact(KerasPolicy).setters.values():
            if not set(PURE) & setter.names or UNKNOWN in setter.names or self._is_left_again(file, setter):
                continue
            if setter.kind == "floatx" and has_mixed_policy(file, setter):
                continue
            confidence = CONFIDENCE[purpose(file)]
            if confidence is not None:
                text = file.text(setter.node.func)
                message = f"`{text}` makes every weight float16, not only the computation"
                help = 'use `keras.mixed_precision.set_global_policy("mixed_float16")`'
                fix = self._fix(file, setter)
                yield self.finding(file, setter.node, message, why=WHY, help=help, severity=severity, confidence=confidence, fix=fix)
        yield from self._defaults(file, severity)
        for conversion in HalfTraining(file).conversions:
            receiver = conversion.node.func.value if isinstance(conversion.node.func, ast.Attribute) else conversion.module
            module = file.text(receiver if isinstance(receiver, (ast.Name, ast.Attribute)) else conversion.module)
            yield self.finding(
                file,
                conversion.node,
                f"`{module}` is trained in pure float16: its weights are converted and then updated by the optimizer",
                why=WHY,
                help="keep the weights in float32 and run the forward pass under `torch.autocast`, with a GradScaler",
                severity=severity,
                confidence=Confidence.HIGH if conversion.certain else Confidence.MEDIUM,
                related=((conversion.optimizer, "the optimizer updates the float16 weights"),),
            )

    def _defaults(self, file: SourceFile, severity: Severity | None) -> Iterator[Finding]:
        setters = [
            c
            for c in file.names.calls_of("set_default_dtype", "set_default_tensor_type")
            if c.args and file.names.resolve(c.func) in DEFAULTS
        ]
        halves = [call for call in setters if file.values.dtypes(call.args[0]) == {"float16"}]
        if len(halves) == len(setters):  # a call that sets it back limits the float16 part
            for call in halves:
                confidence = self._confidence(file)
                if confidence is not None:
                    message = f"`{file.text(call)}` makes every new parameter float16"
                    help = "leave the default at float32 and run the forward pass under `torch.autocast`"
                    yield self.finding(file, call, message, why=WHY, help=help, severity=severity, confidence=confidence)

    def _confidence(self, file: SourceFile) -> Confidence | None:
        """High where the torch program trains, None where it only runs a model, medium where nothing says."""
        called = {name for call in file.syntax.all(ast.Call) if (name := last_name(call.func)) is not None}
        if "backward" in called:
            return Confidence.HIGH
        return None if called & TORCH_INFERENCE else Confidence.MEDIUM

    def _is_left_again(self, file: SourceFile, setter: Setter) -> bool:
        """Whether the same function (or module level) goes on to set another policy."""
        own = file.syntax.function(setter.node)
        others = [s for s in file.fact(KerasPolicy).setters.values() if s.kind == setter.kind and file.syntax.function(s.node) is own]
        return any(s.node.lineno > setter.node.lineno and not set(PURE) & s.names for s in others)

    def _fix(self, file: SourceFile, setter: Setter) -> Fix | None:
        title, span = 'use the policy "mixed_float16"', file.span(setter.node)
        if setter.kind == "policy":
            literals = [d for d in file.values.definitions(setter.value) if isinstance(d, ast.Constant)]
            if len(literals) != 1 or literals[0].value not in PURE:
                return None
            return Fix(title, Applicability.UNSAFE, (Replace(file.span(literals[0]), '"mixed_float16"'),))
        func, changes = setter.node.func, list[Change]()
        if not isinstance(setter.value, ast.Constant) or not isinstance(func, ast.Attribute):
            return None
        home = func.value
        if (file.names.resolve(home) or "").startswith("keras.src"):  # the private home of the code has no such module
            return None
        if isinstance(home, ast.Attribute) and home.attr in ("backend", "config") and keras_path(file.names.resolve(home.value)) == "":
            prefix = f"{file.text(home.value)}.mixed_precision"
        else:
            package = (file.names.resolve(home) or "").rpartition(".")[0]
            if keras_path(package) != "":
                return None
            prefix = "mixed_precision"
            changes.append(AddImport(package, "mixed_precision"))
        changes.insert(0, Replace(span, f'{prefix}.set_global_policy("mixed_float16")'))
        return Fix(title, Applicability.UNSAFE, tuple(changes))
