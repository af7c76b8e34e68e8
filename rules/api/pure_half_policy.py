"""MP105 pure-half-policy."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from mplint.configs.trainers.setup import get
from mplint.findings import AddImport, Applicability, Change, Confidence, Finding, Fix, Replace, Severity
from mplint.frameworks.keras.evidence import programs
from mplint.frameworks.names import keras_path
from mplint.frameworks.trainers.written import Configured, WrittenOptions, setups, verdict_of
from mplint.program.conditions import Path, extend
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import HALF, NONE, Chain, DType, Place, State, Step
from mplint.program.verdict import Verdict
from mplint.python.document import is_test_path
from mplint.rule import Rule

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

PURE = ("float16", "half")
ONLY_APEX = "0.9"  # until this release of Lightning `precision=16` is apex where torch is older than 1.6
MIXED = ("mixed_float16", "mixed_bfloat16")
WHY = "A float16 weight loses every update below 1/2048 of its value, and gradients under 6e-8 become 0: training stalls or diverges."
STEPS = ("model fit", "gradients applied", "minimized", "tape gradients taken")
STORED = ("weights loaded", "model loaded")
# words of programs that only run models: what was trained before needs no float32 weights
KERAS_RUNS = frozenset(
    [
        "predict",
        "evaluate",
        "export",
        "from_keras_model",
        "from_saved_model",
        "load_model",
        "load_weights",
        "load_lora_weights",
        "set_weights",
    ]
)
TORCH_RUNS = frozenset(["no_grad", "inference_mode", "eval", "generate", "from_pretrained", "load_state_dict"])


class PureHalfPolicy(Rule):
    """Training in pure float16, without float32 master weights

    ## What it does
    Finds training in pure float16: `set_floatx("float16")`, the Keras policy `"float16"`, `torch.set_default_dtype(torch.float16)`, and a
    module turned into float16 by `.half()` or `.to(torch.float16)` whose parameters an optimizer then updates without float32 master
    weights. Also level O3 of apex, by `amp.initialize` or as `amp_level` of Lightning with apex.

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
    tokens = ("float16", "half", "O3")
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report global settings, then the places that put parameters in float16 which a plain step then updates."""
        for entry in trace.entries:
            for event in entry.of("policy set", "floatx set", "default dtype set"):
                path = pure_path(trace, entry, event)
                confidence = trained(trace, entry, event) if path is not None else None
                if path is None or confidence is None:
                    continue
                verdict = self.verdict(trace, entry, path, event.place)
                torch = event.kind == "default dtype set"
                what = "every new parameter float16" if torch else "every weight float16, not only the computation"
                yield self.at(
                    trace,
                    event.place,
                    f"`{trace.text(event.place) if torch else called(trace, event.place)}` makes {what}{verdict.condition()}",
                    why=WHY,
                    help="leave the default at float32 and run the forward pass under `torch.autocast`"
                    if torch
                    else 'use `keras.mixed_precision.set_global_policy("mixed_float16")`',
                    severity=Severity.INFO if is_test_path(event.place.path) else None,
                    confidence=confidence if verdict.proven else Confidence.MEDIUM,
                    fix=None if torch else mixed(trace, event),
                )
            yield from self._stepped(trace, entry)
            for event in entry.of("apex in pure half"):
                path = extend(event.path, event.data["guards"])  # type: ignore[arg-type]
                if path is not None:
                    yield self._of_apex(trace, event.place, "`apex.amp.initialize`", self.verdict(trace, entry, path, event.place))
        yield from self._of_lightning(trace)

    def _of_lightning(self, trace: Trace) -> Iterator[Finding]:
        """Trainers of Lightning that hand level O3 to apex: where they are told to use it, or of releases that have nothing else."""
        for found in setups(trace):
            if not is_pure_level(trace, found):
                continue
            options = found.setup.options
            early = get(options, "amp_backend") is None
            verdict = verdict_of(trace, found, partial(is_pure_level, trace))
            chosen = options.decided_at("amp_level") if isinstance(options, WrittenOptions) else None
            steps = (Step(found.event.place, "the trainer gets it here"),) if chosen is not None else ()
            what = f"`{found.setup.title}`{f' of Lightning before {ONLY_APEX}' if early else ''}"
            yield self._of_apex(trace, chosen or found.event.place, what, verdict, sure=not early, steps=steps)

    def _of_apex(self, trace: Trace, place: Place, what: str, verdict: Verdict, *, sure: bool = True, steps: Chain = ()) -> Finding:
        """Level O3 of apex."""
        return self.at(
            trace,
            place,
            f"{what} trains in pure float16 at level O3 of apex{verdict.condition()}",
            why=WHY,
            help="keep the weights in float32 (level O1), or run the forward pass under `torch.autocast`, with a GradScaler",
            severity=Severity.INFO if is_test_path(place.path) else None,
            confidence=Confidence.HIGH if verdict.proven and sure else Confidence.MEDIUM,
            steps=steps,
        )

    def _stepped(self, trace: Trace, entry: Entry) -> Iterator[Finding]:
        """The places that put parameters in float16 which a plain step then updates."""
        for event in entry.of("half parameters"):
            if event.data["how"] != "optimizer step" or event.data["created"]:  # what a program creates one by one is MP210's
                continue
            if not is_plain(entry, event) or is_asked_for(trace, event.path):
                continue
            chain = event.data["chain"]
            last = chain[-1]  # type: ignore[index]
            verdict = self.verdict(trace, entry, event.path, last.place)
            yield self.at(
                trace,
                last.place,
                f"these weights are trained in pure float16{verdict.condition()}",
                why=WHY,
                help="keep the weights in float32 and run the forward pass under `torch.autocast`, with a GradScaler",
                severity=Severity.INFO if is_test_path(last.place.path) else None,
                confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                steps=(*chain[:-1], Step(event.place, "the optimizer updates the float16 weights here")),  # type: ignore[index]
            )


def is_pure_level(trace: Trace, found: Configured) -> bool:
    """Whether a trainer of Lightning gives level O3 to apex, for float16."""
    options = found.setup.options
    level, backend, precision = get(options, "amp_level"), get(options, "amp_backend"), get(options, "precision")
    if found.setup.trainer != "lightning" or level is None or level.text != "O3" or precision is None or precision.text != "16":
        return False
    targets = trace.targets(trace.path_of(found.file))
    pinned, native = targets.trainer("lightning"), targets.torch is not None and targets.torch.at_least("1.6")
    early = backend is None and options.complete and not native and pinned is not None and pinned.before(ONLY_APEX)
    return early or (backend is not None and backend.text == "apex")


def is_plain(entry: Entry, event: Event) -> bool:
    """Whether the optimizer applies gradients that come from a backward pass as they are."""
    step = next((e for e in entry.of("optimizer step") if e.place == event.place and e.path <= event.path), None)
    if step is None:
        return False
    states = [state.data[0] for _, state in possible(step.data["gradients"], event.path) if type(state) is State]  # type: ignore[arg-type, index]
    return "plain" in states


def is_asked_for(trace: Trace, path: Path) -> bool:
    """Whether a path is taken only where the user names float16 in the place of another dtype."""
    for key, sense in path:
        if key[0] == "in" and sense and not key[2].isdisjoint(PURE) and key[1] in trace.switches:
            default = trace.switches[key[1]].default
            if default is not None and getattr(default, "value", None) not in key[2]:
                return True
    return False


# what is set for all


def pure_path(trace: Trace, entry: Entry, event: Event) -> Path | None:
    """The path on which a setting for the whole program is pure float16, and stays so; None where it is not."""
    value = event.data[{"policy set": "policy", "floatx set": "floatx"}.get(event.kind, "dtype")]
    ways = [path for path, atom in possible(value, event.path) if is_pure(atom)]  # type: ignore[arg-type]
    if not ways or is_asked_for(trace, ways[0]) or is_left_again(entry, event):
        return None
    if event.kind == "floatx set" and any(is_mixed(other, ways[0]) for other in entry.of("policy set")):
        return None  # layers follow the policy, whatever the default dtype
    return ways[0]


def is_pure(atom: object) -> bool:
    """Whether a policy or dtype is pure float16."""
    return atom == DType(HALF) or (type(atom) is State and isinstance(atom.data, tuple) and atom.data[0] in PURE)


def is_mixed(event: Event, path: Path) -> bool:
    """Whether a mixed policy is set on a path as well."""
    found = possible(event.data["policy"], event.path)  # type: ignore[arg-type]
    return any(type(a) is State and a.data[0] in MIXED and extend(path, p) is not None for p, a in found)  # type: ignore[index]


def is_left_again(entry: Entry, event: Event) -> bool:
    """Whether the same function (for PyTorch: anything) goes on to set something else."""
    others = entry.of(event.kind)
    key = {"policy set": "policy", "floatx set": "floatx"}.get(event.kind, "dtype")
    later = others[others.index(event) + 1 :] if event.kind != "default dtype set" else others
    same = [e for e in later if e is not event and (e.frame == event.frame or event.kind == "default dtype set")]
    return any(not any(is_pure(atom) for _, atom in possible(e.data[key], e.path)) for e in same)  # type: ignore[arg-type]


def trained(trace: Trace, entry: Entry, event: Event) -> Confidence | None:
    """High where the program trains under a setting, None where it only runs models, medium where nothing says."""
    path = event.place.path
    together = [entry, *(other for other in trace.entries if other.path == path and other is not entry)]
    if event.kind == "default dtype set":
        if any(other.of("backward") for other in together):
            return Confidence.HIGH
        return None if programs(trace).mentions(path, TORCH_RUNS) else Confidence.MEDIUM
    if any(other.of(*STEPS) for other in together):
        return Confidence.HIGH
    runs = programs(trace).mentions(path, KERAS_RUNS) or any(other.of(*STORED) for other in together)
    compiled = [e for other in together for e in other.of("model compiled")]
    if compiled and not runs:
        return Confidence.HIGH if any(is_for_training(e) for e in compiled) else None
    return None if runs else Confidence.MEDIUM


def is_for_training(compiled: Event) -> bool:
    """Whether a model is compiled with an optimizer or a loss."""
    return any(compiled.data[name] not in (None, NONE) for name in ("optimizer", "loss"))


# what to write


def called(trace: Trace, place: Place) -> str:
    """The text of what is called at a place."""
    node = trace.node(place)
    return node[0].text(node[1].func) if node is not None and isinstance(node[1], ast.Call) else trace.text(place)


def mixed(trace: Trace, event: Event) -> Fix | None:
    """The mixed policy in the place of a pure one."""
    node = trace.node(event.place)
    if node is None or not isinstance(node[1], ast.Call):
        return None
    file, call = node[0], node[1]
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if len(given) != 1 or not isinstance(given[0], ast.Constant) or given[0].value not in PURE:
        return None
    title = 'use the policy "mixed_float16"'
    if event.kind == "policy set":
        return Fix(title, Applicability.UNSAFE, (Replace(file.span(given[0]), '"mixed_float16"'),))
    changes = policy_for_floatx(file, call)
    return Fix(title, Applicability.UNSAFE, changes) if changes else None


def policy_for_floatx(file: SourceFile, call: ast.Call) -> tuple[Change, ...]:
    """The changes that set a mixed policy where a call sets the default dtype; none where Keras's home is not known."""
    func, changes = call.func, list[Change]()
    if not isinstance(func, ast.Attribute):
        return ()
    home = func.value
    if (file.names.resolve(home) or "").startswith("keras.src"):  # the private home of the code has no such module
        return ()
    if isinstance(home, ast.Attribute) and home.attr in ("backend", "config") and keras_path(file.names.resolve(home.value)) == "":
        prefix = f"{file.text(home.value)}.mixed_precision"
    else:
        package = (file.names.resolve(home) or "").rpartition(".")[0]
        if keras_path(package) != "":
            return ()
        prefix = "mixed_precision"
        changes.append(AddImport(package, "mixed_precision"))
    changes.insert(0, Replace(file.span(call), f'{prefix}.set_global_policy("mixed_float16")'))
    return tuple(changes)
