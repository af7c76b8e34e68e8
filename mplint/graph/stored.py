"""What a file of weights proves: its matrices, with the sizes that each takes and makes, told by names, shapes and biases.

No operation stands in such a file, so which matrix reads which is not known; a size is a hidden one where names or the other sizes leave
no other reading. What can't be told is said, not guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import islice, pairwise
from typing import NamedTuple

from mplint.graph.model import FLOATS, ModelGraph, OpKind, Tensor

CHANNELS_LAST = frozenset(("kernel", "depthwise_kernel", "pointwise_kernel", "recurrent_kernel"))
IN_ORDER = ("state-dict",)  # formats that keep the order in which layers were made
INNER = {"kernel": "recurrent_kernel", "0": "1"}
GATES = (4, 3, 1)  # of an LSTM, a GRU, a plain recurrence
FUSED = (2, 3)  # products in one matrix: gate and up, q and k and v
SMALL = 8  # sizes up to here count channels of the data, gates, heads
COLORS = 3
WINDOW = 16  # no kernel of a convolution is larger
FEW = 32
MANY = 1_000_000
TOKENS = 0  # stands for the numbers of rows, which have no size
_RUN = re.compile(r"[A-Za-z]+|\d+")
_NUMBERED = re.compile(r"(.*?)(\d+)")


@dataclass(slots=True, eq=False)
class Matrix:
    """A matrix of weights. `layer` is the path of the layer in parts; `sizes` are the two sides as they are stored.

    `turned` tells which of them is taken: True where the rows are what the product makes ("weight" of torch), False where the columns
    are ("kernel" of Keras), None where that is open. Sides are None for a convolution in groups.
    """

    layer: tuple[str, ...]
    tensor: Tensor
    kind: OpKind
    sizes: tuple[int | None, int | None]
    turned: bool | None = None
    place: int = 0
    adapter: bool = False

    @property
    def takes(self) -> int | None:
        """The size of what it multiplies."""
        return self.sizes[1 if self.turned is not False else 0]

    @property
    def makes(self) -> int | None:
        """The size of what it gives."""
        return self.sizes[0 if self.turned is not False else 1]

    @property
    def parameters(self) -> int:
        """The number of its elements."""
        return self.tensor.size or 0


class StoredWidth(NamedTuple):
    """A size that one matrix makes and another takes: the makers, a reader, the share of the parameters of products that have the size."""

    number: int
    makers: tuple[Matrix, ...]
    reader: Matrix
    share: float


class StoredVocabulary(NamedTuple):
    """The rows of a table of tokens and of the head that is as wide; the head is None where the table is used twice."""

    number: int
    table: Tensor | None
    head: Tensor | None


@cache
def names(section: str) -> Mapping[str, frozenset[str]]:
    """The lists of names in a section of data/weight_names.toml."""
    import tomllib
    from pathlib import Path

    text = (Path(__file__).parents[1] / "data" / "weight_names.toml").read_text("utf-8")
    found = tomllib.loads(text)[section]
    return {key: frozenset(value.split()) for key, value in found.items()}


@cache
def words(part: str) -> frozenset[str]:
    """The words in one part of a name, in lower case."""
    return frozenset(word.lower() for word in _RUN.findall(part))


def parts_of(name: str) -> tuple[str, ...]:
    """The parts of a name, without the number that TensorFlow adds and the "vars" that Keras 3 puts before every variable."""
    parts = name.partition(":")[0].replace("/", ".").split(".")
    return tuple(part for part in parts if part not in ("vars", ""))


@dataclass(slots=True)
class Layer:
    """The tensors of one layer by the last part of their names."""

    path: tuple[str, ...]
    tensors: dict[str, Tensor] = field(default_factory=dict)


class Stored:
    """The matrices of a model whose file holds no operations."""

    def __init__(self, model: ModelGraph) -> None:
        self.model = model

    @cached_property
    def layers(self) -> list[Layer]:
        """The tensors of the file by layer."""
        found: dict[tuple[str, ...], Layer] = {}
        for name, tensor in self.model.graph.constants.items():
            parts = parts_of(name)
            path, variable = (parts[:-1], parts[-1]) if len(parts) > 1 else _alone(parts[0] if parts else name)
            found.setdefault(path, Layer(path)).tensors[variable] = tensor
        return list(found.values())

    @cached_property
    def matrices(self) -> list[Matrix]:
        """Every matrix whose sides can be told."""
        found = [matrix for layer in self.layers for matrix in _matrices(layer)]
        for place, matrix in enumerate(found):
            matrix.place = place
        _settle(found)
        _group(found)
        return found

    @cached_property
    def products(self) -> list[Matrix]:
        """The matrices that activations are multiplied by: all but tables."""
        return [matrix for matrix in self.matrices if matrix.kind is not OpKind.EMBEDDING]

    @cached_property
    def parameters(self) -> int:
        """The parameters of the products."""
        return sum(matrix.parameters for matrix in self.products)

    @cached_property
    def weights(self) -> list[Tensor]:
        """The floats of the file that have a shape."""
        return [t for t in self.model.graph.constants.values() if t.shape and t.dtype is not None and _is_float(t.dtype)]

    @cached_property
    def wide(self) -> list[Tensor]:
        """The floats of two axes and more, which hold nearly everything."""
        return [tensor for tensor in self.weights if len(tensor.shape or ()) > 1]

    def held_in(self, dtype: str) -> list[Tensor]:
        """The wide weights in a dtype ("float8" for any of them), where they hold more than half of the parameters."""
        found = [tensor for tensor in self.wide if (tensor.dtype or "").startswith(dtype)]
        return found if 2 * sum(t.size or 0 for t in found) > sum(t.size or 0 for t in self.wide) else []

    def unclear(self) -> Iterator[str]:
        """What of the sizes can't be told, one sentence each."""
        constants = self.model.graph.constants
        packed = [name for name, tensor in constants.items() if _is_packed(name, tensor)]
        if packed:
            yield (
                f"{len(packed)} of {len(constants)} tensors hold packed or quantized weights, such as {packed[0]}: their sizes and "
                "the dtype that they are computed in were not judged"
            )
        adapters = sum(matrix.adapter for matrix in self.products)
        if adapters:
            yield (
                f"{adapters} of {len(self.products)} matrices are halves of low-rank adapters; the widths are those of the model that "
                "they change, which is not in the file, and were not judged"
            )
        known = {id(matrix.tensor) for matrix in self.matrices}
        scales = names("variables")["scale"]
        wide = [t for t in self.wide if id(t) not in known and parts_of(t.name)[-1:] and parts_of(t.name)[-1] not in scales]
        wide = [t for t in wide if all(isinstance(dim, int) and dim > SMALL for dim in t.shape or ())]
        if wide:
            yield (
                f"{len(wide)} tensors are of a form that may or may not be a matrix of a product, such as {wide[0].name} "
                f"({wide[0].described}): their sizes were not judged"
            )

    def share(self, matrices: Iterable[Matrix]) -> float:
        """The share of the parameters of the products that some of them have."""
        return sum(matrix.parameters for matrix in matrices) / (self.parameters or 1)

    def widths(self, step: int) -> Iterator[StoredWidth]:
        """The sizes that one matrix makes and another takes and that are no multiple of `step`, in the order of the file."""
        makers: dict[int, list[Matrix]] = {}
        takers: dict[int, list[Matrix]] = {}
        for matrix in self.matrices:
            if matrix.adapter:
                continue
            for number in _made(matrix):
                if matrix.kind is not OpKind.RECURRENT or number == matrix.makes:
                    makers.setdefault(number, []).append(matrix)
            if matrix.takes is not None and matrix.kind is not OpKind.EMBEDDING:
                takers.setdefault(matrix.takes, []).append(matrix)
        for number, made in makers.items():
            if number <= SMALL or number % step == 0:
                continue
            taken = takers.get(number) or [matrix for matrix in self._flattened(made, number)]
            link = self._link(number, made, taken)
            if link is not None:
                first, reader = link
                exact = [matrix for matrix in made if matrix.makes == number] or made
                ordered = (first, *(matrix for matrix in exact if matrix is not first))
                same = {id(m): m for m in (*made, *taken) if m.kind is not OpKind.EMBEDDING and not _is_pooled(m)}
                yield StoredWidth(number, ordered, reader, self.share(same.values()))

    def _flattened(self, made: list[Matrix], number: int) -> Iterator[Matrix]:
        """The product that takes all positions of a convolution's channels at once: the next one."""
        for maker in made:
            after = self.matrices[maker.place + 1 : maker.place + 2]
            for matrix in after:
                if maker.kind is OpKind.CONV and matrix.kind is OpKind.MATMUL and matrix.takes and matrix.takes % number == 0:
                    yield matrix

    def _link(self, number: int, made: list[Matrix], taken: list[Matrix]) -> tuple[Matrix, Matrix] | None:
        """A maker and the reader of what it makes, where names, order or the other sizes prove that there is one."""
        made, taken = made[:FEW], taken[:FEW]  # in as many layers a few show what all show
        pairs = [(a, b) for a in made for b in taken if a is not b and _apart(a) == _apart(b)]
        ordered = self.model.format in IN_ORDER
        pairs.sort(key=lambda pair: -shared(*pair))
        for a, b in pairs:
            if follows(a, b) or (ordered and a.kind is not OpKind.EMBEDDING and b.place == a.place + 1):
                return a, b
        if not self._ends_without(number):
            return None
        return next(((a, b) for a, b in pairs if not (ordered and b.place < a.place) and not _is_end(a, b)), None)

    def _ends_without(self, number: int) -> bool:
        """Whether the model has an input and an output of other sizes: else a size made and taken is that of the data."""
        return all(sizes - {number} for sizes in self._ends)

    @cached_property
    def _ends(self) -> tuple[set[int], set[int]]:
        """The sizes that come in, which no matrix makes, and those that go out, which none takes; a table brings one in.

        What is a multiple of another size may be that one at several positions, or a few of them in one matrix.
        """
        made = {size for matrix in self.matrices for size in _made(matrix)}
        taken = {matrix.takes for matrix in self.products if matrix.takes}
        if len(made) * len(taken) > MANY:
            return set(), set()  # no honest model has so many sizes
        given = {size for size in taken - made if not any(size % c == 0 for c in made if c > SMALL)}
        if any(matrix.kind is OpKind.EMBEDDING for matrix in self.matrices):
            given.add(TOKENS)
        ends = {m.makes for m in self.products if m.makes is not None and taken.isdisjoint(_made(m))}
        return given, {size for size in ends if not any(size % c == 0 for c in taken if c > SMALL)}

    def vocabularies(self, smallest: int, step: int) -> Iterator[StoredVocabulary]:
        """The vocabularies of at least `smallest` rows that are no multiple of `step` and that a head multiplies by."""
        tables = {m.sizes[0]: m for m in reversed(self.matrices) if m.kind is OpKind.EMBEDDING}
        taken = {matrix.takes for matrix in self.products}
        heads: dict[int, Matrix] = {}
        for matrix in self.products:
            rows = matrix.makes
            if rows is None or rows < smallest or rows % step == 0 or rows in taken or matrix.kind is not OpKind.MATMUL:
                continue
            if rows in tables or _called(matrix.layer, "head"):
                heads.setdefault(rows, matrix)
        for rows, head in heads.items():
            yield StoredVocabulary(rows, tables[rows].tensor if rows in tables else None, head.tensor)
        for rows, table in tables.items():
            if rows is not None and rows >= smallest and rows % step and rows not in heads:
                bias = self._scores(rows)
                if bias is not None or (self._is_tied(table) and not self._has_other_head()):
                    yield StoredVocabulary(rows, table.tensor, bias)

    def _is_tied(self, table: Matrix) -> bool:
        """Whether a table is called what those are called that a language model has for its head as well."""
        if _called(table.layer, "tied"):
            return True
        return _called(table.layer, "tied_to_decoder") and any("decoder" in layer.path for layer in self.layers)

    def _scores(self, rows: int) -> Tensor | None:
        """The bias of a head whose matrix is the table."""
        biases = names("variables")["bias"]
        for layer in self.layers:
            for variable, tensor in layer.tensors.items():
                if tensor.size == rows and tensor.shape in ((rows,), (1, rows)) and (variable in biases or variable.endswith("_bias")):
                    return tensor
        return None

    def _has_other_head(self) -> bool:
        known = names("layers")["other_head"]
        return any(part in known for layer in self.layers for part in layer.path)


