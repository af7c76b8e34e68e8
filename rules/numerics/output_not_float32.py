"""MP201: a model whose output is computed in half precision."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mplint.findings import Applicability, Confidence, Finding, Fix, Replace, Severity
from mplint.frameworks.keras.evidence import excluded, programs, untold
from mplint.frameworks.keras.layers import PROBABLE, by
from mplint.frameworks.keras.tensors import is_low, is_tensor
from mplint.program.conditions import Path
from mplint.program.lower import line_of
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, tensors_of
from mplint.program.values import BFLOAT, COMPUTE, DTYPE_NAMES, HALF, SINGLE, Function, Place, State, Tensor, atoms
from mplint.program.values import Step as PlaceStep
from mplint.python.document import is_test_path, measures
from mplint.recipes.float32 import float32_layers
from mplint.rule import Consequence, Rule

if TYPE_CHECKING:
    from mplint.graph.facts import GraphFacts
    from mplint.python.file import SourceFile

# Words in the names of models whose output is raw material for something else.
FEATURES = re.compile(r"backbone|encod|extract|feature|embed|trunk|stem|neck|block|gate|attention", re.I)
NUMBERS = {
    "float16": "float16 keeps 11 bits and rounds probabilities below 6e-8 to 0, whose logarithm is -inf",
    "bfloat16": "bfloat16 keeps 8 bits: a probability of 0.999 becomes 1.0",
}


BY_NAME = re.compile(r"\bb?float16\b|\bhalf\b")
HEADS = frozenset(f"layer:{name}" for name in ("Dense", "EinsumDense", "Conv1D", "Conv2D", "Conv3D", "Conv2DTranspose", "Conv3DTranspose"))
BENT = frozenset(f"layer:{name}" for name in ("ReLU", "LeakyReLU", "PReLU", "ELU", "ThresholdedReLU"))  # hidden layers' activations
OF_OUTPUTS = frozenset({"linear", "tanh", "softmax", "sigmoid", "log_softmax", "hard_sigmoid", "softplus"})  # activations of outputs
IDLE = State(None)  # of a tape that is not open


class End(NamedTuple):
    """A tensor in half that a model gives out: on which path, of which model, and whether the program trains it, or takes a loss of it.

    A builder that sets the policy itself counts as well: nobody else decides what its model ends in.

    `choice`: what of the path is not about the policy. `whole`: whatever callers choose, the model ends in probabilities in half.
    """

    tensor: Tensor
    path: Path
    choice: Path
    name: str
    trained: bool
    whole: bool

    @property
    def is_application(self) -> bool:
        """Whether a model of `keras.applications` computes it."""
        return "application" in self.tensor.tags

    @property
    def is_turned_back(self) -> bool:
        """Whether it was in float32 before a layer turned it back."""
        return "turned back" in self.tensor.tags


def scored_places(trace: Trace) -> frozenset[Place]:
    """The layers whose half outputs a loss is taken of."""
    taken = (event for _, event in trace.of("loss taken"))
    added = (event.data["tensor"] for _, event in trace.of("loss added up in half"))
    scored = [*(t for event in taken for t in event.data["predictions"] if is_low(t)), *added]  # type: ignore[attr-defined]
    return frozenset(step.place for tensor in scored if isinstance(tensor, Tensor) for step in tensor.half)


def model_ends(entry: Entry, scored: frozenset[Place]) -> list[End]:
    """What the models of an entry give out in half, those left out that are parts of other models; a loss is taken of the `scored` ones."""
    made: dict[Hashable, Event] = {}
    for event in entry.of("model made"):
        made[event.data["model"].id] = event  # type: ignore[attr-defined]
    trained = {event.data["model"].id for event in entry.of("model compiled", "model fit", "model handed on")}  # type: ignore[attr-defined]
    taped = {event.data["layer"].id for event in entry.of("layer called") if event.data.get("tape", IDLE) != IDLE}  # type: ignore[attr-defined]
    trained |= taped
    ran = taped | {event.data["model"].id for event in entry.of("model fit")}  # type: ignore[attr-defined]
    stored = {event.data["model"].id for event in entry.of("weights loaded")} - ran  # type: ignore[attr-defined]
    called = entry.of("layer called")
    parts = {e.data["layer"].id for e in called if e.data["symbolic"] or e.get("inside")} - trained  # type: ignore[attr-defined]
    whole_models = trained | {event.data["model"].id for event in entry.of("model run")}  # type: ignore[attr-defined]
    taken_apart = {event.data["model"].id for event in entry.of("inner layer taken")} - whole_models  # type: ignore[attr-defined]
    setters = {event.place: event for event in entry.of("policy set")}
    settled = {place for event in entry.of("cast") if (place := cast_back(event)) is not None}
    found = []
    for key, event in made.items():
        if (
            key in parts
            or key in stored
            or key in taken_apart
            or (key not in trained and (event.function == "__init__" or event.get("how") == "called"))
        ):
            continue
        outputs = tensors_of(event.data["outputs"], event.path)  # type: ignore[arg-type]
        whole = all_heads([atom for _, atom in outputs])
        makers = {atom.half[-1].place for _, atom in outputs if is_tensor(atom) and is_low(atom) and atom.half}
        for path, atom in outputs:
            if not is_tensor(atom) or not is_low(atom) or not atom.half or "cast" in atom.tags or excluded(path):
                continue
            if len(makers) > 1 and not is_made_by_a_layer(atom):
                continue  # one of many things that a configuration may end the model in
            at = atom.half[-1].place
            if at in setters:
                continue  # what a layer of the project's own makes of the policy by itself: no operation on it is known
            if not atom.tags.isdisjoint(PROBABLE) or at not in settled or (at in scored and ends_raw(atom)):
                setter = setters.get(atom.half[0].place)
                own = setter is not None and event.function != "" and setter.frame == event.frame and ends_raw(atom)
                choice = path - setter.path if setter is not None else path
                used = key in trained or at in scored or own
                found.append(End(atom, path, choice, f"{event.data['name']} {event.function}", used, whole))
    return found


def all_heads(outputs: Sequence[Tensor]) -> bool:
    """Whether each of several outputs in half gives probabilities, or is one that its layer gives in place of them for one class."""
    probable = {atom.half[-1].place for atom in outputs if atom.half and not atom.tags.isdisjoint(PROBABLE)}
    return all(is_tensor(atom) and is_low(atom) and (not atom.tags.isdisjoint(PROBABLE) or is_made_at(atom, probable)) for atom in outputs)


def is_made_at(tensor: Tensor, places: Container[Place]) -> bool:
    """Whether the layer that computes a tensor stands at one of some places."""
    return bool(tensor.half) and tensor.half[-1].place in places


def is_made_by_a_layer(tensor: Tensor) -> bool:
    """Whether it is known which layer computes a tensor, or that it gives probabilities."""
    return any(tag.startswith("by:") for tag in tensor.tags) or not tensor.tags.isdisjoint(PROBABLE)


def ends_raw(tensor: Tensor) -> bool:
    """Whether a layer with weights gives a tensor, and no activation of hidden layers: what a model is made for."""
    names = {tag.partition(":")[2] for tag in tensor.tags if tag.startswith("activation:")}
    return not tensor.tags.isdisjoint(HEADS) and names <= {"linear", "tanh"}


def ends_hidden(tensor: Tensor) -> bool:
    """Whether a layer without weights gives a tensor, by an activation of hidden layers: a model without its head gives features."""
    names = {tag.partition(":")[2] for tag in tensor.tags if tag.startswith("activation:")}
    hidden = (bool(names) and names.isdisjoint(OF_OUTPUTS)) or not tensor.tags.isdisjoint(BENT)
    return tensor.tags.isdisjoint(HEADS) and hidden


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


def loose_ends(entry: Entry) -> list[End]:
    """Probabilities in half that a script stacks its layers up to, in an excerpt that makes no model of them yet."""
    if not entry.script or entry.of("model made", "layer used"):
        return []
    calls = entry.of("layer called")
    given = {tag for event in calls for tensor in event.data["given"] for tag in tensor.tags if tag.startswith("by:")}  # type: ignore[attr-defined]
    found = []
    for event in calls:
        made = event.data["layer"].made  # type: ignore[attr-defined]
        last = "output" in event.data and not event.function and made is not None and by(made) not in given
        outputs = tensors_of(event.data["output"], event.path) if last else []  # type: ignore[arg-type]
        for path, atom in outputs:
            if is_tensor(atom) and is_low(atom) and atom.half and not atom.tags.isdisjoint(PROBABLE):
                found.append(End(atom, path, path, "", False, True))
    return found


def is_met_in_half(trace: Trace, entry: Entry) -> bool:
    """Whether a loss of the program's own casts to half what it computes with the output: in float32 that would raise."""
    losses = (event.data["loss"] for event in entry.of("model compiled"))
    functions = (atom for loss in losses for atom in atoms(loss) if type(atom) is Function)  # type: ignore[arg-type]
    compiled = (trace.node(Place(function.code.path, function.code.place)) for function in functions)
    if any(found is not None and BY_NAME.search(found[0].text(found[1])) for found in compiled):
        return True
    return any(event.data["letter"] == HALF and event.function not in ("call", "") for event in entry.of("cast"))


