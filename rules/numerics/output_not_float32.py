"""MP201: a model whose output is computed in half precision."""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mplint.findings import Applicability, Confidence, Finding, Fix, Replace, Severity, Span
from mplint.frameworks.keras.evidence import excluded, programs, untold
from mplint.frameworks.keras.tensors import is_low, is_tensor
from mplint.program.conditions import Path
from mplint.program.lower import line_of
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, tensors_of
from mplint.program.values import BFLOAT, COMPUTE, DTYPE_NAMES, HALF, SINGLE, Place, Tensor
from mplint.program.values import Step as PlaceStep
from mplint.python.document import is_test_path
from mplint.recipes.float32 import float32_layers
from mplint.rule import Consequence, Rule
from mplint.source.file import SourceFile
from mplint.source.keras.layers import CONVOLUTIONS, PROBABILITIES
from mplint.source.keras.models import ComputeDtype, KerasModels, Model, Step
from mplint.source.keras.purpose import only_tried_out, purpose

from .builder_choices import left_to_callers

if TYPE_CHECKING:
    from mplint.graph.facts import GraphFacts

# Words in the names of models whose output is raw material for something else.
FEATURES = re.compile(r"backbone|encod|extract|feature|embed|trunk|stem|neck|block|gate|attention", re.I)
RAW = re.compile(FEATURES.pattern + r"|base|discrim|critic|project|hidden", re.I)
PREDICTION = re.compile(r"pred|logit|output", re.I)
NUMBERS = {
    "float16": "float16 keeps 11 bits and rounds probabilities below 6e-8 to 0, whose logarithm is -inf",
    "bfloat16": "bfloat16 keeps 8 bits: a probability of 0.999 becomes 1.0",
}


PROBABLE = frozenset({"activation:softmax", "activation:sigmoid"})


class End(NamedTuple):
    """A tensor in half that a model gives out: on which path, of which model, and whether the program trains it.

    `whole`: whatever callers choose, the model ends in probabilities in half.
    """

    tensor: Tensor
    path: Path
    name: str
    trained: bool
    whole: bool


def model_ends(entry: Entry) -> list[End]:
    """What the models of an entry give out in half, those left out that are parts of other models."""
    made: dict[Hashable, Event] = {}
    for event in entry.of("model made"):
        made[event.data["model"].id] = event  # type: ignore[attr-defined]
    trained = {event.data["model"].id for event in entry.of("model compiled", "model fit")}  # type: ignore[attr-defined]
    ran = {event.data["model"].id for event in entry.of("model fit")}  # type: ignore[attr-defined]
    stored = {event.data["model"].id for event in entry.of("weights loaded")} - ran  # type: ignore[attr-defined]
    parts = {event.data["layer"].id for event in entry.of("layer called") if event.data["symbolic"]} - trained  # type: ignore[attr-defined]
    settled = {place for event in entry.of("cast") if (place := cast_back(event)) is not None}
    found = []
    for key, event in made.items():
        if key in parts or key in stored or (event.function == "__init__" and key not in trained):
            continue
        outputs = tensors_of(event.data["outputs"], event.path)  # type: ignore[arg-type]
        whole = all(is_tensor(atom) and is_low(atom) and not atom.tags.isdisjoint(PROBABLE) for _, atom in outputs)
        for path, atom in outputs:
            if not is_tensor(atom) or not is_low(atom) or not atom.half or "cast" in atom.tags or excluded(path):
                continue
            if not atom.tags.isdisjoint(PROBABLE) or atom.half[-1].place not in settled:
                found.append(End(atom, path, str(event.data["name"]), key in trained, whole))
    return found


def cast_back(event: Event) -> Place | None:
    """The layer whose half output a cast takes to float32."""
    tensor = event.data["tensor"]
    if type(tensor) is Tensor and tensor.half and event.data["letter"] == SINGLE:
        return tensor.half[-1].place
    return None


def parameters_decide(path: Path) -> bool:
    """Whether what callers give decides if the head is built at all."""
    return any(key[0] in ("true", "in") and not str(key[1]).startswith(("the activation\0", "the compute dtype")) for key, _ in path)


def comes_late(tensor: Tensor) -> bool:
    """Whether the policy is set further down in the same file, which library code says nothing about."""
    if len(tensor.half) < 2:
        return False
    policy, layer = tensor.half[0].place, tensor.half[-1].place
    return policy.path == layer.path and line_of(policy.position) > line_of(layer.position)