def shared(a: Matrix, b: Matrix) -> int:
    """The number of parts in which the names of two layers begin alike."""
    return next((place for place, (left, right) in enumerate(zip(a.layer, b.layer, strict=False)) if left != right), len(a.layer))


def follows(a: Matrix, b: Matrix) -> bool:
    """Whether names say that `b` comes after `a`: numbered members of one scope, products of known names, the parts of a recurrence."""
    if a.layer == b.layer:
        return a.kind is OpKind.RECURRENT
    for place, (left, right) in enumerate(zip(a.layer, b.layer, strict=False)):
        if left == right:
            continue
        one, other = _numbered(left), _numbered(right)
        if one[0] != other[0]:
            return place > 0 and _stands_before(left, right)
        return one[1] < other[1]
    return False


def _numbered(part: str) -> tuple[str, int]:
    """ "fc12" as ("fc", 12); Keras leaves the number of the first out, which is ("dense", 0)."""
    match = _NUMBERED.fullmatch(part)
    if match is None:
        return part.rstrip("_"), 0
    return match[1].rstrip("_"), int(match[2][:9])


def _stands_before(left: str, right: str) -> bool:
    known = names("words")
    one, other = _pieces(left) - _pieces(right), _pieces(right) - _pieces(left)
    return bool(known["first"] & one and known["then"] & other and not known["then"] & one)


