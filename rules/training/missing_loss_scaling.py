"""MP301: gradients of a float16 forward pass are computed without loss scaling."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mplint.findings import Applicability, Change, Confidence, Finding, Fix, Severity
from mplint.frameworks.keras.evidence import untold
from mplint.frameworks.projects import under_policies
from mplint.frameworks.torch import steps
from mplint.frameworks.torch.protocol import device_of, dtype_of, key_of
from mplint.frameworks.torch.tensors import BY_HAND
from mplint.frameworks.trainers.queries import scaled_by_apex
from mplint.program.conditions import Path, extend
from mplint.program.machine import IDENTITY, Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import BFLOAT, HALF, Chain, DType, Object, Place, State, Step, Tensor, atoms
from mplint.python.document import measures
from mplint.python.names import position
from mplint.python.syntax import argument
from mplint.recipes.loss_in_tape import scale_in_tape, unscale_after, wrap_optimizer
from mplint.rule import Consequence, Rule
from mplint.source.file import SourceFile
from mplint.source.keras.clipping import clipping_by_optimizer
from mplint.source.keras.evidence import Float16, float16_at, graph_loop_in_half, loop_major, speaks_of_scaling
from mplint.source.keras.loop import KerasLoop, Update
from mplint.source.keras.optimizers import GRAPH_HOMES

from .losses_to_scale import scalers_put_in
from .mixed_layers import unscaled_training
from .unscaled_tapes import unscaled_tapes

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
GRAPH_ADVICE = "wrap it in `tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer(optimizer, 'dynamic')`, which scales and unscales"


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
    adoption = Consequence(mends=True, fatal=True, scaling=True)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each backward of a float16 forward that nothing scales, and whose gradients an optimizer applies."""
        found = [(entry, *case) for entry in trace.entries for case in unscaled_backwards(entry)]
        fixes = scalers_put_in(trace, [(event, region[0]) for _, event, region, _ in found])
        for entry, event, region, path in found:
            verdict = trace.verdict(entry, path)
            text = trace.text(event.place)
            yield self.at(
                trace,
                event.place,
                f"`{text}` computes gradients of a float16 forward pass, and nothing scales the loss{verdict.condition()}",
                why="float16 gradients below 6e-8 become 0; a loss scale, 65536 to begin with, would lift them",
                help="scale the loss with `torch.amp.GradScaler`, and step and update through it",
                severity=Severity.INFO if measures(event.place.path) else Severity.WARNING if is_chosen(entry, region) else None,
                confidence=Confidence.HIGH if verdict.proven and entry.script else Confidence.MEDIUM,
                steps=region,
                fix=fixes[event.place.path],
            )

        yield from self.past_apex(trace)
        yield from self.shards(trace)
        yield from self.tapes(trace)
        yield from under_policies(trace, ("GradientTape", "compute_gradients"), lambda file: in_keras(self, file))

    def past_apex(self, trace: Trace) -> Iterator[Finding]:
        """Report backwards of models that apex runs in float16, past `amp.scale_loss`."""
        for entry in trace.entries:
            for place, made, path in backwards_past_apex(entry):
                verdict = trace.verdict(entry, path)
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
        """Report modules that are sharded with a float16 policy, and trained without a scaler."""
        for entry in trace.entries:
            for event, backward, path in unscaled_shards(entry):
                verdict = trace.verdict(entry, path)
                policy = event.data["policy"]
                made = policy.made if isinstance(policy, Object) else None
                yield self.at(
                    trace,
                    event.data["given"],  # type: ignore[arg-type]
                    f"`{trace.text(event.data['given'])}` trains in float16, and nothing scales the loss{verdict.condition()}",  # type: ignore[arg-type]
                    why="float16 gradients below 6e-8 become 0; a loss scale, 65536 to begin with, would lift them",
                    help="scale the loss with `torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler`, or use a bfloat16 policy",
                    severity=Severity.WARNING if path else None,
                    confidence=Confidence.MEDIUM,
                    steps=(
                        *((Step(made, "its parameters, and so the gradients, are float16"),) if made is not None else ()),
                        Step(backward.place, "gradients are computed here, and nothing scales the loss"),
                    ),
                )

    def tapes(self, trace: Trace) -> Iterator[Finding]:
        """Report gradients of a tape, of a float16 forward that no optimizer scales, which a plain optimizer applies."""
        for entry in trace.entries:
            for taken, path, reason in unscaled_tapes(trace, entry):
                verdict = trace.verdict(entry, path)
                yield self.at(
                    trace,
                    taken.place,
                    f"`{trace.text(taken.place)}` takes gradients of a float16 forward, and nothing scales the loss{verdict.condition()}",
                    why=LOST,
                    help="scale the loss with a `LossScaleOptimizer`",
                    severity=Severity.INFO if measures(taken.place.path) else None,
                    confidence=Confidence.HIGH if verdict.proven and entry.script and not untold(trace, path) else Confidence.MEDIUM,
                    steps=reason,
                )

    def check_source(self, file: SourceFile) -> Iterator[Finding]:
        """Report the tapes whose float16 gradients nothing scales."""
        yield from in_keras(self, file)


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
    found: dict[object, tuple[Event, Chain, Path]] = {}
    backwards: dict[object, list[Event]] = {}
    for event in entry.of("backward"):
        backwards.setdefault(event.place, []).append(event)
    for step in entry.of("optimizer step"):
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
                    entered, region = next(((e, r) for e, p, r in regions if extend(p, both) is not None), (event, None))
                    if region is not None and region.chain:
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


