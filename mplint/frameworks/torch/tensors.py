"""Tensors: what operations do to dtypes, under autocast and without, and the constants that meet them.

Events: "constant beyond range", "epsilon lost", "raises under autocast", "unstable in half", "reduced in half", "cast to half",
"loss in half", "late in half", "taken up", "log-probabilities in half", "loss of probabilities", "cancellation in half",
"integers in half",
"frequencies in half", "angles in half", "steps in half", "averaged late in half", "no half kernel", "gradients measured",
"power in half", "cast taken back".
Each holds the tensor that it happens to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from mplint.frameworks.derived import OpMeaning, torch_function, torch_method
from mplint.frameworks.epsilons import DIVISIONS, ENDS, GUARDED, INFINITE, NEARLY_ONE, is_lost, lost
from mplint.frameworks.packages import note
from mplint.frameworks.python import FEW
from mplint.frameworks.torch.devices import decided_by_the_machine
from mplint.frameworks.torch.promotion import (
    FLOATS,
    HALVES,
    MODEL_IN_HALF,
    SCALAR,
    UNKNOWN_TENSOR,
    Letters,
    dtypes_given,
    half_chain,
    lowered,
    named,
    region_kind,
    spread,
    widest,
)
from mplint.frameworks.torch.protocol import LETTERS, TAKEN, gradients_off
from mplint.frameworks.torch.raised import PARAMETER, all_raised, raised, still_raised
from mplint.frameworks.torch.spectra import POWER, SPECTRUM, spectral
from mplint.frameworks.vocabulary import Vocabulary
from mplint.limits import BFLOAT16_MAX, FLOAT16_MAX, FLOAT16_ZERO
from mplint.program.expressions import is_not_entered, items_of, symbol_of
from mplint.program.machine import IDENTITY, STATE, Args, Machine, derived
from mplint.program.store import choose, join, under
from mplint.program.values import (
    ANY,
    BFLOAT,
    BOOLEAN,
    COMPUTE,
    DOUBLE,
    FALSE,
    HALF,
    INTEGER,
    NONE,
    SINGLE,
    TRUE,
    Alternatives,
    Atom,
    Autocast,
    By,
    Constant,
    DType,
    DTypeOf,
    Entries,
    External,
    Items,
    Method,
    Object,
    Place,
    Slice,
    Step,
    Tensor,
    Test,
    Unknown,
    Value,
    atoms,
)

vocabulary = Vocabulary()
call = vocabulary.call

MODEL_OUTPUT = "model output"
FROZEN = "frozen"  # of a parameter that is made without `requires_grad`
INTEGERS = "integers"  # tag: positions that were cast to half
POSITIONS = "positions"  # tag: whole numbers from 0 to a length that nobody knows
BUFFER = "buffer"  # tag: a buffer of a module, which is cast with it
FEWER = re.compile(rf"\(?{FEW}(?: [+-] \d+\))?")  # such a number, or one beside it
HIGHEST = frozenset({"max", "amax", "stack", "cat", "concat", "add", "radd"})  # of which the results hold no much higher ones
COUNTED = "counted"  # tag: made of whole numbers one after the other
ENDING = "ends before "  # beginning of a tag: the length that such numbers end before
NORMALIZED = "normalized"  # tag: such numbers, divided by the last of them as a rule, or between two bounds
RATES = "rates"  # tag: powers of such numbers, by which positions are multiplied to angles; and these angles
ANGLES = "angles"  # tag: positions times rates that are powers of a large base, of which a sine and a cosine are taken
TURNING = "rates of angles"  # tag: such rates
STEPS = "steps"  # tag: evenly spread numbers times one that bfloat16 does not hold all whole numbers up to: time steps of a diffusion
DISTRIBUTION = "distribution"  # tag: what a softmax gives: numbers one by one that it weighs are its bins, and few
ROUNDED = "rounded rates"  # tag: rates that were in half precision before they became angles, whatever they were cast to later
SIZES = re.compile(r"(?:[\w.]+\.)?(?:shape\[[^\[\]]*\]|size\([^()]*\)(?:\[[^\[\]]*\])?|(?:dim|numel)\(\))|len\([\w.…]*\)|(?:math\.)?sqrt\b")
SEVERAL_SIZES = re.compile(r"\[slice\]|size\(\)(?!\[)")
ARITHMETIC = re.compile(r"[\d\s.()+*/-]")
LARGER = "max(…)"  # how the symbol begins that stands for the larger of several numbers; that of the first of them follows
FOLLOWING = "in a caller's dtype"  # tag: rates that took the dtype of something that a caller gives, and that may be half
ARGUMENT = re.compile(r"[A-Za-z_]\w*")
# words in the names of parameters that hold whole numbers or marks, and no floats
WHOLE = r"(?:^|_)(?:(?:id|mask|label|target|length|len|token|pos|position|time|timestep|step|indice)s?|index|idx|[tni]|dim)"
COUNTS = re.compile(WHOLE + "(?:_|$)", re.I)
NAMES_WHOLE = re.compile(WHOLE + "$", re.I)
CHANNELS = re.compile(r"dim|head|freq|chan|layer|batch|bucket|bins|group|width|hidden|embed|rank|class|expert|query|queries|num_n|level")
OF_SEQUENCE = re.compile(r"^.*\.(?=(?:shape\[(?:1|-2)\]|size\((?:1|-2)\))$)", re.S)  # whose length it is that a sequence has, as a rule
REDUCTIONS = frozenset({"mean", "var", "std", "var_mean", "std_mean", "nanmean"})
BLENDS = frozenset({"add", "radd", "sub", "rsub", "mul", "rmul"})
SAME_TENSOR = frozenset({"data", "T", "mT", "H", "mH", "real", "detach"})
NEUTRAL = frozenset(
    [
        "view",
        "reshape",
        "squeeze",
        "unsqueeze",
        "expand",
        "expand_as",
        "permute",
        "transpose",
        "contiguous",
        "flatten",
        "unflatten",
        "clone",
        "detach",
        "t",
        "repeat",
        "to",
        "float",
        "half",
        "bfloat16",
        "double",
        "type_as",
        "sum",
        "mean",
        "max",
        "min",
        "amax",
        "amin",
        "select",
        "index_select",
        "gather",
        "__getitem__",
        "cuda",
        "cpu",
        "type",
        "view_as",
        "abs",
        "clamp",
        "clamp_min",
        "clamp_max",
        "clip",
        "narrow",
        "movedim",
        "swapaxes",
        "repeat_interleave",
    ]
)
PRODUCT = "product"  # tag: squares, or products of two tensors none of which is a logarithm
LOGARITHM = "logarithm"  # tag: such a product is an entropy
AVERAGED = "averaged product"  # tag: such products after a mean or a filter
NO_GRADIENT = "without a gradient"  # tag: coordinates, offsets or marks for which a function's backward gives nothing
SURE = "surely half"  # tag: what autocast lowered, and what is computed of that and nothing unknown
GUESSED = "taken for logits"  # tag: half, as the last product of a model under autocast is
SECOND_GUARDED = {"xlogy": ((1, "logarithm"),), "addcdiv": ((2, "division"),)}  # of other arguments than the first
GUARDS = {  # what puts a small number in the place of 0, with the positions and names of that number
    **dict.fromkeys(("add", "radd", "maximum", "max"), ((0, ""), (1, "other"))),
    **dict.fromkeys(("clamp", "clip", "clamp_min"), ((1, "min"),)),
    "masked_fill": ((2, "value"),),
    "where": ((1, "input"), (2, "other")),
}
UP_TO_ONE = "rounded up to one"  # tag: bounded from above by a number that half precision rounds to 1
FROM_MINUS_ONE = "rounded down to minus one"  # tag: the negative of such
POSITIVE = "positive"  # tag: an exponential or the like, which is 0 for extreme numbers alone
POSITIVES = frozenset({"exp", "exp2", "softplus", "Softplus"})
FLOORED = "bounded from below"  # tag: by a number that half precision holds
BOUNDS = {"clamp": "min", "clip": "min", "clamp_min": "min", "maximum": "other"}  # what bounds from below, and by which argument
NONNEGATIVE = "not negative"  # tag: a square or the like
UNSIGNED = frozenset({"square", "abs", "relu", "norm", "vector_norm", "var", "std"})
ROOTS = frozenset({"sqrt", "pow", "square", "rsqrt", "reciprocal"})
MEASURED = frozenset({"norm", "vector_norm", "matrix_norm", "pow", "square", "mse_loss", "l1_loss", "abs", "relu", "clamp"})  # of gradients
IN_PLACE = "sum in place"  # what is done with a number that a product brings into a half tensor
NAMED_LOGITS = "named logits"  # tag: what something unknown is called
LOGARITHMS = re.compile(r"log(?:2|10|1p|_softmax)?$|LogSoftmax$|logsigmoid$|LogSigmoid$")
LOGITS = re.compile(r"logit", re.I)
LARGE = "times "  # beginning of a tag: the number beyond float16 by which something that float16 need not hold was multiplied
FACTOR = re.compile(r"^\((.*) \* (-?[\d.]+(?:e[+-]?\d+)?)\)$|^\((-?[\d.]+(?:e[+-]?\d+)?) \* (.*)\)$", re.S)
BY_HAND = "scaled by hand"  # tag: a loss multiplied by a number of the program's own
COMPLEX = "complex"  # tag: a complex tensor, which autocast leaves as it is
TO_COMPLEX = frozenset({"polar", "complex", "view_as_complex"})
FROM_COMPLEX = frozenset({"abs", "absolute", "angle", "real", "imag", "view_as_real"})
UNTRAINED = "without gradients"  # tag: computed where gradients are off, or detached
PROPORTIONAL = frozenset({"add", "radd", "iadd", "sub", "rsub", "mul", "rmul", "multiply", "div", "truediv", "mean", "sum", "stack", "cat"})
HOST = "on the CPU"  # tag: made without a device and moved nowhere since, so that a region of another device leaves it alone
MADE_ON_HOST = frozenset({"arange", "empty", "eye", "full", "linspace", "ones", "rand", "randn", "zeros"})  # without a device
FILLED = frozenset({"uniform_", "normal_", "log_normal_", "bernoulli_", "exponential_", "random_", "fill_", "zero_"})  # methods
KEPT_TAGS = frozenset({MODEL_OUTPUT, BY_HAND, GUESSED, UNTRAINED})
ORIGINS = {  # what computing with a tensor tells of the result
    "gradient": "made of gradients",
    "made of gradients": "made of gradients",
    "parameter": "made of a parameter",
    "made of a parameter": "made of a parameter",
    "scale": "times the scale",
    "times the scale": "times the scale",
    "noise": "noise",
    "mask of what is not finite": "mask of what is not finite",
    "mask by a threshold": "mask by a threshold",
    "gradients taken": "gradients taken",
}
RANDOM = frozenset({"randn", "randn_like", "rand", "rand_like", "normal", "randint_like"})
MOVED_TAGS = frozenset(  # by views and casts
    {
        INTEGERS,
        POSITIONS,
        COUNTED,
        FEW,
        NORMALIZED,
        PRODUCT,
        LOGARITHM,
        AVERAGED,
        BUFFER,
        UP_TO_ONE,
        FROM_MINUS_ONE,
        NO_GRADIENT,
        STEPS,
        POSITIVE,
        FLOORED,
        NONNEGATIVE,
    }
)
CAST = "cast at "  # beginning of a tag: where a region's tensor was cast by hand to the dtype in which the region computes
SIGMOID = "sigmoid at "  # beginning of a tag: where the sigmoid was taken that gave the tensor
SIGMOIDS = frozenset({"sigmoid", "Sigmoid", "expit"})
SUMMED = "product of matrices at "  # beginning of a tag: where the product of matrices stands that gave the tensor
WEIGHTS = "weights at "  # beginning of a tag: where the sigmoid was taken that gives each position of a feature map its weight
WEIGHED = "weighed at "  # beginning of a tag: the same, of what a product of matrices adds up with such weights
TOTAL = "total of weights at "  # beginning of a tag: the same, of the sum of such weights
LATE = "late in half at "  # beginning of a tag: where what became this was computed in half after its region had ended
LATE_ROUNDED = "late in half, and rounded alone, at "  # the same, of what float16 holds with 11 bits
HELD = frozenset({"softmax", "log_softmax", "logsumexp", "Softmax", "LogSoftmax"})  # operations whose results it holds
OF_NUMBERS = frozenset(  # losses whose target is numbers, which both of their arguments promote
    ["binarycrossentropywithlogits", "bcewithlogits", "mse", "l1", "smoothl1", "huber", "poissonnll", "softmargin", "multilabelsoftmargin"]
)
NARROW = frozenset({"huber", "softmargin"})  # those of them that give the dtype of their input, whatever the target is
SHAPED = frozenset({"squeeze", "unsqueeze", "view", "reshape", "flatten", "float", "contiguous"})  # what keeps each value
MAP = "feature map"  # tag: what a convolution over two or three dimensions gives, as long as they stand apart
RESHAPED = frozenset(
    [
        *("view", "reshape", "flatten", "unflatten", "permute", "transpose", "movedim", "swapaxes", "squeeze", "unsqueeze", "expand", "t"),
        *(
            "matmul",
            "bmm",
            "baddbmm",
            "einsum",
            "linear",
            "Linear",
            "select",
            "__getitem__",
            "gather",
            "index_select",
            "stack",
            "rearrange",
        ),
        *("sum", "mean", "amax", "amin", "max", "min", "norm", "view_as", "repeat", "unfold", "nonzero", "topk", "sort"),
    ]
)
OF_MAP = "map.shape"  # what the shape of such a tensor is called
ALONG_MAP = re.compile(re.escape(OF_MAP) + r"\[(?:[23]|-[12]|slice\]\[[01])\]$")
MOVING = RESHAPED - {
    "matmul",
    "bmm",
    "baddbmm",
    "einsum",
    "linear",
    "Linear",
    "sum",
    "mean",
    "norm",
    "nonzero",
    "topk",
    "sort",
    "stack",
} | {
    "contiguous",
    "float",
    "to",
}
FLOORS = frozenset({"clamp", "clamp_min", "clip", "add", "radd", "maximum"})
MAPPED = re.compile(r"conv(?:_?transpose)?[23]d$", re.I)
EXACT = 2048  # whole numbers up to this are exact in float16
COARSE = 256  # and up to this in bfloat16
BASE = 500  # from which on the base of a power is one of angles, and not of a slope
OF_SCHEDULER = re.compile(
    r"[\w.]*scheduler\.timesteps(?:\[[^\[\]]*\]|\.(?:expand|repeat|unsqueeze|reshape|view|cuda|flatten)\([^()]*\))*"
)  # what is shown of the time steps of a scheduler that nobody knows, or of one of them
UNPATCHED = frozenset({"einsum"})  # what apex leaves alone of what autocast casts: its products are taken below Python
PRODUCTS = frozenset({"matmul", "rmatmul", "einsum", "mm", "bmm"})
COUNTING = PRODUCTS | {"mul", "rmul", "add", "radd", "sub", "rsub", "outer", "sin", "cos", "div", "truediv", "multiply"}
WIDENING = frozenset({"add", "sub", "subtract", "mul", "multiply"})
TIMES = frozenset({"mul", "rmul", "multiply"})
POWERS = frozenset({"pow", "rpow", "exp", "exp2", "float_power"})
SCALED = frozenset({"mul", "rmul", "multiply", "div", "truediv", "divide", "rtruediv", "true_divide", "neg", "add", "radd", "sub", "rsub"})
QUOTIENTS = frozenset({"div", "truediv", "divide", "true_divide"})
ANGLED = SCALED | PRODUCTS | {"outer", "ger", "cat", "concat", "stack", "hstack", "reciprocal", "where", "tensordot"}
TURNS = frozenset({"sin", "cos", "polar", "sincos"})
OF_RATES = frozenset({RATES, ROUNDED, FOLLOWING, TURNING, ANGLES})
AVERAGES = ("conv", "mean", "pool", "filter", "blur", "einsum", "interpolate")
LOG_PROBABILITIES = frozenset({"log_softmax", "LogSoftmax", "logsigmoid", "LogSigmoid"})
OF_DIFFERENCES = frozenset({"logsigmoid", "LogSigmoid"})  # those that losses take of preferences, and no head of a classifier is
NO_HALF = frozenset(  # operations without a half kernel, which raise
    [
        *("eigh", "eig", "eigvals", "eigvalsh", "svd", "svdvals", "qr", "cholesky", "cholesky_ex", "cholesky_inverse", "cholesky_solve"),
        *("inverse", "inv", "inv_ex", "pinverse", "pinv", "solve", "solve_ex", "solve_triangular", "triangular_solve", "lstsq", "lu"),
        *("lu_factor", "lu_solve", "ldl_factor", "ldl_solve", "det", "logdet", "slogdet", "matrix_exp", "geqrf", "ormqr"),
    ]
)
REFUSED = NO_HALF - {"matrix_exp"} | {"matrix_rank", "cond", "quantile", "nanquantile", "householder_product"}  # on every device
TRANSFORMS = re.compile(r"i?[rh]?fft[2n]?$|stft$")  # of Fourier: none in bfloat16, in float16 on CUDA of sizes alone that are powers of two
WINDOWED = frozenset({"stft", "istft"})
FACTORED = frozenset({"pca_lowrank", "svd_lowrank", "lobpcg"})  # what multiplies matrices first, and factors the products then
BANNED = frozenset({"binary_cross_entropy", "BCELoss"})
LOSS_OPS = ("loss", "Loss", "cross_entropy", "kl_div", "log_softmax", "LogSoftmax")  # ends of the names of what losses are made of
CALLED_LOSS = re.compile(
    r"(?:^|_)(?:loss|losses|criterion|criteria|crit|cross_entropy|mse|nll)(?:_|$|fn|func)|Loss$|CrossEntropy$", re.I
)  # what a loss that nobody knows is called
NO_LOSS = re.compile(r"scale|check|valid|finite|log_loss|print|update|reduce|record|backward|plot|meter|avg|average|weight|get_|save", re.I)
CASTS = {
    "half": HALF,
    "bfloat16": BFLOAT,
    "float": SINGLE,
    "double": DOUBLE,
    "int": INTEGER,
    "long": INTEGER,
    "short": INTEGER,
    "byte": INTEGER,
    "char": INTEGER,
    "bool": BOOLEAN,
}
UNKNOWN_RECEIVERS = frozenset(
    [
        "matmul",
        "bmm",
        "mm",
        "addmm",
        "baddbmm",
        "mv",
        "masked_fill",
        "masked_fill_",
        "softmax",
        "log_softmax",
        "type_as",
        "half",
        "bfloat16",
        "float",
        "double",
        "to",
        "sigmoid",
        "pow",
        "exp",
        "log1p",
        "rsqrt",
    ]
)
MODULE_WORDS = ("model", "net", "module", "encoder", "decoder", "unet", "vae", "backbone", "transformer", "generator", "discriminator")
# ends of the names of what models take and give
OF_TENSORS = frozenset(
    [
        *("input", "inputs", "output", "outputs", "out", "outs", "state", "states", "hidden", "feature", "features", "feat", "feats"),
        *("mask", "masks", "embeds", "embeddings", "logits", "loss", "losses", "ids", "pred", "preds", "prediction", "predictions"),
        *("tokens", "latent", "latents", "grad", "grads", "param", "params", "weight", "weights", "result", "results"),
    ]
)
MAKERS = ("build", "create", "get", "load", "make", "init", "instantiate", "prepare", "setup", "construct")  # beginnings of makers' names
LEGACY = {"HalfTensor": HALF, "BFloat16Tensor": BFLOAT, "FloatTensor": SINGLE, "DoubleTensor": DOUBLE, "LongTensor": INTEGER}
LEGACY.update(dict.fromkeys(("IntTensor", "ShortTensor", "ByteTensor", "CharTensor"), INTEGER), BoolTensor=BOOLEAN)
COMPARED = UNKNOWN_TENSOR.but(dtypes=frozenset({BOOLEAN}))  # what a comparison gave, where no bool of Python's can be meant
vocabulary.defaults.update({"default dtype": DType(SINGLE), "default device": NONE})


# operations


def is_floored(atom: Atom) -> bool:
    """Whether a number, or each number of a tensor, is at least one that float16 holds."""
    value = number_of(atom)
    if value is None and type(atom) is Tensor:
        return FLOORED in atom.tags or (atom.range is not None and atom.range[0] > FLOAT16_ZERO)
    return value is not None and value > 0 and not is_lost(value)


def is_above_zero(atom: Atom, or_zero: bool = False) -> bool:
    """Whether a number, or each number of a tensor, is above 0, or 0 at least."""
    value = number_of(atom)
    if value is None and type(atom) is Tensor:
        return is_floored(atom) or not atom.tags.isdisjoint({POSITIVE, NONNEGATIVE} if or_zero else {POSITIVE})
    return is_floored(atom) or (or_zero and value is not None and value >= 0)


def operands_of(m: Machine, atom: Atom, depth: int = 0) -> list[Tensor]:
    """The tensors of an argument: itself, or the items of a sequence."""
    if type(atom) is Tensor:
        return [atom]
    if depth < 3 and type(atom) is Items:
        values = [*atom.items, *([atom.rest] if atom.rest is not None else [])]
        return [t for v in values for _, a in under(v, m.path) for t in operands_of(m, a, depth + 1)]
    if depth < 3 and type(atom) is Object and atom.kind in ("list", "set"):
        held = m.read(atom.id, "#items")
        return [t for _, a in under(held, m.path) for t in operands_of(m, a, depth + 1)] if held is not None else []
    return []


def number_of(atom: Atom | None) -> float | None:
    """The number that a Python constant, or a tensor made of one, holds."""
    if type(atom) is Constant and isinstance(atom.value, (int, float)) and not isinstance(atom.value, bool):
        try:
            return float(atom.value)
        except OverflowError:
            return math.inf
    if type(atom) is Tensor and atom.range is not None and atom.range[0] == atom.range[1]:
        return atom.range[0]
    return None


def number_by_default(m: Machine, atom: Atom | None) -> float | None:
    """The number that a value holds as the program stands: of an option, its default."""
    switch = m.switches.get(atom.symbol) if type(atom) is Unknown else None
    default = switch.default if switch is not None else None
    return number_of(default if type(default) is Constant else atom)


def operate(
    m: Machine,
    name: str,
    meaning: OpMeaning,
    positional: Sequence[Value],
    place: Place,
    *,
    by_name: dict[str, Value] | None = None,
    places: Sequence[int] = (),
    name_places: dict[str, int] | None = None,
    made: Place | None = None,
) -> Value:
    """The result of an operation on values, each combination of alternatives for itself."""
    keys = [k for k in (by_name or {}) if k not in ("device", "size", "out", "generator", "requires_grad")]
    held = [value for given in positional for value in alternatives_within(m, given)]
    values: list[Value] = [m.state("autocast"), *positional, *((by_name or {})[k] for k in keys), *held[:MAX_WITHIN]]

    def run(chosen: tuple[Atom, ...]) -> Value:
        m.step(3)
        region = chosen[0] if type(chosen[0]) is Autocast else Autocast("", None)
        given = chosen[1 : 1 + len(positional)]
        rest = dict(zip(keys, chosen[1 + len(positional) :], strict=False))
        operation = Operation(m, name, meaning, region, given, rest, place, places, name_places or {}, made)
        operation.on_device = "device" in (by_name or {})
        return operation.result()

    return spread(m, values, run)


MAX_WITHIN = 3  # values in containers whose conditions are kept apart


def alternatives_within(m: Machine, value: Value) -> list[Value]:
    """What a tuple or list holds that depends on conditions (`torch.cat([x, skip])`)."""
    if type(value) is Object and value.kind == "list":
        value = m.read(value.id, "#items") or NONE
    if type(value) is not Items:
        return []
    held = (choose(item, m.path) for item in value.items)
    return [item for item in held if type(item) is Alternatives]


class Operation:
    """One operation on atoms under one autocast state."""

    __slots__ = ("given", "m", "made", "meaning", "name", "name_places", "named", "on_device", "place", "places", "region", "tensors")

    def __init__(
        self,
        m: Machine,
        name: str,
        meaning: OpMeaning,
        region: Autocast,
        given: Sequence[Atom],
        named: dict[str, Atom],
        place: Place,
        places: Sequence[int],
        name_places: dict[str, int],
        made: Place | None = None,
    ) -> None:
        self.m = m
        self.made = made
        self.name = name
        self.meaning = meaning
        self.region = region
        self.given = given
        self.named = named
        self.place = place
        self.places = places
        self.name_places = name_places
        self.on_device = False
        self.tensors = [t for atom in (*given, *named.values()) for t in operands_of(m, atom)]
        if name == "where":  # chosen by a mask, of which the result has nothing
            self.tensors = [t for t in self.tensors if t.dtypes != {BOOLEAN}] or self.tensors

    @property
    def kind(self) -> str:
        """What this does to dtypes in its region."""
        unpatched = self.region.by == "apex" and short_of(self.name) in UNPATCHED
        return self.meaning.plain if unpatched else region_kind(self.meaning, self.region)

    def result(self) -> Value:
        """What it gives."""
        meaning = self.meaning
        if self.region.dtype is not None and self.region.device != "cpu" and self.is_on_host():
            self.region = Autocast("", None)
        kind = self.kind
        if self.m.recorder is not None:
            self.m.recorder.computed(self.m, self.place, self.name, meaning.kind)
        if kind == "none":
            return self.unknown()
        if kind == "lower" and self.given and all(type(a) is Tensor and a.dtypes <= {INTEGER, BOOLEAN} for a in self.given):
            kind = meaning.plain  # autocast casts floats only
        self.check(kind)
        asked = dtypes_given(self.named.get("dtype")) if meaning.takes_dtype or kind in ("factory", "float32") else None
        if kind in ("integer", "bool"):
            return self.finish(frozenset({INTEGER if kind == "integer" else BOOLEAN}), (), neutral=False)
        if kind == "factory":
            return self.factory(asked)
        if asked is not None:
            letters, chain = asked
            chain = chain or ((Step(self.place, f"`{self.name}` computes in {named(HALF)} here"),) if letters & HALVES else ())
            made = self.finish(letters, chain)
            if letters == {HALF} and type(self.named.get("dtype")) is DType and meaning.overflow and type(made) is Tensor:
                asked_at = Place(self.place.path, self.name_places.get("dtype", self.place.position))
                self.m.emit("unstable in half", self.place, **self.in_half(made, asked_at))
            return made
        letters, chain = self.dtypes(kind)
        if meaning.integers == "float32" and letters <= {INTEGER, BOOLEAN}:
            letters = frozenset({SINGLE})
        return self.finish(letters, chain)

    def is_on_host(self) -> bool:
        """Whether everything that this computes with was made on the CPU and has stayed there."""
        if not self.tensors or short_of(self.name)[:1].isupper() or not all(HOST in t.tags for t in self.tensors):
            return False  # a layer has weights, which lie wherever its model does
        if short_of(self.name) in RESHAPED - PRODUCTS or self.name in FILLED:
            return True  # which take numbers beside the one tensor
        return not any(type(a) is Unknown and not is_size(a) and not is_one_number(a) for a in self.given)

    def dtypes(self, kind: str) -> tuple[Letters, tuple[Step, ...]]:
        """The dtypes that an operation of a kind gives, with how they became half."""
        operands = self.tensors
        if self.is_of_logits():
            return frozenset({HALF}), (*self.region.chain[:1], Step(self.place, f"`{self.name}` gets float16 logits here"))
        doubles = operands and all(t.dtypes == {DOUBLE} for t in operands)
        if kind == "lower" and not doubles:
            return lowered(self.region, self.name, self.place)
        if not operands:
            return frozenset({SINGLE if kind == "float32" else ANY}), ()
        if kind == "float32":
            return frozenset({DOUBLE if any(t.dtypes == {DOUBLE} for t in operands) else SINGLE}), ()
        short = short_of(self.name)
        if (short in NO_HALF or TRANSFORMS.match(short)) and widest(operands) & HALVES:
            return frozenset({ANY}), ()
        if kind == "same" and not self.meaning.raises_on_mixed:
            follows = self.given[self.meaning.follows] if self.meaning.follows < len(self.given) else None
            held = operands_of(self.m, follows) if follows is not None else []
            if held:
                letters = widest(held)
                return letters, half_chain(held, letters)
        letters = widest(operands)
        if letters <= {INTEGER, BOOLEAN} and self.may_be_widened():
            return frozenset({ANY}), ()
        return letters, half_chain(operands, letters)

    def may_be_widened(self) -> bool:
        """Whether whole numbers meet what nobody knows in arithmetic, which is in floating point where that is."""
        if short_of(self.name).removeprefix("r") not in WIDENING:
            return False
        numbers = (a for a in self.given if type(a) is Unknown and not is_size(a) and not is_one_number(a))
        return any(ANY in t.dtypes for t in self.tensors) or any(True for _ in numbers)

    def may_be_promoted(self, late: Tensor) -> bool:
        """Whether a loss of numbers is taken of something else in float32, or of unknown dtype, as data have it: it computes in float32."""
        others = [a for a in self.given[:2] if a is not late]
        name = short_of(self.name).lower().replace("_", "").removesuffix("loss")
        if name in OF_NUMBERS - NARROW and any(type(a) is Tensor and a.dtypes <= {SINGLE, DOUBLE} for a in others):
            return True
        if late.half and late.half[0].by in MODEL_IN_HALF:
            return False  # as its data are, as a rule
        open_ones = {ANY, INTEGER} if name.endswith("withlogits") else {ANY}  # which takes no integers: these are not what they seem
        unknown = any(type(a) is Unknown or (type(a) is Tensor and not open_ones.isdisjoint(a.dtypes) and not a.forward) for a in others)
        return unknown and name in OF_NUMBERS

    def taken_up(self, tags: frozenset[str], divisors: Sequence[Tensor]) -> frozenset[str]:
        """The tags of what a float32 operand takes up: of what was rounded alone nothing more comes, but of divisors that may be 0."""
        done = frozenset(tag for tag in tags if tag.startswith(LATE_ROUNDED))
        divides = done & {tag for tensor in divisors for tag in tensor.tags}
        for place in sorted({place for t in self.tensors for place in places_tagged(t, LATE_ROUNDED)}) if done - divides else ():
            self.m.emit("taken up", self.place, at=place)
        return tags - done | {f"{LATE}{tag.removeprefix(LATE_ROUNDED)}" for tag in divides}

    def is_left_behind(self) -> bool:
        """Whether a region would compute this in float32, which is computed of what has surely left one in half, and learns from it."""
        if (
            self.meaning.kind != "float32"
            or self.name.endswith(LOSS_OPS)
            or self.named.get("dtype") not in (None, NONE)
            or not self.tensors
        ):
            return False
        first = self.tensors[0]
        sure = first.dtypes == {HALF} and SURE in first.tags and UNTRAINED not in first.tags
        return sure and is_late(first) and not gradients_off(self.m) and outside_of_regions(self.m)

    def is_of_logits(self) -> bool:
        """Whether this makes probabilities of what a model gives under float16 autocast: of the result of its last product, as a rule."""
        short = short_of(self.name)
        soft = short in ("softmax", "Softmax") and self.kind != "float32" and outside_of_regions(self.m)
        if not self.given or not (short == "sigmoid" or soft):
            return False
        source = self.given[0]
        if type(source) is Tensor and source.dtypes == {ANY} and MODEL_OUTPUT in source.tags and source.forward == {HALF}:
            return True
        return self.region.dtype == HALF and (is_logits(source) or (type(source) is Tensor and NAMED_LOGITS in source.tags))

    def factory(self, asked: tuple[Letters, tuple[Step, ...]] | None) -> Value:
        """A tensor made of numbers."""
        numbers = [a for a in self.given if type(a) is Constant]
        letters: Letters
        source = self.given[0] if self.given else None
        if asked is not None:
            letters, chain = asked
            chain = chain or ((Step(self.place, "created in float16 here"),) if HALF in letters else ())
        else:
            chain = ()
            default = self.m.state("default dtype")
            letters = frozenset({default.letter}) if type(default) is DType else frozenset({ANY})
            if letters & HALVES:
                chain = (Step(self.place, "created in the default dtype, which is half, here"),)
            if "dtype" in self.named and self.named["dtype"] != NONE:
                letters, chain = frozenset({ANY}), ()
            elif self.meaning.integers and not any(isinstance(c.value, float) for c in numbers) and self.name not in ("full", "new_full"):
                letters, chain = frozenset({INTEGER}), ()
            elif self.name in ("tensor", "as_tensor", "asarray", "scalar_tensor"):
                if type(source) is Constant and isinstance(source.value, (bool, int)):
                    letters, chain = frozenset({BOOLEAN if isinstance(source.value, bool) else INTEGER}), ()
                elif type(source) is Tensor:
                    letters, chain = source.dtypes, source.half
                elif type(source) is not Constant:
                    of_items = kind_of_items(self.m, source)
                    letters, chain = (letters, chain) if of_items is float else (frozenset({INTEGER if of_items is int else ANY}), ())
        made = Tensor(letters, chain, made=Step(self.place, f"`{self.name}` creates it here"))
        if self.name in ("tensor", "as_tensor", "scalar_tensor") and (value := number_of(source)) is not None:
            made = made.but(range=(value, value), tags=frozenset({SCALAR}))
        elif self.name in ("tensor", "as_tensor", "scalar_tensor") and source is not None and is_one_number(source):
            made = made.but(tags=frozenset({SCALAR}))
        elif self.name == "full" and (value := number_of(self.argument(1, "fill_value"))) is not None:
            made = made.but(range=(value, value))
            if beyond_possible(made):
                beyond(self.m, made, value, "raises", self.name, self.argument_place(1, "fill_value"), self.place)
        elif self.name in ("ones", "zeros", "empty", "rand", "randn") and len(self.given) == 1 and is_empty(self.m, self.given[0]):
            made = made.but(tags=frozenset({SCALAR}))
        if self.name in MADE_ON_HOST and not self.on_device and self.m.state("default device") == NONE:
            made = made.but(tags=made.tags | {HOST})
        if self.name in ("arange", "range", "linspace"):
            made = made.but(tags=(made.tags & {HOST}) | frozenset({COUNTED, NORMALIZED} if self.name == "linspace" else {COUNTED}))
        if self.name in ("arange", "range") and self.is_long():
            tags = {COUNTED, POSITIONS, INTEGERS} if letters & HALVES else {COUNTED, POSITIONS}
            end = self.argument(1, "end") or self.argument(0, "end")
            made = made.but(tags=(made.tags & {HOST}) | (tags | {f"{ENDING}{end.symbol}"} if type(end) is Unknown else tags))
            dtype = self.named.get("dtype")
            if type(dtype) is Unknown and (of := caller_of(dtype, self.name)):
                made = borrowed(made, of, self.argument_place(-1, "dtype"))
        return made

    def is_long(self) -> bool:
        """Whether a range counts one by one to a length that nobody knows, and that is no width of a layer, nor a side of a feature map."""
        given = [self.argument(i, name) for i, name in enumerate(("start", "end")) if self.argument(i, name) is not None]
        step = self.argument(2, "step")
        if step is not None and abs(number_of(step) or 0) != 1:
            return False
        if all((number_of(a) or 0) <= EXACT for a in given if type(a) is Constant) and all(type(a) is Constant for a in given):
            return False
        if any(type(a) is Unknown and FEWER.fullmatch(a.symbol.partition(IDENTITY)[0]) for a in given):
            return False
        shown = [OF_SEQUENCE.sub("", a.symbol.partition(IDENTITY)[0].lower()) for a in given if type(a) is Unknown]
        return not any(CHANNELS.search(text) or ALONG_MAP.search(text) for text in shown)

    def argument(self, index: int, name: str = "") -> Atom | None:
        """An argument by position or name."""
        if name in self.named:
            return self.named[name]
        return self.given[index] if index < len(self.given) else None

    def argument_place(self, index: int, name: str = "") -> Place:
        """Where an argument stands, or else the call."""
        position = self.name_places.get(name)
        if position is None and index < len(self.places):
            position = self.places[index]
        return Place(self.place.path, position) if position else self.place

    def finish(self, letters: Letters, chain: tuple[Step, ...], neutral: bool | None = None) -> Value:
        """The tensors with their histories."""
        tensors = self.tensors
        first = tensors[0] if tensors else UNKNOWN_TENSOR
        forward = forward_of(tensors, self.is_compared() and not gradients_off(self.m))
        if chain and self.region.dtype is not None and self.kind == "lower":
            forward = forward | letters
        elif self.region.dtype == ANY and self.kind == "lower":
            forward = forward | {ANY}
        short = self.name.strip("_")
        keeps = short in NEUTRAL or self.name in NEUTRAL if neutral is None else neutral
        epsilon = first.epsilon if keeps else self.epsilon_kept()
        tags = (first.tags & KEPT_TAGS) if tensors else frozenset()
        if BY_HAND in tags and not (keeps or short in PROPORTIONAL):
            tags = tags - {BY_HAND}  # features are multiplied, too: what grows with them is a loss that is made of them no more
        tags = tags | origins(short, tensors)
        if letters == {HALF} and self.is_left_behind():
            tags = tags | {f"{LATE_ROUNDED if short in HELD else LATE}{self.place.path}:{self.place.position}"}
        elif short in HELD and letters == {HALF} and is_late(first) and outside_of_regions(self.m):
            tags = tags | {f"{LATE_ROUNDED}{self.place.path}:{self.place.position}"}
        elif letters == {SINGLE} and any(t.dtypes == {SINGLE} for t in tensors):
            tags = self.taken_up(tags, tensors[1:] if short in DIVISIONS else ())
        if self.is_complex(short):
            tags = tags | {COMPLEX}
        tags = self.trained(tags, short) if forward else tags
        if keeps:
            tags = tags | (first.tags & (MOVED_TAGS | {FOLLOWING} if POSITIONS in first.tags else MOVED_TAGS))
            if short in SHAPED:
                tags = tags | {tag for tag in first.tags if tag.startswith((SIGMOID, SUMMED, WEIGHED))}
        elif short in ("add", "radd", "sub"):
            tags = tags | (first.tags & {POSITIONS, FOLLOWING} if POSITIONS in first.tags else frozenset())
        tags = tags | self.rates(short, keeps) | self.bounds(short) | self.weights(short, letters)
        tags = tags | spectral(short, self.given, tensors) | still_raised(short, tensors, letters)
        tags = self.multiplied(tags, short, letters)
        if tensors and all(SCALAR in t.tags for t in tensors):
            tags = tags | {SCALAR}
        tags = tags | self.marks(short, letters)
        if self.is_of_logits():
            tags = tags | {GUESSED}
        if self.is_sure(keeps):
            tags = tags | {SURE}
        if short in ("sum", "mean", "max", "min", "prod", "norm") and len(self.given) == 1 and not self.named:
            tags = tags | {SCALAR}
        made = Tensor(
            letters,
            chain if letters & HALVES else (),
            next((t.scaled for t in tensors if t.scaled is not None), None),
            forward,
            epsilon,
            first.made if keeps or {POSITIONS, FOLLOWING} <= tags else None,
            first.range if keeps and short not in ("sum", "mean") else self.filled(short),
            tags,
        )
        if self.is_on_host():
            made = made.but(tags=made.tags | {HOST})
        if ROUNDED in tags:
            made = self.rounded(made)
        if short == "sub" and len(tensors) > 1 and {AVERAGED, SURE} <= first.tags and PRODUCT in tensors[1].tags and may_be_half(made):
            self.m.emit("cancellation in half", self.place, tensor=made, module=forward_around(self.m, self.place.path))
        made = self.guard_added(made)
        return self.several(made)

    def multiplied(self, tags: frozenset[str], short: str, letters: Letters) -> frozenset[str]:
        """Tags, with those for products, their averages and logarithms, and what is multiplied by large numbers."""
        if short in ("mul", "multiply", "square", "pow") and is_product(short, self.given):
            tags = tags | {PRODUCT}
        if LOGARITHMS.match(short):
            tags = tags | {LOGARITHM}
        if self.given and holds_product(self.given[0]) and any(word in short.lower() for word in AVERAGES):
            tags = (tags - {PRODUCT}) | {AVERAGED}
        if short not in ("mul", "rmul", "multiply"):
            return tags
        factors = [v for a in self.given if (v := number_of(a)) is not None]
        if not letters & HALVES:
            tags = tags | {f"{LARGE}{v!r}" for v in factors if FLOAT16_MAX < abs(v) < math.inf}
        return tags | {BY_HAND} if self.tensors and self.tensors[0].forward and any(v >= 8 for v in factors) else tags

    def is_compared(self) -> bool:
        """Whether this tells two tensors apart: a loss, or a difference."""
        return self.name.strip("_") in ("sub", "rsub") or self.name.endswith(LOSS_OPS)

    def trained(self, tags: frozenset[str], short: str) -> frozenset[str]:
        """Tags, with the one for what no gradient runs through where none runs through any of the tensors, or the result."""
        if short == "detach" or gradients_off(self.m):
            return tags | {UNTRAINED}
        before = [t for t in self.tensors if t.forward]
        if short in BLENDS and before and all(UNTRAINED in t.tags for t in before):
            return tags | {UNTRAINED}  # of data and noise: samples between two others
        return tags - {UNTRAINED} if any(t.forward and UNTRAINED not in t.tags for t in self.tensors) else tags

    def marks(self, short: str, letters: Letters) -> frozenset[str]:
        """What further operations ask of the result: where a sigmoid or a product stands, whether it is a distribution or a feature map."""
        if short in ("softmax", "Softmax"):
            return frozenset({DISTRIBUTION})
        maps = MAPPED.search(short) or (short not in RESHAPED and any(MAP in tensor.tags for tensor in self.tensors[:1]))
        mapped = frozenset({MAP} if maps else ())
        beginning = SIGMOID if short in SIGMOIDS else SUMMED if short in PRODUCTS and letters == {HALF} else ""
        return mapped | {f"{beginning}{self.place.path}:{self.place.position}"} if beginning else mapped

    def weights(self, short: str, letters: Letters) -> frozenset[str]:
        """What the result has of weights for the positions of a feature map: these, their sum, or what a product adds up with them."""
        if not self.tensors:
            return frozenset()
        first = self.tensors[0]
        if short in SIGMOIDS:
            return frozenset({f"{WEIGHTS}{self.place.path}:{self.place.position}"} if MAP in first.tags else ())
        weights = {tag.removeprefix(WEIGHTS) for t in self.tensors for tag in t.tags if tag.startswith(WEIGHTS)}
        if short in PRODUCTS:
            return frozenset(f"{WEIGHED}{place}" for place in weights) if letters == {HALF} else frozenset()
        if short == "sum":
            return frozenset(f"{TOTAL}{place}" for place in weights)
        if short in MOVING:
            return frozenset(tag for tag in first.tags if tag.startswith((WEIGHTS, TOTAL)))
        return frozenset(tag for tag in first.tags if tag.startswith(TOTAL)) if short in FLOORS else frozenset()

    def filled(self, short: str) -> tuple[float, float] | None:
        """The number that all of the result is, where it is made of one."""
        value: float | None = None
        if short == "full_like":
            value = number_of(self.argument(1, "fill_value"))
        elif short == "ones_like":
            value = 1.0
        elif short in TIMES and len(self.given) == 2 and None not in (numbers := [number_of(a) for a in self.given]):
            value = math.prod(number for number in numbers if number is not None)
        return (value, value) if value is not None else None

    def bounds(self, short: str) -> frozenset[str]:
        """What the result is known to lie above, so that it needs no number against a zero."""
        of_weights = short in SIGMOIDS and any(not t.tags.isdisjoint({PARAMETER, "made of a parameter"}) for t in self.tensors)
        if short in POSITIVES or of_weights:  # a sigmoid of logits comes near 0 wherever a model is sure
            return frozenset({POSITIVE})
        floor = number_by_default(self.m, self.argument(1, BOUNDS[short])) if short in BOUNDS else None
        if floor is not None and floor > FLOAT16_ZERO:
            return frozenset({FLOORED})
        if short in UNSIGNED or (short == "pow" and number_of(self.argument(1)) in (2, 4)) or (short in TIMES and self.is_square()):
            return frozenset({NONNEGATIVE})
        if not self.tensors or short not in SCALED | ROOTS or short in ("neg", "sub", "rsub"):
            return frozenset()
        above = [is_above_zero(atom) for atom in self.given]
        if short in ("add", "radd") and any(above) and all(is_above_zero(atom, or_zero=True) for atom in self.given):
            return frozenset({FLOORED} if any(is_floored(atom) for atom in self.given) else {POSITIVE})
        if not above or not all(above):
            return frozenset()
        return frozenset({FLOORED} if short == "sqrt" and is_floored(self.given[0]) else {POSITIVE})

    def is_square(self) -> bool:
        """Whether this multiplies something by itself."""
        return len(self.given) == 2 and self.given[0] is self.given[1]

    def rates(self, short: str, keeps: bool) -> frozenset[str]:
        """What the result has of numbers in a row, of their powers, and of the angles that positions make of these."""
        found: set[str] = set()
        for tensor in self.tensors:
            if COUNTED in tensor.tags and short in SCALED:
                found.add(COUNTED)
            if FEW in tensor.tags and short in HIGHEST:
                found.add(FEW)
            if RATES in tensor.tags and (keeps or short in ANGLED):
                found |= tensor.tags & OF_RATES
        if TURNING in found and any(POSITIONS in t.tags for t in self.tensors):
            found.add(ANGLES)
        if short in POWERS and self.given and any(COUNTED in t.tags for t in operands_of(self.m, self.given[-1])):
            found.add(RATES)
            if (number_of(self.given[0]) or 0) >= BASE:
                found.add(TURNING)
            if self.exponents_in_half() is not None:
                found.add(ROUNDED)
        if any(NORMALIZED in t.tags for t in self.tensors):
            found -= OF_RATES  # angles of a few turns
            if short in TIMES and any((number_of(a) or 0) > COARSE for a in self.given):
                found.add(STEPS)
        if short in QUOTIENTS and len(self.tensors) > 1 and self.given and self.tensors[0] is self.given[0]:
            found |= {NORMALIZED} if COUNTED in self.tensors[0].tags else set()
        if short in SCALED and any(NORMALIZED in t.tags for t in self.tensors):
            found.add(NORMALIZED)
        return frozenset(found)

    def rounded(self, made: Tensor) -> Tensor:
        """Angles of rounded rates, with the chain by which these became half, and where."""
        source = next((t for t in self.tensors if ROUNDED in t.tags), None)
        if source is not None:
            return made.but(made=source.made, half=made.half or source.half)
        given = self.exponents_in_half()
        if given is None:
            return made
        where = Step(self.place, f"frequencies are powers by {named(next(iter(given.dtypes)))} numbers here")
        return made.but(made=where, half=(*given.half, where))

    def exponents_in_half(self) -> Tensor | None:
        """Numbers in a row in half precision that this takes powers by: the rates are rounded as much, in whatever dtype they come."""
        if short_of(self.name) not in POWERS or not self.given:
            return None
        held = (t for t in operands_of(self.m, self.given[-1]) if COUNTED in t.tags)
        return next((t for t in held if t.dtypes in ({HALF}, {BFLOAT}) and t.half), None)

    def is_complex(self, short: str) -> bool:
        """Whether the result is complex, because an operand is."""
        made = any(type(a) is Constant and type(a.value) is complex for a in self.given)
        return short in TO_COMPLEX or ((made or any(COMPLEX in t.tags for t in self.tensors)) and short not in FROM_COMPLEX)

    def is_sure(self, keeps: bool) -> bool:
        """Whether nothing unknown could have made the result wider than it seems."""
        kind = self.kind
        if kind in ("lower", "same") or keeps:
            return kind == "lower" or (bool(self.tensors) and SURE in self.tensors[0].tags)
        floats = [t for t in self.tensors if not t.dtypes <= {INTEGER, BOOLEAN}]
        return bool(floats) and all(SURE in t.tags for t in floats) and not any(type(a) is Unknown and not is_size(a) for a in self.given)

    def several(self, made: Tensor) -> Value:
        """One tensor, or as many as the operation gives."""
        meaning = self.meaning
        if meaning.outputs < 2:
            return made
        if meaning.single and len(self.given) < 2 and not self.named.keys() & {"dim", "axis"}:
            return made
        if meaning.single and len(self.given) > 1 and type(self.given[1]) is Tensor:
            return made
        parts = meaning.parts or ("same",) * meaning.outputs
        return Items(tuple(made.but(dtypes=frozenset({INTEGER}), half=()) if p == "integer" else made for p in parts))

    def unknown(self) -> Value:
        """What no tensor is: sizes, numbers, text."""
        for tensor in self.tensors:
            if tensor.scaled is not None:
                self.m.emit("tensor read", self.place, tensor=tensor, how=self.name)
        return Unknown(f"{self.name}(){IDENTITY}{self.place.path}:{self.place.position}{self.m.round()}")

    # epsilons

    def epsilon_kept(self) -> Step | None:
        """The lost epsilon that the result still carries: of a sum or product, not of a quotient's numerator."""
        short = self.name.strip("_")
        if short in ("add", "sub", "mul", "radd", "rmul", "multiply", "pow", "square", "maximum"):
            return next((t.epsilon for t in self.tensors if t.epsilon is not None), None)
        return None

    def guard_added(self, made: Tensor) -> Tensor:
        """The result with the epsilon that its dtype loses, where one is added or bounds it from below."""
        short = self.name.strip("_")
        made = self.bounded(made, short)
        if made.dtypes != {HALF}:
            return made.but(epsilon=None) if made.epsilon is not None and short in ("add", "radd") else made
        for index, name in GUARDS.get(short, ()):
            value = number_by_default(self.m, self.argument(index, name))
            if is_lost(value) and not any(is_floored(tensor) for tensor in self.tensors):
                return made.but(epsilon=Step(self.argument_place(index, name), repr(value)))
        return made

    def bounded(self, made: Tensor, short: str) -> Tensor:
        """The result with an upper bound that half precision rounds to 1, and what that leaves of `1 - x`: nothing."""
        first = self.tensors[0] if self.tensors else None
        if short in ("clamp", "clip", "clamp_max", "minimum"):
            index = 1 if short in ("clamp_max", "minimum") else 2
            most = number_of(self.argument(index, "max"))
            if most is not None and made.dtypes == {HALF} and NEARLY_ONE < most < 1:
                return made.but(tags=made.tags | {UP_TO_ONE}, made=Step(self.argument_place(index, "max"), repr(most)))
        if first is not None and UP_TO_ONE in first.tags and first.made is not None and short in ("neg", "sub", "rsub"):
            if short == "neg":
                return negated(made.but(tags=made.tags | {UP_TO_ONE}, made=first.made))
            if number_of(self.given[0]) == 1 or (short == "rsub" and number_of(self.argument(1)) == 1):
                return made.but(epsilon=first.made)
        return made

    # what goes wrong

    def check(self, kind: str) -> None:
        """Note what half precision does to this operation."""
        m, short = self.m, self.name.strip("_")
        if kind == "raises" and self.is_refused():
            m.emit("raises under autocast", self.place, name=self.name, autocast=self.region, made=self.made)
        if self.meaning.kind == "raises" and short in BANNED:
            m.emit("loss of probabilities", self.place, name=self.name, tensor=self.tensors[0] if self.tensors else None, made=self.made)
        self.check_zeros(kind, short)
        if short in MEASURED and (taken := next((t for t in self.tensors if TAKEN in t.tags), None)) is not None:
            m.emit("gradients measured", self.place, tensor=taken, name=short)
        if kind not in ("bool", "integer"):
            self.check_constants(kind)
        if kind == "lower" and type(m.state("autocast")) is Autocast:
            for tensor in self.tensors:
                note_cast(m, tensor, self.place, self.name)
        self.check_kernel(kind)
        if kind == "lower" and self.region.dtype in HALVES:
            self.check_lowered(short)
        first = self.tensors[0] if self.tensors else None
        if first is None or self.named.get("dtype") not in (None, NONE):
            return
        if kind != "float32" and self.meaning.kind == "float32" and self.name.endswith(LOSS_OPS) and outside_of_regions(m):
            late = next((t for t in self.tensors[:2] if is_late(t)), None)
            if late is not None and self.dtypes(kind)[0] == late.dtypes and not self.may_be_promoted(late):
                given = self.argument_place(next((n for n, a in enumerate(self.given) if a is late), 0))
                note_late(m, self.name, late, self.place, given)
        if kind != "float32" and self.dtypes(kind)[0] == {HALF} and self.is_left_behind():
            m.emit("late in half", self.place, **self.in_half(first))
        if kind != "float32" and first.dtypes == {HALF}:
            if self.meaning.kind in ("float32", "raises") and self.meaning.overflow:
                if self.dtypes(kind)[0] == {HALF}:
                    m.emit("unstable in half", self.place, **self.in_half(first))
            elif short in REDUCTIONS:
                m.emit("reduced in half", self.place, **self.in_half(first))
        by_engine = short in OF_DIFFERENCES and bool(first.half) and first.half[0].by is By.ENGINE
        of_model = first.dtypes in ({HALF}, {BFLOAT}) and (MODEL_OUTPUT in first.tags or by_engine)
        if kind != "float32" and short in LOG_PROBABILITIES and of_model and outside_of_regions(m):
            m.emit("log-probabilities in half", self.place, **self.in_half(first))
        if short in COUNTING:
            self.check_positions(kind)
        if short in TURNS:
            rates = next((t for t in self.tensors if ROUNDED in t.tags and t.made is not None), None)
            if rates is not None and rates.made is not None:
                m.emit("frequencies in half", rates.made.place, name=self.name, tensor=rates, used=self.place)

    def check_zeros(self, kind: str, short: str) -> None:
        """Note what half precision takes to 0 before a logarithm, a root or a division."""
        m = self.m
        guard = GUARDED.get(short)
        if guard is not None and self.tensors and self.tensors[0].epsilon is not None and self.needs_guard(guard):
            lost(m, self.tensors[0], guard, self.place)
        if short == "logit" and kind != "float32" and self.tensors and self.tensors[0].dtypes == {HALF}:
            within = number_of(self.argument(1, "eps"))
            if within is not None and is_lost(within):
                bound = Step(self.argument_place(1, "eps"), repr(within))
                lost(m, self.tensors[0].but(epsilon=bound), "logarithm", self.place)
        if short in ENDS and len(self.given) == 1 and not self.named:
            self.check_end(short)
        for index, what in SECOND_GUARDED.get(short, ()):
            below = self.argument(index)
            if type(below) is Tensor and below.epsilon is not None:
                lost(m, below, what, self.place)
        if short in DIVISIONS and len(self.given) > 1:
            self.check_average(self.given[0], self.given[1])
            below = self.given[1]
            if type(below) is Tensor and below.epsilon is not None and POSITIVE not in below.tags:
                lost(m, below, "division", self.place, self.given[0] if kind != "float32" else None)
        if short == "pow" and len(self.given) > 1 and type(self.given[0]) is Tensor and self.given[0].epsilon is not None:
            power = number_of(self.given[1])
            if power is not None and power < 0:
                lost(m, self.given[0], "division", self.place)
        if short == "log1p" and self.tensors and FROM_MINUS_ONE in self.tensors[0].tags and self.tensors[0].made is not None:
            lost(m, self.tensors[0].but(epsilon=self.tensors[0].made), "logarithm", self.place)

    def needs_guard(self, guard: str) -> bool:
        """Whether the operand comes near 0: what has an exponential is far from there for all but a logarithm of extreme ones."""
        return guard == "logarithm" or POSITIVE not in self.tensors[0].tags

    def check_end(self, short: str) -> None:
        """Note a bound of nearly 1 that half precision rounds to 1, where this is infinite, or its gradient is and somebody asks for it."""
        bounded = self.tensors[0] if self.tensors else None
        if bounded is None or UP_TO_ONE not in bounded.tags or bounded.made is None:
            return
        if short in INFINITE or not gradients_off(self.m):
            lost(self.m, bounded.but(epsilon=bounded.made), ENDS[short], self.place)

    def check_kernel(self, kind: str) -> None:
        """Note operations that have no kernel for half tensors, and raise, where they surely get one."""
        short = short_of(self.name)
        transform = TRANSFORMS.match(short) is not None
        if kind == "float32" or not (transform or short in REFUSED | FACTORED):
            return
        factored = short in FACTORED and kind == "lower" and not any(t.dtypes == {DOUBLE} for t in self.tensors)
        if factored and self.region.dtype in HALVES and self.region.device != "cpu":  # where the factorization is cast back
            letters, chain = lowered(self.region, self.name, self.place)
            self.m.emit("no half kernel", self.place, name=self.name, tensor=Tensor(letters, chain), what="factored")
            return
        given = next((t for t in self.tensors if t.dtypes in ({HALF}, {BFLOAT}) and SURE in t.tags), None)
        if (
            given is not None
            and not (short in WINDOWED and self.is_windowed())
            and not (given.dtypes == {HALF} and self.has_size_for_half())
        ):
            what, open_ = "transform" if transform else "", short in WINDOWED and type(self.size_given()) is not Constant
            self.m.emit("no half kernel", self.place, name=self.name, tensor=given, what=what, open=open_)

    def check_lowered(self, short: str) -> None:
        """Note what a region makes half again although the program has cast it, and powers that float16 does not hold."""
        letters, chain = lowered(self.region, self.name, self.place)
        if (short in PRODUCTS or short == "linear") and all_raised(self.tensors):
            learns = not gradients_off(self.m)
            self.m.emit("cast taken back", self.place, name=self.name, tensor=Tensor(letters, chain), learns=learns)
        if letters == {HALF} and self.region.device != "cpu" and any(POWER in t.tags and t.dtypes != {HALF} for t in self.tensors):
            self.m.emit("power in half", self.place, name=self.name, tensor=Tensor(letters, chain))

    def has_size_for_half(self) -> bool:
        """Whether a transform is given a size that is a power of two."""
        size = self.size_given()
        if type(size) is Constant and type(size.value) is int:
            return size.value > 0 and size.value.bit_count() == 1
        return type(size) is Unknown and size.symbol.partition(IDENTITY)[0].lstrip("(").startswith(("2 ** ", "1 << "))

    def size_given(self) -> Atom:
        """The size of a transform, as it is asked for."""
        return self.named.get("n") or self.named.get("n_fft") or (self.given[1] if len(self.given) > 1 else NONE)

    def is_windowed(self) -> bool:
        """Whether the frames of a signal are multiplied by a window that may be in float32, which they are then in, too."""
        window = self.named.get("window") or (self.given[4] if len(self.given) > 4 else NONE)
        held = [a for a in atoms(window) if a != NONE]
        return bool(held) and not all(type(a) is Tensor and a.dtypes <= HALVES for a in held)

    def check_average(self, above: Atom, below: Atom) -> None:
        """Note sums of products in float16 that are divided by a number of values only afterwards."""
        product = place_tagged(above, SUMMED)
        if product is None or type(above) is not Tensor or above.dtypes != {HALF}:
            return
        weighed = type(below) is Tensor and not places_tagged(above, WEIGHED).isdisjoint(places_tagged(below, TOTAL))
        if weighed or (type(below) is Unknown and is_size(below)):
            self.m.emit("averaged late in half", self.place, name=self.name, tensor=above, product=product, weighed=weighed)

    def is_refused(self) -> bool:
        """Whether what casts here refuses this operation: autocast whatever it is given, apex where an argument is half."""
        if self.region.dtype not in HALVES | {ANY} or self.region.device == "cpu":
            return False
        refuses = any(t.dtypes == {HALF} and SURE in t.tags for t in self.tensors)
        return not self.region.by or (self.region.by == "apex" and refuses)

    def in_half(self, tensor: Tensor, asked: Place | None = None) -> dict[str, object]:
        """What there is to say of this operation in float16; `asked`: where the program asks for that dtype."""
        learns = not gradients_off(self.m)
        given = self.argument_place(0)
        return {"name": self.name, "tensor": tensor, "asked": asked, "autocast": self.region, "given": given, "learns": learns}

    def check_positions(self, kind: str) -> None:
        """Note positions that were cast to half before they are multiplied, or that autocast casts for a product."""
        counted = next((t for t in self.tensors if INTEGERS in t.tags), None) or self.borrowed_positions()
        if any(not t.tags.isdisjoint((DISTRIBUTION, COMPLEX)) for t in self.tensors) or self.is_share():
            return
        if counted is None and kind == "lower" and self.region.dtype in HALVES and short_of(self.name) in PRODUCTS:
            counted = next((t for t in self.tensors if POSITIONS in t.tags and not t.dtypes & HALVES), None)
            counted = counted and counted.but(dtypes=frozenset({self.region.dtype}), half=self.region.chain)
        if counted is not None:
            made = counted.made if not counted.tags.isdisjoint((INTEGERS, FOLLOWING)) else None
            self.m.emit("integers in half", made.place if made is not None else self.place, name=self.name, tensor=counted, used=self.place)

    def is_share(self) -> bool:
        """Whether whole numbers are divided by the length that they end before: shares of it, and no positions."""
        if self.name.strip("_") not in QUOTIENTS or len(self.given) != 2 or type(self.given[0]) is not Tensor:
            return False
        by = self.given[1]
        return type(by) is Unknown and f"{ENDING}{by.symbol}" in self.given[0].tags

    def borrowed_positions(self) -> Tensor | None:
        """Positions in the dtype of a caller's tensor that are multiplied with frequencies, to angles."""
        if not any(RATES in t.tags for t in self.tensors):
            return None
        return next((t for t in self.tensors if {POSITIONS, FOLLOWING} <= t.tags and RATES not in t.tags), None)

    def check_constants(self, kind: str) -> None:
        """Note numbers beyond the range of a half tensor that they meet."""
        effect = self.meaning.constant
        short = self.name.strip("_")
        if not effect and short not in ("mul", "rmul", "rsub", "sub"):
            return
        if kind == "float32":
            return
        target = self.given[0] if self.given and type(self.given[0]) is Tensor else None
        if short in ("where", "add", "sub", "mul", "radd", "rsub", "rmul", "maximum", "minimum"):
            letters, _ = self.dtypes(kind)
            target = next((t for t in self.tensors if t.dtypes == letters and number_of(t) is None), None)
        if target is None or not beyond_possible(target):
            return
        candidates = list(enumerate(self.given)) if short != "pad" else [(3, self.argument(3, "value"))]
        keyed = [(k, v) for k, v in self.named.items() if k in ("value", "fill_value", "min", "max", "other", "input", "src")]
        for index, atom in candidates:
            if atom is not None and atom is not target and (value := number_of(atom)) is not None:
                value = -value if short == "sub" and index == 1 else value
                beyond(self.m, target, value, effect or "inf", self.name, self.argument_place(index), self.place)
        for key, atom in keyed:
            if (value := number_of(atom)) is not None:
                beyond(self.m, target, value, effect or "inf", self.name, self.argument_place(-1, key), self.place)