@cache
def _pieces(part: str) -> frozenset[str]:
    return frozenset(part.lower().split("_")) | words(part)


def _apart(matrix: Matrix) -> tuple[str, ...]:
    """The parts of a name that are models of their own: what one of them makes is not what another takes."""
    known = names("words")["apart"]
    return tuple(part for part in matrix.layer if part.lower() in known)


def _is_end(a: Matrix, b: Matrix) -> bool:
    """Whether the names say that `a` makes a result, or that `b` takes data."""
    known = names("words")
    return not known["result"].isdisjoint(words(a.layer[-1])) or not known["given"].isdisjoint(words(b.layer[-1]))


def _is_pooled(matrix: Matrix) -> bool:
    """Whether a convolution weighs channels by what is left of an image after pooling: it works once, not at every position."""
    known = names("words")["pooled"]
    alone = matrix.kind is OpKind.CONV and all(dim == 1 for dim in (matrix.tensor.shape or ())[2:])
    return alone and ("fc" in words(matrix.layer[-1]) or any(words(part) & known for part in matrix.layer))


def is_called_head(path: str) -> bool:
    """Whether a layer's path is that of the head of a language model."""
    return _called(parts_of(path), "head")


def _called(path: tuple[str, ...], key: str) -> bool:
    """Whether a layer has one of the names in a list, whatever stands before it."""
    dotted = "." + ".".join(path)
    return any(dotted.endswith(f".{name}") for name in names("layers")[key])


