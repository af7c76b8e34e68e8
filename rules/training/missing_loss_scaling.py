"""MP301: gradients of a float16 forward pass are computed without loss scaling."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from mplint.configs.trainers.duties import takes_over
from mplint.findings import Applicability, Confidence, Finding, Severity
from mplint.frameworks.keras.evidence import untold
from mplint.frameworks.keras.versions import loop_major
from mplint.frameworks.torch import steps
from mplint.frameworks.torch.protocol import device_of, dtype_of, key_of
from mplint.frameworks.torch.tensors import BY_HAND
from mplint.frameworks.trainers.queries import scaled_by_apex
from mplint.program.conditions import Path, extend
from mplint.program.machine import IDENTITY, Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import BFLOAT, HALF, Chain, DType, Object, Place, State, Step, Tensor, atoms
from mplint.python.document import is_test_path, measures
from mplint.rule import Consequence, Rule

from .losses_to_scale import scalers_put_in
from .mixed_layers import unscaled_training
from .optimizers_to_wrap import scaling_of
from .unscaled_tapes import Unscaled, unscaled_tapes

# Any of these says that something in the program scales the loss, or could.
SCALING = re.compile(r"scale(?:r|d?_?loss)|loss_?scale")
OF_FEATURES = ("standard", "minmax", "robust", "maxabs")  # the scalers of scikit-learn

LOST = "float16 gradients below 6e-8 become 0 before they reach a weight; a loss scale, 32768 to begin with, would lift them"
ADVICE = {
    3: "wrap the optimizer in `keras.mixed_precision.LossScaleOptimizer` and take the gradients of `optimizer.scale_loss(loss)`",
    2: "wrap the optimizer in `LossScaleOptimizer`; `get_scaled_loss` in the tape, `get_unscaled_gradients` after it",
    None: "wrap the optimizer in `LossScaleOptimizer` and scale the loss in the tape (`scale_loss` in Keras 3; in Keras 2 "
    "`get_scaled_loss`, and `get_unscaled_gradients` on the gradients)",
}
CLIPPED = "; Keras 3 unscales as it applies gradients, so clip by the optimizer's `clipnorm` or `global_clipnorm` and not in the loop"
LOOP_ADVICE = (
    "a custom loop has to scale the loss itself: `scale_loss` in the tape (Keras 3), or `get_scaled_loss` in the tape and "
    "`get_unscaled_gradients` after it (Keras 2)"
)

LONG = 60  # characters of a call that is shown without its arguments


class MissingLossScaling(Rule):
    """Training in float16 without loss scaling

    ## What it does
    Finds training in float16 without loss scaling: in PyTorch a loss from a float16 autocast region whose plain `backward()` feeds an
    optimizer's step (a warning where float16 is one of the dtypes to choose from, or the default of one of the devices, advice in a
    benchmark), and a module that FSDP shards with a float16 policy, in a program without any scaler; in Keras and TensorFlow gradients
    of a loss under `mixed_float16` that no LossScaleOptimizer scales. `fit()` scales by itself, but only where the model's own policy is
    mixed_float16: layers that get the policy one by one, a `DTypePolicyMap` and optimizers that go through an overridden `compile()` are
    reported as warnings.

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
    Unsafe: the fix builds a scaler before the loop, beside the optimizer of a class, or beside the optimizer that a function hands to its
    loops, and scales every loss, unscales before clipping, steps and updates through it; where the dtype is chosen, the scaler is on for
    float16 only. A checkpoint with the optimizer's state gets the scaler's too, and what loads the one loads the other where it is there.
    Steps with infinite gradients are skipped from then on. There is no fix where gradients are clipped after every backward pass of
    several, or where some of this is in another file. In Keras the fix wraps the optimizer and scales the loss in the tape, where the
    version of Keras is known. In Keras 2 it also unscales the gradients; in Keras 3 the optimizer does, and clipping in the loop becomes
    `clipnorm`, `global_clipnorm` or `clipvalue` of the optimizer. There is no fix where something else is done to the gradients of Keras 3.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp301.py, for Keras by tests/witness/test_mp301_keras.py. The loops that the fix writes train in
    tests/witness/test_mp301_fixed.py and tests/witness/test_mp301_keras_fixed.py; those of Keras 2 ran under tf_keras 2.21.

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
    tokens = ("autocast", "mixed_float16", "GradientTape", "compute_gradients", "mixed_precision=", "mp_policy=")
    program = True
    consequence_of = ("MP301",)
    adoption = Consequence(mends=True, fatal=True, scaling=True)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each backward of a float16 forward that nothing scales, and whose gradients an optimizer applies."""
        cases = ((entry, *case) for entry in trace.entries for case in unscaled_backwards(entry))
        found = [case for case in cases if not is_probe(trace, case[1].place)]
        fixes = scalers_put_in(trace, [(event, region[0]) for _, event, region, _ in found])
        sharded = {backward.place: place for place, cases in by_policy(trace).items() for _, _, backward, _ in cases}
        for entry, event, region, path in found:
            verdict = self.verdict(trace, entry, path, event.place)
            text = trace.text(event.place)
            chosen = is_chosen(trace, entry, region)
            forward = "a forward pass that may be in float16" if chosen and verdict.proven else "a float16 forward pass"
            yield self.at(
                trace,
                event.place,
                f"`{text}` computes gradients of {forward}, and nothing scales the loss{verdict.condition()}",
                why="float16 gradients below 6e-8 become 0; a loss scale, 65536 to begin with, would lift them",
                help="scale the loss with `torch.amp.GradScaler`, and step and update through it",
                severity=Severity.INFO if measures(event.place.path) else Severity.WARNING if chosen else None,
                confidence=Confidence.HIGH if verdict.proven and entry.script and not chosen else Confidence.MEDIUM,
                steps=region,
                fix=fixes[event.place],
                cause=sharded.get(event.place),
            )

        yield from self.past_apex(trace)
        yield from self.shards(trace)
        yield from self.tapes(trace)

    def past_apex(self, trace: Trace) -> Iterator[Finding]:
        """Report backwards of models that apex runs in float16, past `amp.scale_loss`."""
        for entry in trace.entries:
            for place, made, path in backwards_past_apex(entry):
                verdict = self.verdict(trace, entry, path, place)
                yield self.at(
                    trace,
                    place,
                    f"`{trace.text(place)}` goes past apex, which runs the model in float16 and would scale the loss{verdict.condition()}",
                    why="float16 gradients below 6e-8 become 0; a loss scale, 65536 to begin with, would lift them",
                    help="take the gradients under `with amp.scale_loss(loss, optimizer) as scaled:`, of `scaled`",
                    confidence=Confidence.HIGH if verdict.proven and entry.script else Confidence.MEDIUM,
                    steps=(Step(made.place, "apex takes over the model and its optimizer here"),),
                )

    def shards(self, trace: Trace) -> Iterator[Finding]:
        """Report modules that are sharded with a float16 policy, and trained without a scaler: once a policy, where it is made."""
        for place, cases in by_policy(trace).items():
            entry, event, backward, path = cases[0]
            given = places_of(cases)
            verdict = self.verdict(trace, entry, path, given[0])
            made = made_at(event)
            text = trace.text(place)
            shown = text if len(text) < LONG else text.partition("(")[0]
            yield self.at(
                trace,
                place,
                f"`{shown}` trains in float16, and nothing scales the loss{verdict.condition()}",
                why="float16 gradients below 6e-8 become 0; a loss scale, 65536 to begin with, would lift them",
                help="scale the loss with `torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler`, or use a bfloat16 policy",
                severity=Severity.WARNING if path else None,
                confidence=Confidence.MEDIUM,
                steps=(
                    *((Step(made, "its parameters, and so the gradients, are float16"),) if made is not None and place != made else ()),
                    *(Step(at, "a module is sharded with it here") for at in given if at != place),
                    Step(backward.place, "gradients are computed here, and nothing scales the loss"),
                ),
            )

    def tapes(self, trace: Trace) -> Iterator[Finding]:
        """Report gradients of a tape, of a float16 forward that no optimizer scales, which a plain optimizer applies."""
        for entry in trace.entries:
            for case in unscaled_tapes(trace, entry) if not is_test_path(entry.path) else ():  # tests set policies on purpose
                yield self.tape(trace, entry, case)
            for training in unscaled_training(trace, entry):
                verdict = self.verdict(trace, entry, training.path, training.call.place)
                text = trace.text(training.call.place).partition("(")[0]
                yield self.at(
                    trace,
                    training.call.place,
                    f"`{text}` trains float16 layers without loss scaling{verdict.condition()}",
                    why=f"`compile()` scales only where the model's own policy is mixed_float16; {LOST}",
                    help="set the global policy to mixed_float16 before the model is built, or give compile() a LossScaleOptimizer",
                    severity=Severity.WARNING,
                    confidence=Confidence.MEDIUM,
                    steps=training.steps,
                )

    def tape(self, trace: Trace, entry: Entry, case: Unscaled) -> Finding:
        """Report one of them."""
        elsewhere = case.taken.place.path != case.applied.place.path
        place = steps.seen_from(case.taken, case.applied) if elsewhere else case.taken.place
        verdict = self.verdict(trace, entry, case.path, place)
        text = trace.text(place)
        file = trace.file(place.path)
        major = loop_major(file, trace.targets(place.path)) if file is not None else None
        told = verdict.proven and not untold(trace, case.path)
        return self.at(
            trace,
            place,
            f"`{text}` takes gradients of a float16 forward, and nothing scales the loss{verdict.condition()}",
            why=LOST if not case.wrapped or major == 2 else f"in Keras 2 {LOST}; in Keras 3 every update is divided by it",
            help=(ADVICE[major] + (CLIPPED if major != 2 and clips(entry) else "")) if not case.wrapped else LOOP_ADVICE,
            severity=Severity.INFO if measures(place.path) else None if verdict.proven else Severity.WARNING,
            confidence=Confidence.HIGH if told and entry.script else Confidence.MEDIUM,
            steps=case.steps,
            fix=scaling_of(trace, case) if is_settled(trace, entry, case) else None,
        )


def clips(entry: Entry) -> bool:
    """Whether a loop clips gradients itself, which a loss scale makes as much larger."""
    return bool(entry.of("keras gradients clipped"))


def is_settled(trace: Trace, entry: Entry, case: Unscaled) -> bool:
    """Whether the policy is mixed_float16 on every run: scaling is right whatever else is chosen."""
    if trace.verdict(entry, case.path).proven:
        return not untold(trace, case.path)
    set_there = [event for event in entry.of("policy set") if event.place == case.setter]
    return any(trace.verdict(entry, path).proven for event in set_there for path, _ in possible(event.data["policy"], event.path))  # type: ignore[arg-type]


def is_probe(trace: Trace, place: Place) -> bool:
    """Whether a backward only tells whether it raises: once, on numbers drawn in the function, which gives a truth and catches all."""
    file, inner = trace.node(place) or (None, None)
    function = file.syntax.function(inner) if file is not None and inner is not None else None
    if file is None or inner is None or not isinstance(function, ast.FunctionDef):
        return False
    tried = False
    for around in file.syntax.ancestors(inner):
        if around is function:
            break
        if isinstance(around, ast.For | ast.While):
            return False
        tried = tried or (isinstance(around, ast.Try) and bool(around.handlers))
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    drawn = any(isinstance(node, ast.Attribute) and node.attr in DRAWN for node in ast.walk(function))
    return tried and drawn and bool(returned) and all(is_truth(function, value) for value in returned)


def is_truth(function: ast.FunctionDef, value: ast.expr | None) -> bool:
    """Whether a function returns True or False here, by itself or in a name that it sets to nothing else."""
    if isinstance(value, ast.Name):
        given = [n.value for n in ast.walk(function) if isinstance(n, ast.Assign) for t in n.targets if ast.unparse(t) == value.id]
        return bool(given) and all(isinstance(v, ast.Constant) and isinstance(v.value, bool) for v in given)
    return isinstance(value, ast.Constant) and isinstance(value.value, bool)


DRAWN = frozenset({"randn", "rand", "randint", "ones", "zeros", "empty"})


def unscaled_backwards(entry: Entry) -> list[tuple[Event, Chain, Path]]:
    """Backwards of float16 forwards without a scaler, the region that computed them and the optimizer's step, and the path."""
    regions = [
        (event, path, region)
        for event in entry.of("autocast entered")
        for path, region in steps.in_half(event.data["autocast"], event.path)
        if region.dtype == HALF
    ]
    if not regions or any(is_managed(event) for event in entry.events):
        return []
    hosted = bool(entry.of("trainer precision"))
    found: dict[object, tuple[Event, Chain, Path]] = {}
    order = {id(event): number for number, event in enumerate(entry.events)}
    backwards: dict[object, list[Event]] = {}
    for event in entry.of("backward"):
        backwards.setdefault(event.place, []).append(event)
    for step in entry.of("optimizer step"):
        if hosted and not all(type(atom) is Object and atom.made is not None for atom in atoms(step.data["optimizer"])):  # type: ignore[arg-type]
            continue
        for path, state in possible(step.data["gradients"], step.path):  # type: ignore[arg-type]
            if type(state) is not State or not isinstance(state.data, tuple) or state.data[0] != "plain":
                continue
            for event in backwards.get(state.data[2], ()):
                shared = extend(path, event.path)
                if event.place in found or shared is None or speaks_of_scaler(shared):
                    continue
                for both, loss in possible(event.data["loss"], shared):  # type: ignore[arg-type]
                    if type(loss) is not Tensor or loss.scaled is not None or loss.forward != frozenset({HALF}) or BY_HAND in loss.tags:
                        continue
                    around = [(e, r) for e, p, r in regions if r.chain and extend(p, both) is not None]
                    if around:
                        entered, region = next((pair for pair in reversed(around) if order[id(pair[0])] < order[id(event)]), around[0])
                        chain = (*region.chain[:1], *entrance(entered, region.chain[0]), *stepped(step))
                        found[event.place] = (event, chain, both)
    return list(found.values())