def float32_layer(trace: Trace, place: Place) -> Fix | None:
    """`dtype="float32"` for the call that makes a layer."""
    text = trace.text(place)
    if not text.endswith(")") or "dtype" in text or "**" in text:
        return None
    line, column = trace.span(place)[2:]
    inner = text[:-1].rstrip()
    if inner.endswith(","):
        return None
    comma = "" if inner.endswith("(") else ", "
    change = Replace(Span(line, column - 1, line, column - 1), f'{comma}dtype="float32"')
    return Fix('compute the output in float32 with dtype="float32"', Applicability.SAFE, (change,))


class OutputNotFloat32(Rule):
    """Output layer that computes in half precision

    ## What it does
    Finds models whose last layer computes and emits float16 or bfloat16 because it follows a mixed policy.
    In model graphs: outputs of half type, unless their names say that they are states or features.

    ## Why is this bad?
    Under `mixed_float16` the output of a model has the compute dtype of its last layer. A float16 softmax rounds every
    probability below 6e-8 to 0 and everything above 0.9998 to 1, so that the loss takes the logarithm of 0 or
    saturates and its gradient vanishes; regression outputs lose all but 11 bits, and values above 65504 become inf.

    ## Example
    ```python
    from tensorflow import keras

    keras.mixed_precision.set_global_policy("mixed_float16")
    inputs = keras.Input((784,))
    x = keras.layers.Dense(256, activation="relu")(inputs)
    outputs = keras.layers.Dense(10, activation="softmax")(x)
    model = keras.Model(inputs, outputs)
    ```

    ## Use instead
    ```python
    from tensorflow import keras

    keras.mixed_precision.set_global_policy("mixed_float16")
    inputs = keras.Input((784,))
    x = keras.layers.Dense(256, activation="relu")(inputs)
    outputs = keras.layers.Dense(10, activation="softmax", dtype="float32")(x)
    model = keras.Model(inputs, outputs)
    ```

    ## Fix safety
    Safe: the last layer gets `dtype="float32"`. Its weights are float32 already, so that checkpoints stay valid.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp201.py (Keras 3).

    ## References
    - <https://www.tensorflow.org/guide/mixed_precision#building_the_model>
    - <https://keras.io/api/mixed_precision/>
    """

    code = "MP201"
    name = "output-not-float32"
    severity = Severity.WARNING
    fix = Applicability.SAFE
    frameworks = ("keras",)
    graphs = True
    program = True
    tokens = ("Model", "Sequential", "softmax", "sigmoid", "applications")
    adoption = Consequence('the output is computed in float32 (dtype="float32")', mends=True, fatal=False)

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield the outputs of a model that it emits in half."""
        from mplint.graph.ends import half_outputs, is_probability

        for tensor, node in half_outputs(graph):
            dtype = tensor.dtype or ""
            sure = is_probability(node) and dtype == "float16" and node.compute_dtype == dtype
            yield self.graph_finding(
                graph,
                tensor,
                f"the output {tensor.name} is {tensor.described}, computed by {node.described}",
                why=NUMBERS.get(dtype, NUMBERS["float16"]),
                help="Compute the last layer in float32, or at least emit it in float32.",
                severity=Severity.ERROR if sure else None,
                confidence=Confidence.HIGH if is_probability(node) else Confidence.MEDIUM,
            )

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Yield the outputs of models that the program builds, wherever it sets the policy."""
        for entry in trace.entries:
            for end in model_ends(entry):
                finding = self._end(trace, entry, end)
                if finding is not None:
                    yield finding

    def _end(self, trace: Trace, entry: Entry, end: End) -> Finding | None:
        letter = next(iter(end.tensor.dtypes))
        step = end.tensor.half[-1]
        activation = next((t.partition(":")[2] for t in sorted(end.tensor.tags) if t.startswith("activation:")), "")
        probable = activation in ("softmax", "sigmoid")
        name = trace.text(step.place).partition("(")[0].rpartition(".")[2]
        if not probable and (not end.trained or FEATURES.search(end.name)):
            return None
        known = programs(trace)
        verdict = trace.verdict(entry, end.path)
        if not entry.script and ((not end.whole and parameters_decide(end.path)) or comes_late(end.tensor)):
            return None
        dtype = DTYPE_NAMES[letter] if letter != COMPUTE else "half precision"
        reasons = end.tensor.half[:-1]
        if letter == COMPUTE:
            if known.is_program(step.place.path) or not probable or "parameter" in verdict.kinds:
                return None  # whoever sets the policy may leave the head out
            near = known.connected(step.place.path)
            policy = next((p for p in known.policies if p.place.path in near and not is_test_path(p.place.path)), None)
            if policy is None:
                return None
            verdict, dtype = policy.verdict, DTYPE_NAMES[HALF if policy.name == "mixed_float16" else BFLOAT]
            reasons = (PlaceStep(policy.place, f"the policy is {policy.name} from here on"),)
        sure = letter != COMPUTE and verdict.proven and not untold(trace, end.path)
        with_activation = f" with {activation}" if activation else ""
        return self.at(
            trace,
            step.place,
            f"`{name}`{with_activation} computes the output of the model in {dtype}{verdict.condition()}",
            why=NUMBERS.get(dtype, NUMBERS["float16"]) + ".",
            help='give the last layer `dtype="float32"`',
            severity=Severity.INFO
            if is_test_path(step.place.path)
            else Severity.ERROR
            if sure and probable and letter == HALF
            else Severity.WARNING,
            confidence=Confidence.HIGH if sure and entry.script and probable else Confidence.MEDIUM,
            steps=reasons,
            fix=float32_layer(trace, step.place) if any(t.startswith("layer:") for t in end.tensor.tags) else None,
        )

    def check_source(self, file: SourceFile) -> Iterator[Finding]:
        """Yield the outputs of models that are emitted in half."""
        seen: set[ast.AST] = set()
        for model in file.fact(KerasModels).models:
            for chain in model.outputs if not model.part else ():
                if chain[0].node not in seen:
                    seen.add(chain[0].node)
                    yield from self._output(file, model, chain)

    def _output(self, file: SourceFile, model: Model, chain: tuple[Step, ...]) -> Iterator[Finding]:
        head = head_of(chain)
        emitter = next((s for s in chain if s.kind not in ("op", "shape")), None)
        if head is None or emitter is None or emitter.kind == "cast" or not is_wanted(file, model, head) or is_optional(file, model, head):
            return
        carriers = chain[chain.index(head) :]  # an op computes in the dtype of the layer before it
        carrier = next((s for s in carriers if s.kind in ("layer", "application")), None)
        computed = dtype_of(file, carrier) if carrier is not None else None
        emitted = dtype_of(file, emitter)
        if computed is None or not (emitted.half or emitted.undecided or "?" in emitted.names) or is_only_run(file, model, emitted):
            return
        place, dtype = (head, computed) if computed.half or computed.undecided or "?" in computed.names else (emitter, emitted)
        yield from self._finding(file, model, chain, place, head, dtype)

    def _finding(
        self, file: SourceFile, model: Model, chain: tuple[Step, ...], place: Step, head: Step, dtype: ComputeDtype
    ) -> Iterator[Finding]:
        sure = dtype.certain and not dtype.undecided
        probable = head.activation in ("softmax", "sigmoid") or head.kind == "application"
        if not dtype.half and not dtype.undecided:
            confidence = Confidence.LOW  # the policy is computed, and nothing says that it may be half
        elif not dtype.half:
            return  # another file may set the policy: what the whole program does decides
        else:
            confidence = Confidence.HIGH if sure and (probable or model.trained) else Confidence.MEDIUM
        if file.is_test:
            confidence = Confidence.LOW
        name = " or ".join(sorted(dtype.half)) or "half precision"
        done = f"computes the output of {title(model)} in" if place is head else "turns the output back into"
        yield self.finding(
            file,
            place.node,
            f"{describe(place)} {done} {name}",
            why=NUMBERS.get(name, NUMBERS["float16"]) + ".",
            help=advice(place),
            severity=Severity.ERROR if place is head and sure and probable and dtype.half == {"float16"} else Severity.WARNING,
            confidence=confidence,
            related=tuple((setter, "the policy is set here") for setter in dtype.setters[:2]) if dtype.half else (),
            fix=self._fix(file, chain, place, head),
        )

    def _fix(self, file: SourceFile, chain: tuple[Step, ...], place: Step, head: Step) -> Fix | None:
        wanted = [s for s in chain[: chain.index(place) + 1] if s.layer is not None]
        changes = list(float32_layers(file, (step.node for step in wanted)))
        if place.kind == "op" and (cast := input_cast(file, place.node)) is not None:
            changes.append(cast)
        elif place.kind in ("op", "application"):
            return None
        return Fix('compute the output in float32 with dtype="float32"', Applicability.SAFE, tuple(changes))


