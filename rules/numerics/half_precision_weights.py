"""MP210: trained weights in float16."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Fix, Replace, Severity
from mplint.frameworks.trainers.queries import keeps_masters
from mplint.program.conditions import Path, extend
from mplint.program.machine import Event
from mplint.program.trace import CALLERS, Entry, Trace, possible
from mplint.program.values import HALF, TRUE, Atom, Items, Object, Place, State, Step, atoms
from mplint.python.document import is_test_path
from mplint.python.file import SourceFile
from mplint.python.syntax import argument, last_name
from mplint.rule import Rule

WHY = "A float16 weight loses every update below 1/2048 of its value, and gradients under 6e-8 become 0: training stalls or diverges."


class HalfPrecisionWeights(Rule):
    """Trained weights created in float16

    ## What it does
    Finds variables that are created in float16 and trained: `add_weight(dtype="float16")`, or with the compute dtype of a mixed policy,
    `tf.Variable(..., dtype=tf.float16)`, Keras layers with `dtype="float16"`, `nn.Parameter(torch.zeros(n, dtype=torch.float16))` of a
    module whose parameters an optimizer gets, float16 tensors in an optimizer's list, and models loaded or cast to float16 that a trainer
    or scaler then trains.

    ## Why is this bad?
    float16 has 11 significant bits: 1 + 1e-4 is 1, so the small updates of a late training stage change nothing at all. Mixed precision
    keeps the weights in float32 and casts them for the computation. With a GradScaler, `unscale_` raises "Attempting to unscale FP16
    gradients".

    ## Example
    ```python
    import keras

    class Scale(keras.layers.Layer):
        def build(self, shape):
            self.gain = self.add_weight(name="gain", shape=(shape[-1],), initializer="ones", dtype="float16")

        def call(self, inputs):
            return inputs * self.gain
    ```

    ## Use instead
    ```python
    import keras

    class Scale(keras.layers.Layer):
        def build(self, shape):
            self.gain = self.add_weight(name="gain", shape=(shape[-1],), initializer="ones", dtype="float32")

        def call(self, inputs):
            return inputs * self.gain
    ```

    ## Fix safety
    Unsafe: the weights become float32, which changes the numbers, doubles the memory they take and needs an autocast region around the
    computation where there was none. Not offered for a model that is loaded quantized or gets adapters, whose own weights stay frozen, nor
    where other tensors of the program are made in half and no autocast runs.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp210.py.

    ## References
    - Mixed Precision Training, section 3.1, https://arxiv.org/abs/1710.03740
    """

    code = "MP210"
    name = "half-precision-weights"
    severity = Severity.ERROR
    fix = Applicability.UNSAFE
    frameworks = ("keras", "torch")
    tokens = ("float16", ".half", '"half"')
    program = True
    consequence_of = ("MP105",)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report the variables that are created in float16, and the float16 parameters whose gradients a trainer or scaler will unscale."""
        for entry in trace.entries:
            yield from self._variables(trace, entry)
            yield from self._layers(trace, entry)
            halves = entry.of("half parameters") if entry.context != CALLERS else []  # there a caller chooses it
            steps = entry.of("optimizer step", "scaler step", "trainer step")
            stepped = {id_of(atom) for e in steps for atom in atoms(e.data["optimizer"])}  # type: ignore[arg-type]
            for event in halves:
                if event.data["how"] == "made" and id_of(event.data["optimizer"]) in stepped:
                    continue  # what counts is the dtype at the step
                chain = event.data["chain"]
                if event.data["created"]:
                    if event.data["how"] == "made" or is_taken_over(entry, event):
                        continue  # what wraps the optimizer may keep float32 copies
                    where = Step(event.place, WHERE[str(event.data["how"])])
                    yield self._created(trace, entry, event.path, chain[-1].place, None, where)  # type: ignore[index]
                    continue
                scaling = scaled_by(entry, event)
                if scaling is None:
                    continue
                path, scaler = scaling
                last = chain[-1]  # type: ignore[index]
                verdict = self.verdict(trace, entry, path, last.place)
                yield self.at(
                    trace,
                    last.place,
                    f"an optimizer trains these parameters in float16{verdict.condition()}",
                    why='unscaling their gradients raises "Attempting to unscale FP16 gradients"',
                    help="keep the parameters that are trained in float32: autocast casts them for the computation",
                    confidence=Confidence.HIGH if entry.script and len(verdict.switches) <= 1 else Confidence.MEDIUM,
                    steps=(*chain[:-1], *dict.fromkeys((scaler, Step(event.place, WHERE[str(event.data["how"])])))),  # type: ignore[index]
                    fix=in_float32(trace, last.place, None) if not stays_half(trace, entry, last.place) else None,
                    cause=last.place,
                )

    def _variables(self, trace: Trace, entry: Entry) -> Iterator[Finding]:
        """The variables of TensorFlow and Keras: a layer's are trained, others where something trains; none that is made after all that."""
        steps = entry.of("weight made", *TRAINS)
        last = max((n for n, event in enumerate(steps) if event.kind in TRAINS), default=None)
        for number, event in enumerate(steps):
            if event.kind in TRAINS:
                continue
            half = [extend(event.path, path) for path, letter in event.data["ways"] if letter == HALF]  # type: ignore[attr-defined]
            path = next((found for found in half if found is not None), None)
            trains = event.data["layer"] is not None if last is None else number < last
            if path is not None and trains and event.data["trainable"] in (None, TRUE):
                yield self._created(trace, entry, path, event.place, event.data["dtype"], None)  # type: ignore[arg-type]

    def _layers(self, trace: Trace, entry: Entry) -> Iterator[Finding]:
        """The layers with weights that get a dtype of their own, where something trains."""
        for event in entry.of("layer made") if entry.of(*TRAINS) else ():
            if event.data["dtype"] is None or str(event.data["name"]).rpartition(".")[2] not in WEIGHTED:
                continue
            half = [path for path, policy in possible(event.data["policy"], event.path) if is_pure(policy)]  # type: ignore[arg-type]
            if half and trace.verdict(entry, half[0]).dead is False:
                args = event.data["args"]
                where = args.named_places.get("dtype")  # type: ignore[attr-defined]
                yield self._created(trace, entry, half[0], event.place, Place(event.place.path, where) if where else None, None)

    def _created(self, trace: Trace, entry: Entry, path: Path, place: Place, dtype: Place | None, trained: Step | None) -> Finding:
        """The finding for weights that a call creates; `trained`: where they are trained."""
        verdict = self.verdict(trace, entry, path, place)
        left = trained is not None and stays_half(trace, entry, place)
        return self.at(
            trace,
            dtype or place,
            f"`{spelled(trace, place)}` makes weights in float16, which training then updates{verdict.condition()}",
            why=WHY,
            help="create the weights in float32 and let autocast or the dtype policy cast them for the computation"
            + ("; what they are computed with is made in half as well, and no autocast runs here" if left else ""),
            severity=Severity.INFO if is_test_path(place.path) else None,
            confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
            steps=(trained,) if trained is not None else (),
            fix=None if is_test_path(place.path) or left else in_float32(trace, place, dtype),  # tests ask for the dtype, and assert it
        )


