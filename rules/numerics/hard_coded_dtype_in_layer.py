"""MP209: a layer that mixes a hard-coded dtype with its inputs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Fix, Replace, Severity, Span
from mplint.frameworks.keras.evidence import Origins, excluded, programs, untold
from mplint.frameworks.keras.tensors import GUARD, LOW, MULTI, OPERATORS, TAKEN_BACK
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import BFLOAT, COMPUTE, DTYPE_NAMES, HALF, SINGLE, Object, Place, Step, Tensor
from mplint.python.document import is_test_path
from mplint.python.file import SourceFile
from mplint.python.syntax import arguments, last_name
from mplint.rule import Consequence, Rule

FILLS = (
    "zeros",
    "ones",
    "normal",
    "uniform",
    "truncated_normal",
    "random_normal",
    "random_uniform",
    "one_hot",
    "random_bernoulli",
    "constant",
)
SYMBOLIC = "symbolic"  # tensors of a functional model
DTYPES = ("dtype", "compute_dtype", "variable_dtype")
AUTOCAST = ("autocast", "experimental_autocast")  # whether a weight, or an input, is cast to the compute dtype
BACKENDS = ("jax", "torch")  # those that promote where two float dtypes meet in an operator


class HardCodedDtypeInLayer(Rule):
    """Hard-coded dtype in a layer

    ## What it does
    Finds Keras layers that combine a tensor of a hard-coded dtype with their inputs, their weights or what they computed from them:
    `query / tf.sqrt(tf.constant(size, dtype=tf.float32))`, a position table built with `dtype="float32"` and added in `call`.
    What gives float32 whatever it is given counts as well, such as `tf.image.resize`, and a cast to float32 that is never cast back.
    Finds as well layers that cast to float32, and compute on in it, what another layer has given out in float32: autocast has rounded it by
    then.
    Silent in a program that never sets a mixed policy, and in code that has no half precision in mind: neither its file, nor those that
    run together with it. Layers that a distribution (setup.py, setup.cfg, pyproject.toml) offers to others are run under the policies
    of its users, if its code, tests or examples speak of half precision under Keras anywhere: at medium confidence where something that
    uses them sets a policy, or where no policy is set and the library follows it elsewhere, else at low confidence.

    ## Why is this bad?
    Under `mixed_float16` a layer's inputs and weights are float16 inside `call`, and TensorFlow does not mix dtypes: "cannot compute
    Mul as input #1 was expected to be a half tensor but is a float tensor". The layer works in float32 and fails the day the
    policy changes.

    ## Example
    ```python
    import tensorflow as tf

    tf.keras.mixed_precision.set_global_policy("mixed_float16")

    class Scaled(tf.keras.layers.Layer):
        def call(self, inputs):
            size = tf.constant(64.0, dtype=tf.float32)
            return inputs / tf.sqrt(size)
    ```

    ## Use instead
    ```python
    import tensorflow as tf

    tf.keras.mixed_precision.set_global_policy("mixed_float16")

    class Scaled(tf.keras.layers.Layer):
        def call(self, inputs):
            size = tf.constant(64.0, dtype=self.compute_dtype)
            return inputs / tf.sqrt(size)
    ```

    ## Fix safety
    Safe: under a float32 policy `self.compute_dtype` is float32, so nothing changes; under a mixed policy the layer failed before. Not
    offered for variables, nor where a number that float16 cannot hold takes part, nor where the function asks for dtypes or the class has
    weights that autocast leaves in float32. What is computed of a size is cast where it meets half tensors, since float16 ends at 65504.
    Unsafe where the project supports TensorFlow before 2.4,
    whose layers have no `compute_dtype`: by its pins, or without any by code for TensorFlow 1 that runs together with the layer.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp209.py.

    ## References
    - https://www.tensorflow.org/guide/mixed_precision
    - https://keras.io/api/mixed_precision/policy/
    """

    code = "MP209"
    name = "hard-coded-dtype-in-layer"
    severity = Severity.WARNING
    fix = Applicability.SAFE
    frameworks = ("keras",)
    program = True
    adoption = Consequence("the layer takes the compute dtype of the policy instead of a fixed one", mends=True, fatal=True)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each tensor of a hard-coded dtype once, where it is made or, where it comes from elsewhere, where it is mixed in."""
        seen: set[tuple[Place, Place]] = set()
        for entry in trace.entries:
            origins = Origins(entry)
            for event in entry.of("dtypes clash"):
                step = event.data["made"]
                assert isinstance(step, Step)
                made = origins.of(step, event)
                place = place_of(trace, event, step, made)
                other = event.place if place is step.place else step.place
                if (place, other) in seen and len(seen) < 4096:
                    continue
                finding = self.judge(trace, entry, event, step, place, made)
                if finding is not None:
                    seen.add((place, other))
                    yield finding
            yield from self.given_out(trace, entry, origins)
            yield from self.too_late(trace, entry)

    def judge(self, trace: Trace, entry: Entry, event: Event, step: Step, place: Place, made: Event | None) -> Finding | None:
        """The finding of a clash, where half precision may be in force there."""
        low = event.data["low"]
        own = event.data["own"]
        assert isinstance(low, Tensor) and isinstance(own, Tensor)
        letter = next(iter(low.dtypes))
        symbolic = event.data["name"] in OPERATORS and SYMBOLIC in low.tags | own.tags
        if excluded(event.path) or (symbolic and not under_keras_2(trace, event.place)):
            return None
        if any(key[0] == "dtype" for key, _ in event.path):
            return None  # where two dtypes are compared, as helpers do that cast one thing to the dtype of another
        if event.function == "build" and not low.half:
            return None  # variables are float32 wherever no `call` reads them
        if MULTI in own.tags or MULTI in low.tags:
            text = trace.source(event.place.path).text
            if letter == COMPUTE or any(f'"{name}"' in text or f"'{name}'" in text for name in BACKENDS):
                return None
        if made is not None and (is_rebound(trace, made) or any(key[1] == GUARD for key, _ in made.path)):
            return None  # code that asks for dtypes itself
        known = programs(trace)
        if (letter == COMPUTE and not known.in_mind(event.place.path, entry)) or known.is_left_out(entry, event, low):
            return None
        if letter == COMPUTE and chosen_by_a_switch(entry, event):
            return None
        verdict = self.verdict(trace, entry, event.path, place)
        sure = letter != COMPUTE and verdict.proven and not untold(trace, event.path)
        dtype = "half" if letter == COMPUTE else DTYPE_NAMES[letter]
        where = told_by_user(trace, event) if letter == COMPUTE else verdict.condition()
        text = shortened(trace.text(place if made is not None and made.calls and place == made.calls[-1] else step.place))
        return self.at(
            trace,
            place,
            f"`{text}` is always float32, and `{event.function or 'this code'}` mixes it with {dtype} tensors{where}",
            why="TensorFlow raises where a half and a float tensor meet: the layer cannot run under a mixed precision policy.",
            help="make it in `self.compute_dtype`, or cast the whole calculation to float32 and its result back",
            severity=Severity.INFO if is_test_path(place.path) else None,
            confidence=Confidence.HIGH if sure else known.sureness(event.place.path, entry) if letter == COMPUTE else Confidence.MEDIUM,
            steps=(
                *known.told(event.place.path, low),
                *low.half,
                Step(event.place, "the dtypes meet here") if place is step.place else Step(step.place, "the tensor is made here"),
            ),
            fix=repair(trace, event, step, place, made),
        )

    def given_out(self, trace: Trace, entry: Entry, origins: Origins) -> Iterator[Finding]:
        """What a layer gives in `K.floatx()` or in its variables' dtype, and not in its compute dtype."""
        for event in entry.of("layer used"):
            for _, output in possible(event.data["output"], event.path):  # type: ignore[arg-type]
                source = origins.of(output.made) if type(output) is Tensor and output.made is not None else None
                if source is None or not programs(trace).in_mind(source.place.path):
                    continue
                if source.data["how"] == "floatx":
                    words = "follows `floatx()`, which stays float32 under a mixed policy"
                elif source.data["how"] == "variable" and source.data["sort"] == "filled":
                    words = "is made in the dtype of the layer's variables, which stays float32 under a mixed policy"
                else:
                    continue
                yield self.at(
                    trace,
                    source.place,
                    f"`{shortened(trace.text(source.place))}` {words}",
                    why="the layer gives it out: what it gives is float32 beside half tensors, and TensorFlow raises where the two meet.",
                    help="make it in the dtype of the layer's input, or in `self.compute_dtype`",
                    severity=Severity.INFO if is_test_path(source.place.path) else None,
                    confidence=programs(trace).sureness(source.place.path, entry),
                )

    def too_late(self, trace: Trace, entry: Entry) -> Iterator[Finding]:
        """Casts to float32 of what a layer gave out in float32, after autocast has rounded it for the layer that casts."""
        for call in entry.of("float32 rounded between layers"):
            layer = call.data["layer"]
            for event in entry.of("cast"):
                tensor = event.data["tensor"]
                if event.calls[-1:] != (call.place,) or event.data["letter"] != SINGLE or type(tensor) is not Tensor:
                    continue
                if TAKEN_BACK not in tensor.tags or not tensor.dtypes <= set(LOW) or tensor.dtypes == {COMPUTE} or excluded(event.path):
                    continue
                verdict = self.verdict(trace, entry, event.path, event.place)
                dtype = DTYPE_NAMES[next(iter(tensor.dtypes))]
                name = layer.type.name if isinstance(layer, Object) and not isinstance(layer.type, str) else "the layer"
                yield self.at(
                    trace,
                    event.place,
                    f"autocast has rounded to {dtype} what `{name}` casts to float32 here{verdict.condition()}",
                    why="the layer before gives float32, and a layer's inputs are cast to its compute dtype before `call` gets them: "
                    f"{LOST[dtype]}, and the cast does not bring back what is lost.",
                    help='give the layer `dtype="float32"`, so that it gets what it is given',
                    severity=Severity.INFO if is_test_path(event.place.path) else None,
                    confidence=Confidence.MEDIUM,
                    steps=(*tensor.half, Step(call.place, f"`{name}` is given float32 here")),
                )


