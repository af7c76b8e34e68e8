"""The output shapes of Keras layers, from their configuration and the shapes that go in."""

from __future__ import annotations

from mplint.graph.model import Dim, OpKind
from mplint.graph.op_kinds import kind_of
from mplint.graph.storage import Json

Shape = tuple[Dim, ...]
Config = dict[str, Json]

SAME = frozenset((OpKind.NORM, OpKind.ACTIVATION, OpKind.SOFTMAX, OpKind.RANDOM, OpKind.CAST))
ATTENTION = ("MultiHeadAttention", "GroupedQueryAttention", "GroupQueryAttention")
UNCHANGED = ("Identity", "StopGradient", "Copy", "OnesLike", "ZerosLike")


def output_shape(kind: str, config: Config, inputs: list[Shape | None]) -> Shape | None:
    """The shape that a layer of class `kind` gives, None where it is not known here."""
    shape = inputs[0] if inputs else None
    family = kind_of("keras", kind)
    if kind == "Average" or (family is OpKind.ELEMENTWISE and kind != "Masking"):
        return _broadcast(inputs)
    if kind == "Concatenate":
        return _concatenated(config, inputs)
    if shape is None or len(shape) < 1:
        return None
    if family in SAME or kind in UNCHANGED or kind == "Masking" or (kind in ATTENTION and not config.get("output_shape")):
        return shape
    if family is OpKind.REDUCTION and "axis" in config:
        return _reduced(config, shape)
    match kind:
        case "Dense":
            return (*shape[:-1], _int(config.get("units")))
        case "EinsumDense":
            return _einsum(config, shape)
        case "Embedding":
            return (*shape, _int(config.get("output_dim")))
        case "Flatten":
            return (shape[0], _product(shape[1:]))
        case "Reshape":
            return _reshaped(config, shape)
        case "Permute":
            order = _ints(config.get("dims"))
            return (shape[0], *(shape[i] for i in order)) if all(0 < i < len(shape) for i in order) else None
        case "RepeatVector":
            return (shape[0], _int(config.get("n")), *shape[1:])
        case "LSTM" | "GRU" | "SimpleRNN":
            units = _int(config.get("units"))
            return (shape[0], shape[1], units) if config.get("return_sequences") else (shape[0], units)
        case "Attention" | "AdditiveAttention":
            value = inputs[1] if len(inputs) > 1 else None
            return (*shape[:-1], value[-1]) if value else None
        case "Resizing" | "CenterCrop":
            return _spatial(config, shape, [_int(config.get("height")), _int(config.get("width"))])
        case "DepthToSpace":
            return None
    if kind.startswith("Global") and "Pool" in kind:
        return _global(config, shape)
    return _windowed(kind, config, shape)


def _windowed(kind: str, config: Config, shape: Shape) -> Shape | None:
    """Convolutions, pooling, padding, cropping and upsampling over the spatial dimensions."""
    first = _first_space(config)
    spatial = list(shape[1:-1] if first == 1 else shape[2:])
    rank = len(spatial)
    channels: Dim = shape[-1] if first == 1 else shape[1] if len(shape) > 1 else None
    if rank < 1:
        return None
    if kind.startswith("UpSampling"):
        return _spatial(config, shape, [_times(dim, size) for dim, size in zip(spatial, _pairs(config.get("size"), rank), strict=False)])
    if kind.startswith(("ZeroPadding", "Cropping")):
        sides = _sides(config.get("padding" if kind.startswith("Zero") else "cropping"), rank)
        sign = 1 if kind.startswith("Zero") else -1
        return _spatial(config, shape, [dim + sign * sides[i] if isinstance(dim, int) else None for i, dim in enumerate(spatial)])
    pooled = "Pool" in kind and not kind.startswith("Adaptive")
    if not pooled and "Conv" not in kind:
        return None
    size = _pairs(config.get("pool_size" if pooled else "kernel_size"), rank)
    strides = _pairs(config.get("strides") or (config.get("pool_size") if pooled else 1), rank)
    dilation = _pairs(config.get("dilation_rate") or 1, rank)
    if len(size) != rank or len(strides) != rank or len(dilation) != rank:
        return None
    if "Transpose" in kind:
        extra = config.get("output_padding")
        if extra is not None or any(d != 1 for d in dilation):
            return None
        same = config.get("padding") == "same"
        found: list[Dim] = [
            _times(dim, s) if same else _plus(_times(dim, s), max(k - s, 0)) for dim, k, s in zip(spatial, size, strides, strict=True)
        ]
    else:
        found = [
            _window(dim, (k - 1) * d + 1, s, str(config.get("padding")))
            for dim, k, s, d in zip(spatial, size, strides, dilation, strict=True)
        ]
    if kind.startswith("Depthwise"):
        channels = _times(channels, _int(config.get("depth_multiplier")) or 1)
    elif not pooled:
        channels = _int(config.get("filters"))
    return _spatial(config, shape, found, channels)


