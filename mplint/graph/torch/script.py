"""TorchScript archives: weights and constants from their pickles, the operations from the text of code/. None of it is run."""

from __future__ import annotations

import ast

from mplint.graph.checkpoints import describe
from mplint.graph.model import Graph, GraphError, ModelGraph, Tensor, connect
from mplint.graph.storage import Archive, reads
from mplint.graph.torch.pickle import View, read_archive, tensor_maker
from mplint.graph.torch.pickles import Instance
from mplint.graph.torch.script_code import Code, Function, read_code

MAX_CODE = 1 << 24


@reads("TorchScript archive")
def load(path: str) -> ModelGraph:
    """The weights and the operations of a TorchScript module. Raises GraphError."""
    with Archive(path) as archive:
        top = archive.folder
        root, locate = read_archive(archive, f"{top}data.pkl")
        make = tensor_maker(locate)
        model = ModelGraph(path, "torchscript", Graph(), producer="torch")
        describe(root, model, make)
        constants = _pickled(archive, "constants")
        examples = _pickled(archive, "traced_inputs")
        code = _code(archive, model)
    if isinstance(root, Instance):
        read_code(model, root, code, make, _tensors(constants), _inputs(examples))
        connect(model.graph)
    return model


def _pickled(archive: Archive, name: str) -> tuple[object, object]:
    """The object in a further pickle of the archive, and what makes tensors of it."""
    member = f"{archive.folder}{name}.pkl"
    if member not in archive.members:
        return None, None
    try:
        found, locate = read_archive(archive, member, f"{archive.folder}{name}/")
    except GraphError:
        if name == "traced_inputs":  # inputs may be of any class; nothing else depends on them
            return None, None
        raise
    return found, tensor_maker(locate)


def _tensors(pickled: tuple[object, object]) -> list[Tensor | None]:
    """The constants of the code, CONSTANTS.c0 first."""
    found, make = pickled
    if not isinstance(found, tuple | list) or not callable(make):
        return []
    return [make(f"CONSTANTS.c{place}", value) for place, value in enumerate(found)]


def _inputs(pickled: tuple[object, object]) -> list[Tensor | None]:
    """The inputs that a module was traced with; their values are not kept."""
    found, _ = pickled
    values = found.get("forward") if isinstance(found, dict) else None
    if not isinstance(values, tuple | list):
        return []
    return [Tensor("", value.dtype, value.shape) if isinstance(value, View) else None for value in values]


def _code(archive: Archive, model: ModelGraph) -> Code:
    """The functions and methods in code/, and the buffers that classes name, by qualified names."""
    front = f"{archive.folder}code/"
    found = Code()
    left = MAX_CODE
    for name, info in archive.members.items():
        if not name.startswith(front) or not name.endswith(".py"):
            continue
        left -= info.file_size
        if left < 0:
            raise GraphError("more code than any module has")
        try:
            tree = ast.parse(archive.read(name, MAX_CODE))
        except (SyntaxError, ValueError, MemoryError):
            model.notes.append(f"The operations in {name.removeprefix(front)} could not be read.")
            continue
        module = name.removeprefix(front).removesuffix(".py").replace("/", ".")
        for part in tree.body:
            if isinstance(part, ast.FunctionDef):
                found.functions[f"{module}.{part.name}"] = Function(part)
            elif isinstance(part, ast.ClassDef):
                for member in part.body:
                    match member:
                        case ast.FunctionDef():
                            found.functions[f"{module}.{part.name}.{member.name}"] = Function(member)
                        case ast.Assign(targets=[ast.Name(id="__buffers__")], value=ast.List(elts=names)):
                            found.buffers[f"{module}.{part.name}"] = {str(n.value) for n in names if isinstance(n, ast.Constant)}
    return found
