"""What a checkpoint holds, told by its form: the weights by their names, the state of optimizers, a loss scaler."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from mplint.graph.model import ModelGraph, Optimizer, Tensor
from mplint.graph.torch.pickles import Instance

MAX_DEPTH = 100
SCALER = frozenset(("scale", "growth_factor", "backoff_factor", "growth_interval"))
INNER = ("_parameters", "_buffers", "_modules", "__state__")  # where nn.Module keeps its members
# Which optimizer keeps which state.
STATES = (
    ("max_exp_avg_sq", "Adam"), ("exp_inf", "Adamax"), ("exp_avg_sq", "Adam"), ("exp_avg", "Lion"), ("momentum_buffer", "SGD"),
    ("square_avg", "RMSprop"), ("acc_delta", "Adadelta"), ("sum", "Adagrad"), ("prev", "Rprop"),
)  # fmt: skip

# Where checkpoints keep what optimizers remember beside the dicts that torch's own write: float32 copies of weights, flat lists.
OPTIMIZER = re.compile(r"(?:^|_)optim(?:s|izers?)?(?:_|$)")

Make = Callable[[str, object], Tensor | None]
Path = tuple[str, ...]


def describe(found: object, model: ModelGraph, make: Make) -> None:
    """Fill the weights, the optimizer and the notes of `model` from the object that a checkpoint holds."""
    optimizers: list[tuple[Path, dict[object, object]]] = []
    tensors: list[tuple[Path, object]] = []
    scaled = False
    for path, value in _walk(found):
        if isinstance(value, dict):
            if is_optimizer(value):
                optimizers.append((path, value))
            scaled = scaled or value.keys() >= SCALER
        else:
            tensors.append((path, value))
    held = [path for path, _ in optimizers]
    others = [(path, value) for path, value in tensors if not any(path[: len(place)] == place for place in held)]
    weights = [(path, value) for path, value in others if not _is_state(path)]
    prefix = _common(found, weights)
    for path, value in weights:
        name = ".".join(path[prefix:]) or "value"
        tensor = make(name, value)
        if tensor is not None:
            model.graph.constants[name] = tensor
    more = [tensor for path, value in others if _is_state(path) and (tensor := make(".".join(path), value)) is not None]
    if optimizers or more:
        model.optimizer = _optimizer(optimizers, more, make, scaled)
    elif scaled:
        model.optimizer = Optimizer("", (), True)
    if isinstance(found, Instance) and not found.kind.startswith("__torch__"):
        model.metadata["class"] = found.kind
        model.notes.append(f"The file holds a whole pickled {found.kind}: torch.load runs the code of that class.")


def is_optimizer(value: dict[object, object]) -> bool:
    """The state dict of a torch optimizer."""
    return isinstance(value.get("state"), dict) and isinstance(value.get("param_groups"), list)


def take_state(model: ModelGraph) -> None:
    """Move what a flat list of tensors keeps of an optimizer, by its names, from the weights to the optimizer."""
    constants = model.graph.constants
    states = {name: tensor for name, tensor in constants.items() if _is_state(_parts(name))}
    if states:
        model.graph.constants = {name: tensor for name, tensor in constants.items() if name not in states}
        model.optimizer = Optimizer(_named({_parts(name)[-1] for name in states}), tuple(states.values()))


def _parts(name: str) -> Path:
    return tuple(name.replace("/", ".").split("."))


def _is_state(path: Path) -> bool:
    """Whether a tensor is something that an optimizer remembers: it says so, or it is called like one of the states."""
    return any(OPTIMIZER.search(part) for part in path) or (len(path) > 1 and any(path[-1] == key for key, _ in STATES if "_" in key))


def _named(keys: set[str]) -> str:
    return next((optimizer for key, optimizer in STATES if key in keys), "")


def _optimizer(found: list[tuple[Path, dict[object, object]]], more: list[Tensor], make: Make, scaled: bool) -> Optimizer:
    tensors = list(more)
    keys: set[str] = set()
    for _, state in found:
        for path, value in _walk(state.get("state")):
            tensor = None if isinstance(value, dict) else make(".".join(("state", *path)), value)
            if tensor is not None:
                tensors.append(tensor)
                keys.add(path[-1] if path else "")
    return Optimizer(_named(keys), tuple(tensors), True if scaled else None)


def _walk(found: object) -> Iterator[tuple[Path, object]]:
    """Every dict, and everything that is neither a container nor a plain value, with its path; each container once, circles included."""
    seen: set[int] = set()
    stack: list[tuple[Path, object]] = [((), found)]
    while stack:
        path, value = stack.pop()
        match value:
            case Instance():
                members: list[tuple[str, object]] = [(str(key), part) for key, part in value.state.items()]
                members += [(str(index), part) for index, part in enumerate(value.items)]
            case dict():
                members = [(str(key), part) for key, part in value.items() if isinstance(key, str | int)]
            case list() | tuple() if not hasattr(value, "_fields"):
                members = [(str(index), part) for index, part in enumerate(value)]
            case None | bool() | int() | float() | str() | bytes():
                continue
            case _:
                yield path, value
                continue
        if id(value) in seen or len(path) > MAX_DEPTH:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            yield path, value
        stack += [(path if key in INNER else (*path, key), part) for key, part in reversed(members)]


def _common(found: object, weights: list[tuple[Path, object]]) -> int:
    """1 where a checkpoint keeps all its weights under one key, which is no part of their names, else 0."""
    firsts = {path[0] if len(path) > 1 else "" for path, _ in weights}
    return 1 if isinstance(found, dict) and len(firsts) == 1 and "" not in firsts else 0