def is_size(unknown: Unknown) -> bool:
    """Whether something unknown is a number that is computed of the sizes of tensors, or the larger of such a number and another."""
    shown, _, rest = unknown.symbol.partition(IDENTITY)
    if shown == LARGER:
        shown = rest.partition(IDENTITY)[0]
    return SIZES.search(shown) is not None and not ARITHMETIC.sub("", SIZES.sub("", shown))


def is_one_number(atom: Atom) -> bool:
    """Whether something is a number of Python's that nobody knows: one size, what `math` gives, an argument that is said to be one."""
    if type(atom) is not Unknown:
        return False
    shown = atom.symbol.partition(IDENTITY)[0]
    if atom.hint.rpartition(".")[2] in ("int", "float") or shown.startswith("math."):
        return True
    return is_size(atom) and SEVERAL_SIZES.search(shown) is None


def sigmoid_of(tensor: object) -> Place | None:
    """Where the sigmoid was taken that a tensor is the result of."""
    return place_tagged(tensor, SIGMOID)


def place_tagged(tensor: object, beginning: str) -> Place | None:
    """The place that a tag of a tensor holds."""
    return min(places_tagged(tensor, beginning), default=None) if isinstance(tensor, Tensor) else None


def places_tagged(tensor: Tensor, beginning: str) -> set[Place]:
    """The places that the tags of a tensor hold which begin so."""
    shown = [tag.removeprefix(beginning).rpartition(":") for tag in tensor.tags if tag.startswith(beginning)]
    return {Place(path, int(position)) for path, _, position in shown}