def backwards_past_apex(entry: Entry) -> Iterator[tuple[Place, Event, Path]]:
    """Backwards without `amp.scale_loss`, whose gradients an optimizer of apex's applies: where, what apex was given, and the path."""
    if entry.of("loss scaled by a trainer", "scaler step"):
        return  # the other branch, or another model
    found: set[object] = set()
    for step in entry.of("trainer step"):
        for path, state in possible(step.data["gradients"], step.path):  # type: ignore[arg-type]
            if type(state) is not State or not isinstance(state.data, tuple) or state.data[0] != "plain" or state.data[2] in found:
                continue
            for made, both in scaled_by_apex(entry, path):
                keys = {key_of(atom) for optimizer in made.data["optimizers"] for atom in atoms(optimizer)}  # type: ignore[attr-defined]
                if not keys.isdisjoint(key_of(atom) for atom in atoms(step.data["optimizer"])):  # type: ignore[arg-type]
                    found.add(state.data[2])
                    yield state.data[2], made, both
                    break


def unscaled_shards(entry: Entry) -> Iterator[tuple[Event, Event, Path]]:
    """Modules that are sharded with a float16 policy and trained without a scaler: where, a backward, and the path."""
    found: set[object] = set()
    if any(is_managed(event) for event in entry.events):
        return
    for event in entry.of("module sharded"):
        for path, dtype in possible(event.data["dtype"], event.path):  # type: ignore[arg-type]
            if type(dtype) is not DType or dtype.letter != HALF or event.place in found:
                continue
            for backward, both in steps.following(entry, event, path):
                if backward.kind == "backward" and not is_scaled(backward, both):
                    found.add(event.place)
                    yield event, backward, path
                    break


