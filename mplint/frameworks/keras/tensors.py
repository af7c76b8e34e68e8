"""Tensors of TensorFlow and Keras: what makes them, in which dtype, and what happens where two dtypes meet.

TensorFlow mixes no dtypes: an operator or `tf.*` with a half and a float32 operand raises; `keras.ops` promotes. A tensor that a program
makes in float32 by itself carries the place (`made`), through every operation that keeps it so, until it meets what a layer computes.
Python's numbers and numpy's arrays take the dtype of the tensor that they meet.
"""

from __future__ import annotations

from collections.abc import Sequence

from mplint.frameworks.keras.guards import beside_number, beside_tensor, bounded, checked
from mplint.frameworks.keras.policies import (
    GUARD,
    LETTERS,
    dtype_options,
    floatx_ways,
    is_dtype,
)
from mplint.frameworks.vocabulary import Vocabulary
from mplint.limits import BFLOAT16_MAX, FLOAT16_MAX
from mplint.program.conditions import Path, extend
from mplint.program.expressions import items_of
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.store import join, under
from mplint.program.values import (
    ANY,
    BFLOAT,
    BOOLEAN,
    COMPUTE,
    DOUBLE,
    HALF,
    INTEGER,
    NO_GUARDS,
    NONE,
    SINGLE,
    Alternatives,
    Atom,
    By,
    Class,
    Constant,
    Context,
    DType,
    DTypeOf,
    External,
    Function,
    Items,
    Object,
    Partial,
    Place,
    State,
    Step,
    Tensor,
    Test,
    Unknown,
    Value,
    Wrapped,
    atoms,
)

vocabulary = Vocabulary()
call = vocabulary.call

TF = "tf"  # the tag of TensorFlow's tensors
NEST = "nest"  # of an argument that may hold several tensors
FACTOR = "factor:"  # of a loss: what it has been multiplied with,
ANYTHING = "anything"  # where that is no number
VARIABLE = "variable:"  # of what a variable holds
GRADIENTS = "gradients"  # of what a tape or an optimizer gives
ISLAND = "island"  # of what was computed in half and cast to float32
TAKEN_BACK = "taken back"  # of what was cast to float32, and rounded where autocast gives it to another layer
COPIED = "copied"  # of what was cast to half of something that is not known to be made just now
FOLLOWED = "followed"  # of what was made in the dtype of something else
WEIGHT = "weight"  # of what `add_weight` gives
NUMPY = "numpy"  # of an array, which takes the dtype of what it meets
SQUARED = "product"  # of squares
MULTI = "multi-backend"  # of what `keras.ops` and `keras.random` make
LOW = (COMPUTE, HALF, BFLOAT)
LARGEST = {HALF: FLOAT16_MAX, COMPUTE: FLOAT16_MAX, BFLOAT: BFLOAT16_MAX}
NOISE = "noise"  # of random numbers
COUNTED = "counted"  # of whole numbers: positions up to a length, as `tf.range` gives them,
ELEMENTS = "elements"  # or how many elements something has
EXACT = 2048  # up to which float16 has every whole number
TURNS = frozenset({"sin", "cos"})
EXPONENTIALS = frozenset({"pow", "power", "exp"})  # whose results are rates, and no positions
ROUNDED = "positions rounded at "  # beginning of a tag: where positions became half, of all that is computed of them
ADDED_UP = "added up at "  # beginning of a tag: where float16 values became a sum or mean
HISTORY = (GRADIENTS, "unscaled", "of an unknown loss")
KEPT_TAGS = frozenset({TF, NUMPY, MULTI, ISLAND, FOLLOWED, NOISE})