def note_cast(m: Machine, tensor: Tensor, place: Place, name: str) -> None:
    """Note a cast by hand of what a region casts by itself; `name`: the operation, "" for a model that nobody knows."""
    cast_at = place_tagged(tensor, CAST)
    if cast_at is not None:
        m.emit("cast by hand", cast_at, used=place, name=name, tensor=tensor, autocast=m.state("autocast"))


def is_logits(atom: Atom) -> bool:
    """Whether something unknown is called logits."""
    return type(atom) is Unknown and LOGITS.search(atom.symbol.partition(IDENTITY)[0]) is not None


def short_of(name: str) -> str:
    """The name of an operation without underscores."""
    return name.strip("_")


def may_be_half(tensor: Tensor) -> bool:
    """Whether a tensor is in half precision, or computed of what a float16 region's model gave that nobody knows."""
    if tensor.dtypes in ({HALF}, {BFLOAT}):
        return True
    return tensor.dtypes == {ANY} and MODEL_OUTPUT in tensor.tags and tensor.forward == {HALF}


def outside_of_regions(m: Machine) -> bool:
    """Whether autocast is off here, whatever the conditions: a region that may be on may be the one that computed the outputs."""
    state = m.store.get(STATE, "autocast")
    return state is None or all(type(a) is Autocast and a.dtype is None for a in atoms(state))