Sharded = tuple[Entry, Event, Event, Path]


def by_policy(trace: Trace) -> dict[Place, list[Sharded]]:
    """The modules that `unscaled_shards` finds, by the place to change: the policy of several, and what gives one alone its policy."""
    found: dict[Place | None, list[Sharded]] = {}
    for entry in trace.entries:
        for event, backward, path in unscaled_shards(entry):
            found.setdefault(made_at(event), []).append((entry, event, backward, path))
    told: dict[Place, list[Sharded]] = {}
    for made, cases in found.items():
        several = made is not None and len(places_of(cases)) > 1
        for case in cases:
            given = case[1].data["given"]
            assert isinstance(given, Place)
            told.setdefault(made if several and made is not None else given, []).append(case)
    return told


def made_at(event: Event) -> Place | None:
    """Where the policy of a sharded module is made."""
    policy = event.data["policy"]
    return policy.made if isinstance(policy, Object) else None


def places_of(cases: Sequence[Sharded]) -> list[Place]:
    """Where modules are given their policy."""
    return list(dict.fromkeys(place for case in cases if isinstance(place := case[1].data["given"], Place)))


def is_scaled(backward: Event, path: Path) -> bool:
    """Whether the loss of a backward may be scaled, by a scaler or by hand."""
    losses = [atom for _, atom in possible(backward.data["loss"], path)]  # type: ignore[arg-type]
    return any(type(loss) is Tensor and (loss.scaled is not None or BY_HAND in loss.tags) for loss in losses)