# How calls that fill tensors are told their dtype: the position of the argument; -1: by keyword only.
FILLED: dict[str, int] = {
    "zeros": 1,
    "ones": 1,
    "eye": 3,
    "linspace": -1,
    "one_hot": 5,
    "random.normal": 3,
    "random.uniform": 3,
    "random.truncated_normal": 3,
    "random.stateless_normal": 4,
    "random.stateless_uniform": 4,
    "random.stateless_truncated_normal": 4,
    "random.gamma": 3,
    "random_normal": 3,
    "random_uniform": 3,
    "truncated_normal": 3,
    "signal.hann_window": 2,
    "signal.hamming_window": 2,
    "hann_window": 2,
    "signal.linear_to_mel_weight_matrix": 5,
}
OF_VALUES = {"constant": 1, "convert_to_tensor": 1, "range": 3, "fill": -1, "Variable": 6, "get_variable": 2}
CASTS = ("cast", "saturate_cast", "dtypes.cast", "dtypes.saturate_cast", "to_float", "to_double", "bitcast")
OF_KERAS: dict[str, int] = {
    "zeros": 1,
    "ones": 1,
    "eye": 1,
    "random_normal": 3,
    "random_uniform": 3,
    "random_bernoulli": 2,
    "random_binomial": 2,
    "truncated_normal": 3,
    "random_normal_variable": 3,
    "random_uniform_variable": 3,
}
OF_KERAS_VALUES = {"constant": 1, "variable": 1, "arange": 3}
OF_OPS_VALUES = {"arange": 3}
OF_OPS: dict[str, int] = {"zeros": 1, "ones": 1, "eye": 3, "linspace": 5, "one_hot": 3, "full": 2, "tri": 3, "identity": 1}
OF_RANDOM = {"normal": 3, "uniform": 3, "truncated_normal": 3, "gamma": 2, "beta": 3, "binomial": 3}
INTEGERS = frozenset(
    [
        "shape",
        "shape_n",
        "size",
        "rank",
        "argmax",
        "argmin",
        "argsort",
        "int_shape",
        "ndim",
        "count_params",
        "batch_get_value",
        "searchsorted",
        "bincount",
        "where_index",
        "categorical",
        "multinomial",
        "unique",
        "to_int32",
        "to_int64",
    ]
)
TESTS = frozenset(
    [
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
        "logical_and",
        "logical_or",
        "logical_not",
        "logical_xor",
        "is_nan",
        "is_inf",
        "is_finite",
        "reduce_any",
        "reduce_all",
        "any",
        "all",
        "isnan",
        "isinf",
        "isfinite",
        "in_top_k",
        "is_tensor",
        "is_keras_tensor",
        "executing_eagerly",
        "sequence_mask",
    ]
)
OPAQUE = frozenset(
    [
        "function",
        "name_scope",
        "device",
        "control_dependencies",
        "print",
        "Assert",
        "py_function",
        "numpy_function",
        "TensorShape",
        "TensorSpec",
        "RaggedTensorSpec",
        "cond",
        "while_loop",
        "map_fn",
        "scan",
        "switch_case",
        "case",
        "vectorized_map",
        "recompute_grad",
        "custom_gradient",
        "no_gradient",
        "Module",
        "GradientTape",
        "group",
        "no_op",
        "init_scope",
        "learning_phase",
    ]
)
RUNNERS = ("tensorflow.cond", "tensorflow.while_loop", "tensorflow.map_fn", "tensorflow.scan", "tensorflow.switch_case", "tensorflow.case")
REDUCED = frozenset({"reduce_sum", "reduce_mean", "reduce_variance", "cumsum"})
SUMS = frozenset({"reduce_sum", "reduce_mean", "sum", "mean"})
PROBABILITIES = frozenset({"softmax", "sigmoid", "log_softmax", "log_sigmoid"})
NOT_OPS = (
    "tensorflow.data.",
    "tensorflow.io.",
    "tensorflow.config.",
    "tensorflow.distribute.",
    "tensorflow.saved_model.",
    "tensorflow.train.",
    "tensorflow.summary.",
    "tensorflow.estimator.",
    "tensorflow.version.",
    "tensorflow.test.",
    "tensorflow.types.",
    "tensorflow.lite.",
    "tensorflow.tpu.",
    "tensorflow.autograph.",
    "tensorflow.python.",
    "tensorflow.experimental.dtensor.",
    "tensorflow.profiler.",
    "tensorflow.app.",
    "tensorflow.flags.",
    "tensorflow.gfile.",
    "tensorflow.logging.",
    "tensorflow.contrib.",
    "tensorflow.nest.",
    "tensorflow.debugging.",
    "tensorflow.initializers.",
    "tensorflow.losses.",
    "tensorflow.metrics.",
)
FLOAT_OPS = ("keras.", "tensorflow.nn.", "tensorflow.math.", "tensorflow.linalg.", "tensorflow.concat", "tensorflow.matmul")
# ops that take half inputs and float32 parameters or labels, and give half
MIXING = frozenset(
    {
        "tensorflow.nn.fused_batch_norm",
        "tensorflow.nn.batch_normalization",
        "tensorflow.nn.softmax_cross_entropy_with_logits",
        "tensorflow.nn.weighted_moments",
    }
)
CASTING = frozenset({"moving_average_update"})  # functions that cast the one operand to the dtype of the other
# ops of images that give float32 whatever they are given; `resize` keeps the dtype only with "nearest"
ALWAYS_SINGLE = frozenset(
    {
        "resize",
        "resize_with_pad",
        "resize_bilinear",
        "resize_bicubic",
        "resize_area",
        "crop_and_resize",
        "per_image_standardization",
        "ssim",
        "ssim_multiscale",
        "psnr",
    }
)
COMPARED = frozenset({"<", ">", "<=", ">="})
# operations that give the dtype of their first argument, whatever the others are
OF_FIRST = frozenset(
    {
        "gather", "gather_nd", "batch_gather", "embedding_lookup", "repeat", "tile", "reshape", "broadcast_to", "pad", "slice", "roll",
        "reverse", "reverse_sequence", "expand_dims", "transpose", "squeeze", "boolean_mask", "split", "band_part", "strided_slice",
        "dynamic_partition", "top_k", "sort", "from_value_rowids", "from_row_splits", "from_row_lengths",
        "from_row_starts", "from_row_limits", "from_nested_row_splits", "from_tensor", "from_dense",
        "extract_patches", "crop_to_bounding_box", "pad_to_bounding_box",
        "adjust_brightness", "adjust_contrast", "adjust_saturation", "adjust_hue",
    }
)  # fmt: skip
# operations of which only some arguments share a dtype: by position and name
OF_SOME: dict[str, tuple[tuple[int, str], ...]] = {
    "sparse_softmax_cross_entropy_with_logits": ((1, "logits"),),
    "sparse_categorical_crossentropy": ((1, "output"),),
    "ctc_loss": ((1, "logits"),),
    "ctc_batch_cost": ((1, "y_pred"),),
    "scatter_nd": ((1, "updates"),),
    "tensor_scatter_nd_update": ((0, "tensor"), (2, "updates")),
    "tensor_scatter_nd_add": ((0, "tensor"), (2, "updates")),
    "dynamic_stitch": ((1, "data"),),
}
Operand = list[tuple[Path, Tensor]]  # all that an operand may be, with the path of each
OPERATORS = frozenset(["+", "-", "*", "/", "**", "//", "%", "@"])


def tensor(letter: str, *, half: tuple[Step, ...] = (), made: Step | None = None, tags: frozenset[str] = frozenset()) -> Tensor:
    """A tensor of TensorFlow."""
    return Tensor(frozenset({letter}), half=half, made=made, tags=tags | {TF})


def is_tensor(value: object) -> bool:
    """Whether a value is a tensor of TensorFlow."""
    return type(value) is Tensor and TF in value.tags


def is_low(value: Tensor) -> bool:
    """Whether a tensor is in half precision, or in whatever the layer computes."""
    return bool(value.dtypes) and value.dtypes <= frozenset(LOW)


def is_own(value: Tensor) -> bool:
    """Whether a tensor was made in float32 by the program itself, and is no array of numpy."""
    return value.made is not None and value.dtypes == {SINGLE} and NUMPY not in value.tags


def gathered(m: Machine, value: Value | None, depth: int = 0) -> list[Tensor]:
    """The tensors that a value is or holds."""
    found: list[Tensor] = []
    for atom in atoms(value) if value is not None else ():
        if is_tensor(atom):
            found.append(atom)  # type: ignore[arg-type]
        elif depth < 2:
            for item in held_items(m, atom):
                found += gathered(m, item, depth + 1)
    return found


def held_items(m: Machine, atom: Atom) -> list[Value]:
    """What a tuple, list or set holds, also where nobody knows how many there are."""
    held = m.read(atom.id, "#items") if type(atom) is Object and atom.kind in ("list", "set") else atom
    known = held if type(held) is Items else None
    return [*known.items, *([known.rest] if known.rest is not None else [])] if known is not None else []


def operands_of(m: Machine, value: Value) -> list[Operand]:
    """The operands that an argument holds: one, whatever it may be, or each item of a list."""
    items = items_of(m, value, 0) if type(value) in (Items, Object) else None
    return [held_in(m, item, m.path, 1) for item in items] if items is not None else [held_in(m, value, m.path)]


def held_in(m: Machine, value: Value, path: Path, depth: int = 0) -> Operand:
    """The tensors that a value can be, or hold, on a path, with the path of each."""
    found: Operand = []
    for both, atom in under(value, path):
        if is_tensor(atom):
            found.append((both, atom))  # type: ignore[arg-type]
        elif depth < 2:
            for item in held_items(m, atom):
                found += held_in(m, item, both, depth + 1)
    return found


def clashing(name: str, groups: Sequence[Operand]) -> tuple[Path, Tensor, Tensor] | None:
    """A half tensor and one that the program made in float32, of different operands that can meet, and the path on which they do."""
    for one in groups:
        for path, low in one:
            if not is_low(low):
                continue
            for other in groups:
                for beside, own in other if other is not one else ():
                    promoted = name in OPERATORS and ISLAND in own.tags and WEIGHT in low.tags  # by variables of Keras 3
                    both = extend(path, beside) if is_own(own) and not promoted else None
                    if both is not None:
                        return both, low, own
    return None