def head_of(chain: tuple[Step, ...]) -> Step | None:
    """The step of a chain that makes its output: the activation that gives probabilities, else the last layer with weights."""
    return next((s for s in chain if s.activation in PROBABILITIES or s.kind == "application"), None) or last_with_weights(chain)


def last_with_weights(chain: tuple[Step, ...]) -> Step | None:
    """The step of a chain that computes the output where no activation makes probabilities of it."""
    for step in chain:
        if step.layer is not None and (step.layer.kind in HEADS or (step.layer.kind == "Activation" and step is chain[0])):
            return step
    return None


# Activations of hidden layers rather than of outputs.
HIDDEN = frozenset({"relu", "relu6", "elu", "selu", "gelu", "swish", "silu", "mish", "leaky_relu"})
HEADS = CONVOLUTIONS | {"Dense", "EinsumDense", "TimeDistributed"}


def dtype_of(file: SourceFile, step: Step) -> ComputeDtype:
    """The dtypes in which a step may compute; a wrapped layer follows its wrapper."""
    return file.fact(KerasModels).computes_in(step.node)


def is_wanted(file: SourceFile, model: Model, head: Step) -> bool:
    """Whether the output is one that people read: probabilities, or a head of a model that is not a part of another."""
    if model.kind == "application":
        return model.run
    if head.activation in PROBABILITIES:
        return not (model.kind == "subclass" and not model.trained and FEATURES.search(model.name))
    if not model.trained and (model.kind in ("subclass", "fragment") or head.activation in HIDDEN):
        return False
    return not RAW.search(model.name) and not casts_predictions(file)


