"""What has to be float32 whatever a layer computes in: inputs of operations without a half kernel, and losses that layers add."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.adopt.keras.heads import Kept
from mplint.adopt.keras.scene import Scene
from mplint.findings import Applicability, Fix, Replace
from mplint.frameworks.keras import steps
from mplint.frameworks.keras.tensors import LOW
from mplint.program.values import Tensor

HOMES = ("tensorflow.signal.", "tensorflow.linalg.", "tensorflow.raw_ops.")
HALF_KERNEL = frozenset(
    {"matmul", "einsum", "norm", "l2_normalize", "matvec", "band_part", "diag", "diag_part", "eye", "trace", "tensordot", "set_diag",
     "matrix_transpose", "normalize", "global_norm", "cross", "frame", "overlap_and_add", "hann_window", "hamming_window"}
)  # fmt: skip
CASTS = {
    "tensorflow": "{name}.cast({text}, {name}.float32)",
    "keras.ops": '{name}.cast({text}, "float32")',
    "keras": '{name}.ops.cast({text}, "float32")',
}
WHY = "gets its input in float32: there is no kernel for half tensors"


def kernels_of_float32(scene: Scene) -> Iterator[Kept]:
    """Each such operation on a half tensor, where the cast can be written."""
    done: set[ast.AST] = set()
    for node in without_kernel(scene):
        root = root_of(scene, node)
        if node not in done and root is not None and node.args and not isinstance(node.args[0], ast.Starred):
            done.add(node)
            text = scene.file.text(node.args[0])
            changes = (Replace(scene.file.span(node.args[0]), f"{root}.cast({text}, {root}.float32)"),)
            yield Kept(node, WHY, Fix("cast the input", Applicability.UNSAFE, changes))


def added_losses(scene: Scene) -> Iterator[Kept]:
    """Each loss that a layer adds in half: Keras adds it to those that are float32, and TensorFlow adds only what has one dtype."""
    done: set[ast.AST] = set()
    for _, event in scene.events("loss added"):
        node = scene.node(event.place)
        if not isinstance(node, ast.Call) or node in done or not node.args or not any(is_half(t) for _, t in steps.ways_of(event)):
            continue
        cast = cast_of(scene, scene.file.text(node.args[0]))
        if cast is not None:
            done.add(node)
            changes = (Replace(scene.file.span(node.args[0]), cast),)
            yield Kept(node, "adds a loss in float32, as the others are", Fix("cast the loss", Applicability.UNSAFE, changes))


def cast_of(scene: Scene, text: str) -> str | None:
    """A cast to float32, by what the program has imported."""
    names = scene.file.names.bindings.get(scene.file.tree, {})
    for home, written in CASTS.items():
        for name, bindings in names.items():
            if all(binding.target == home for binding in bindings):
                return written.format(name=name, text=text)
    return None


def is_half(tensor: Tensor) -> bool:
    """Whether a tensor is in half precision, or in whatever the layer computes."""
    return bool(tensor.dtypes) and tensor.dtypes <= frozenset(LOW)


def uncast_kernels(scene: Scene) -> Iterator[tuple[ast.AST, str]]:
    """Those at which it can't, with what to do."""
    for node in dict.fromkeys(without_kernel(scene)):
        text = f"`{scene.text(node)}` has no kernel for half tensors: cast its input to float32 there, and what follows from it back"
        yield node, text


def without_kernel(scene: Scene) -> Iterator[ast.Call]:
    """The calls of such operations on half tensors."""
    for _, event in scene.events("operation"):
        name, node = str(event.data["name"]), scene.node(event.place)
        last = name.rpartition(".")[2]
        if not name.startswith(HOMES) or last in HALF_KERNEL or last.endswith("_window") or not isinstance(node, ast.Call):
            continue
        operands = event.data["operands"]
        assert isinstance(operands, tuple)
        if any(type(t) is Tensor and is_half(t) for t in operands):
            yield node


def root_of(scene: Scene, node: ast.Call) -> str | None:
    """How the program writes `tensorflow` in the name of an operation; None where that is imported by itself."""
    match node.func:
        case ast.Attribute(value=ast.Attribute(value=root)) if scene.file.names.resolve(root) == "tensorflow":
            return scene.file.text(root)
    return None