# What rounding to a dtype does to a value.
LOST = {
    "float16": "float16 keeps 11 bits, makes 0 of what is below 6e-8, and infinity of what is above 65504",
    "bfloat16": "bfloat16 keeps 8 bits",
}


def under_keras_2(trace: Trace, place: Place) -> bool:
    """Whether the project pins a Keras whose operators do not promote the dtypes of symbolic tensors."""
    return trace.targets(place.path).keras_major == 2


def place_of(trace: Trace, event: Event, step: Step, made: Event | None) -> Place:
    """Where one would mend it: where the tensor is made, if its dtype is written there or the layer makes it as it runs."""
    if made is None:
        return event.place
    if chosen_by_caller(trace, made):
        return made.calls[-1]
    if made.data["dtype"] is not None or made.data["sort"] == "array":
        return step.place
    if made.data["sort"] == "variable":
        return event.place if made.function == "call" else step.place
    return event.place if made.function in ("", "__init__", "build") else step.place


def chosen_by_caller(trace: Trace, made: Event) -> bool:
    """Whether the dtype of a tensor is a parameter of the function that makes it."""
    where = made.data["dtype"]
    if not made.calls or not isinstance(where, Place) or not (name := trace.text(where)).isidentifier():
        return False
    known = trace.held.setdefault("MP209 parameters", {})
    assert isinstance(known, dict)
    if where not in known:
        functions = Surroundings(trace, where).functions
        arguments = functions[-1].args if functions else None
        known[where] = arguments is not None and any(a.arg == name for a in (*arguments.args, *arguments.kwonlyargs))
    return bool(known[where])