def is_hidden_too(entry: Entry, place: Place) -> bool:
    """Whether a call that makes an output layer makes hidden ones as well, in other rounds of its loop: they should stay in half."""
    given = (tensor for event in entry.of("layer called") for tensor in event.data["given"])  # type: ignore[attr-defined]
    return any(by(place) in tensor.tags for tensor in given)


def safety(entry: Entry) -> Applicability:
    """How sure an output in float32 is: what the program makes in half by itself, outside of layers, may be computed with it."""
    made = (event for event in entry.of("tensor made") if event.data["letter"] in (HALF, BFLOAT) and event.function != "call")
    return Applicability.UNSAFE if next(made, None) is not None else Applicability.SAFE


def in_float32(trace: Trace, end: End, applicability: Applicability) -> Fix | None:
    """`dtype="float32"` for the layers that make the output and shape it afterwards, or a cast of what an operation gets."""
    later = [placed(tag) for tag in sorted(end.tensor.tags) if tag.startswith("then:")]
    nodes = [trace.node(place) for place in (end.tensor.half[-1].place, *later)]
    file = nodes[0][0] if nodes[0] is not None else None
    calls = [node[1] for node in nodes if node is not None and node[0] is file and isinstance(node[1], ast.Call)]
    if file is None or len(calls) != len(nodes):
        return None
    changes: tuple[Replace, ...]
    if any(tag.startswith("layer:") for tag in end.tensor.tags) and not end.is_application:
        if any(keyword.arg is None for call in calls for keyword in call.keywords):
            return None
        changes = float32_layers(file, calls)
    else:
        cast = input_cast(file, calls[0])
        if cast is None or later:
            return None
        changes = (cast,)
    return Fix('compute the output in float32 with dtype="float32"', applicability, changes)