def _window(dim: Dim, size: int, stride: int, padding: str) -> Dim:
    if not isinstance(dim, int) or stride < 1:
        return None
    return -(-dim // stride) if padding in ("same", "causal") else (dim - size) // stride + 1


def _first_space(config: Config) -> int:
    return 2 if config.get("data_format") == "channels_first" else 1


def _spatial(config: Config, shape: Shape, spatial: list[Dim], channels: Dim = -1) -> Shape | None:
    first = _first_space(config)
    old = shape[1:-1] if first == 1 else shape[2:]
    if len(spatial) != len(old):
        return None
    last = channels if channels != -1 else shape[-1] if first == 1 else shape[1]
    return (shape[0], *spatial, last) if first == 1 else (shape[0], last, *spatial)


def _reduced(config: Config, shape: Shape) -> Shape:
    axis = config["axis"]
    places = {place % len(shape) for place in (_pairs(axis, 1) if axis is not None else range(len(shape)))}
    if config.get("keepdims"):
        return tuple(1 if place in places else dim for place, dim in enumerate(shape))
    return tuple(dim for place, dim in enumerate(shape) if place not in places)


def _global(config: Config, shape: Shape) -> Shape | None:
    if config.get("keepdims"):
        return _spatial(config, shape, [1] * (len(shape) - 2))
    return (shape[0], shape[-1] if _first_space(config) == 1 else shape[1]) if len(shape) > 1 else None


def _concatenated(config: Config, inputs: list[Shape | None]) -> Shape | None:
    shapes = [shape for shape in inputs if shape is not None]
    axis = config.get("axis", -1)
    if not shapes or len(shapes) < len(inputs) or not isinstance(axis, int) or any(len(s) != len(shapes[0]) for s in shapes):
        return None
    place = axis % len(shapes[0]) if shapes[0] else 0
    total: Dim = 0
    for shape in shapes:
        total = _plus(total, shape[place])
    return (*shapes[0][:place], total, *shapes[0][place + 1 :])


def _broadcast(inputs: list[Shape | None]) -> Shape | None:
    shapes = [shape for shape in inputs if shape is not None]
    if not shapes or len(shapes) < len(inputs):
        return None
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    columns = zip(*padded, strict=True)
    return tuple(next((dim for dim in dims if dim not in (1, None)), None if None in dims else 1) for dims in columns)


def _reshaped(config: Config, shape: Shape) -> Shape | None:
    target = _ints(config.get("target_shape") or config.get("newshape"))
    whole = _product(shape[1:])
    known = 1
    for dim in target:
        known *= dim if dim != -1 else 1
    left = whole // known if isinstance(whole, int) and known else None
    return (shape[0], *(left if dim == -1 else dim for dim in target))


def _einsum(config: Config, shape: Shape) -> Shape | None:
    """EinsumDense keeps the input's letters and takes the others from its output_shape, which ends where the equation ends."""
    equation = config.get("equation")
    given = config.get("output_shape")
    dims = list(given) if isinstance(given, list) else [given]
    if not isinstance(equation, str) or "->" not in equation:
        return None
    left, _, result = equation.replace(" ", "").partition("->")
    source = left.partition(",")[0]
    if "..." in equation:
        front = len(shape) - len(source.replace("...", ""))
        letters = "".join(chr(0x3B1 + i) for i in range(max(front, 0)))
        source, result = source.replace("...", letters), result.replace("...", letters)
    sizes: dict[str, Dim] = dict(zip(source, shape, strict=False))
    for letter, dim in zip(reversed(result), reversed(dims), strict=False):
        if letter not in sizes and isinstance(dim, int):
            sizes[letter] = dim
    return tuple(sizes.get(letter) for letter in result)


def _sides(value: Json, rank: int) -> list[int]:
    """What a padding or cropping takes in all from each spatial dimension: a number, one per dimension, or a pair per dimension."""
    match value:
        case int():
            return [2 * value] * rank
        case [int(before), int(after)] if rank == 1:
            return [before + after]
        case list() if len(value) == rank:
            return [sum(n for n in side if isinstance(n, int)) if isinstance(side, list) else 2 * (_int(side) or 0) for side in value]
        case _:
            return [0] * rank


def _pairs(value: Json, rank: int) -> list[int]:
    return [value] * rank if isinstance(value, int) else _ints(value)


def _ints(value: Json) -> list[int]:
    return [dim for dim in value if isinstance(dim, int)] if isinstance(value, list | tuple) else []


def _int(value: Json) -> int | None:
    return value if isinstance(value, int) else None


def _plus(left: Dim, right: Dim) -> Dim:
    return left + right if isinstance(left, int) and isinstance(right, int) else None


def _times(left: Dim, right: Dim) -> Dim:
    return left * right if isinstance(left, int) and isinstance(right, int) else None


def _product(shape: Shape) -> int | None:
    total = 1
    for dim in shape:
        if not isinstance(dim, int):
            return None
        total *= dim
    return total