def is_rebound(trace: Trace, made: Event) -> bool:
    """Whether the dtype of a tensor is a global name that some function of the project sets."""
    where = made.data["dtype"]
    name = trace.text(where).rpartition(".")[2] if isinstance(where, Place) else ""
    if not name.isidentifier() or name in DTYPE_NAMES.values():
        return False
    known = trace.held.setdefault("MP209 rebound names", {})
    assert isinstance(known, dict)
    if name not in known:
        setting = re.compile(rf"^\s+global\b.*\b{name}\b", re.M)
        known[name] = any(setting.search(trace.source(path).text) for path in sorted(programs(trace).loaded))
    return bool(known[name])


def chosen_by_a_switch(entry: Entry, event: Event) -> bool:
    """Whether the code itself casts to half on the other side of a test on the way: who sets the policy may turn that switch too."""
    turned = {(key, not sense) for key, sense in event.path}
    halves = (e for kind in ("cast", "tensor made") for e in entry.of(kind) if e.data["letter"] in (HALF, BFLOAT))
    return any(not turned.isdisjoint(half.path) for half in halves)


def told_by_user(trace: Trace, event: Event) -> str:
    """How the policy comes in that nobody in the project may have set."""
    known = programs(trace)
    outside = known.is_library(event.place.path) and not known.policies
    return " when a user sets `mixed_float16`" if outside else " under a mixed policy"