def is_late(tensor: Tensor) -> bool:
    """Whether a tensor left an autocast region in float16, or is what a model gave there that nobody knows."""
    if tensor.forward != {HALF} or tensor.scaled is not None:
        return False
    return tensor.dtypes == {HALF} or (tensor.dtypes == {ANY} and MODEL_OUTPUT in tensor.tags)


def is_product(short: str, given: Sequence[Atom]) -> bool:
    """Whether an operation squares a tensor, or multiplies two."""
    if short == "square":
        return True
    if len(given) < 2 or type(given[0]) is not Tensor:
        return False
    if short == "pow":
        return number_of(given[1]) == 2
    return type(given[1]) is Tensor and SCALAR not in given[1].tags and not any(LOGARITHM in t.tags for t in given if type(t) is Tensor)


def holds_product(atom: Atom) -> bool:
    """Whether a value is such a product, as far as a tensor or what is shown of something unknown tells."""
    if type(atom) is Tensor:
        return PRODUCT in atom.tags
    shown = atom.symbol.partition(IDENTITY)[0] if type(atom) is Unknown else ""
    return shown.startswith("(") and (" * " in shown or shown.endswith(" ** 2)"))


def forward_around(m: Machine, path: str) -> Place | None:
    """The innermost `forward` of a class of the file that is running."""
    for frame in reversed(m.frames):
        if frame.code is not None and frame.code.name == "forward" and frame.owner is not None and frame.path == path:
            return Place(path, frame.code.place)
    return None