def is_scaled(backward: Event, path: Path) -> bool:
    """Whether the loss of a backward may be scaled, by a scaler or by hand."""
    losses = [atom for _, atom in possible(backward.data["loss"], path)]  # type: ignore[arg-type]
    return any(type(loss) is Tensor and (loss.scaled is not None or BY_HAND in loss.tags) for loss in losses)


def speaks_of_scaler(path: Path) -> bool:
    """Whether a path hangs on something unknown that may be a scaler."""
    return any(key[0] in ("true", "in") and has_word_for_scaling(str(key[1]).partition(IDENTITY)[0]) for key, _ in path)


def is_chosen(entry: Entry, region: Chain) -> bool:
    """Whether a region may also run in another dtype: its user chooses that, or the device does."""
    made = [event for event in entry.of("autocast made") if event.place == region[0].place]
    if any(is_left_to_device(event) or {letter for _, letter in dtype_of(event.data["dtype"])} - {HALF, None} for event in made):  # type: ignore[arg-type]
        return True
    return any(
        atom.dtype == BFLOAT and any(s.place == region[0].place for s in atom.chain)
        for event in entry.of("autocast entered")
        for _, atom in steps.in_half(event.data["autocast"], event.path)
    )


def is_left_to_device(made: Event) -> bool:
    """Whether autocast gets a device that may be another one than CUDA, and no dtype."""
    device = made.data["device"]
    return made.data["dtype"] is None and device is not None and any(device_of(atom) != "cuda" for atom in atoms(device))  # type: ignore[arg-type]


def entrance(event: Event, made: Step) -> Chain:
    """Where a region is entered, if it is made in another file."""
    return (Step(event.place, "it is entered here"),) if event.place.path != made.place.path else ()


def stepped(event: Event) -> Chain:
    """The optimizer's step."""
    return (Step(event.place, "the optimizer applies the gradients here"),)


def is_managed(event: Event) -> bool:
    """Whether something scales the loss or manages the optimizer: a trainer, or a scaler that is not only made but used."""
    return event.kind in ("loss scaled", "scaler handed on", "scaler step", "unscale", "trainer precision", "optimizer managed")


def has_word_for_scaling(text: str) -> bool:
    """Whether a program has a word for the scale of a loss."""
    lowered = text.lower()
    return any(not lowered.endswith(OF_FEATURES, 0, match.start()) for match in SCALING.finditer(lowered))