def advice(end: End, activation: str) -> str:
    """What to do about an output."""
    if end.is_application:
        return f'pass classifier_activation=None (or include_top=False) and end with `Activation("{activation}", dtype="float32")`'
    by_layer = any(tag.startswith("layer:") for tag in end.tensor.tags)
    return 'give the last layer `dtype="float32"`' if by_layer else "cast the argument to float32"


def placed(tag: str) -> Place:
    """The place that a tag tells."""
    path, _, position = tag.removeprefix("then:by:").rpartition(":")
    return Place(path, int(position))


def input_cast(file: SourceFile, call: ast.Call) -> Replace | None:
    """The argument of `tf.nn.softmax(x)` wrapped in a cast to float32."""
    root: ast.expr = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    if not call.args or not isinstance(root, ast.Name) or file.names.resolve(root) != "tensorflow":
        return None
    return Replace(file.span(call.args[0]), f"{root.id}.cast({file.text(call.args[0])}, {root.id}.float32)")


class OutputNotFloat32(Rule):
    """Output layer that computes in half precision

    ## What it does
    Finds models whose last layer computes and emits float16 or bfloat16 because it follows a mixed policy.
    In model graphs: outputs of half type, at the operation that computes them, unless they are states (their names say so, or a recurrent
    layer gives them) or features that another model reads: by their names, or because they are pooled or rectified and no head.

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
    Safe: the last layer gets `dtype="float32"`. Its weights are float32 already, so that checkpoints stay valid. Unsafe where the program
    makes half tensors by itself, such as labels, which its loss may compute with the output.
    In ONNX models and `.keras` archives what follows the last product is computed in float32 (the product too, where only a bias
    follows it), and the output becomes float32: who reads it gets more digits, in another dtype.

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
        from mplint.graph.mends import float32_head

        for name, tensor, node in half_outputs(graph):
            dtype = tensor.dtype or ""
            sure = is_probability(node) and dtype == "float16" and node.compute_dtype == dtype
            yield self.graph_finding(
                graph,
                node,
                f"the output {name} is {tensor.described}, computed by {node.described}",
                why=NUMBERS.get(dtype, NUMBERS["float16"]),
                help="Compute the last layer in float32, or at least emit it in float32.",
                severity=Severity.ERROR if sure else None,
                confidence=Confidence.HIGH if is_probability(node) else Confidence.MEDIUM,
                fix=float32_head(graph, tensor),
            )

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Yield the outputs of models that the program builds, wherever it sets the policy."""
        scored = scored_places(trace)
        for entry in trace.entries:
            for end in (*model_ends(entry, scored), *loose_ends(entry)):
                finding = self._end(trace, entry, end)
                if finding is not None:
                    yield finding

    def _end(self, trace: Trace, entry: Entry, end: End) -> Finding | None:
        letter = next(iter(end.tensor.dtypes))
        step = end.tensor.half[-1]
        activation = next((t.partition(":")[2] for t in sorted(end.tensor.tags) if t.startswith("activation:")), "")
        probable = activation in ("softmax", "sigmoid")
        name = trace.text(step.place).partition("(")[0].rpartition(".")[2]
        if not probable and (not end.trained or FEATURES.search(end.name) or ends_hidden(end.tensor)):
            return None
        known = programs(trace)
        verdict = self.verdict(trace, entry, end.path, step.place)
        if not entry.script and ((not end.whole and parameters_decide(end.choice)) or comes_late(end.tensor)):
            return None
        dtype = DTYPE_NAMES[letter] if letter != COMPUTE else "half precision"
        reasons = end.tensor.half[:-1]
        if letter == COMPUTE:
            if known.is_program(step.place.path) or not probable or "parameter" in verdict.kinds:
                return None  # whoever sets the policy may leave the head out
            near = known.connected(entry.path)  # of what runs it, not of all that share its parts
            policy = next((p for p in known.policies if p.place.path in near and not is_test_path(p.place.path)), None)
            if policy is None:
                return None
            verdict, dtype = policy.verdict, DTYPE_NAMES[HALF if policy.name == "mixed_float16" else BFLOAT]
            reasons = (PlaceStep(policy.place, f"the policy is {policy.name} from here on"),)
        sure = letter != COMPUTE and verdict.proven and not untold(trace, end.path)
        with_activation = f" with {activation}" if probable and not end.is_turned_back else ""
        done = "turns the output of the model back into" if end.is_turned_back else "computes the output of the model in"
        return self.at(
            trace,
            step.place,
            f"`{name}`{with_activation} {done} {dtype}{verdict.condition()}",
            why=NUMBERS.get(dtype, NUMBERS["float16"]) + ".",
            help=advice(end, activation),
            severity=Severity.INFO
            if is_test_path(step.place.path) or (measures(step.place.path) and not probable)
            else Severity.ERROR
            if sure and probable and letter == HALF and not end.is_turned_back
            else Severity.WARNING,
            confidence=Confidence.HIGH if sure and entry.script and probable else Confidence.MEDIUM,
            steps=reasons,
            fix=None if is_met_in_half(trace, entry) or is_hidden_too(entry, step.place) else in_float32(trace, end, safety(entry)),
        )