# what trains in Keras and TensorFlow, and the layers that have weights
TRAINS = ("model fit", "gradients applied", "minimized", "tape gradients taken")
WEIGHTED = frozenset(
    {f"{kind}Conv{n}D{suffix}" for kind in ("", "Separable", "Depthwise") for n in "123" for suffix in ("", "Transpose")}
    | {"Dense", "EinsumDense", "Embedding", "MultiHeadAttention", "BatchNormalization", "LayerNormalization", "GroupNormalization"}
    | {f"{kind}{suffix}" for kind in ("LSTM", "GRU", "SimpleRNN") for suffix in ("", "Cell")}
)
WHERE = {
    "made": "the optimizer gets them here",
    "optimizer step": "the optimizer updates them here",
    "trainer step": "the optimizer steps them here",
    "scaler step": "the scaler unscales their gradients here",
    "trainer made": "the trainer is given them here",
}


def id_of(value: object) -> object:
    """What identifies an optimizer."""
    return value.id if type(value) is Object else value


def scaled_by(entry: Entry, event: Event) -> tuple[Path, Step] | None:
    """What unscales the gradients of these parameters, with the path on which it does."""
    if event.data["how"] == "scaler step":
        step = next((e for e in entry.of("scaler step") if e.place == event.place and extend(event.path, e.path) is not None), None)
        return None if step is None else (event.path, Step(event.place, WHERE["scaler step"]))
    if event.data["how"] == "optimizer step":
        return None
    found: list[tuple[Path, Step]] = []
    for trainer in entry.of("trainer precision"):
        path = extend(event.path, trainer.path) if not keeps_masters(trainer.data["trainer"]) else None
        for guards, letter in trainer.data["dtypes"] if path is not None else ():  # type: ignore[attr-defined]
            both = extend(path, guards) if path is not None and letter == HALF else None
            if both is not None and trainer.data.get("scales", True):
                found.append((both, Step(trainer.place, f"{trainer.data['title']} scales the loss for float16")))
    return min(found, key=lambda way: len(way[0]), default=None)  # the one that takes least