def shortened(text: str) -> str:
    """The text of an expression on one line, cut where it is long."""
    text = " ".join(text.split())
    return text if len(text) <= 50 else text[:47] + "..."


def repair(trace: Trace, event: Event, step: Step, place: Place, made: Event | None) -> Fix | None:
    """The compute dtype in place of the literal, or a cast of the operand where there is none."""
    if made is None or made.data["sort"] in ("array", "island"):
        return None
    if chosen_by_caller(trace, made):
        return None  # what else the function makes in that dtype meets it there, and would stay float32
    source = Surroundings(trace, event.place)
    if source.holds_large_number() or not source.is_method() or source.kind() == "module":
        return None
    if source.keeps_float32() or Surroundings(trace, step.place).keeps_float32():
        return None  # what meets there may be float32 on purpose
    if has_another(trace, made.place):
        return None  # and would stay float32 by it
    counted = counts(trace, step.place)
    written = made.data["dtype"]
    name = str(made.data["name"])
    if isinstance(written, Place) and not name.endswith(".range") and not counted:  # tf.range knows no half
        around = Surroundings(trace, step.place)
        known = around.is_method() and around.kind() != "module"  # what is no layer has no compute dtype
        if made.data["sort"] == "variable" or not known or (around.method == "__init__" and not around.initialized()):
            return None
        if meets_float32(trace, step.place):
            return None
        change = Replace(named_only_for(trace, written) or trace.span(written), "self.compute_dtype")
        return Fix("use the compute dtype of the layer", safety(trace, event.place, source), (change,))
    around = Surroundings(trace, step.place)
    if (
        name.rpartition(".")[2] in FILLS
        and around.is_method()
        and around.method == "call"
        and around.owner == source.owner
        and written is None
    ):
        line, column = trace.span(step.place)[2:]
        if trace.text(step.place).rstrip(")").rstrip()[-1:] not in (",", "("):
            change = Replace(Span(line, column - 1, line, column - 1), ", dtype=self.compute_dtype")
            return Fix("use the compute dtype of the layer", safety(trace, event.place, source), (change,))
    operand = source.operand(int(event.data["side"]))  # type: ignore[call-overload]
    if operand is None or source.package is None or (counted and within(operand[0], trace.span(step.place))):
        return None
    span, text = operand
    if "\n" in text:
        return None
    change = Replace(span, f"{source.package}.cast({text}, self.compute_dtype)")
    return Fix("cast it to the compute dtype", safety(trace, event.place, source), (change,))


def meets_float32(trace: Trace, made: Place) -> bool:
    """Whether the function that makes a tensor under a name also computes with it and what is written out to be float32."""
    file, node = trace.node(made) or (None, None)
    if file is None or node is None or not isinstance(statement := file.syntax.parents.get(node), ast.Assign):
        return False
    names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
    function = file.syntax.function(node)
    sides = [(p.left, p.right) for p in file.syntax.all(ast.BinOp) if file.syntax.function(p) is function]
    met = [pair for pair in sides if any(isinstance(side, ast.Name) and side.id in names for side in pair)]
    return any(IN_FLOAT32.search(file.text(side)) for pair in met for side in pair)


def has_another(trace: Trace, made: Place) -> bool:
    """Whether the statement that makes a tensor makes another beside it, in a dtype that is written there and not that of the layer."""
    file, node = trace.node(made) or (None, None)
    if file is None or node is None:
        return False
    around = [node, *file.syntax.ancestors(node)]
    statement = next((part for part in around if isinstance(part, ast.stmt)), node)
    inside = set(ast.walk(node))
    calls = (part for part in ast.walk(statement) if isinstance(part, ast.Call) and part not in inside and part not in around)
    return any(stays_float32(file, call) for call in calls)