def casts_predictions(file: SourceFile) -> bool:
    """Whether the program casts logits or predictions to float32 somewhere after the model."""
    casts = [step for step in file.fact(KerasModels).steps.casts() if step.dtype in ("float32", "float64") and step.node.args]
    return any(PREDICTION.search(name.id) for step in casts for name in file.values.mentions(step.node.args[0]))


def is_optional(file: SourceFile, model: Model, head: Step) -> bool:
    """Whether only callers elsewhere would have the model end with this head, and otherwise it ends with features, or with raw values."""
    if model.trained or not left_to_callers(file, head.node):
        return False
    others = [other for chain in model.outputs if (other := head_of(chain)) is None or other.node is not head.node]
    return not others or any(o is None or (head.activation in PROBABILITIES and o.activation not in PROBABILITIES) for o in others)


def is_only_run(file: SourceFile, model: Model, dtype: ComputeDtype) -> bool:
    """Whether the program runs trained models in half on purpose, or only tries the class of the model out under that policy."""
    if isinstance(model.node, ast.ClassDef) and dtype.setters and not model.trained and only_tried_out(file, model.node, dtype.setters):
        return True
    return purpose(file) == "runs" and (bool(dtype.half) or bool(file.names.calls_of("set_weights")))


def describe(step: Step) -> str:
    """The step in the user's words: `Dense(…, activation="softmax")`."""
    if step.layer is None:
        return f"`{ast.unparse(step.node.func)}`"
    if step.activation in PROBABILITIES and step.layer.kind != "Softmax":
        return f"`{step.layer.kind}` with {step.activation}"
    return f"`{step.layer.kind}`"


def title(model: Model) -> str:
    """How the message calls the model."""
    return f"`{model.name}`" if model.kind == "subclass" else "the model"


def advice(step: Step) -> str:
    """What to do about the output."""
    if step.kind == "application":
        return 'Pass classifier_activation=None (or include_top=False) and end with Activation("softmax", dtype="float32").'
    if step.kind == "op":
        return "Cast the argument to float32 first."
    return f'Give `{step.layer.kind if step.layer else "the last layer"}` dtype="float32".'


def input_cast(file: SourceFile, call: ast.Call) -> Replace | None:
    """The argument of `tf.nn.softmax(x)` wrapped in a cast to float32."""
    root: ast.expr = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    if not call.args or not isinstance(root, ast.Name) or file.names.resolve(root) != "tensorflow":
        return None
    return Replace(file.span(call.args[0]), f"{root.id}.cast({file.text(call.args[0])}, {root.id}.float32)")