def is_taken_over(entry: Entry, event: Event) -> bool:
    """Whether apex takes care of the optimizer of some parameters."""
    held = [e.data["optimizers"] for e in entry.of("apex initialized")]
    return any(id_of(event.data["optimizer"]) == id_of(atom) for value in held for atom in gathered(value))


def gathered(value: object) -> Iterator[Atom]:
    """What a value may be, and what lists in it hold."""
    for atom in atoms(value) if value is not None else ():  # type: ignore[arg-type]
        yield atom
        if type(atom) is Items:
            for item in atom.items:
                yield from gathered(item)


def is_pure(policy: object) -> bool:
    """Whether the policy of a layer keeps its weights in float16."""
    return type(policy) is State and isinstance(policy.data, tuple) and policy.data[0] in ("float16", "half")


def spelled(trace: Trace, place: Place) -> str:
    """What the program calls to create the weights."""
    node = trace.node(place)
    text = node[0].text(node[1].func) if node is not None and isinstance(node[1], ast.Call) else trace.text(place)
    return " ".join(text.split())


def stays_half(trace: Trace, entry: Entry, place: Place) -> bool:
    """Whether float32 weights alone would not do: of a model that is quantized or for the most part frozen, or beside half operands."""
    file, call = trace.node(place) or (None, None)
    if file is None or not isinstance(call, ast.Call):
        return False
    if any(k.arg in QUANTIZED and not (isinstance(k.value, ast.Constant) and not k.value.value) for k in call.keywords):
        return True
    if last_name(call.func) == "from_pretrained":
        return any(last_name(other.func) in ADAPTED for other in file.syntax.all(ast.Call))
    if entry.of("autocast entered", "trainer precision"):
        return False
    trained = {step.place for _, e in trace.of("half parameters") for step in e.data["chain"][-1:]}  # type: ignore[index]
    known = {id(n) for at in trained if (found := trace.node(at)) is not None for n in ast.walk(found[1])}
    halves = [n for n in file.syntax.all(ast.Attribute) if n.attr in ("half", "float16") and id(n) not in known]
    return any(is_made(file, n) for n in halves)


def is_made(file: SourceFile, node: ast.Attribute) -> bool:
    """Whether a dtype is that of something which is made or cast here: no test's."""
    return isinstance(file.syntax.parents.get(node), ast.keyword | ast.Call)


QUANTIZED = ("quantization_config", "load_in_4bit", "load_in_8bit")
ADAPTED = ("get_peft_model", "LoraConfig", "PeftModel", "prepare_model_for_kbit_training")


def in_float32(trace: Trace, place: Place, where: Place | None) -> Fix | None:
    """float32 in place of the float16 that a call writes, at `where` or by name."""
    node = trace.node(place)
    file, call = node if node is not None else (None, None)
    if file is None or not isinstance(call, ast.Call):
        return None
    if where is not None:
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        dtype = next((a for a in given if file.span(a) == trace.span(where)), None)
    else:
        dtype = argument(call, "dtype") or argument(call, "torch_dtype")
    match dtype:
        case ast.Attribute(value=package, attr="float16" | "half"):
            text = f"{file.text(package)}.float32"
        case ast.Attribute(value=layer, attr="compute_dtype" | "_compute_dtype"):
            text = f"{file.text(layer)}.variable_dtype"
        case ast.Constant(value="float16" | "half"):
            text = '"float32"'
        case _:
            return None
    return Fix("keep the weights in float32", Applicability.UNSAFE, (Replace(file.span(dtype), text),))