def is_empty(m: Machine, shape: Atom) -> bool:
    """Whether a shape, as a tuple or list, has no dimensions."""
    return type(shape) in (Items, Object) and items_of(m, shape, 0) == []


def kind_of_items(m: Machine, source: Atom | None, depth: int = 0) -> type | None:
    """`float` or `int` for nested lists of such numbers; None where not all of them are known."""
    if type(source) is Constant and isinstance(source.value, (int, float)):
        return float if isinstance(source.value, float) else int
    items = items_of(m, source, 0) if type(source) in (Items, Object) and source is not None and depth < 3 else None
    kinds = [kind_of_items(m, atom, depth + 1) for value in items or () for atom in atoms(value)]
    if not kinds or None in kinds:
        return None
    return float if float in kinds else int


def beyond_possible(tensor: Tensor) -> bool:
    """Whether a tensor is in half precision, whatever else."""
    return tensor.dtypes in ({HALF}, {BFLOAT})


def beyond(m: Machine, tensor: Tensor, value: float, effect: str, name: str, place: Place, operation: Place, of: str = "") -> None:
    """Note a number that a half tensor can't hold; `of`: what is shown of something unknown that it multiplies."""
    limit = FLOAT16_MAX if tensor.dtypes == {HALF} else BFLOAT16_MAX
    if abs(value) > limit and math.isfinite(value):
        m.emit("constant beyond range", place, value=value, tensor=tensor, effect=effect, name=name, operation=operation, of=of)


