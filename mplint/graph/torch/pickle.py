"""Checkpoints of torch.save: state dicts, whole pickled modules, optimizer states, in the zip format and the older stream of pickles."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import NamedTuple

from mplint.graph.checkpoints import describe
from mplint.graph.model import BITS, Graph, GraphError, ModelGraph, NotAModel, Tensor, Weights
from mplint.graph.storage import Archive, FileWeights, reads
from mplint.graph.torch.pickles import Build, Instance, Name, Storage, read_pickle

MAX_PICKLE = 1 << 28
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
STORAGES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
    "Float8_e4m3fn": "float8_e4m3fn", "Float8_e5m2": "float8_e5m2", "Float8_e4m3fnuz": "float8_e4m3fnuz",
    "Float8_e5m2fnuz": "float8_e5m2fnuz", "Float8_e8m0fnu": "float8_e8m0fnu", "QInt8": "int8", "QUInt8": "uint8", "QInt32": "int32",
    "Untyped": "uint8",
}  # fmt: skip
DTYPES = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32", "short": "int16"}

Locate = Callable[[Storage, str, int, int], Weights | None]  # (storage, dtype, offset, size in bytes) -> its bytes


class View(NamedTuple):
    """A tensor as a pickle describes it: a window on a storage."""

    storage: Storage | None
    dtype: str | None
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@reads("torch checkpoint")
def load(path: str) -> ModelGraph:
    """The tensors of a checkpoint, by their names, and its optimizer state. Raises GraphError for what it would call when loaded."""
    with open(path, "rb") as stream:
        head = stream.read(2)
    if head == b"PK":
        with Archive(path) as archive:
            found, locate = read_archive(archive, f"{archive.folder}data.pkl")
    else:
        found, locate = _read_stream(path)
    model = ModelGraph(path, "state-dict", Graph(), producer="torch")
    describe(found, model, tensor_maker(locate))
    if not model.graph.constants and model.optimizer is None:
        raise NotAModel("a file of torch.save that holds no tensors")
    return model


def read_archive(archive: Archive, member: str, folder: str = "") -> tuple[object, Locate]:
    """The object in a pickle of a zip archive, and where the bytes of its tensors are."""
    top = archive.folder
    swapped = f"{top}byteorder" in archive.members and archive.read(f"{top}byteorder", 64) == b"big"
    data = folder or f"{top}data/"
    try:
        found, _ = read_pickle(archive.read(member, MAX_PICKLE), KNOWN, _storage)
    except GraphError as error:
        if not any(name.startswith(data) for name in archive.members):
            raise NotAModel(f"a file of torch.save that holds no tensors: {error}") from None
        raise

    def locate(storage: Storage, dtype: str, offset: int, nbytes: int) -> Weights | None:
        info, claimed = archive.members.get(data + storage.key), storage.count * BITS.get(storage.kind, 8) // 8
        if info is not None and claimed > info.file_size:
            raise GraphError(f"a storage claims {claimed} bytes; {info.filename} has {info.file_size}")
        return archive.weights(data + storage.key, dtype, nbytes, offset, swapped)

    return found, locate


def tensor_maker(locate: Locate) -> Callable[[str, object], Tensor | None]:
    """A function that makes a tensor of what a pickle says of one; None for what is no tensor. Views of the same bytes are one tensor."""
    made: dict[tuple[object, ...], Tensor] = {}

    def make(name: str, value: object) -> Tensor | None:
        if not isinstance(value, View):
            return None
        identity = (value.storage and value.storage.key, value.dtype, value.offset, value.shape, value.stride)
        if value.storage is None or identity not in made:
            made[identity] = Tensor(name, value.dtype, value.shape, weights=_weights(name, value, locate))
        return made[identity]

    return make


def _weights(name: str, view: View, locate: Locate) -> Weights | None:
    """The bytes that a view looks at; those of a view with gaps or repeats are the stretch of storage that it spans."""
    if view.storage is None or view.dtype is None or BITS.get(view.dtype, 0) < 8:
        return None
    item = BITS[view.dtype] // 8
    span = 0 if 0 in view.shape else 1 + sum((dim - 1) * step for dim, step in zip(view.shape, view.stride, strict=True))
    room = view.storage.count * BITS.get(view.storage.kind, 8) // 8
    if (view.offset + span) * item > room:
        raise GraphError(f"{name} claims {span} elements at {view.offset} of a storage of {room} bytes")
    return locate(view.storage, view.dtype, view.offset * item, span * item)


def _read_stream(path: str) -> tuple[object, Locate]:
    """The older format: pickles one after the other, then the bytes of the storages in the order of their keys."""
    places: dict[str, tuple[int, int]] = {}
    storages: dict[str, Storage] = {}

    def persistent(key: object) -> object:
        storage = _storage(key)
        storages[storage.key] = storage
        return storage

    with open(path, "rb") as stream:
        data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))  # unmapped with the last that looks at it
    magic, place = read_pickle(data, KNOWN)
    if magic != LEGACY_MAGIC:
        raise GraphError("not a checkpoint of torch.save")
    _, place = read_pickle(data, KNOWN, start=place)
    about, place = read_pickle(data, KNOWN, start=place)
    found, place = read_pickle(data, KNOWN, persistent, place)
    keys, place = read_pickle(data, KNOWN, start=place)
    little = not (isinstance(about, dict) and about.get("little_endian") is False)
    for key in keys if isinstance(keys, list) else ():
        storage = storages.get(str(key))
        size = storage.count * BITS[storage.kind] // 8 if storage is not None else 0
        if storage is None or place + 8 + size > len(data):
            raise GraphError("the file is cut off: it ends before the bytes of its tensors")
        if int.from_bytes(data[place : place + 8], "little") != storage.count:
            raise GraphError("damaged torch checkpoint: a storage has another size than its tensors say")
        places[storage.key] = (place + 8, size)
        place += 8 + size

    def locate(storage: Storage, dtype: str, offset: int, nbytes: int) -> Weights | None:
        start, size = places.get(storage.key, (0, -1))
        if offset + nbytes > size:
            raise GraphError("damaged torch checkpoint: a storage is missing")
        return FileWeights(path, start + offset, nbytes, dtype, not little)

    return found, locate


def _storage(key: object) -> Storage:
    """A persistent id: ("storage", class, key, device, number of elements, …)."""
    match key:
        case ("storage", Name() as kind, str(name), _, int(count), *_) if count >= 0:
            return Storage(STORAGES.get(kind.name.removesuffix("Storage"), DTYPES.get(kind.name, kind.name)), name, count)
        case _:
            raise GraphError("damaged torch checkpoint: a reference to a storage has the wrong form")


def dtype_of(value: object) -> str | None:
    """The canonical dtype of a name such as torch.half."""
    return DTYPES.get(value.name, value.name) if isinstance(value, Name) else None


def _view(arguments: tuple[object, ...], dtype: str | None = None) -> View:
    match arguments:
        case (Storage() as storage, int(offset), tuple(shape), tuple(stride), *_):
            sizes = tuple(dim for dim in shape if isinstance(dim, int) and dim >= 0)
            steps = tuple(step for step in stride if isinstance(step, int) and step >= 0)
            if len(sizes) == len(shape) == len(steps) == len(stride) and offset >= 0:
                return View(storage, dtype or storage.kind, offset, sizes, steps)
    raise GraphError("damaged torch checkpoint: a tensor has the wrong form")


def _first(arguments: tuple[object, ...]) -> object:
    return arguments[0] if arguments else None


def _typed(arguments: tuple[object, ...]) -> object:
    """torch._tensor._rebuild_from_type_v2(function, class, arguments, state): what the function builds."""
    match arguments:
        case (Name() as function, Name(), tuple(inner), *_) if function.path in KNOWN:
            return KNOWN[function.path](inner)
        case (Name() as function, *_):
            return Instance(function.path, arguments)
    raise GraphError("damaged torch checkpoint: a tensor has the wrong form")


def _meta(arguments: tuple[object, ...]) -> object:
    match arguments:
        case (dtype, tuple(shape), *_):
            return View(None, dtype_of(dtype), 0, tuple(d for d in shape if isinstance(d, int)), ())
    raise GraphError("damaged torch checkpoint: a tensor has the wrong form")


def _reconstructed(arguments: tuple[object, ...]) -> object:
    kind = _first(arguments)
    return Instance(kind.path if isinstance(kind, Name) else "object", arguments[1:])


def _mapping(arguments: tuple[object, ...]) -> object:
    match arguments:
        case (list(pairs),):
            return {pair[0]: pair[1] for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)}
        case (dict(found), *_):
            return dict(found)
        case _:
            return {}


def _opaque(kind: str) -> Build:
    return lambda arguments: Instance(kind, arguments)


# What a checkpoint may call, and what it builds here. Nothing else is followed.
KNOWN: dict[str, Build] = {
    **dict.fromkeys(("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"), _view),
    "torch._utils._rebuild_tensor_v3": lambda a: _view(a, dtype_of(a[6] if len(a) > 6 else None)),
    "torch._utils._rebuild_qtensor": _view,
    **{f"torch.{name}": _first for name in ("_utils._rebuild_parameter", "_utils._rebuild_parameter_with_state", "nn.parameter.Parameter")},
    "torch._utils._rebuild_meta_tensor_no_storage": _meta,
    "torch._tensor._rebuild_from_type_v2": _typed,
    "torch.jit._pickle.restore_type_tag": _first,
    **{f"torch.jit._pickle.build_{kind}list": _first for kind in ("int", "tensor", "double", "bool")},
    **{f"{module}.OrderedDict": _mapping for module in ("collections", "torch.collections")},
    "collections.defaultdict": lambda a: {},
    "collections.Counter": _mapping,
    "collections.deque": lambda a: a[0] if a and isinstance(a[0], list) else [],
    **{f"{module}.{name}": _first for module in ("builtins", "__builtin__") for name in ("set", "frozenset", "list", "tuple", "bytearray")},
    **{f"{module}.dict": _mapping for module in ("builtins", "__builtin__")},
    **{f"{module}.{name}": _opaque(name) for module in ("builtins", "__builtin__") for name in ("slice", "complex", "range", "object")},
    "torch.Size": lambda a: a[0] if a else (),
    **{name: _opaque(name) for name in ("torch.device", "torch.Generator", "torch.serialization._get_layout", "_codecs.encode")},
    **{f"numpy.{p}multiarray.{f}": _opaque(f"numpy.{f}") for p in ("core.", "_core.") for f in ("scalar", "_reconstruct")},
    **{f"numpy.{p}numeric._frombuffer": _opaque("numpy.frombuffer") for p in ("core.", "_core.")},
    **{name: _opaque(name) for name in ("numpy.dtype", "numpy.ndarray")},
    **{f"{module}._reconstructor": _reconstructed for module in ("copyreg", "copy_reg")},
    **{name: _opaque(name) for name in ("argparse.Namespace", "types.SimpleNamespace", "datetime.datetime", "datetime.timedelta")},
    **{f"pathlib.{p}Path": _opaque("pathlib.Path") for p in ("", "Posix", "Windows", "PurePosix", "PureWindows")},
    **{f"pathlib._local.{p}Path": _opaque("pathlib.Path") for p in ("", "Posix", "Windows")},
}  # fmt: skip