def met(
    m: Machine, name: str, operands: Sequence[Tensor], place: Place, promotes: bool = False, groups: Sequence[Operand] | None = None
) -> Tensor | None:
    """What an operation gives; where half meets a tensor that the program made in float32, TensorFlow raises.

    `groups`: the operands one by one, each with all that it may be; only different ones meet.
    """
    if not operands:
        return None
    low = [t for t in operands if is_low(t)]
    if low and not promotes and any(map(is_own, operands)):
        found = clashing(name, groups if groups is not None else [[(m.path, t)] for t in operands])
        if found is not None:
            path, half, own = found
            side = next(n for n, t in enumerate(operands) if t is own)
            emit_on(m, path, "dtypes clash", place, name=name, low=half, own=own, made=own.made, side=side)
    multi = frozenset({MULTI}) if any(MULTI in t.tags for t in operands) else frozenset()
    scaled = next((t.scaled for t in operands if t.scaled is not None), None)
    forward: frozenset[str] = frozenset().union(*(t.forward for t in operands))
    multi |= frozenset().union(*map(history, operands))
    if promotes and low and any(t.dtypes == {SINGLE} for t in operands):
        return Tensor(frozenset({SINGLE}), tags=multi | {TF}, scaled=scaled, forward=forward)
    if low:
        first = next((t for t in low if t.half), low[0])
        return Tensor(first.dtypes, half=first.half, tags=frozenset({TF}) | multi, scaled=scaled, forward=forward)
    floats = [t for t in operands if t.dtypes & {SINGLE, DOUBLE, ANY}]
    if floats:
        first = floats[0]
        made = first.made if all(t.made is not None for t in floats) else None
        multi |= {ISLAND} if ISLAND in first.tags and made is not None else frozenset()
        numpy = frozenset({NUMPY}) if all(NUMPY in t.tags for t in operands) else frozenset()
        return Tensor(first.dtypes, made=made, tags=frozenset({TF}) | numpy | multi, scaled=scaled, forward=forward)
    return Tensor(operands[0].dtypes, tags=frozenset({TF}) | multi, scaled=scaled, forward=forward)


def emit_on(m: Machine, path: Path, kind: str, place: Place, **data: object) -> None:
    """Note that something happens on a path that leads on from here."""
    base, m.path = m.path, path
    m.emit(kind, place, **data)
    m.path = base


def history(tensor: Tensor) -> frozenset[str]:
    """The tags that tell of what a tensor was computed: of gradients, of a loss with a factor, or of what was added up in half."""
    return frozenset(tag for tag in tensor.tags if tag in HISTORY or tag.startswith(("taken:", FACTOR, ADDED_UP, ROUNDED)))


def added_up_here(made: Tensor, place: Place) -> Tensor:
    """A sum or mean, with the place where it is taken if that is done in float16; of sums of sums the first."""
    return made.but(tags=made.tags | {f"{ADDED_UP}{place.path}:{place.position}"}) if made.dtypes == {HALF} and not added_up(made) else made


def added_up(tensor: Tensor) -> list[Place]:
    """The reductions in float16 that a loss is made of."""
    found = [tag.removeprefix(ADDED_UP).rpartition(":") for tag in sorted(tensor.tags) if tag.startswith(ADDED_UP)]
    return [Place(path, int(position)) for path, _, position in found]


def factors_of(number: Atom) -> tuple[str, ...]:
    """What stands for a number by which a loss is multiplied, and for its inverse."""
    if type(number) is Constant and isinstance(number.value, (int, float)) and number.value:
        return tuple(f"{value:.6g}" for value in (number.value, 1 / number.value))
    return (number.symbol,) if type(number) is Unknown else (ANYTHING,)


def may_unscale(gradient: Tensor, number: Atom) -> bool:
    """Whether gradients are multiplied or divided by what their loss may have been multiplied with."""
    factors = {tag.removeprefix(FACTOR) for tag in gradient.tags if tag.startswith(FACTOR)}
    if "of an unknown loss" in gradient.tags or ANYTHING in factors or not factors.isdisjoint(factors_of(number)):
        return True
    shown = number.symbol.partition(IDENTITY)[0].lower() if type(number) is Unknown else ""
    return "scale" in shown or (type(number) is Unknown and any(not factor[:1].isdigit() for factor in factors))


def short(name: str) -> str:
    """A dotted name as people write it."""
    for long, written in (("tensorflow.", "tf."), ("keras.backend.", "K."), ("keras.ops.", "ops.")):
        if name.startswith(long):
            return written + name[len(long) :]
    return name


def made_here(
    m: Machine, name: str, place: Place, letter: str, dtype: Place | None, kind: str, tags: frozenset[str], how: str = ""
) -> Tensor:
    """A tensor that the program makes in a dtype of its own."""
    if letter not in (SINGLE, HALF):
        return tensor(letter, tags=tags)
    words = f"`{short(name)}` makes a {'float32' if letter == SINGLE else 'float16'} tensor here"
    m.emit("tensor made", place, name=name, letter=letter, dtype=dtype, sort=kind, how=how, multi=MULTI in tags)
    return tensor(letter, made=Step(place, words), tags=tags)


def argument_place(place: Place, args: Args, index: int, name: str) -> Place | None:
    """Where an argument stands."""
    position = args.place(index, name)
    return Place(place.path, position) if position else None


def written_dtypes(m: Machine, given: Value | None) -> tuple[tuple[Path, str], ...]:
    """The dtypes that an argument writes out, each with its conditions."""
    return tuple((path, letter) for path, letter, how in dtype_options(m, given) if how == "written" and letter is not None)


def made_half(m: Machine, value: Value | None) -> tuple[tuple[Path, str], ...]:
    """The ways on which a value is a tensor that the program makes in float16 by itself, and no copy that it keeps of another."""
    held = held_in(m, value, m.path) if value is not None else []
    return tuple((path - m.path, HALF) for path, t in held if t.made is not None and t.dtypes == {HALF} and COPIED not in t.tags)


def in_dtypes(
    m: Machine,
    name: str,
    args: Args,
    place: Place,
    index: int,
    default: str | None,
    kind: str,
    tags: frozenset[str] = frozenset(),
    source: Value | None = None,
) -> Value:
    """A tensor in the dtype that an argument names, or in a default; `source`: what it is made of."""
    given = args.get(index, "dtype")
    where = argument_place(place, args, index, "dtype")
    found: list[tuple[Path, Value]] = []
    base = m.path
    for guards, letter, how in dtype_options(m, given):
        on_it = extend(base, guards)
        if on_it is None:
            continue
        m.path = on_it
        told_policy(m, name, given, how, place, where)
        if letter is None:
            if default is None:
                found.append((guards, Unknown(f"{name}(){IDENTITY}{place.path}:{place.position}{m.round()}")))
            else:
                ways = floatx_ways(m) if name.startswith("keras.") and default == SINGLE else [(NO_GUARDS, default)]
                found += [(guards | more, made_here(m, name, place, own, None, kind, tags)) for more, own in ways]
        elif letter == ANY:
            found.append((guards, Unknown(f"{name}(){IDENTITY}{place.path}:{place.position}{m.round()}")))
        elif how == "followed" or letter == COMPUTE:
            found.append((guards, tensor(letter, half=chain_of(given), tags=tags | {FOLLOWED})))
        else:
            found.append((guards, made_here(m, name, place, letter, where, kind, tags, how)))
        m.path = base
    return join(found)