def in_keras(rule: Rule, file: SourceFile) -> Iterator[Finding]:
    """The Keras part: float16 gradients of a loss that nothing scales."""
    for update in file.fact(KerasLoop).updates:
        if update.scaled or update.by_hand:
            continue
        optimizer = update.optimizer
        if optimizer.certainly_plain or (optimizer.opaque and not optimizer.wrapped and not optimizer.model):
            yield from plain_optimizer(rule, file, update)
        elif (optimizer.model or optimizer.wrapped) and not (update.unscaled or update.scales_itself):
            yield from idle_wrapper(rule, file, update)
    yield from mixed_layers(rule, file)


def plain_optimizer(rule: Rule, file: SourceFile, update: Update) -> Iterator[Finding]:
    """A loop around an optimizer that scales nothing, under a policy that computes in float16."""
    half = float16_at(file, update.node)
    level = half.level
    chosen = graph_loop_in_half(file, update) if level == "open" else None
    if chosen is not None:
        level = "maybe"
    elif not update.optimizer.certainly_plain or (file.targets.keras_policy is not None and is_graph_optimizer(file, update)):
        return
    if level in ("no", "open") or (level != "certain" and speaks_of_scaling(file)) or built_before(file, update, half):
        return
    doubtful = level == "maybe" or update.optimizer.overridden
    why = LOST
    if update.optimizer.overridden:
        why += "; `compile()` adds one only to the optimizer that Keras itself is given"
    condition = " in mixed precision" if level == "maybe" else ""
    yield rule.finding(
        file,
        update.gradients[0],
        f"`{file.text(update.receiver)}` gets float16 gradients{condition}, and nothing scales the loss",
        severity=Severity.WARNING if doubtful else Severity.ERROR,
        confidence=Confidence.MEDIUM if level == "maybe" else Confidence.HIGH,
        why=why,
        help=ADVICE[loop_major(file)] if chosen is None else GRAPH_ADVICE,
        related=(
            *policies(half),
            *(((chosen, "mixed precision is chosen here"),) if chosen is not None else ()),
            *((made, "the optimizer is made here, without a loss scale") for made in update.optimizer.plain[:1]),
        ),
        fix=full_scaling(file, update, half),
    )


def built_before(file: SourceFile, update: Update, half: Float16) -> bool:
    """Whether the program hands the loop a model that it has built before it sets the policy: such a model computes in float32."""
    function = file.syntax.function(update.node)
    trained = [g.args[1].value for g in update.gradients if len(g.args) > 1 and isinstance(g.args[1], ast.Attribute)]
    if not isinstance(function, ast.FunctionDef) or not half.setters or not trained:
        return False
    names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
    first = min(position(setter) for setter in half.setters)
    calls = [c for c in file.syntax.all(ast.Call) if file.names.local_function(c.func) is function]
    if not calls or any(file.syntax.function(node) is not None for node in (*calls, *half.setters)):
        return False
    for model in trained:
        if not isinstance(model, ast.Name) or model.id not in names:
            return False
        for call in calls:
            given = argument(call, model.id, names.index(model.id))
            made = file.names.reaching(given) if isinstance(given, ast.Name) else []
            if not made or not all(isinstance(b.value, ast.Call) and position(b.value) < first for b in made):
                return False
    return True


def is_graph_optimizer(file: SourceFile, update: Update) -> bool:
    """Whether the optimizer is one of TensorFlow 1, whose graphs don't follow a policy that a Keras program elsewhere sets."""
    return all(name.startswith(GRAPH_HOMES) for call in update.optimizer.plain for name in file.names.candidates(call.func))


