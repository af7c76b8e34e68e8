"""Weights in safetensors files, read by their headers: one file, or the index of several."""

from __future__ import annotations

import os

from mplint.graph.checkpoints import take_state
from mplint.graph.model import BITS, Graph, GraphError, ModelGraph, NotAModel, Tensor
from mplint.graph.storage import FileWeights, Json, parse_json, reads

MAX_HEADER = 100_000_000  # the limit of the format itself
MAX_SHARDS = 10_000
LFS = b"version https://git-lfs"
DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": "float4_e2m1fn",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


@reads("safetensors file")
def load(path: str) -> ModelGraph:
    """The tensors of a safetensors file, or of all the files that a *.safetensors.index.json names. Raises GraphError."""
    with open(path, "rb") as stream:
        first = stream.read(9)
    graph = Graph()
    model = ModelGraph(path, "safetensors", graph, producer="safetensors")
    if first.lstrip()[:1] == b"{" and int.from_bytes(first[:8], "little") > MAX_HEADER:
        _read_index(path, model)
    else:
        graph.constants, model.metadata = read_file(path)
    take_state(model)
    return model


def read_file(path: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata that a file's header describes."""
    size = os.path.getsize(path)
    with open(path, "rb") as stream:
        head = stream.read(8)
        if head and LFS.startswith(head):
            raise NotAModel("a Git LFS pointer, not the weights themselves; fetch them with `git lfs pull`")
        length = int.from_bytes(head, "little")
        if len(head) < 8 or not 2 <= length <= MAX_HEADER or 8 + length > size:
            raise GraphError(f"the header claims {length} bytes; the file has {size}")
        header = parse_json(stream.read(length), "the header", unique=True)
    if not isinstance(header, dict):
        raise GraphError("the header is no JSON object")
    about = header.pop("__metadata__", {})
    constants, spans = {}, []
    for name, entry in header.items():
        tensor, begin, end = _tensor(path, name, entry, 8 + length, size)
        constants[name] = tensor
        spans.append((begin, end, name))
    spans.sort()
    expected = 0
    for begin, end, name in spans:
        if begin != expected:
            raise GraphError(f"{name}: its bytes {'overlap' if begin < expected else 'leave a gap after'} those of another tensor")
        expected = end
    if 8 + length + expected != size:
        raise GraphError(f"the header describes {8 + length + expected} bytes; the file has {size}")
    return constants, {key: value for key, value in about.items() if isinstance(value, str)} if isinstance(about, dict) else {}


def _tensor(path: str, name: str, entry: Json, start: int, size: int) -> tuple[Tensor, int, int]:
    """One tensor and its place in the data; raises GraphError where the entry contradicts itself or the file."""
    match entry:
        case {"dtype": str(code), "shape": list(dims), "data_offsets": [int(begin), int(end)]} if all(
            isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0 for dim in dims
        ):
            pass
        case _:
            raise GraphError(f"{name}: its entry in the header has the wrong form")
    if not 0 <= begin <= end or start + end > size:
        raise GraphError(f"{name}: bytes {begin} to {end} are not in the file")
    dtype = DTYPES.get(code)
    tensor = Tensor(name, dtype, tuple(dim for dim in dims if isinstance(dim, int)))
    if dtype is None:
        return tensor, begin, end
    needed = ((tensor.size or 0) * BITS[dtype] + 7) // 8
    if needed != end - begin:
        raise GraphError(f"{name}: {tensor.described} takes {needed} bytes, and its entry says {end - begin}")
    tensor.weights = FileWeights(path, start + begin, needed, dtype)
    return tensor, begin, end


def _read_index(path: str, model: ModelGraph) -> None:
    """Fill `model` from the files that an index names."""
    if os.path.getsize(path) > MAX_HEADER:
        raise GraphError("the index is larger than any")
    with open(path, "rb") as stream:
        index = parse_json(stream.read(), "the index", unique=True)
    match index:
        case {"weight_map": dict(places), **about}:
            pass
        case _:
            raise GraphError("not a safetensors index: it has no weight_map")
    files = sorted({str(file) for file in places.values()})
    if len(files) > MAX_SHARDS:
        raise GraphError("the index names more files than any model has")
    found: dict[str, dict[str, Tensor]] = {}
    for file in files:
        if not file or os.path.basename(file) != file or file in (".", "..") or "\\" in file or "\0" in file:
            raise GraphError(f"the index points outside its folder: {file[:100]!r}")
        place = os.path.join(os.path.dirname(path), file)
        if not os.path.isfile(place):
            raise NotAModel(f"the index names {file}, which is not there")
        found[file], more = read_file(place)
        model.metadata.update(more)
    for name, holder in places.items():
        tensor = found[str(holder)].get(name)
        if tensor is None:
            raise GraphError(f"the index says that {name} is in {holder}, and it is not")
        model.graph.constants[name] = tensor
    match about:
        case {"metadata": {"total_size": int(total)}}:
            held = sum(tensor.nbytes or 0 for tensor in model.graph.constants.values())
            if held != total:
                model.notes.append(f"The index says that the weights take {total} bytes; the files hold {held}.")
        case _:
            pass
