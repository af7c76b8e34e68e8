"""Dtype policies of Keras: the global one as a state in program order, policies as objects, and dtypes as they are written.

The slot "policy" holds `State((name, place))`: the name of the policy in force, and the call that set it. The name OPEN stands for the
policy of a caller whom nobody knows: what library code computes in then is the dtype letter COMPUTE.
"""

from __future__ import annotations

from mplint.frameworks.keras.imported import runs_at_import
from mplint.frameworks.names import KERAS_ROOTS
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.conditions import Path
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.store import join
from mplint.program.values import (
    ANY,
    BFLOAT,
    COMPUTE,
    DOUBLE,
    FALSE,
    FLOAT8,
    HALF,
    INTEGER,
    NONE,
    SINGLE,
    TRUE,
    Atom,
    Chain,
    Constant,
    DType,
    DTypeOf,
    External,
    Items,
    Object,
    Place,
    State,
    Step,
    Tensor,
    Test,
    Unknown,
    Value,
    atoms,
    options,
)

vocabulary = Vocabulary()
call = vocabulary.call

OPEN = "the caller's"
UNTOLD = "a computed name"
MAPPED = "a map of policies"  # of layers by their paths: nobody knows which
FLOATX = "keras.floatx"  # what `K.floatx()` gives: the default dtype of floats, which is no layer's compute dtype
GUARD = f"the compute dtype{IDENTITY}compute dtype"  # the symbol that tests of the compute dtype stand for
DEFAULT = State(("float32", None))
vocabulary.defaults.update({"policy": DEFAULT, "floatx": State(("float32", None))})
vocabulary.aliases.update({root: "keras" for root in KERAS_ROOTS if root != "keras"})
vocabulary.aliases.update({"tensorflow.compat.v2": "tensorflow", "tensorflow.compat.v1": "tensorflow"})
LETTERS = {
    "float16": HALF,
    "half": HALF,
    "bfloat16": BFLOAT,
    "float32": SINGLE,
    "float": SINGLE,
    "float64": DOUBLE,
    "double": DOUBLE,
    "float8_e4m3fn": FLOAT8,
    "float8_e5m2": FLOAT8,
    "bool": "?b",
    "string": ANY,
    "complex64": ANY,
    "complex128": ANY,
    **{f"{sign}int{bits}": INTEGER for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
WRITTEN = {HALF: "float16", BFLOAT: "bfloat16", SINGLE: "float32", DOUBLE: "float64", COMPUTE: "half precision", ANY: "a dtype"}
vocabulary.values.update({f"tensorflow.{name}": DType(letter) for name, letter in LETTERS.items() if name not in ("half", "float")})
vocabulary.values.update({f"tensorflow.dtypes.{name}": DType(letter) for name, letter in LETTERS.items() if name != "float"})
vocabulary.values["tensorflow.half"] = DType(HALF)
COMPUTES = {"mixed_float16": HALF, "mixed_bfloat16": BFLOAT, OPEN: COMPUTE, UNTOLD: ANY, MAPPED: ANY}
VARIABLES = {"mixed_float16": SINGLE, "mixed_bfloat16": SINGLE, OPEN: SINGLE, UNTOLD: SINGLE, MAPPED: SINGLE}
MIXED = ("mixed_float16", "mixed_bfloat16")


def compute_letter(name: str) -> str:
    """The dtype letter in which layers of a policy compute."""
    return COMPUTES.get(name) or LETTERS.get(name, ANY)


def policy_name(policy: object) -> str:
    """The name of a policy in the slot "policy", or UNTOLD."""
    return str(policy.data[0]) if type(policy) is State and isinstance(policy.data, tuple) else UNTOLD


def variable_letter(name: str) -> str:
    """The dtype letter of the variables of layers of a policy."""
    return VARIABLES.get(name) or LETTERS.get(name, ANY)


def begins(m: Machine, script: bool) -> None:
    """Library code runs under a policy that its callers set."""
    if not script:
        m.set_state("policy", State((OPEN, None)))


vocabulary.beginnings.append(begins)
vocabulary.ordered.append(runs_at_import)


def names_of(m: Machine, value: Value | None, place: Place | None) -> list[tuple[Path, State]]:
    """The policies that an argument may name, with their conditions; a name that nobody knows may be a mixed one."""
    found: list[tuple[Path, State]] = []
    for guards, atom in options(value if value is not None else NONE):
        if type(atom) is Constant and isinstance(atom.value, str):
            found.append((guards, State((atom.value, place))))
        elif type(atom) is Constant and atom.value is None:
            found += [(guards | more, state) for more, state in current(m)]
        elif type(atom) is DType:
            found.append((guards, State((next((n for n, x in LETTERS.items() if x == atom.letter), UNTOLD), place))))
        elif (type(atom) is Object and atom.kind == "policy") or (type(atom) is Object and atom.kind == "policy name"):
            held = m.read(atom.id, "#policy")
            found += [(guards | more, at(state, place)) for more, state in options(held if held is not None else DEFAULT)]
        elif type(atom) is External and atom.name == FLOATX:
            found += [(guards | more, at(state, place)) for more, state in options(m.state("floatx"))]
        elif type(atom) is Unknown:
            for name in MIXED:
                found.append((guards | {(("in", atom.symbol, frozenset({name})), True)}, State((name, place))))
            neither = (("in", atom.symbol, frozenset(MIXED)), False)
            found.append((guards | {neither}, State(("float32", place))))
        else:
            found.append((guards, State((UNTOLD, place))))
    return found


def at(state: Atom, place: Place | None) -> State:
    """A policy as it is set elsewhere."""
    name = state.data[0] if type(state) is State and isinstance(state.data, tuple) else UNTOLD
    kept = state.data[1] if type(state) is State and isinstance(state.data, tuple) else None
    return State((name, place if place is not None else kept))


def current(m: Machine) -> list[tuple[Path, State]]:
    """The global policy, with conditions."""
    return [(guards, atom) for guards, atom in options(m.state("policy")) if type(atom) is State]


def policy_of(m: Machine, dtype: Value | None, place: Place | None) -> Value:
    """The policy of a layer that is made with a `dtype=` argument, or without one."""
    if dtype is None or (type(dtype) is Constant and dtype.value is None):
        return m.state("policy")
    return join(names_of(m, dtype, place))


HOMES = ("keras.mixed_precision.", "keras.mixed_precision.experimental.", "keras.mixed_precision.policy.", "keras.config.", "keras.")
POLICIES = ("Policy", "DTypePolicy", "FloatDTypePolicy", "PolicyV1")


def every(*names: str) -> tuple[str, ...]:
    """Names in all the modules that hold them in one version or another."""
    return tuple(home + name for home in HOMES for name in names)


TPU = ("TPUStrategy", "TPUStrategyV2", "TPUClusterResolver", "initialize_tpu_system")


@vocabulary.prefix("tensorflow.", "torch_xla.tpu.")
def on_tpu(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """What connects to a TPU, or distributes over one."""
    if any(part in TPU for part in name.split(".")[-2:]):
        m.emit("tpu used", place, name=name)
    return None


GRAPHS = frozenset(
    {"Session", "InteractiveSession", "disable_v2_behavior", "disable_eager_execution", "placeholder", "global_variables_initializer"}
    | {"model_to_estimator", "Estimator", "TPUEstimator", "EstimatorSpec", "train_and_evaluate", "MonitoredTrainingSession"}
)


@vocabulary.prefix("tensorflow.", "keras.estimator.")
def of_graphs(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """Sessions, placeholders and estimators of TensorFlow 1."""
    if name.rpartition(".")[2] in GRAPHS:
        m.emit("graph code", place, name=name)
    return None


@vocabulary.prefix("jax.", "flax.nnx.")
def of_jax(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """Gradients that JAX takes."""
    if name.rpartition(".")[2] in ("value_and_grad", "grad"):
        m.emit("jax gradients taken", place, name=name)
    return None


@call("keras.backend.clear_session", "keras.utils.clear_session")
def session_cleared(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The state of Keras begins anew: Keras 3 forgets the policy, too."""
    m.emit("session cleared", place)
    return NONE


@call(*every("set_global_policy", "set_policy", "set_dtype_policy"))
def set_policy(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Set the global policy."""
    given = args.get(0, "policy")
    if given is None:
        given = args.get(0, "dtype_policy")
    before = m.state("policy")
    value = join(names_of(m, given, place))
    m.emit("policy set", place, policy=value, before=before, given=given)
    m.set_state("policy", value)
    return NONE


@call("keras.backend.set_floatx", "keras.config.set_floatx")
def set_floatx(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Set the default dtype of floats: layers follow it where no policy was set."""
    given = args.get(0, "value")
    value = join(floatx_names(m, given, place))
    m.emit("floatx set", place, floatx=value)
    m.set_state("floatx", value)
    if all(type(a) is State and a.data[1] is None for a in atoms(m.state("policy"))):  # type: ignore[index]
        m.set_state("policy", value)
    return NONE


def floatx_names(m: Machine, given: Value | None, place: Place) -> list[tuple[Path, State]]:
    """The dtypes that the default of floats may be set to. It takes no mixed policy, and what a user is free to name may be any dtype:
    half precision is one only where the program offers it.
    """
    found: list[tuple[Path, State]] = []
    for guards, atom in options(given if given is not None else NONE):
        if type(atom) is not Unknown:
            found += [(guards | more, state) for more, state in names_of(m, atom, place)]
            continue
        switch = m.switches.get(atom.symbol)
        offered = frozenset(switch.choices if switch is not None else ()) & {"float16", "bfloat16"}
        for name in sorted(offered, key=str):
            found.append((guards | {(("in", atom.symbol, frozenset({name})), True)}, State((name, place))))
        found.append((guards | ({(("in", atom.symbol, offered), False)} if offered else frozenset()), State((UNTOLD, place))))
    return found


def floatx_ways(m: Machine) -> list[tuple[Path, str]]:
    """The letters of the default dtype of floats, with conditions."""
    return [(guards, compute_letter(policy_name(state))) for guards, state in options(m.state("floatx"))]


@call("keras.backend.floatx", "keras.config.floatx")
def floatx(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The default dtype of floats."""
    return External(FLOATX)


@call(*every("global_policy", "dtype_policy"))
def global_policy(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The global policy as an object."""
    return policy_object(m, m.state("policy"), place)


@call(*every(*POLICIES), "keras.dtype_policies.DTypePolicy", "keras.dtype_policies.get", "keras.mixed_precision.get_policy")
def new_policy(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A policy by its name."""
    given = args.get(0, "name")
    return policy_object(m, join(names_of(m, given, place)), place)


@call("keras.dtype_policies.DTypePolicyMap")
def policy_map(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A policy for each layer by its path, and a default for the rest."""
    given = args.named.get("default_policy") or args.get(0, "default_policy")
    m.emit("policy map made", place, default=join(names_of(m, given, place)))
    return policy_object(m, State((MAPPED, place)), place)


def policy_object(m: Machine, policy: Value, place: Place) -> Object:
    """A policy as an object."""
    made = Object(("policy", m.identity(place), m.round()), "policy", "keras.mixed_precision.Policy", place)
    m.write(made.id, "#policy", policy)
    return made


def letters_of(m: Machine, policy: Value, letter: object = compute_letter) -> Value:
    """The compute (or variable) dtype of a policy, as a value."""
    return join((guards, dtype_value(letter(str(atom.data[0])), atom)) for guards, atom in options(policy) if type(atom) is State)  # type: ignore[index, operator]


def dtype_value(letter: str, policy: State) -> Value:
    """A dtype that follows a policy, as programs see it, or something unknown."""
    if letter == ANY:
        return Unknown(f"dtype{IDENTITY}policy")
    return DTypeOf(Tensor(frozenset({letter}), half=chain_of(policy) if letter in (HALF, BFLOAT) else (), tags=frozenset({"tf", "policy"})))


def chain_of(policy: State) -> Chain:
    """Where a policy was set."""
    name, place = policy.data if isinstance(policy.data, tuple) else (UNTOLD, None)
    return (Step(place, f"the policy is {name} from here on"),) if isinstance(place, Place) else ()


def of_policy(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """Attributes of policies."""
    assert type(atom) is Object
    held = m.read(atom.id, "#policy")
    policy = held if held is not None else DEFAULT
    if name in ("compute_dtype", "_compute_dtype"):
        return letters_of(m, policy)
    if name in ("variable_dtype", "_variable_dtype"):
        return letters_of(m, policy, variable_letter)
    if name in ("name", "_name"):
        made = Object(("policy name", place, m.round()), "policy name", "builtins.str", place)
        m.write(made.id, "#policy", policy)
        return made
    return None


vocabulary.attributes["policy"] = of_policy


@vocabulary.method("policy")
def policy_method(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """Methods of policies."""
    return Unknown(f"policy.{name}(){IDENTITY}{place.path}:{place.position}")


@vocabulary.method("policy name", "startswith", "endswith", "lower", "replace", "split")
def of_name(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """String methods of a policy's name: `startswith("mixed")` is decided where the name is known."""
    given = args.get(0)
    if name == "lower":
        return receiver
    found: list[tuple[Path, Value]] = []
    for guards, atom in options(m.read(receiver.id, "#policy") or DEFAULT):
        policy = str(atom.data[0]) if type(atom) is State else UNTOLD  # type: ignore[index]
        words = given.value if type(given) is Constant and policy not in (OPEN, UNTOLD, MAPPED) else None
        if not isinstance(words, str) or name in ("replace", "split"):
            if name in ("startswith", "endswith"):
                found.append((guards, guard_of(["float16"] if name == "endswith" else ["float16", "bfloat16"])))
            else:
                found.append((guards, Unknown(f"policy.name.{name}(){IDENTITY}{place.path}:{place.position}")))
        else:
            found.append((guards, TRUE if getattr(policy, name)(words) else FALSE))
    return join(found)


def guard_of(names: list[str], sense: bool = True) -> Test:
    """A test of the compute dtype: whether it is one of some dtypes."""
    return Test(("in", GUARD, frozenset(names)), sense)


def dtype_options(m: Machine, value: Value | None) -> list[tuple[Path, str | None, str]]:
    """The dtype letters that an argument names, with conditions and how it names them; None for no dtype.

    How: "written", "floatx", "variable" (a layer's `dtype`), "policy" (a policy or its name, which is no dtype), or "" for anything else.
    """
    found: list[tuple[Path, str | None, str]] = []
    for guards, atom in options(value if value is not None else NONE):
        if type(atom) is DType:
            found.append((guards, atom.letter, "written"))
        elif type(atom) is Constant:
            if atom.value is None:
                found.append((guards, None, ""))
            elif isinstance(atom.value, str):
                found.append((guards, LETTERS.get(atom.value.removeprefix("tf."), ANY), "written"))
            else:
                found.append((guards, ANY, ""))
        elif type(atom) is DTypeOf:
            letters = atom.tensor.dtypes
            found.append((guards, next(iter(letters)) if len(letters) == 1 else ANY, "followed"))
        elif type(atom) is External and atom.name == FLOATX:
            found += [(guards | more, letter, "floatx") for more, letter in floatx_ways(m)]
        elif type(atom) is External:
            found.append((guards, external_letter(atom.name), "written"))
        elif type(atom) is Object and atom.kind in ("policy", "policy name"):
            held = m.read(atom.id, "#policy")
            for more, state in options(held if held is not None else DEFAULT):
                name = str(state.data[0]) if type(state) is State else UNTOLD  # type: ignore[index]
                found.append((guards | more, compute_letter(name), "policy"))
        elif type(atom) is Object and atom.kind == "variable dtype":
            found.append((guards, SINGLE, "variable"))
        else:
            found.append((guards, ANY, ""))
    return found


def written_letter(atom: Atom) -> str:
    """The letter of a dtype that is named: `tf.float16`, "float16", `numpy.float16`."""
    if type(atom) is DType:
        return atom.letter
    if type(atom) is Constant and isinstance(atom.value, str):
        return LETTERS.get(atom.value.removeprefix("tf."), ANY)
    return external_letter(atom.name) if type(atom) is External else ANY


def external_letter(name: str) -> str:
    """The letter of a dotted name of another package: `numpy.float32`, `builtins.float`."""
    head, _, last = name.rpartition(".")
    if head == "builtins":
        return {"float": SINGLE, "int": INTEGER, "bool": "?b"}.get(last, ANY)
    return LETTERS.get(last, ANY) if head in ("numpy", "torch", "jax.numpy", "tensorflow.dtypes") else ANY


def compared(m: Machine, op: str, left: Atom, right: Atom, place: Place, in_place: bool = False) -> Value | None:
    """Comparisons of dtypes, compute dtypes and names of policies with names."""
    if op not in ("==", "!=", "in", "not in", "is", "is not"):
        return None
    if op in ("==", "!=", "is", "is not") and not is_dtype(left) and is_dtype(right):
        left, right = right, left
    if not is_dtype(left):
        return None
    wanted = names_in(m, right)
    if wanted is None:
        return None
    negative = op in ("!=", "not in", "is not")
    if type(left) is Object and left.kind == "policy name":
        return compared_name(m, left, wanted, negative, place)
    if type(left) is Object and left.kind == "policy":
        return compared_name(m, left, wanted, negative, place)
    letter = SINGLE
    if type(left) is DType:
        letter = left.letter
    elif type(left) is DTypeOf:
        if "tf" not in left.tensor.tags or len(left.tensor.dtypes) != 1:
            return None
        letter = next(iter(left.tensor.dtypes))
    elif type(left) is External:
        letters = {letter for _, letter in floatx_ways(m)}
        letter = letters.pop() if len(letters) == 1 else ANY
    if letter == COMPUTE:
        return guard_of(sorted(wanted & {"float16", "bfloat16", "float32", "float64"}) or sorted(wanted), not negative)
    if letter == ANY:
        return None
    truth = any(LETTERS.get(name) == letter for name in wanted)
    return TRUE if truth is not negative else FALSE


def is_dtype(atom: Atom) -> bool:
    """Whether an atom is a dtype, the dtype of a tensor, a policy or its name."""
    if type(atom) in (DType, DTypeOf):
        return True
    if type(atom) is External:
        return atom.name == FLOATX
    return type(atom) is Object and atom.kind in ("policy", "policy name", "variable dtype")


def names_in(m: Machine, value: Value) -> frozenset[str] | None:
    """The dtype names that a comparison names."""
    from mplint.program.expressions import items_of

    items = items_of(m, value, 0) if type(value) in (Items, Object) else [value]
    if items is None:
        return None
    found: set[str] = set()
    for item in items:
        if type(item) is Constant and isinstance(item.value, str):
            found.add(item.value)
        elif type(item) is DType:
            found.add(next((name for name, letter in LETTERS.items() if letter == item.letter and name != "half"), ""))
        elif type(item) is External and external_letter(item.name) != ANY:
            found.add(item.name.rpartition(".")[2])
        else:
            return None
    return frozenset(found)


def compared_name(m: Machine, left: Object, wanted: frozenset[str], negative: bool, place: Place) -> Value:
    """A policy's name beside names: a mixed policy's is never "float16"."""
    plain = sorted(wanted & {"float16", "bfloat16"})
    if plain and not wanted & set(MIXED):
        m.emit("policy compared", place, name=left, wanted=wanted, policy=m.read(left.id, "#policy") or DEFAULT)
    found: list[tuple[Path, Value]] = []
    for guards, state in options(m.read(left.id, "#policy") or DEFAULT):
        name = str(state.data[0]) if type(state) is State else UNTOLD  # type: ignore[index]
        if name in (OPEN, UNTOLD, MAPPED):
            letters = sorted(n.removeprefix("mixed_") for n in wanted)
            found.append((guards, guard_of(letters, not negative)))
        else:
            found.append((guards, TRUE if (name in wanted) is not negative else FALSE))
    return join(found)


vocabulary.binaries.append(compared)