def idle_wrapper(rule: Rule, file: SourceFile, update: Update) -> Iterator[Finding]:
    """A loop around a LossScaleOptimizer that never scales the loss (Keras 2, or a Keras that the program doesn't tell)."""
    half = float16_at(file, update.node)
    wrapped = update.optimizer.wrapped
    if loop_major(file) == 3 or half.level == "no" or "auto_scale_loss" in file.document.text:
        return
    if file.fact(KerasLoop).has_scaled_twin(update):
        return
    if half.level != "certain" and not wrapped:
        return
    major = loop_major(file)
    certain = half.level == "certain"
    harm = LOST if major == 2 else f"in Keras 2 {LOST}; in Keras 3 every update is divided by it"
    certainly = not update.optimizer.plain or not any(is_conditional(file, call) for call in wrapped)  # else it may have no such methods
    changes = together(scale_in_tape(file, update, "get_scaled_loss"), unscale_after(file, update)) if major == 2 and certainly else None
    who = "the optimizer becomes a LossScaleOptimizer here" if wrapped else "under this policy `compile()` wraps the optimizer"
    yield rule.finding(
        file,
        update.gradients[0],
        f"the LossScaleOptimizer `{file.text(update.receiver)}` gets gradients of a loss that was never scaled",
        severity=Severity.ERROR if certain else Severity.WARNING,
        confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
        why=harm,
        help="a custom loop has to scale the loss itself: `scale_loss` in the tape (Keras 3), or `get_scaled_loss` in the tape and "
        "`get_unscaled_gradients` after it (Keras 2)",
        related=tuple((node, who) for node in (wrapped or half.setters)[:1]),
        fix=Fix("Scale the loss in the tape and unscale the gradients", Applicability.UNSAFE, changes) if changes else None,
    )


def is_conditional(file: SourceFile, node: ast.AST) -> bool:
    """Whether a condition in its function decides if `node` runs."""
    scope = file.syntax.function(node)
    parents = file.syntax.ancestors(node)
    return any(isinstance(parent, (ast.If, ast.IfExp)) and file.syntax.function(parent) is scope for parent in parents)


def mixed_layers(rule: Rule, file: SourceFile) -> Iterator[Finding]:
    """Layers in mixed_float16 under a model whose own policy is another: `compile()` looks at the model's only."""
    for training in unscaled_training(file):
        yield rule.finding(
            file,
            training.call,
            f"`{file.text(training.call.func)}` trains float16 layers without loss scaling",
            severity=Severity.WARNING,
            confidence=Confidence.MEDIUM,
            why=f"`compile()` scales only where the model's own policy is mixed_float16; {LOST}",
            help="set the global policy to mixed_float16 before the model is built, or give compile() a LossScaleOptimizer",
            related=((training.cause, training.reason),),
        )


def policies(half: Float16) -> tuple[tuple[ast.AST, str], ...]:
    """The calls that put float16 in force."""
    return tuple((setter, "layers compute in float16 from here on") for setter in half.setters[:1])


def full_scaling(file: SourceFile, update: Update, half: Float16) -> Fix | None:
    """Wrap the optimizer, scale the loss and, in Keras 2, unscale the gradients."""
    major = loop_major(file)
    if major is None or half.level != "certain":
        return None
    peers = [u for u in file.fact(KerasLoop).updates if u.optimizer.keys & update.optimizer.keys]
    if major == 3:
        clippings = [clipping_by_optimizer(file, u) for u in peers]
        options = {clipping.option for clipping in clippings if clipping is not None}
        if None in clippings or len(options) != 1:
            return None
        wrapped = wrap_optimizer(file, update.optimizer.plain, half.setters, options.pop())
        scaled = [scale_in_tape(file, u, "scale_loss") for u in peers]
        changes = together(wrapped, *scaled, *(c.changes for c in clippings if c is not None))
    else:
        scaled = [scale_in_tape(file, u, "get_scaled_loss") for u in peers if not u.scales_itself]
        wrapped = wrap_optimizer(file, update.optimizer.plain, half.setters)
        changes = together(wrapped, *scaled, *(unscale_after(file, u) for u in peers if not u.scales_itself))
    return Fix("Wrap the optimizer in a LossScaleOptimizer and scale the loss", Applicability.UNSAFE, changes) if changes else None


def together(*parts: tuple[Change, ...] | None) -> tuple[Change, ...] | None:
    """All changes, or None where one of them can't be made."""
    found: list[Change] = []
    for part in parts:
        if part is None:
            return None
        found += part
    return tuple(found)