def _made(matrix: Matrix) -> Iterator[int]:
    """The sizes that a matrix makes: its own, and where several products share it those of each."""
    size = matrix.makes if matrix.kind is not OpKind.EMBEDDING else matrix.sizes[1]
    if size is None:
        return
    yield size
    if matrix.kind is OpKind.MATMUL and any(part in names("words")["fused"] for part in matrix.layer[-2:]):
        yield from (size // count for count in FUSED if size % count == 0)
    elif matrix.kind is OpKind.MATMUL and matrix.takes and size == 3 * matrix.takes:
        yield matrix.takes
    elif matrix.kind is OpKind.RECURRENT:
        yield 2 * size


def _alone(name: str) -> tuple[tuple[str, ...], str]:
    """The layer and the variable in a name of one part: "fc1_w" is w of fc1, "w1" and "b1" are w and b of a first layer."""
    stem, number = _NUMBERED.fullmatch(name), ""
    if stem is not None:
        name, number = stem[1], stem[2]
    layer, _, last = name.rstrip("_").rpartition("_")
    known = names("variables")
    if last.lower() in known["matrix"] or last.lower() in known["bias"]:
        return (f"{layer}{number}",), last.lower()
    return (f"{name}{number}",), "value"


def _matrices(layer: Layer) -> Iterator[Matrix]:
    """The matrices of one layer."""
    recurrences = list(_recurrences(layer))
    if recurrences:
        yield from recurrences
        return
    known = names("variables")
    if known["packed"] & layer.tensors.keys():
        return
    bias = next((layer.tensors[name] for name in layer.tensors if name in known["bias"]), None)
    bias = bias or (layer.tensors.get("1") if "0" in layer.tensors else None)
    for name, tensor in layer.tensors.items():
        shape = tensor.shape or ()
        if len(shape) < 2 or tensor.dtype is None or not _is_float(tensor.dtype):
            continue
        dims = tuple(dim for dim in shape if isinstance(dim, int))
        if len(dims) != len(shape) or 0 in dims:
            continue
        if name == "in_proj_weight":
            yield Matrix((*layer.path, "in_proj"), tensor, OpKind.MATMUL, (dims[0], dims[1]), True)
        elif name in known["matrix"] or name.isdecimal() or name in CHANNELS_LAST or name == "value":
            found = _matrix(layer.path, name, tensor, dims, bias.shape if bias is not None else None)
            if found is not None:
                yield found
        elif name not in known["scale"] and name not in known["bias"] and len(dims) == 2 and min(dims) > SMALL:
            yield Matrix((*layer.path, name), tensor, OpKind.MATMUL, (dims[0], dims[1]))
        elif len(dims) == 3 and "experts" in layer.path:
            yield Matrix((*layer.path, name), tensor, OpKind.MATMUL, (dims[1], dims[2]))


def _matrix(path: tuple[str, ...], name: str, tensor: Tensor, dims: tuple[int, ...], bias: tuple[object, ...] | None) -> Matrix | None:
    last = path[-1] if path else name
    adapter = _adapter(path)
    if adapter:
        return Matrix(path, tensor, OpKind.MATMUL, (dims[0], dims[1]), True, adapter=True)
    known = names("words")
    if len(dims) == 2:
        called = words(last) | (words(name) if name in ("embeddings", "embedding", "embedding_table") else frozenset())
        if bias is None and called & known["table"] and not called & known["product"] and not _called(path, "head"):
            return Matrix(path, tensor, OpKind.EMBEDDING, (dims[0], dims[1]))
        turned = _by_bias(dims[0], dims[1], bias)
        if turned is None and name != "value":
            turned = not (name in CHANNELS_LAST or name.isdecimal())
        return Matrix(path, tensor, OpKind.MATMUL, (dims[0], dims[1]), turned)
    last_axes = name in CHANNELS_LAST or name.isdecimal()
    if len(dims) == 3 and words(last) & known["each"] and (last_axes or "experts" in path):
        return _of_axes(path, tensor, dims, bias)
    if last_axes:
        alone = name == "depthwise_kernel" or (name == "0" and bool(words(last) & known["alone"]))
        sizes = (None, None) if alone else (dims[-2], dims[-1])
        return Matrix(path, tensor, OpKind.CONV, sizes, False) if max(dims[:-2]) <= WINDOW else None
    if max(dims[2:]) > 4 * WINDOW:
        return None
    turned = _by_bias(dims[0], dims[1], bias)
    return Matrix(path, tensor, OpKind.CONV, (dims[0], dims[1]), turned is not False)


def _of_axes(path: tuple[str, ...], tensor: Tensor, dims: tuple[int, ...], bias: tuple[object, ...] | None) -> Matrix | None:
    """A kernel of three axes: of heads (two of them are one side), or of experts (the first counts them)."""
    if "experts" in path:
        return Matrix(path, tensor, OpKind.MATMUL, (dims[1], dims[2]))
    if bias == dims[2:] or words(path[-1]) & {"output", "out"}:
        return Matrix(path, tensor, OpKind.MATMUL, (dims[0] * dims[1], dims[2]), False)
    return Matrix(path, tensor, OpKind.MATMUL, (dims[0], dims[1] * dims[2]), False)


def _by_bias(rows: int, columns: int, bias: tuple[object, ...] | None) -> bool | None:
    """Which side a product makes, told by the size of its bias."""
    if rows == columns or bias is None or len(bias) != 1:
        return None
    return True if bias[0] == rows else False if bias[0] == columns else None


def _adapter(path: tuple[str, ...]) -> bool:
    dotted = "." + ".".join(path)
    return any(f".{name}." in f"{dotted}." or f"_{name}." in f"{dotted}." for key in ("down", "up") for name in names("adapters")[key])


def _recurrences(layer: Layer) -> Iterator[Matrix]:
    """The recurrences of a layer: for each a matrix that takes the input and one that takes its own state, with as many gates."""
    for name, given in layer.tensors.items():
        stem, _, rest = name.partition("_ih")
        inner, turned = (f"{stem}_hh{rest}", True) if stem == "weight" else (INNER.get(name, ""), False)
        state = layer.tensors.get(inner)
        if state is None or len(given.shape or ()) != 2 or len(state.shape or ()) != 2:
            continue
        (makes, takes), (gates, size) = (shape if turned else shape[::-1] for shape in (given.shape or (), state.shape or ()))
        if isinstance(takes, int) and isinstance(size, int) and size > 0 and makes == gates and gates in [n * size for n in GATES]:
            yield Matrix(layer.path, given, OpKind.RECURRENT, (size, takes), True)
            yield Matrix(layer.path, state, OpKind.RECURRENT, (size, size), True)


def _is_packed(name: str, tensor: Tensor) -> bool:
    """Whether a tensor holds weights as integers, several to an element or with a scale elsewhere."""
    parts = parts_of(name)
    known = names("variables")
    return bool(parts) and (
        parts[-1] in known["packed"]
        or (parts[-1] in known["matrix"] and len(tensor.shape or ()) > 1 and tensor.dtype in ("int8", "uint8", "int4", "uint4", "int32"))
    )


def _is_float(dtype: str) -> bool:
    return dtype in FLOATS or dtype.startswith(("float8", "float4"))


def _settle(found: list[Matrix]) -> None:
    """Tell which side the matrices take whose names and biases leave it open: what others make is taken, what others take is made."""
    open_ones = [matrix for matrix in found if matrix.turned is None and matrix.kind is OpKind.MATMUL]
    if not open_ones:
        return
    votes = 0
    for before, after in pairwise(found):
        if before.turned is None and after.turned is None:
            votes += (before.sizes[0] == after.sizes[1]) - (before.sizes[1] == after.sizes[0])
    made = {size for m in found if m.turned is not None or m.kind is OpKind.EMBEDDING for size in _made(m)}
    taken = {m.takes for m in found if m.turned is not None}
    for matrix in open_ones:
        rows, columns = matrix.sizes
        one = (columns in made) + (rows in taken)
        other = (rows in made) + (columns in taken)
        matrix.turned = one > other if one != other else votes >= 0


def _group(found: list[Matrix]) -> None:
    """Leave open the sides of convolutions in groups: each multiplies a few of the channels, which no matrix unit sees as one product."""
    counts = Counter(matrix.makes for matrix in found if matrix.kind is not OpKind.EMBEDDING)
    beside: dict[tuple[str, ...], Counter[int]] = {}
    for matrix in found:
        if matrix.makes is not None:
            beside.setdefault(matrix.layer[:-1], Counter())[matrix.makes] += 1
    for matrix in found:
        takes, makes = matrix.takes, matrix.makes
        if matrix.kind is not OpKind.CONV or takes is None or makes is None or takes in counts:
            continue
        near = beside[matrix.layer[:-1]]
        wider = [size for size in islice(near, FEW) if size % takes == 0 and size > takes and (size != makes or near[size] > 1)]
        if (takes == 1 < makes and counts[makes] > 1) or (takes > COLORS and any(makes % (size // takes) == 0 for size in wider)):
            matrix.sizes = (None, None)
