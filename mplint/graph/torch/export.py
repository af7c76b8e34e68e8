"""Programs of torch.export (.pt2), read from their archives: the serialized graph, autocast regions, where the weights lie."""

from __future__ import annotations

from mplint.graph.model import BITS, GraphError, ModelGraph, Tensor, connect
from mplint.graph.storage import Archive, Json, parse_json, reads
from mplint.graph.torch.graph import dtype_at, read_program, shape_at
from mplint.graph.torch.pickle import read_archive, tensor_maker

OLD_PROGRAM = "serialized_exported_program.json"
OLD_STATES = ("serialized_state_dict.pt", "serialized_state_dict.json", "serialized_constants.pt", "serialized_constants.json")


@reads("torch.export archive")
def load(path: str) -> ModelGraph:
    """The program in a .pt2 archive, of torch 2.1 up to the current release. Raises GraphError."""
    with Archive(path) as archive:
        program = _program(archive)
        notes: list[str] = []
        weights = _stored(archive, notes)
        model = read_program(path, program, weights)
        model.notes += notes
        connect(model.graph)
    return model


def _program(archive: Archive) -> dict[str, Json]:
    top = archive.folder
    models = sorted(name for name in archive.members if name.startswith(f"{top}models/") and name.endswith(".json"))
    member = f"{top}models/model.json" if f"{top}models/model.json" in models else models[0] if models else OLD_PROGRAM
    if member not in archive.members and f"{top}{OLD_PROGRAM}" in archive.members:
        member = top + OLD_PROGRAM
    program = parse_json(archive.read(member), member)
    if not isinstance(program, dict):
        raise GraphError(f"{member} is no exported program")
    return program


def _stored(archive: Archive, notes: list[str]) -> dict[str, Tensor]:
    """The weights and constants of the archive, by their names."""
    top = archive.folder
    found: dict[str, Tensor] = {}
    for kind in ("weights", "constants"):
        folder = f"{top}data/{kind}/"
        config = next((n for n in archive.members if n.startswith(folder) and n.endswith(f"_{kind}_config.json")), None)
        if config is not None:
            match parse_json(archive.read(config), config):
                case {"config": dict(entries)}:
                    for name, entry in entries.items():
                        tensor = _weight(archive, folder, name, entry, notes)
                        if tensor is not None:
                            found[name] = tensor
                case _:
                    raise GraphError(f"{config} has the wrong form")
    pickled = [n for n in archive.members if n.startswith((f"{top}data/weights/", f"{top}data/constants/")) and n.endswith(".pt")]
    for member in (*pickled, *(name for old in OLD_STATES for name in (old, top + old) if name in archive.members)):
        found |= _pickled(archive, member)
    return found


def _weight(archive: Archive, folder: str, name: str, entry: Json, notes: list[str]) -> Tensor | None:
    match entry:
        case {"path_name": str(file), "tensor_meta": dict(meta), **rest}:
            pass
        case _:
            return None  # a constant that is no tensor
    tensor = Tensor(name, dtype_at(meta.get("dtype")), shape_at(meta.get("sizes")))
    bits = BITS.get(tensor.dtype or "", 0)
    if rest.get("use_pickle"):
        notes.append(f"The values of {name} are pickled and not looked at.")
        return tensor
    steps = shape_at(meta.get("strides"))
    offset = meta.get("storage_offset")
    start = offset.get("as_int", 0) if isinstance(offset, dict) else 0
    if bits < 8 or tensor.size is None or steps is None or not isinstance(start, int):
        return tensor
    span = 1
    for dim, step in zip(tensor.shape or (), steps, strict=False):
        if not isinstance(dim, int) or not isinstance(step, int) or step < 0:
            return tensor
        span += (dim - 1) * step
    span = span if tensor.size else 0
    tensor.weights = archive.weights(folder + file, tensor.dtype or "", span * bits // 8, start * bits // 8)
    if tensor.weights is None:
        raise GraphError(f"the archive has no {file}, where {name} should be")
    return tensor


def _pickled(archive: Archive, member: str) -> dict[str, Tensor]:
    """A state dict that lies in the archive as a file of torch.save."""
    if archive.members[member].file_size == 0:
        return {}
    with archive.inner(member) as inner:
        found, locate = read_archive(inner, f"{inner.folder}data.pkl")
        make = tensor_maker(locate)
        if not isinstance(found, dict):
            return {}
        tensors = {str(name): make(str(name), value) for name, value in found.items()}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}