def speaks_of_scaler(path: Path) -> bool:
    """Whether a path hangs on something unknown that may be a scaler."""
    return any(key[0] in ("true", "in") and has_word_for_scaling(str(key[1]).partition(IDENTITY)[0]) for key, _ in path)


def is_chosen(trace: Trace, entry: Entry, region: Chain) -> bool:
    """Whether a region may also run in another dtype: its user chooses that, or the device does."""
    made = [event for event in entry.of("autocast made") if event.place == region[0].place]
    if any(is_left_to_device(trace, event) or {letter for _, letter in dtype_of(event.data["dtype"])} - {HALF, None} for event in made):  # type: ignore[arg-type]
        return True
    return any(
        atom.dtype == BFLOAT and any(s.place == region[0].place for s in atom.chain)
        for event in entry.of("autocast entered")
        for _, atom in steps.in_half(event.data["autocast"], event.path)
    )


def is_left_to_device(trace: Trace, made: Event) -> bool:
    """Whether autocast gets a device that may be another one than CUDA, and no dtype."""
    device = made.data["device"]
    return made.data["dtype"] is None and device is not None and any(device_of(atom, trace.switches) != "cuda" for atom in atoms(device))  # type: ignore[arg-type]


def entrance(event: Event, made: Step) -> Chain:
    """Where a region is entered, if it is made in another file."""
    return (Step(event.place, "it is entered here"),) if event.place.path != made.place.path else ()


def stepped(event: Event) -> Chain:
    """The optimizer's step."""
    return (Step(event.place, "the optimizer applies the gradients here"),)


def is_managed(event: Event) -> bool:
    """Whether something scales the loss or manages the optimizer: a trainer, or a scaler that is used."""
    if event.kind == "trainer precision":
        return takes_over(str(event.data["title"]))
    return event.kind in ("loss scaled", "scaler handed on", "scaler step", "unscale", "optimizer managed")


def has_word_for_scaling(text: str) -> bool:
    """Whether a program has a word for the scale of a loss."""
    lowered = text.lower()
    return any(not lowered.endswith(OF_FEATURES, 0, match.start()) for match in SCALING.finditer(lowered))