def stays_float32(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call makes a tensor in a floating dtype that is written there, or that it takes by itself, and not in that of the layer."""
    name, given = last_name(call.func), arguments(call)
    if name != "cast" and name not in MAKERS:
        return False
    written = given.get("dtype") or (given.get(1) if name == "cast" else None)
    if written is None:
        written = next((value for at, value in given.items() if at not in (0, "name") and is_dtype(value)), None)
    if written is not None:
        return WHOLE.search(file.text(written)) is None and FOLLOWED.search(file.text(written)) is None
    if name in ("constant", "convert_to_tensor"):
        return any(isinstance(part, ast.Constant) and type(part.value) is float for part in ast.walk(call))
    return name != "cast"


def is_dtype(node: ast.expr) -> bool:
    """Whether an argument is a dtype, by how it is written."""
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else last_name(node)
    return DTYPE_WRITTEN.search(text) is not None


def counts(trace: Trace, made: Place) -> bool:
    """Whether a tensor is made of a number of things, which float16 may not hold: of a size, or of a name for one."""
    file, node = trace.node(made) or (None, None)
    if file is None or not isinstance(node, ast.Call) or not node.args or last_name(node.func) not in OF_NUMBERS:
        return False
    return is_count(file, node.args[0])


def is_count(file: SourceFile, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression gives how many there are of something, as what it is made of tells, or its name."""
    match node:
        case ast.BinOp(left=left, right=right):
            return is_count(file, left, depth) or is_count(file, right, depth)
        case ast.Call(func=func, args=[given]) if last_name(func) in ("int", "float"):
            return is_count(file, given, depth)
        case ast.Call(func=func):
            return last_name(func) in SIZES
        case ast.Subscript(value=value):
            return is_count(file, value, depth)
        case ast.Name():
            values = [b.value for b in file.names.reaching(node) if b.value is not None]
            return COUNT.search(node.id) is not None or (depth < 3 and any(is_count(file, v, depth + 1) for v in values))
        case ast.Attribute(attr=attr):
            return attr in SIZES or COUNT.search(attr) is not None
    return False


def named_only_for(trace: Trace, written: Place) -> Span | None:
    """Where the dtype stands that a local name was given for one use alone, which is at a place."""
    file, node = trace.node(written) or (None, None)
    if file is None or not isinstance(node, ast.Name):
        return None
    function = file.syntax.function(node)
    uses = [n for n in file.syntax.all(ast.Name) if n.id == node.id and file.syntax.function(n) is function]
    around = [file.syntax.parents.get(n) for n in uses if n is not node]
    match around:
        case [ast.Assign(targets=[_], value=value)] if function is not None:
            return file.span(value)
    return None


def within(outer: Span, inner: Span) -> bool:
    """Whether a span holds another."""
    return outer[:2] <= inner[:2] and inner[2:] <= outer[2:]


COUNT = re.compile(r"^fan_|(?:^|_)(?:num|count|n)_|_(?:size|count|length|dim|num)$")
SIZES = frozenset({"shape", "get_shape", "int_shape", "shape_as_list", "size", "len", "length", "range", "arange", "prod", "reduce_prod"})
OF_NUMBERS = frozenset({"cast", "to_float", "constant", "convert_to_tensor"})
MAKERS = frozenset({"constant", "convert_to_tensor", *FILLS})
DTYPE_WRITTEN = re.compile(r"d(?:ata_?)?type|^(?:b?float|int|uint|complex)\d+$|^(?:bool|string|half|double|floatx)$")
WHOLE = re.compile(r"\bu?int\d|\bbool\b|\bstring\b")
FOLLOWED = re.compile(r"compute_dtype|(?<!self)\.dtype\b")  # the dtype of the layer, or of a tensor
IN_FLOAT32 = re.compile(r"\bfloatx\(\)|\bfloat32\b")


def safety(trace: Trace, place: Place, source: Surroundings) -> Applicability:
    """How sure a fix is that asks a layer for its compute dtype: those of a TensorFlow before 2.4 do not tell it, nor does what is none."""
    if source.kind() != "layer":
        return Applicability.UNSAFE
    pinned = trace.targets(place.path).tensorflow
    old = pinned.before("2.4") if pinned is not None else programs(trace).supports_old(place.path)
    return Applicability.UNSAFE if old else Applicability.SAFE


class Surroundings:
    """The syntax around a place: its method and class, its statement, and the operands of an operator there."""

    def __init__(self, trace: Trace, place: Place) -> None:
        self.text = trace.source(place.path).text
        file = trace.file(place.path)
        self.tree = file.tree if file is not None else ast.Module([], [])
        self.span = trace.span(place)
        self.lines = self.text.split("\n")
        self.chain: list[ast.AST] = []
        node: ast.AST | None = self.tree
        while node is not None:
            node = next((child for child in ast.iter_child_nodes(node) if self.covers(child)), None)
            if node is not None:
                self.chain.append(node)

    def bounds(self, node: ast.AST) -> Span:
        """The span of a node, in characters."""
        line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
        end, last = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
        return Span(line, in_characters(self.lines[line - 1], column), end, in_characters(self.lines[end - 1], last))

    def covers(self, node: ast.AST) -> bool:
        """Whether a node reaches around the place."""
        if not hasattr(node, "lineno"):
            return any(self.covers(child) for child in ast.iter_child_nodes(node))
        bounds = self.bounds(node)
        return bounds[:2] <= self.span[:2] and bounds[2:] >= self.span[2:]

    @property
    def functions(self) -> list[ast.FunctionDef]:
        """The functions around the place, outermost first."""
        return [node for node in self.chain if isinstance(node, ast.FunctionDef)]

    @property
    def owner(self) -> str:
        """The class around the place."""
        return next((node.name for node in reversed(self.chain) if isinstance(node, ast.ClassDef)), "")

    def kind(self) -> str:
        """What the class around the place is by what it extends: a "layer" of Keras, a "module" that is none, or "" where that is open."""
        classes = [node for node in self.chain if isinstance(node, ast.ClassDef)]
        bases = [ast.unparse(base) for base in classes[-1].bases] if classes else []
        if any(base.endswith(("Layer", "Model", "Cell")) or "keras" in base or base.startswith("layers.") for base in bases):
            return "layer"
        return "module" if all(base.endswith("Module") or base == "object" for base in bases) else ""

    @property
    def method(self) -> str:
        """The name of the method around the place."""
        return self.functions[0].name if self.functions else ""

    def is_method(self) -> bool:
        """Whether `self` is known at the place."""
        functions = self.functions
        return bool(self.owner) and len(functions) == 1 and bool(functions[0].args.args) and functions[0].args.args[0].arg == "self"

    def keeps_float32(self) -> bool:
        """Whether the function asks for dtypes by itself, or the class has weights that autocast leaves in float32."""
        tests = [n.test for f in self.functions for n in ast.walk(f) if isinstance(n, ast.If | ast.IfExp)]
        if any(isinstance(n, ast.Attribute) and n.attr in DTYPES for test in tests for n in ast.walk(test)):
            return True
        owners = [node for node in self.chain if isinstance(node, ast.ClassDef)]
        given = [n for owner in owners for n in ast.walk(owner) if isinstance(n, ast.keyword) and n.arg in AUTOCAST]
        return any(isinstance(n.value, ast.Constant) and n.value.value is False for n in given)

    def initialized(self) -> bool:
        """Whether `super().__init__` runs before the place, so that the layer has a compute dtype."""
        calls = [n for n in ast.walk(self.functions[0]) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
        return any(c.func.attr == "__init__" and c.lineno < self.span.line for c in calls)  # type: ignore[attr-defined]

    def holds_large_number(self) -> bool:
        """Whether the statement holds a number that float16 can't."""
        statement = next((node for node in reversed(self.chain) if isinstance(node, ast.stmt)), None)
        numbers = [n.value for n in ast.walk(statement) if isinstance(n, ast.Constant)] if statement is not None else []
        sizes = [abs(n) for n in numbers if isinstance(n, (int, float)) and not isinstance(n, bool)]
        return any(size > 65504.0 or 0 < size < 6.1e-05 for size in sizes)

    def operand(self, side: int) -> tuple[Span, str] | None:
        """An operand of the operator at the place."""
        exact = [node for node in self.chain if hasattr(node, "lineno") and self.bounds(node) == self.span]
        for node in reversed(exact):
            found: ast.expr | None = None
            if isinstance(node, ast.BinOp):
                found = node.right if side else node.left
            elif isinstance(node, ast.AugAssign) and side:
                found = node.value
            if found is not None:
                return self.bounds(found), ast.get_source_segment(self.text, found) or ""
        return None

    @property
    def package(self) -> str | None:
        """The name under which the file imports TensorFlow."""
        for statement in ast.walk(self.tree):
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    if alias.name == "tensorflow":
                        return alias.asname or "tensorflow"
        return None


def in_characters(line: str, column: int) -> int:
    """A column in characters of one in UTF-8 bytes."""
    return column if line.isascii() else len(line.encode()[:column].decode(errors="ignore"))