# functions of torch


@vocabulary.prefix("torch.")
def function(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """Any function of torch that the derived tables know."""
    if name.startswith("torch.Tensor."):
        meaning = torch_method(name)
    else:
        meaning = torch_function(name)
    if meaning is None:
        return None
    short = name.rpartition(".")[2]
    if name.startswith("torch.nn.init."):
        return args.get(0) or NONE
    if not meaning_gives_tensor(m, meaning, args):
        return None
    by_name = dict(args.named)
    positional = list(args.positional)
    places = list(args.places)
    if not positional and "input" in by_name:
        positional, places = [by_name.pop("input")], [args.named_places.get("input", 0)]
    return operate(m, short, meaning, positional, place, by_name=by_name, places=places, name_places=args.named_places)


def meaning_gives_tensor(m: Machine, meaning: OpMeaning, args: Args) -> bool:
    """Whether a call of a function has tensors, or what may be some, in or out."""
    if meaning.kind == "none" and meaning.outputs == 0:
        return any(type(a) is Tensor for v in args.all() for a in atoms(v))
    return True


@call("torch.set_default_dtype", "torch.set_default_tensor_type")
def set_default(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The dtype of new tensors: of `torch.HalfTensor` and the like the one that they have."""
    value = args.get(0)
    if type(value) is not DType:
        text = value.value if type(value) is Constant else getattr(value, "name", "")
        value = DType(LEGACY.get(str(text).rpartition(".")[2]) or ANY)
    m.emit("default dtype set", place, dtype=value)
    m.set_state("default dtype", value)
    if name.endswith("type"):
        m.set_state("default device", args.get(0) or NONE)  # as `torch.cuda.FloatTensor` does
    return NONE


@call("torch.set_default_device")
def set_device(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Where new tensors are made."""
    m.set_state("default device", args.get(0) or NONE)
    return NONE


@call("torch.get_default_dtype")
def get_default(m: Machine, name: str, args: Args, place: Place) -> Value:
    return m.state("default dtype")


@call("torch.from_numpy", "torch.frombuffer")
def of_unknown_dtype(m: Machine, name: str, args: Args, place: Place) -> Value:
    return UNKNOWN_TENSOR


@call(*(f"torch.{p}{n}" for n in LEGACY for p in ("", "cuda.")))
def legacy(m: Machine, name: str, args: Args, place: Place) -> Value:
    letter = LEGACY[name.rpartition(".")[2]]
    chain = (Step(place, f"created in {named(letter)} here"),) if letter in HALVES else ()
    return Tensor(frozenset({letter}), chain, made=Step(place, "created here"))


@call("torch.Tensor")
def of_default_dtype(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A tensor in the default dtype, whatever it is made of."""
    default = m.state("default dtype")
    letter = default.letter if type(default) is DType else ANY
    chain = (Step(place, f"created in the default dtype, {named(letter)}, here"),) if letter in HALVES else ()
    return Tensor(frozenset({letter}), chain, made=Step(place, "created here"))


@call("torch.is_floating_point")
def is_floating_point(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Whether a tensor holds floats."""

    def one(atom: Atom) -> Value:
        known = floats(atom) if type(atom) is Tensor else None
        return known if known is not None else Unknown(f"torch.is_floating_point({symbol_of(atom)}){IDENTITY}{place.path}:{place.position}")

    return m.each(args.get(0, "input") or NONE, one)


@call("torch.is_tensor")
def is_tensor(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Whether something is a tensor: what is known as one is, and a constant is none."""
    given = args.get(0, "obj") or NONE

    def one(atom: Atom) -> Value:
        if type(atom) is Tensor:
            return TRUE
        if type(atom) is not Unknown:
            return FALSE
        return Unknown(f"torch.is_tensor({symbol_of(atom)}){IDENTITY}{atom.symbol.partition(IDENTITY)[2]}")

    return m.each(given, one)


@call("torch.autograd.Variable", "torch.autograd.variable.Variable", "torch.nn.utils.rnn.pack_padded_sequence", "torch.as_strided")
@call("einops.rearrange", "einops.repeat", "einops.einops.rearrange", "einops.einops.repeat", "einops.reduce")
def same_values(m: Machine, name: str, args: Args, place: Place) -> Value:
    """What wraps or orders a tensor and keeps its dtype."""
    value = args.get(0, "input") or args.get(0, "data") or args.get(0, "tensor")
    if name.startswith("einops") and value is not None and items_of(m, value, place.position):
        value = (items_of(m, value, place.position) or [value])[0]
    return value if value is not None else Unknown(f"{name}(){IDENTITY}{place.path}:{place.position}")


@call("einops.einsum")
def einops_einsum(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`einsum` with its pattern last."""
    return m.library.call(m, "torch.einsum", Args((*args.positional[-1:], *args.positional[:-1]), opaque=args.opaque), place)


@call("torch.nn.utils.rnn.pad_packed_sequence")
def padded(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The tensor of a packed sequence, and the lengths."""
    return Items((args.get(0, "sequence") or UNKNOWN_TENSOR, Tensor(frozenset({INTEGER}))))


@call("torch.nn.utils.rnn.pad_sequence", "torch.nn.utils.rnn.pack_sequence")
def of_sequence(m: Machine, name: str, args: Args, place: Place) -> Value:
    """One tensor of several, in their dtype."""
    value = args.get(0, "sequences")
    found = m.iterate(value, place.position, 1) if value is not None else []
    return found[0] if found else UNKNOWN_TENSOR


# finfo

NUMPY = {"float16": HALF, "half": HALF, "float32": SINGLE, "single": SINGLE, "float64": DOUBLE, "double": DOUBLE, "float": SINGLE}
LIMITS = {
    HALF: {"min": -FLOAT16_MAX, "max": FLOAT16_MAX, "eps": 2.0**-10, "tiny": 2.0**-14, "smallest_normal": 2.0**-14},
    BFLOAT: {"min": -BFLOAT16_MAX, "max": BFLOAT16_MAX, "eps": 2.0**-7, "tiny": 2.0**-126, "smallest_normal": 2.0**-126},
    SINGLE: {
        "min": -3.4028234663852886e38,
        "max": 3.4028234663852886e38,
        "eps": 2.0**-23,
        "tiny": 2.0**-126,
        "smallest_normal": 2.0**-126,
    },
    DOUBLE: {
        "min": -1.7976931348623157e308,
        "max": 1.7976931348623157e308,
        "eps": 2.0**-52,
        "tiny": 2.0**-1022,
        "smallest_normal": 2.0**-1022,
    },
}


@call("torch.finfo", "numpy.finfo")
def finfo(m: Machine, name: str, args: Args, place: Place) -> Value:
    def one(atom: Atom) -> Value:
        letter = ANY
        if type(atom) is DType:
            letter = atom.letter
        elif type(atom) is DTypeOf and len(atom.tensor.dtypes) == 1:
            letter = next(iter(atom.tensor.dtypes))
        elif type(atom) is Constant and isinstance(atom.value, str):
            letter = LETTERS.get(atom.value.removeprefix("torch."), NUMPY.get(atom.value, ANY))
        elif type(atom) is External:
            letter = NUMPY.get(atom.name.rpartition(".")[2], ANY)
        return Object(("finfo", letter), "finfo", "torch.finfo", place)

    value = args.get(0, "type") or args.get(0, "dtype")
    if value is None:
        return one(DType(SINGLE))
    return m.each(value, one) if tells_dtype(value) else Object(("finfo", ANY), "finfo", "torch.finfo", place)


def tells_dtype(value: Value) -> bool:
    """Whether all tensors that a value may be the dtype of have the same: else it is not known whose limits are asked for.

    Conditions may tell them apart here, and no more where the limit is used.
    """
    return len({atom.tensor.dtypes for atom in atoms(value) if type(atom) is DTypeOf}) < 2


def finfo_attribute(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    if type(atom) is not Object or not isinstance(atom.id, tuple):
        return None
    limits = LIMITS.get(atom.id[1])
    if limits is not None and name in limits:
        return Constant(limits[name])
    return Unknown(f"finfo(…).{name}{IDENTITY}")


vocabulary.attributes["finfo"] = finfo_attribute


# methods


def tensor_method(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Methods of tensors, and those of unknown values that only tensors have."""
    if type(atom) is Tensor:
        return of_tensor(m, atom.but(tags=atom.tags - {HOST}) if HOST in atom.tags and name in MOVES else atom, name, args, place)
    if type(atom) is Test and (name in CASTS or name in ("to", "type_as")):
        return of_tensor(m, COMPARED, name, args, place)
    if type(atom) is not Unknown or name not in UNKNOWN_RECEIVERS:
        return None
    if is_module_name(atom):
        return None
    if name in CASTS and not args.positional:
        return of_tensor(m, UNKNOWN_TENSOR, name, args, place)
    if name == "to":
        return cast_of_unknown(m, atom, args, place)
    meaning = torch_method(name)
    if meaning is None or name in CASTS:
        return None
    region = m.state("autocast")
    active = any(type(a) is Autocast and a.dtype is not None for a in atoms(region))
    other = any(type(a) is Tensor for v in args.positional for a in atoms(v))
    if not active and not other:
        return None
    tags = frozenset({NAMED_LOGITS}) if is_logits(atom) else frozenset()
    return of_tensor(m, UNKNOWN_TENSOR.but(tags=tags), name, args, place)


MOVES = frozenset({"to", "cuda", "xpu", "npu", "mps", "type", "type_as"})  # methods that may bring a tensor to another device
INSTANCE = re.compile(r"(?:^|\.)(?!\w*(?:Tensor|Parameter|Variable)\()[A-Z]\w*\([^()]*\)$")  # what a call of a class gives


def is_module_name(unknown: Unknown) -> bool:
    """Whether an unknown value's name or type says that it is a module."""
    if unknown.hint:
        last = unknown.hint.rpartition(".")[2]
        if last in ("Tensor", "FloatTensor"):
            return False
        if last.endswith(("Module", "Model")):
            return True
    if unknown.symbol in (f"many{IDENTITY}Object", f"many{IDENTITY}Object,Unknown"):
        return True  # one of many models that a table holds
    written = unknown.symbol.partition(IDENTITY)[0]
    if INSTANCE.search(written) is not None:
        return True
    shown = written.lower()
    last, called, _ = shown.rpartition(".")[2].partition("(")
    if called and not last.startswith(MAKERS):
        return False
    return any(word in last for word in MODULE_WORDS) and "output" not in last and last.rpartition("_")[2] not in OF_TENSORS


def cast_of_unknown(m: Machine, atom: Unknown, args: Args, place: Place) -> Value | None:
    """`x.to(…)` of something unknown: a tensor of that dtype, or the same thing on another device."""
    given = [*args.positional, *(v for k, v in args.named.items() if k in ("dtype", "other"))]
    if any(type(a) in (DType, DTypeOf, Tensor) for v in given for a in atoms(v)):
        steps = OF_SCHEDULER.fullmatch(atom.symbol.partition(IDENTITY)[0]) is not None
        return of_tensor(m, UNKNOWN_TENSOR.but(tags=frozenset({STEPS})) if steps else UNKNOWN_TENSOR, "to", args, place)
    return atom


def of_tensor(m: Machine, tensor: Tensor, name: str, args: Args, place: Place) -> Value | None:
    """A method of a tensor."""
    if name in CASTS and not (name == "type" and args.positional):
        return raised(m, tensor, cast(m, tensor, frozenset({CASTS[name]}), (), place, name), place)
    if name in ("to", "type", "type_as", "cuda", "cpu", "to_dense"):
        return convert(m, tensor, name, args, place)
    if name in ("requires_grad_", "retain_grad", "pin_memory", "share_memory_", "register_hook", "cuda", "xpu", "npu", "mps"):
        return tensor if name != "register_hook" else NONE
    if name == "is_floating_point" and (known := floats(tensor)) is not None:
        return known
    if name in ("dim", "size", "numel", "element_size", "ndimension", "nelement", "get_device", "stride"):
        return Unknown(f"{name}({'…' if args.all() else ''}){IDENTITY}{place.path}:{place.position}")
    if name.startswith("new_"):
        return new_of(m, tensor, name, args, place)
    if name == "copy_":
        source = args.get(0)
        return tensor if type(source) is not Tensor else tensor.but(forward=tensor.forward | source.forward)
    meaning = torch_method(name)
    if meaning is None:
        if name in ("float_", "half_"):
            return tensor
        return inherit(m, (tensor, *args.all()))
    return operate(
        m,
        name,
        meaning,
        (tensor, *args.positional),
        place,
        by_name=args.named,
        places=(0, *args.places),
        name_places=args.named_places,
    )


def floats(tensor: Tensor) -> Atom | None:
    """Whether a tensor holds floats, as a truth; None where nothing says."""
    if tensor.dtypes and tensor.dtypes <= FLOATS and COMPLEX not in tensor.tags:
        return TRUE
    return FALSE if COMPLEX in tensor.tags or tensor.dtypes.isdisjoint(FLOATS | {ANY}) else None


def new_of(m: Machine, tensor: Tensor, name: str, args: Args, place: Place) -> Value:
    """`x.new_zeros(…)` and its like: the dtype of the tensor, or the one asked for."""

    def run(chosen: tuple[Atom, ...]) -> Value:
        asked = dtypes_given(chosen[0])
        letters, chain = asked if asked is not None else (tensor.dtypes, tensor.half)
        if asked is not None and letters & HALVES and not chain:
            chain = (Step(place, f"created in {named(next(iter(letters)))} here"),)
        made = Tensor(letters, chain)
        if name == "new_full":
            value = number_of(chosen[1])
            if value is not None:
                if beyond_possible(made):
                    beyond(m, made, value, "raises", name, Place(place.path, args.place(1, "fill_value") or place.position), place)
                made = made.but(range=(value, value))
        elif name == "new_tensor" and (value := number_of(next(iter(atoms(args.get(0, "data") or NONE))))) is not None:
            made = made.but(range=(value, value), tags=frozenset({SCALAR}))
        return made

    return spread(m, [args.named.get("dtype", NONE), args.get(1, "fill_value") or NONE], run)


def convert(m: Machine, tensor: Tensor, name: str, args: Args, place: Place) -> Value:
    """`to`, `type` and `type_as`."""
    given = [*args.positional, *(v for k, v in args.named.items() if k in ("dtype", "other"))]
    if not given:
        return DTypeOf(tensor) if name == "type" and not args.named and not args.opaque else tensor

    def run(chosen: tuple[Atom, ...]) -> Value:
        for atom in chosen:
            if type(atom) is Tensor:
                return cast(m, tensor, atom.dtypes, atom.half, place, name)
            asked = dtypes_given(atom)
            if asked is not None:
                made = cast(m, tensor, *asked, place, name)
                return raised(m, tensor, made, place) if type(atom) is DType else made
            if type(atom) is Unknown and RATES in tensor.tags and FOLLOWING not in tensor.tags and (of := caller_of(atom, name)):
                return following(tensor, of, place)
            if type(atom) is Unknown and POSITIONS in tensor.tags and (of := caller_of(atom, name)):
                return borrowed(tensor, of, place)
            legacy_name = atom.value if type(atom) is Constant else getattr(atom, "name", "")
            letter = LEGACY.get(str(legacy_name).rpartition(".")[2])
            if letter is not None:
                return cast(m, tensor, frozenset({letter}), (), place, name)
        for atom in chosen:
            if type(atom) is Unknown and (name in ("type", "type_as") or "dtype" in atom.symbol.partition(IDENTITY)[0].lower()):
                return tensor.but(dtypes=frozenset({ANY}), half=())
        if "dtype" in args.named and type(args.named["dtype"]) is not Constant:
            return tensor.but(dtypes=frozenset({ANY}), half=())
        return tensor

    return spread(m, given, run)


def caller_of(atom: Unknown, name: str) -> str:
    """The argument of the caller's whose dtype a cast takes: "x" of `x.dtype`, or `type_as(x)`; "" for anything else."""
    shown = atom.symbol.partition(IDENTITY)[0]
    found = shown.removesuffix(".dtype")
    follows = found != shown or name == "type_as"
    return found if follows and ARGUMENT.fullmatch(found) and not COUNTS.search(found) else ""


def following(tensor: Tensor, of: str, place: Place) -> Tensor:
    """Frequencies in the dtype of an argument."""
    step = Step(place, f"the frequencies take the dtype of `{of}` here")
    return tensor.but(dtypes=frozenset({ANY}), half=(step,), made=step, tags=tensor.tags | {ROUNDED, FOLLOWING})


def borrowed(tensor: Tensor, of: str, place: Place) -> Tensor:
    """Positions in the dtype of an argument."""
    step = Step(place, f"the positions take the dtype of `{of}` here")
    return tensor.but(dtypes=frozenset({ANY}), half=(step,), made=step, tags=tensor.tags | {FOLLOWING})


def cast(m: Machine, tensor: Tensor, letters: Letters, chain: tuple[Step, ...], place: Place, name: str) -> Value:
    """A tensor in another dtype."""
    tags = tensor.tags - {INTEGERS, BUFFER}
    if letters & HALVES and len(letters) == 1:
        letter = next(iter(letters))
        explicit = not chain
        m.emit("cast to half", place, tensor=tensor, dtype=letter, explicit=explicit, autocast=m.state("autocast"), name=name)
        if POSITIONS in tensor.tags and tensor.dtypes != letters:
            tensor = tensor.but(made=Step(place, f"positions become {named(letter)} here"))
            tags = tags | {INTEGERS}
        if RATES in tensor.tags and ROUNDED not in tensor.tags and tensor.dtypes != letters:
            tensor = tensor.but(made=Step(place, f"frequencies become {named(letter)} here"))
            tags = tags | {ROUNDED}
            if ANGLES in tags:
                m.emit("angles in half", place, tensor=tensor.but(dtypes=letters))
        if STEPS in tensor.tags and letter == BFLOAT and tensor.dtypes != letters:
            m.emit("steps in half", place, tensor=tensor.but(dtypes=letters))
        if not chain:
            chain = tensor.half if tensor.dtypes == letters and tensor.half else (Step(place, f"cast to {named(letter)} here", By.CAST),)
        region = m.state("autocast")
        if explicit and type(region) is Autocast and region.dtype == letter and tensor.dtypes != letters:
            tags = tags | {f"{CAST}{place.path}:{place.position}"}
        made = tensor.but(dtypes=letters, half=chain, tags=tags)
        value = number_of(tensor)
        if value is not None and tensor.dtypes != letters:
            beyond(m, made, value, "inf", name, tensor.made.place if tensor.made else place, place)
        if tensor.dtypes != letters:
            made = made.but(epsilon=None)
        return made
    kept = tensor.half if ROUNDED in tags else ()
    return tensor.but(dtypes=letters, half=chain if letters & HALVES else kept, tags=tags)


vocabulary.atom_methods.append(tensor_method)


@vocabulary.call("torch.cartesian_prod")
def places_of_grid(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The places of a grid by its sides, each of which is counted: few in number, however many places there are."""
    sides = [a for value in args.positional for a in atoms(value)]
    counted = [a for a in sides if type(a) is Tensor and COUNTED in a.tags]
    if len(args.positional) < 2 or len(counted) < len(sides) or args.opaque:
        return Unknown(f"cartesian_prod(){IDENTITY}{place.path}:{place.position}{m.round()}")
    return Tensor(
        frozenset().union(*(a.dtypes for a in counted)),
        tags=frozenset({COUNTED, FEW}),
        made=Step(place, "`cartesian_prod` creates it here"),
    )


def tensor_attribute(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """Attributes of tensors and of their dtypes."""
    if type(atom) is DTypeOf:
        if name == "is_floating_point" and (known := floats(atom.tensor)) is not None:
            return known
        if name == "type":
            return atom
        return Unknown(f"dtype.{name}{IDENTITY}")
    if type(atom) is Items and name in ("values", "indices") and len(atom.items) == 2 and atom.rest is None:
        return atom.items[0 if name == "values" else 1]
    if type(atom) is not Tensor:
        return None
    if name == "dtype":
        return DTypeOf(atom)
    if name in SAME_TENSOR:
        return atom.but(tags=atom.tags | {UNTRAINED}) if name == "data" and atom.forward else atom
    if name == "imag" and SPECTRUM in atom.tags:
        return atom
    if name == "shape" and MAP in atom.tags:
        return Unknown(f"{OF_MAP}{IDENTITY}{place.path}:{place.position}")
    if name in ("is_cuda", "is_cpu"):
        return decided_by_the_machine(m, f"{name}{IDENTITY}{place.path}:{place.position}", TRUE if name == "is_cuda" else FALSE)
    if name in ("shape", "ndim", "device", "grad", "grad_fn", "requires_grad", "itemsize", "names", "layout", "is_leaf"):
        return Unknown(f"{name}{IDENTITY}{place.path}:{place.position}", "torch.device" if name == "device" else "")
    if torch_method(name) is not None or name in CASTS or name in ("to", "cuda", "cpu", "backward", "keys", "items", "values", "get"):
        return Method(atom, name)
    if MODEL_OUTPUT in atom.tags and atom.forward and name in ("logits", "sample", "last_hidden_state", "prediction"):
        letters = atom.forward & HALVES
        if len(letters) == 1 == len(atom.forward):
            return atom.but(dtypes=letters)
    if atom.forward or atom.scaled is not None or atom.half:
        return atom.but(dtypes=frozenset({ANY}), half=(), epsilon=None, range=None)
    return None


vocabulary.atom_attributes.append(tensor_attribute)


# operators

MAGIC = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul"}
BITS = {"&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift"}
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})


def binary(m: Machine, op: str, left: Atom, right: Atom, place: Place, in_place: bool) -> Value | None:
    """Arithmetic and comparisons with tensors, and comparisons of dtypes."""
    if type(left) is DTypeOf or type(right) is DTypeOf:
        return compare_dtypes(op, left, right, place)
    tensors = type(left) is Tensor or type(right) is Tensor
    if op == "@" and not tensors and type(left) in (Unknown, Tensor) and type(right) in (Unknown, Tensor):
        if is_array(left) or is_array(right):
            return None
        if any(type(a) is Autocast and a.dtype is not None for a in atoms(m.state("autocast"))):
            return operate(m, "matmul", meaning_of("__matmul__"), (left, right), place)
        if m.recorder is not None:
            m.recorder.computed(m, place, "matmul", "lower")
        return None
    if not tensors:
        return None
    if op in COMPARISONS:
        return bool_of(left, right)
    if op in ("is", "is not", "in", "not in"):
        return None
    if op in BITS:
        return operate(m, BITS[op], meaning_of(f"__{BITS[op]}__"), (left, right), place)
    short = MAGIC.get(op)
    if short is None:
        return None
    if type(left) is not Tensor and not in_place and op in ("-", "/", "**"):
        if op == "-":
            return operate(m, "sub", meaning_of("__sub__"), (left, right), place)
        if op == "/":
            meaning = torch_method("__rtruediv__") if type(left) is Constant else None  # a number is multiplied by the reciprocal
            return operate(m, "truediv", meaning or meaning_of("__rtruediv__"), (left, right), place)
    if in_place and type(left) is Tensor:
        return in_place_result(m, op, short, left, right, place)
    return operate(m, short, meaning_of(f"__{short}__"), (left, right), place)


def is_array(atom: Atom) -> bool:
    """Whether something unknown came of a function of numpy, or of a tensor's `numpy()`: no autocast casts it."""
    return type(atom) is Unknown and atom.symbol.startswith(("numpy.", "numpy()"))


def in_place_result(m: Machine, op: str, short: str, left: Tensor, right: Atom, place: Place) -> Value:
    """`x += y`: the dtype of `x`."""
    made = operate(m, short, meaning_of(f"__{short}__"), (left, right), place)
    large = large_factor(right)
    if large is not None and op in "+-" and left.dtypes == {HALF}:
        value, of = large
        beyond(m, left, -value if op == "-" else value, "inf", IN_PLACE, place, place, of)

    def one(atom: Atom) -> Value:
        return atom.but(dtypes=left.dtypes, half=left.half) if type(atom) is Tensor else atom

    if op == "@" or left.dtypes <= {INTEGER, BOOLEAN}:
        return made
    if type(made) is Alternatives:
        return join((guards, one(atom)) for guards, atom in made.options)
    return one(made)


def large_factor(atom: Atom) -> tuple[float, str] | None:
    """The number beyond float16 that is a factor of a product, and what is shown of the other; None where there is none."""
    if type(atom) is Tensor:
        tag = next((tag for tag in sorted(atom.tags) if tag.startswith(LARGE)), None)
        return (float(tag.removeprefix(LARGE)), "") if tag is not None else None
    match = FACTOR.match(atom.symbol.partition(IDENTITY)[0]) if type(atom) is Unknown else None
    if match is None:
        return None
    value = float(match[2] or match[3])
    return (value, match[1] or match[4]) if FLOAT16_MAX < abs(value) < math.inf else None


def meaning_of(name: str) -> OpMeaning:
    """The derived meaning of a method; arithmetic promotes."""
    meaning = torch_method(name)
    if meaning is None or name in ("__truediv__", "__rtruediv__", "__floordiv__", "__mod__"):
        return OpMeaning("widest", "widest", "widest", integers="float32" if "truediv" in name else "int64")
    return meaning


def origins(short: str, tensors: Sequence[Tensor]) -> frozenset[str]:
    """What a result is made of, as far as somebody asks: gradients, a parameter, noise; of what only lends its shape nothing."""
    if short in RANDOM:
        return frozenset({"noise"})
    if short.endswith("_like"):
        return frozenset()
    return frozenset(
        ORIGINS.get(tag, tag) for t in tensors for tag in t.tags if tag in ORIGINS or tag.startswith(("taken:", LATE, LATE_ROUNDED))
    )


def bool_of(left: Atom, right: Atom) -> Tensor:
    """The result of a comparison."""
    return Tensor(frozenset({BOOLEAN}))


def compare_dtypes(op: str, left: Atom, right: Atom, place: Place) -> Value | None:
    """`x.dtype == torch.float16` and its like: a constant where it is known, else a condition on the path."""
    if op in ("==", "!=", "is", "is not"):
        of, other = (left, right) if type(left) is DTypeOf else (right, left)
        if type(of) is not DTypeOf:
            return None
        if type(other) is DTypeOf and len(of.tensor.dtypes) == len(other.tensor.dtypes) == 1:
            both = of.tensor.dtypes | other.tensor.dtypes
            if both.isdisjoint((ANY, COMPUTE)) or (len(both) == 1 and ANY not in both):
                return TRUE if (len(both) == 1) is (op in ("==", "is")) else FALSE
        asked = [one for one in (named_type(other),) if one is not None] or None
        negative = op in ("!=", "is not")
    elif op in ("in", "not in") and type(left) is DTypeOf:
        of = left
        asked = [one for v in right.items for a in atoms(v) if (one := named_type(a)) is not None] if type(right) is Items else None
        negative = op == "not in"
    else:
        return None
    if asked is None:
        return Test(("dtype", place, ()), not negative)
    letters = frozenset(a.letter for a in asked)
    own = of.tensor.dtypes
    if ANY not in own and "c" not in own:
        if own <= letters:
            return FALSE if negative else TRUE
        if not own & letters:
            return TRUE if negative else FALSE
    return Test(("dtype", place, tuple(sorted(letters))), not negative)


def named_type(atom: Atom) -> DType | None:
    """A dtype, or that of a type of tensors by its name: `"torch.cuda.HalfTensor"`, as `x.type()` gives it."""
    if type(atom) is DType:
        return atom
    name = atom.value if type(atom) is Constant else getattr(atom, "name", "")
    letter = LEGACY.get(str(name).rpartition(".")[2])
    return DType(letter) if letter is not None else None


vocabulary.binaries.append(binary)


def unary(m: Machine, op: str, operand: Atom, place: Place) -> Value | None:
    if type(operand) is not Tensor:
        return None
    if op == "~":
        return operand
    return negated(operand.but(range=(-operand.range[1], -operand.range[0]) if operand.range is not None else None))


def negated(tensor: Tensor) -> Tensor:
    """A tensor whose bound of nearly 1 has become one of nearly -1."""
    return tensor.but(tags=(tensor.tags - {UP_TO_ONE}) | {FROM_MINUS_ONE}) if UP_TO_ONE in tensor.tags else tensor


vocabulary.unaries.append(unary)


def subscript(m: Machine, receiver: Atom, index: Value, place: Place) -> Value | None:
    """Indexing and slicing keep everything; the item of a model's output keeps its history."""
    if type(receiver) is not Tensor:
        return None
    if type(index) is Constant and isinstance(index.value, str):
        found = tensor_attribute(m, receiver, index.value, place)
        return found if type(found) is Tensor else inherit(m, (receiver,)) or receiver
    return receiver.but(tags=receiver.tags - {SCALAR})


vocabulary.subscripts.append(subscript)


def item_assigned(m: Machine, receiver: Atom, index: Value, value: Value, place: Place) -> bool:
    """`x[mask] = -1e9`."""
    if type(receiver) is not Tensor:
        return False
    if beyond_possible(receiver):
        base = m.path
        for path, atom in under(value, base):
            number = number_of(atom)
            if number is not None:
                m.path = path
                beyond(m, receiver, number, "inf", "assignment", place, place)
                m.path = base
    return True


vocabulary.item_assigned.append(item_assigned)


def elements(m: Machine, iterable: Atom, place: Place) -> Sequence[Value] | Value | None:
    return iterable if type(iterable) is Tensor else None


vocabulary.elements.append(elements)


# what nobody knows keeps the history of its arguments


def tensors_in(m: Machine, value: Value, depth: int = 0) -> list[Tensor]:
    """The tensors that a value holds, down to four levels of containers."""
    found: list[Tensor] = []
    for _, atom in under(value, m.path):
        if type(atom) is Tensor:
            found.append(atom)
        elif depth >= 4:
            continue
        elif type(atom) is Items:
            for item in (*atom.items, *([atom.rest] if atom.rest is not None else [])):
                found += tensors_in(m, item, depth + 1)
        elif type(atom) is Entries:
            for _, item in atom.entries:
                found += tensors_in(m, item, depth + 1)
            if atom.rest is not None:
                found += tensors_in(m, atom.rest, depth + 1)
        elif type(atom) is Object and atom.kind in ("list", "set", "dict", "generator"):
            held = m.read(atom.id, "#entries" if atom.kind == "dict" else "#items")
            if held is not None:
                found += tensors_in(m, held, depth + 1)
    return found


def inherit(m: Machine, values: Sequence[Value]) -> Tensor | None:
    """A tensor of unknown dtype with the history of what it was computed of, but for what no backward runs through; None where none is."""
    found = [t for v in values for t in tensors_in(m, v) if UNTRAINED not in t.tags]
    forward = frozenset().union(*(t.forward for t in found)) if found else frozenset()
    scaled = next((t.scaled for t in found if t.scaled is not None), None)
    if not forward and scaled is None:
        return None
    return Tensor(frozenset({ANY}), scaled=scaled, forward=forward)


def forward_of(tensors: Sequence[Tensor], compared: bool) -> frozenset[str]:
    """The regions that have computed some tensors; where they are `compared`, what no gradient runs through is data beside the others."""
    trained = [tensor for tensor in tensors if UNTRAINED not in tensor.tags] if compared else tensors
    return frozenset[str]().union(*(tensor.forward for tensor in trained or tensors))


QUIET = ("builtins.", "logging.", "time.", "os.", "sys.", "wandb.", "tqdm.", "random.", "json.", "math.", "warnings.", "re.")


def note_late(m: Machine, name: str, late: Tensor, place: Place, given: Place) -> None:
    """Note a loss that is taken of what left its region in half precision; `certain`: it surely is."""
    trained = not gradients_off(m) and UNTRAINED not in late.tags
    m.emit("loss in half", place, name=name, tensor=late, certain=late.dtypes == {HALF}, trained=trained, given=given)


def called_loss(m: Machine, atom: Atom, args: Args, place: Place) -> None:
    """Note a call of something unknown that is called a loss, outside of every region, with what one of them computed.

    It is called so where it comes from, or where it is called: `criterion` may stand for whatever a table of the settings holds.
    """
    name = atom.name if type(atom) is Method else atom.symbol.partition(IDENTITY)[0] if type(atom) is Unknown else ""
    name = name.partition("(")[0].rpartition(".")[2]
    if type(atom) is Unknown and not CALLED_LOSS.search(name) and m.spelled[0] == place.position:
        name = m.spelled[1]
    if not CALLED_LOSS.search(name) or NO_LOSS.search(name) or not outside_of_regions(m):
        return
    if type(atom) is Unknown and is_not_entered(atom):
        return  # nobody has seen what it does, though it could be seen
    for index, value in enumerate(args.positional):
        for path, given in under(value, m.path):
            if type(given) is Tensor and is_late(given):
                base, m.path = m.path, path
                note_late(m, name, given, place, Place(place.path, args.place(index, "") or place.position))
                m.path = base
                return


def unknown_called(m: Machine, atom: Atom, args: Args, place: Place) -> Value | None:
    """A call that nobody knows: its result is computed of its arguments."""
    called_loss(m, atom, args, place)
    if type(atom) is External:
        made = inherit(m, args.all()) if not atom.name.startswith(QUIET) else None
    elif type(atom) is Method:
        made = inherit(m, (atom.receiver, *args.all()))
    elif type(atom) in (Unknown, Tensor):
        made = inherit(m, (atom, *args.all()))
    else:
        made = None
    if made is not None:
        note(m, atom, place)
    return made


vocabulary.atom_calls.append(unknown_called)

__all__ = ["MODEL_OUTPUT", "PARAMETER", "Slice", "derived", "inherit", "operate", "tensors_in", "vocabulary"]