def chain_of(value: Value | None) -> tuple[Step, ...]:
    """How the tensor whose dtype is followed came to be in half precision."""
    return value.tensor.half if type(value) is DTypeOf else ()


def told_policy(m: Machine, name: str, given: Value | None, how: str, place: Place, where: Place | None) -> None:
    """That a policy or its name was given for a dtype."""
    if how == "policy":
        for atom in atoms(given) if given is not None else ():
            if type(atom) is Object and atom.kind in ("policy", "policy name"):
                m.emit("policy as dtype", place, name=name, given=atom, where=where, policy=m.read(atom.id, "#policy"))


def cast(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A cast: of what a layer computes to float32, an island; of anything else, a tensor of the program's own."""
    value = args.get(0, "x")
    last = name.rpartition(".")[2]
    given = args.get(1, "dtype") if last not in ("to_float", "cast_to_floatx") else DType(SINGLE)
    where = argument_place(place, args, 1, "dtype")
    tags = frozenset({MULTI}) if name.startswith("keras.ops.") else frozenset()
    found: list[tuple[Path, Value]] = []
    base = m.path
    for path, atom in under(value if value is not None else NONE, base):
        for guards, letter, how in dtype_options(m, given):
            told_policy(m, name, given, how, place, where)
            both = extend(path, guards)
            if both is not None:
                m.path = both
                found.append((both - base, cast_atom(m, name, atom, letter, how, place, where, tags, given)))
                m.path = base
    return join(found) if found else unknown(name, place)


def cast_atom(
    m: Machine,
    name: str,
    atom: Atom,
    letter: str | None,
    how: str,
    place: Place,
    where: Place | None,
    tags: frozenset[str],
    given: Value | None,
) -> Value:
    """A cast of one atom to one dtype."""
    before = atom if is_tensor(atom) else None
    if letter is None or letter == ANY:
        if type(before) is Tensor and history(before):
            return Tensor(frozenset({ANY}), scaled=before.scaled, forward=before.forward, tags=history(before) | {TF})
        return Unknown(f"{name}(){IDENTITY}{place.path}:{place.position}{m.round()}")
    if before is None and name.endswith("cast_to_floatx"):
        return tensor(letter, tags=frozenset({NUMPY}))  # of numbers and arrays, Keras makes an array of numpy
    if before is not None:
        m.emit("cast", place, name=name, tensor=before, letter=letter, how=how)
        if type(before) is Tensor and is_low(before) and letter in (SINGLE, DOUBLE):
            return island(m, name, before, letter, place, where if how in ("written", "floatx", "variable") else None, tags)
        if type(before) is Tensor and letter == SINGLE and before.dtypes == {SINGLE} and before.made is None:
            return before
    if before is not None:
        tags |= history(before)  # type: ignore[arg-type]
        tags |= of_whole_numbers(m, name, before, letter, place)  # type: ignore[arg-type]
    if letter == COMPUTE or how == "followed":
        return tensor(letter, half=chain_of(given), tags=tags | {"cast"})
    if letter in (SINGLE, HALF) and name.startswith("keras.ops."):
        return tensor(letter, tags=tags)
    made = made_here(m, name, place, letter, where, "cast", tags, how)
    told = {"cast"} if before is not None else {"cast", COPIED}
    return made.but(half=(Step(place, "cast to float16 here", By.CAST),), tags=made.tags | told) if letter == HALF else made


def of_whole_numbers(m: Machine, name: str, before: Tensor, letter: str, place: Place) -> frozenset[str]:
    """What is told of positions and numbers of elements that are cast."""
    if letter not in LOW:
        return before.tags & {COUNTED, ELEMENTS}
    if ELEMENTS in before.tags and letter != BFLOAT:
        asked = tensor(letter, half=(Step(place, "cast to float16 here", By.CAST),) if letter == HALF else ())
        m.emit("integers in half", place, name=short(name), tensor=asked, used=place, what=ELEMENTS)
    return frozenset({rounded_at(place)}) if COUNTED in before.tags else frozenset()


def island(m: Machine, name: str, before: Tensor, letter: str, place: Place, where: Place | None, tags: frozenset[str]) -> Tensor:
    """What a layer computes, in float32: to be cast back before it meets the rest. `where`: the dtype, if it is written there."""
    found = tensor(letter, tags=tags | {ISLAND} | history(before)).but(forward=before.forward, scaled=before.scaled)
    if where is None or letter == DOUBLE or MULTI in tags or GRADIENTS in before.tags or NUMPY in before.tags:
        return found
    m.emit("tensor made", place, name=name, letter=letter, dtype=where, sort="island", how="", multi=False)
    return found.but(made=Step(place, f"`{short(name)}` computes on in float32 here"))


for prefix in ("tensorflow.", "tensorflow.dtypes.", "keras.backend.", "keras.ops.", "tensorflow.math."):
    for last in (*CASTS, "cast_to_floatx"):
        vocabulary.calls[prefix + last] = cast


def filled(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A tensor that a call fills: float32 unless a dtype is given."""
    noise = frozenset({NOISE}) if "random" in name else frozenset()
    if name.startswith("keras.ops."):
        last = name.removeprefix("keras.ops.")
        default = None if last in ("full", "linspace") else SINGLE  # those take the dtype of what they are given
        return in_dtypes(m, name, args, place, OF_OPS[last], default, "filled", frozenset({MULTI}))
    if name.startswith("keras.random."):
        return in_dtypes(m, name, args, place, OF_RANDOM[name.removeprefix("keras.random.")], SINGLE, "filled", noise | {MULTI})
    if name.startswith("keras.backend."):
        return in_dtypes(m, name, args, place, OF_KERAS[name.removeprefix("keras.backend.")], SINGLE, "filled", noise)
    return in_dtypes(m, name, args, place, FILLED[name.removeprefix("tensorflow.")], SINGLE, "filled", noise)


vocabulary.calls.update({f"tensorflow.{name}": filled for name in FILLED})
vocabulary.calls.update({f"keras.backend.{name}": filled for name in OF_KERAS})
vocabulary.calls.update({f"keras.ops.{name}": filled for name in OF_OPS})
vocabulary.calls.update({f"keras.random.{name}": filled for name in OF_RANDOM})


def of_value(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A tensor (or variable) of given values."""
    keras = name.startswith("keras.backend.")
    last = name.rpartition(".")[2]
    index = OF_KERAS_VALUES.get(last, 1) if keras else OF_OPS_VALUES[last] if last in OF_OPS_VALUES else OF_VALUES[last]
    kind = "variable" if last in ("Variable", "variable", "get_variable") else "value"
    first = args.get(0, "initial_value" if last == "Variable" else "value")
    if last == "fill":
        first = args.get(1, "value")
    given = args.get(index, "dtype")
    if kind == "variable":
        ways, where = written_dtypes(m, given) or made_half(m, first), argument_place(place, args, index, "dtype")
        m.emit("variable made", place, ways=ways, dtype=where, trainable=args.named.get("trainable"))
    if given is not None and not (type(given) is Constant and given.value is None):
        if last == "convert_to_tensor" and all(is_tensor(a) and NUMPY not in a.tags for a in atoms(first or NONE)):  # type: ignore[union-attr]
            return cast(m, name, Args((first or NONE, given), None, (0, args.place(index, "dtype") or 0)), place)
        made = in_dtypes(m, name, args, place, index, None, kind)
        return counted(m, args, made, place) if last in ("range", "arange") else made
    if last in ("range", "arange"):
        letters = {INTEGER if is_length(v) else letter_of_number(m, v) for v in args.positional[:3]}
        if last == "arange" or letters <= {SINGLE, INTEGER}:
            return counted(m, args, tensor(SINGLE if SINGLE in letters else INTEGER), place)
        return unknown(name, place)
    if last == "get_variable":
        return tensor(ANY)  # in the dtype of its scope, or of the getter that the scope is given

    def one(atom: Atom) -> Value:
        if type(atom) is Tensor and TF in atom.tags:
            if kind == "variable" or NUMPY in atom.tags:
                if atom.dtypes == {SINGLE} and FOLLOWED not in atom.tags:
                    return made_here(m, name, place, SINGLE, None, kind, frozenset())
                return Tensor(atom.dtypes, half=atom.half, tags=frozenset({TF}))
            return atom
        letter = letter_of_number(m, atom)
        if letter == SINGLE and (kind == "variable" or last in ("constant", "convert_to_tensor", "fill")):
            return made_here(m, name, place, SINGLE, None, kind, frozenset())
        if letter == INTEGER:
            return made_here(m, name, place, SINGLE, None, kind, frozenset()) if keras else tensor(INTEGER)
        if keras and last in ("constant", "variable"):
            return made_here(m, name, place, SINGLE, None, kind, frozenset())
        return unknown(name, place) if kind != "variable" else tensor(ANY)

    return m.each(first if first is not None else NONE, one)


def is_length(value: Value) -> bool:
    """Whether a value is a whole number that a program has: a length of a tensor."""
    if type(value) is Unknown:
        return value.symbol.startswith("tensor.shape")
    return is_tensor(value) and value.dtypes == {INTEGER}  # type: ignore[union-attr]


def counted(m: Machine, args: Args, made: Value, place: Place) -> Value:
    """Positions up to a length that nobody knows, or that half precision cannot tell apart."""
    known = [v.value for v in args.positional[:3] if type(v) is Constant and isinstance(v.value, (int, float))]
    few = len(known) == len(args.positional[:3]) and all(abs(number) <= EXACT for number in known)

    def one(atom: Atom) -> Value:
        if type(atom) is not Tensor or few:
            return atom
        return atom.but(tags=atom.tags | {rounded_at(place) if is_low(atom) else COUNTED})

    return m.each(made, one)


def rounded_at(place: Place) -> str:
    """The tag of all that is computed of positions which became half at a place."""
    return f"{ROUNDED}{place.path}:{place.position}"


def rounded_places(tensor: Tensor) -> list[Place]:
    """Where positions became half that a tensor is computed of."""
    found = [tag.removeprefix(ROUNDED).rpartition(":") for tag in sorted(tensor.tags) if tag.startswith(ROUNDED)]
    return [Place(path, int(position)) for path, _, position in found]


def variable(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A variable, to which other tensors may be assigned later."""
    tag = f"{VARIABLE}{m.identity(place)}"
    made = of_value(m, name, args, place)
    return m.each(made, lambda atom: atom.but(tags=atom.tags | {tag}) if is_tensor(atom) else atom)  # type: ignore[union-attr]


for last in OF_VALUES:
    vocabulary.calls[f"tensorflow.{last}"] = variable if last == "Variable" else of_value
for last in OF_KERAS_VALUES:
    vocabulary.calls[f"keras.backend.{last}"] = of_value
vocabulary.calls["keras.backend.convert_to_tensor"] = of_value
for last in OF_OPS_VALUES:
    vocabulary.calls[f"keras.ops.{last}"] = of_value


def unknown(name: str, place: Place) -> Unknown:
    """Something that nobody knows."""
    return Unknown(f"{name}(){IDENTITY}{place.path}:{place.position}")


def letter_of_number(m: Machine, value: Value, depth: int = 0) -> str:
    """The letter of a Python number, or of a list of them: float32 for floats."""
    if type(value) is Constant:
        if isinstance(value.value, float):
            return SINGLE
        return INTEGER if isinstance(value.value, int) and not isinstance(value.value, bool) else ANY
    items = items_of(m, value, 0) if depth < 3 else None
    if items:
        letters = {letter_of_number(m, item, depth + 1) for item in items}
        if letters == {INTEGER}:
            return INTEGER
        return SINGLE if letters <= {SINGLE, INTEGER} else ANY
    return ANY


@call(*(home + name for home in ("tensorflow.", "keras.backend.", "keras.ops.") for name in ("zeros_like", "ones_like", "full_like")))
def like(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A tensor in the dtype of another."""
    if args.get(1, "dtype") is not None:
        return in_dtypes(m, name, args, place, 1, None, "filled")
    found = gathered(m, args.get(0))
    return Tensor(found[0].dtypes, half=found[0].half, tags=frozenset({TF})) if found else unknown(name, place)


@call("tensorflow.nn.fused_batch_norm")
def fused_batch_norm(m: Machine, name: str, args: Args, place: Place) -> Value:
    """What is normalized in the dtype of the input, and its mean and variance, which are float32 whatever the input is."""
    found = gathered(m, args.get(0, "x"))
    normalized = Tensor(found[0].dtypes, half=found[0].half, tags=frozenset({TF})) if found else unknown(name, place)
    return Items((normalized, tensor(SINGLE), tensor(SINGLE)))


@call("tensorflow.sequence_mask")
def sequence_mask(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A mask: of booleans unless a dtype is given."""
    if args.get(2, "dtype") is None:
        return tensor(BOOLEAN)
    return in_dtypes(m, name, args, place, 2, None, "filled")


@call("tensorflow.TensorArray")
def tensor_array(m: Machine, name: str, args: Args, place: Place) -> Value:
    """An array of tensors of one dtype."""
    made = Object(("tensor array", m.identity(place)), "tensor array", name, place)
    found: list[tuple[Path, Value]] = []
    where = argument_place(place, args, 0, "dtype")
    for guards, letter, how in dtype_options(m, args.get(0, "dtype")):
        if letter == SINGLE and how != "followed":
            m.emit("tensor made", place, name=name, letter=letter, dtype=where, sort="array", how=how, multi=False)
            found.append((guards, tensor(SINGLE, made=Step(place, "the array holds float32 tensors"))))
        else:
            found.append((guards, tensor(letter or ANY, half=chain_of(args.get(0, "dtype")))))
    m.write(made.id, "#element", join(found))
    return made


@vocabulary.method("tensor array")
def of_array(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """Writing to and reading from an array."""
    element = m.read(receiver.id, "#element") or unknown("element", place)
    if name in ("write", "unstack", "scatter", "split"):
        value = args.get(1 if name in ("write", "scatter") else 0, "value")
        for own in gathered(m, element):
            for given in gathered(m, value):
                met(m, f"TensorArray.{name}", [given, own], place)
        return receiver
    if name in ("stack", "concat", "read", "gather"):
        return element
    return unknown(f"array.{name}", place)


# functions that run functions


@call(*RUNNERS, "keras.backend.in_train_phase", "keras.backend.in_test_phase", "keras.backend.switch", "tensorflow.vectorized_map",
      "keras.ops.cond", "keras.ops.while_loop", "keras.ops.scan", "keras.backend.map_fn", "tensorflow.cast_if", "keras.ops.map",
      "tensorflow.compat.v1.cond", "keras.backend.rnn")  # fmt: skip
def runs(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Functions that run the functions which they are given."""
    from mplint.program.calls import call as run

    last = name.rpartition(".")[2]
    position = place.position
    if last == "while_loop":
        condition, body, given = args.get(0, "cond"), args.get(1, "body"), args.get(2, "loop_vars")
        values = items_of(m, given, position) if given is not None else None
        if values is None or body is None:
            return unknown(name, place)
        inner = Args(values, places=[position] * len(values))
        if condition is not None:
            run(m, condition, inner, position)
        after = run(m, body, inner, position)
        return after if items_of(m, after, position) is not None else Items(tuple(values))
    if last in ("map_fn", "scan", "vectorized_map", "map"):
        function, elements = args.get(0, "fn"), args.get(1, "elems")
        if function is None or elements is None:
            return unknown(name, place)
        inputs = (elements,) if last != "scan" else (args.get(2, "initializer") or elements, elements)
        return run(m, function, Args(inputs, places=[position] * len(inputs)), position)
    functions = [v for v in args.all() if any(type(a) in (Function, Wrapped, Partial) for a in atoms(v))]
    values = [v for v in args.all() if gathered(m, v)]
    if last == "cond" and name.startswith("keras.ops"):
        values = []
    base = m.path
    found: list[tuple[Path, Value]] = []
    for number, function in enumerate(functions[:4]):
        found.append((frozenset({(("in", f"arm{IDENTITY}{place}", frozenset({number})), True)}), run(m, function, Args(), position)))
        m.path = base
    for number, value in enumerate(values[:2] if last in ("in_train_phase", "in_test_phase", "switch") else ()):
        found.append((frozenset({(("in", f"arm{IDENTITY}{place}", frozenset({number + 10})), True)}), value))
    return join(found) if found else unknown(name, place)


@call("tensorflow.function", "tensorflow.recompute_grad", "tensorflow.custom_gradient", "tensorflow.autograph.experimental.do_not_convert",
      "tensorflow.autograph.to_graph", "tensorflow.grad_pass_through", "keras.saving.register_keras_serializable", "keras.remat",
      "keras.utils.register_keras_serializable")  # fmt: skip
def same_function(m: Machine, name: str, args: Args, place: Place) -> Value:
    """What wraps a function and changes nothing that matters here."""
    first = args.get(0, "func")
    if first is not None and any(type(a) in (Function, Wrapped, Partial, Class, Object) for a in atoms(first)):
        return first
    return External("builtins.identity")


@call("tensorflow.placeholder", "tensorflow.compat.v1.placeholder", "keras.backend.placeholder")
def placeholder(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A tensor that is fed to a graph, in the dtype that is written there."""
    asked = dtype_options(m, args.get(3 if "backend" in name else 0, "dtype"))
    found = [(guards, letter) for guards, letter, how in asked if how == "written"]
    if not found or any(letter is None or letter == ANY for _, letter in found):
        return unknown(name, place)
    step = Step(place, f"`{short(name)}` is fed float16 here", By.FEEDING)
    return join((guards, tensor(letter or ANY, half=(step,) if letter == HALF else ())) for guards, letter in found)


@call("keras.backend.standardize_dtype", "keras.utils.standardize_dtype", "tensorflow.as_dtype", "tensorflow.dtypes.as_dtype")
def same_dtype(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A dtype by its name, or as an object."""
    given = args.get(0, "dtype") or args.get(0, "type_value")
    known = given is not None and all(type(a) in (DType, DTypeOf) or (type(a) is Constant and a.value is not None) for a in atoms(given))
    return given if known and given is not None else unknown(name, place)


@call("tensorflow.name_scope", "tensorflow.device", "tensorflow.control_dependencies", "tensorflow.init_scope", "keras.backend.name_scope",
      "tensorflow.variable_scope", "keras.name_scope", "tensorflow.xla.experimental.jit_scope")  # fmt: skip
def scope(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Contexts that change no dtype."""
    return Context("null")


def floats_of(last: str, args: Args) -> Sequence[Value]:
    """The arguments of an operation that share its dtype: the others are conditions, indices, sizes or labels."""
    if last in ("where", "switch", "where_v2", "einsum"):
        return args.all()[1:]
    if last in OF_FIRST or "segment_" in last:
        return [v for v in (args.get(0), args.named.get("params")) if v is not None]
    if last in OF_SOME:
        return [v for v in (args.get(index, name) for index, name in OF_SOME[last]) if v is not None]
    return args.all()


@vocabulary.prefix("tensorflow.", "keras.backend.", "keras.ops.", "keras.activations.", "keras.random.", "tensorflow_probability.")
def operation(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """Any other function over tensors: the dtype of its operands."""
    if name.startswith(NOT_OPS):
        return None
    last = name.rpartition(".")[2]
    if not last or last in OPAQUE or last[0].isupper():
        return None
    if last in INTEGERS:
        return tensor(INTEGER, tags=frozenset({ELEMENTS}) if last == "size" else frozenset()) if gathered(m, args.get(0)) else None
    if last in TESTS:
        return tensor(BOOLEAN) if any(gathered(m, v) for v in args.all()) else None
    dtype = args.named.get("dtype") or args.named.get("out_type")
    operands: list[Tensor] = []
    values = floats_of(last, args)
    groups: list[Operand] = []
    for value in values:
        operands += gathered(m, value)
        groups += operands_of(m, value)
    if not operands and not name.startswith(FLOAT_OPS):
        return None
    if name in MIXING:
        operands = [t for t in operands if not is_own(t)] or operands
        groups = [[(path, t) for path, t in group if not is_own(t)] for group in groups]
    promotes = name.startswith(("keras.ops.", "keras.random.", "tensorflow.experimental.numpy.")) or last in CASTING
    m.emit("operation", place, name=name, operands=tuple(operands), args=args)
    numbers_beside(m, last, args, groups, place)
    checked(m, last, args, place)
    for path, angle in groups[0] if last in TURNS and groups else ():
        for cast_at in rounded_places(angle):
            emit_on(m, path, "integers in half", cast_at, name=short(name), tensor=angle, used=place, what=COUNTED)
    if last in REDUCED and dtype is None:
        for path, low in groups[0] if groups else ():
            if low.dtypes == {HALF}:
                emit_on(m, path, "reduced in half", place, name=last, tensor=low, autocast=None, given=None)
    if dtype is not None:
        found = dtype_options(m, dtype)
        if found and found[0][1] not in (None, ANY):
            where = argument_place(place, args, -1, "dtype")
            told_policy(m, name, dtype, found[0][2], place, where)
            return tensor(found[0][1] or ANY)
    if last in ALWAYS_SINGLE and name.startswith("tensorflow.") and ".image." in name and any(map(is_low, operands)):
        return float32_image(m, name, args, place)
    alternatives = [value for value in values if gathered(m, value)]
    if len(alternatives) == 1 and type(alternatives[0]) is Alternatives:
        ways = under(alternatives[0], m.path)
        made = join((path - m.path, result_of(m, name, [[(path, t)] for t in gathered(m, atom)], place, promotes)) for path, atom in ways)
        return bounded(m, last, args, operands, made, place)
    if not operands:
        return None
    ways_of_all = together(groups)
    if len(ways_of_all) > 1:
        made = join((path - m.path, result_of(m, name, restricted, place, promotes)) for path, restricted in ways_of_all)
        return bounded(m, last, args, operands, made, place)
    return bounded(m, last, args, operands, result_of(m, name, groups, place, promotes), place)


def together(groups: Sequence[Operand]) -> list[tuple[Path, list[Operand]]]:
    """What operands are at once, where one of them has several ways: each way of the first such, with all that they are on it."""
    several = [group for group in groups if len({path for path, _ in group}) > 1]
    found = []
    for way in dict.fromkeys(path for path, _ in several[0]) if several else ():
        restricted = [[(both, t) for path, t in group if (both := extend(way, path)) is not None] for group in groups]
        found.append((way, restricted))
    return found


def result_of(m: Machine, name: str, groups: Sequence[Operand], place: Place, promotes: bool) -> Value:
    """What an operation gives for its operands, and how it is known afterwards."""
    last = name.rpartition(".")[2]
    result = met(m, name, [t for group in groups for _, t in group], place, promotes, groups)
    if result is None:
        return unknown(name, place)
    if last in ("split", "unstack", "meshgrid", "moments", "top_k", "nest"):
        return result.but(tags=result.tags | {NEST})
    if last in ("reduce_prod", "prod") and result.dtypes == {INTEGER}:
        return result.but(tags=result.tags | {ELEMENTS})
    if last in EXPONENTIALS:
        return result.but(tags=frozenset(tag for tag in result.tags if not tag.startswith(ROUNDED)))
    if last in OF_FIRST:
        return result.but(tags=result.tags | {tag for group in groups for _, t in group for tag in t.tags & {COUNTED, ELEMENTS}})
    if last in SUMS:
        return added_up_here(result, place)
    if last == "square":
        return result.but(tags=result.tags | {SQUARED})
    if last in PROBABILITIES or last == "tanh":
        half = (*result.half[:2], Step(place, f"`{short(name)}` computes in half precision")) if is_low(result) else ()
        return result.but(tags=result.tags | {f"activation:{last}"}, half=half)
    return result


def float32_image(m: Machine, name: str, args: Args, place: Place) -> Value:
    """What an op on images gives that computes in float32 and does not cast back."""
    given = args.get(2, "method")
    if name.endswith(".resize") and given is not None:
        known = given.value if type(given) is Constant else getattr(given, "name", "")
        nearest = isinstance(known, str) and "nearest" in known.lower()
        if nearest or type(given) not in (Constant, External):
            low = [t for t in gathered(m, args.get(0, "images")) if is_low(t)]
            return low[0] if nearest and low else unknown(name, place)
    return made_here(m, name, place, SINGLE, None, "result", frozenset())


@vocabulary.prefix("keras.initializers.", "tensorflow.initializers.", "tensorflow.")
def initializer(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """An initializer: called with a shape, it fills a tensor."""
    home, _, last = name.rpartition(".")
    if not (home.endswith(".initializers") and last not in ("get", "serialize", "deserialize")) and not (
        last.endswith("_initializer") and home in ("tensorflow", "tensorflow.compat.v1")
    ):
        return None
    return Object(("initializer", m.identity(place)), "initializer", name, place)


@vocabulary.invoke("initializer")
def initialized(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """A tensor of an initializer: float32 unless a dtype is given."""
    return in_dtypes(m, str(receiver.type), args, place, 1, SINGLE, "filled")


@call("keras.activations.get", "keras.activations.deserialize")
def activation(m: Machine, name: str, args: Args, place: Place) -> Value:
    """An activation by its name, or the function that was given."""

    def one(atom: Atom) -> Value:
        if type(atom) is Constant and isinstance(atom.value, str):
            return External(f"keras.activations.{atom.value}")
        if type(atom) in (Function, Wrapped, Partial, External, Object):
            return atom
        return Object(("activation", m.identity(place)), "activation", name, place)

    return m.each(args.get(0, "identifier") or NONE, one)


@vocabulary.invoke("activation")
def activated(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """An activation that nobody knows keeps the dtype of what it is called with."""
    found = met(m, "activation", gathered(m, args.get(0)), place)
    return found if found is not None else unknown("activation", place)


@vocabulary.prefix("numpy.")
def of_numpy(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """numpy's functions: only what they are told for a dtype matters."""
    given = args.named.get("dtype")
    if given is not None:
        for _, _, how in dtype_options(m, given):
            told_policy(m, name, given, how, place, argument_place(place, args, -1, "dtype"))
    return None


def numbers_beside(m: Machine, last: str, args: Args, groups: Sequence[Operand], place: Place) -> None:
    """Python numbers that become numbers of a half tensor's dtype in an operation."""
    op = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "maximum": "maximum", "minimum": "minimum", "where": "where",
          "clip_by_value": "clip", "clip": "clip", "pow": "**"}.get(last)  # fmt: skip
    low = next(((path, t) for group in groups for path, t in group if is_low(t)), None)
    if op is None or low is None:
        return
    base = m.path
    for value in args.positional:
        for path, atom in under(value, low[0]):
            m.path = path
            number_met(m, op, atom, low[1], place)
    m.path = base


def number_met(m: Machine, op: str, atom: Atom, low: Tensor, place: Place) -> None:
    """A Python number in the dtype of a half tensor: too large, or lost."""
    if type(atom) is Constant and isinstance(atom.value, (int, float)) and not isinstance(atom.value, bool):
        size = abs(float(atom.value)) if abs(atom.value) < 1e300 else float("inf")
        letter = next(iter(low.dtypes))
        if size == size and size != float("inf") and size > LARGEST.get(letter, FLOAT16_MAX):
            m.emit("number beyond half", place, value=float(atom.value), op=op, tensor=low)
        elif 0 < size < 6.1e-5:
            m.emit("number below half", place, value=float(atom.value), op=op, tensor=low)


# operators, attributes and methods


def binary(m: Machine, op: str, left: Atom, right: Atom, place: Place, in_place: bool = False) -> Value | None:
    """Operators over tensors."""
    first, second = is_tensor(left), is_tensor(right)
    if not first and not second:
        return None
    one: Tensor | None = left if first else None  # type: ignore[assignment]
    other: Tensor | None = right if second else None  # type: ignore[assignment]
    if op not in OPERATORS:
        if op in COMPARED and one is not None and other is not None and NUMPY not in one.tags | other.tags:
            met(m, op, [one, other], place)
        if op in ("&", "|", "^", "<", ">", "<=", ">=", "==", "!="):
            if (one is not None and "dtype" in one.tags) or is_dtype(left) or is_dtype(right):
                return None
            if (type(left) is Constant and left.value is None) or (type(right) is Constant and right.value is None):
                return None
            return tensor(BOOLEAN) if op not in ("==", "!=") else None
        return None
    if one is None or other is None:
        known = one if one is not None else other
        assert known is not None
        number = right if one is not None else left
        if is_low(known):
            number_met(m, op, number, known, place)
        if type(number) is Object and number.kind == "tensor array":
            return None
        if type(number) in (Constant, Unknown, Tensor) or number is NONE:
            kept = known.tags & (KEPT_TAGS | {COUNTED} if op in ("+", "-") else KEPT_TAGS) | history(known)
            if op == "**":
                kept = frozenset(tag for tag in kept if not tag.startswith(ROUNDED))  # an exponent is no position
            if known.dtypes == {INTEGER} and type(number) is Constant and isinstance(number.value, float):
                return unknown(op, place)
            if type(number) is Unknown and known.dtypes == {INTEGER}:
                return tensor(ANY, tags=frozenset({COUNTED})) if COUNTED in kept else unknown(op, place)
            scaled = known.scaled
            if type(number) is Unknown and "scale" in number.symbol.partition(IDENTITY)[0].lower():
                scaled = "by hand"
            if op in ("*", "/") and GRADIENTS in known.tags:
                scaled = "by hand" if may_unscale(known, number) else scaled
            elif op in ("*", "/") and known.forward and m.state("tape") != State(None):
                kept |= {FACTOR + word for word in factors_of(number)}
            made = Tensor(known.dtypes, known.half, scaled, known.forward, None, known.made, None, kept | {TF})
            return beside_number(m, op, known, number, made, one is not None, place)
        return Tensor(known.dtypes, known.half, known.scaled, known.forward, None, known.made, None, known.tags & KEPT_TAGS | {TF})
    if NUMPY in one.tags or NUMPY in other.tags:
        real = other if NUMPY in one.tags else one
        return Tensor(real.dtypes, half=real.half, made=real.made, tags=real.tags & KEPT_TAGS | {TF})
    result = beside_tensor(m, op, one, other, met(m, op, [one, other], place), place)
    return factored(m, result, one, other) if result is not None and op in ("*", "/") else result


def factored(m: Machine, result: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """A product of tensors: of a loss with anything, which may be a scale, and of gradients with what undoes that."""
    gradients = [t for t in (one, other) if GRADIENTS in t.tags]
    if len(gradients) == 1:
        return result.but(scaled="by hand") if FACTOR + ANYTHING in result.tags else result
    if not gradients and bool(one.forward) is not bool(other.forward) and m.state("tape") != State(None):
        return result.but(tags=result.tags | {FACTOR + ANYTHING})
    return result


vocabulary.binaries.append(binary)


def unary(m: Machine, op: str, operand: Atom, place: Place) -> Value | None:
    """`-x`."""
    return operand if is_tensor(operand) else None


vocabulary.unaries.append(unary)


def subscript(m: Machine, receiver: Atom, index: Value, place: Place) -> Value | None:
    """`x[…]`: a part of a tensor has its dtype."""
    if type(receiver) is Tensor and TF in receiver.tags:
        return receiver.but(tags=receiver.tags - {NEST})
    return None


vocabulary.subscripts.append(subscript)


def elements(m: Machine, iterable: Atom, place: Place) -> Value | None:
    """Iterating over a tensor or over several."""
    if type(iterable) is Tensor and TF in iterable.tags:
        return iterable.but(tags=iterable.tags - {NEST})
    return None


vocabulary.elements.append(elements)


def attribute(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """Attributes of tensors and dtypes."""
    if type(atom) is Tensor and TF in atom.tags:
        if name == "dtype":
            return DTypeOf(atom)
        if name in ("shape", "name", "op", "device", "ndim", "_keras_shape", "_keras_history"):
            return Unknown(f"tensor.{name}{IDENTITY}{place.path}:{place.position}")
        if name == "T":
            return atom
        return None
    if name in ("base_dtype", "as_numpy_dtype", "real_dtype") and type(atom) in (DType, DTypeOf):
        return atom
    if name == "name" and (type(atom) is DType or (type(atom) is DTypeOf and TF in atom.tensor.tags)):
        return atom
    if name in ("min", "max") and (type(atom) is DType or (type(atom) is DTypeOf and TF in atom.tensor.tags)):
        return Unknown(f"dtype.{name}{IDENTITY}dtype")
    return None


vocabulary.atom_attributes.append(attribute)


def method(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Methods of tensors."""
    if not is_tensor(atom):
        if name == "astype" and args.positional:
            for _, _, how in dtype_options(m, args.get(0, "dtype")):
                told_policy(m, "astype", args.get(0, "dtype"), how, place, argument_place(place, args, 0, "dtype"))
        return None
    assert type(atom) is Tensor
    if name == "numpy":
        return atom.but(tags=atom.tags | {NUMPY})
    if name in ("detach", "contiguous", "read_value", "value", "identity", "eval", "ref", "experimental_ref", "to_tensor", "set_shape"):
        return atom
    if name == "get_shape":
        return Unknown(f"tensor.shape{IDENTITY}{place.path}:{place.position}")
    if name in ("astype", "cast"):
        return cast(m, f"tensorflow.{name}", Args((atom, *args.positional), args.named, (0, *args.places), args.named_places), place)
    if name in ("assign", "assign_add", "assign_sub"):
        return atom
    if name in ("keys", "items", "values", "get"):
        return unknown(f"tensor.{name}", place) if name != "get" else atom
    return unknown(f"tensor.{name}", place)


vocabulary.atom_methods.append(method)


def assigned(m: Machine, receiver: Atom, index: Value, value: Value, place: Place) -> bool:
    """`array[…] = x` of a numpy array."""
    return is_tensor(receiver)


vocabulary.item_assigned.append(assigned)


__all__ = ["GUARD", "LETTERS", "NEST", "Alternatives", "Test", "tensor", "vocabulary"]
