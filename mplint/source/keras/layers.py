"""Which Keras layer a call builds, with its size, activation and dtype argument."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from mplint.frameworks.names import keras_path
from mplint.python.syntax import argument

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

CONVOLUTIONS = frozenset(
    {f"{prefix}Conv{n}D{suffix}" for prefix in ("", "Separable") for n in "123" for suffix in ("", "Transpose")}
    | {f"{prefix}Convolution{n}D{suffix}" for prefix in ("", "Separable") for n in "123" for suffix in ("", "Transpose")}
)
DEPTHWISE = frozenset({"DepthwiseConv1D", "DepthwiseConv2D", "DepthwiseConv3D"})
RECURRENT = frozenset({"LSTM", "GRU", "SimpleRNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "CuDNNLSTM", "CuDNNGRU"})
# Layers that compute nothing of their own: what they give is as good as what they get.
PASSING = frozenset(
    {"Activation", "Softmax", "ReLU", "LeakyReLU", "ELU", "PReLU", "Reshape", "Flatten", "Permute", "Dropout", "Identity", "RepeatVector"}
    | {f"{name}{n}D" for name in ("Cropping", "ZeroPadding", "UpSampling") for n in "123"}
)
# Names that mean a Keras layer even where no import says so (fragments of notebooks and articles).
WELL_KNOWN = (
    CONVOLUTIONS | DEPTHWISE | RECURRENT | PASSING
    | {"Dense", "EinsumDense", "Input", "InputLayer", "BatchNormalization", "LayerNormalization", "Bidirectional", "TimeDistributed"}
    | {"Lambda", "Concatenate", "Add", "Multiply", "Sequential", "Model", "MultiHeadAttention"}
    | {f"{kind}{n}D" for kind in ("GlobalAveragePooling", "GlobalMaxPooling", "AveragePooling", "MaxPooling") for n in "123"}
) - {"Identity", "Softmax", "ReLU", "LeakyReLU", "ELU", "PReLU", "Dropout", "Flatten", "LSTM", "GRU"}  # fmt: skip
NOT_LAYERS = frozenset({"Sequential", "Model", "Functional", "Input", "InputSpec", "Layer"})
ACTIVATION_CALLS = ("activations.", "ops.", "backend.", "nn.")
PROBABILITIES = frozenset({"softmax", "sigmoid", "log_softmax", "log_sigmoid"})
UNKNOWN = "?"
IMPORTS_KERAS = re.compile(
    r"^[ \t]*(?:import|from)[ \t]+(?:tf_)?keras\b|^[ \t]*from[ \t]+tensorflow(?:\.keras\b|[ \t]+import[ \t]+keras\b)", re.M
)
IMPORTS_TORCH = re.compile(r"^[ \t]*(?:import|from)[ \t]+torch\b", re.M)


class Layer(NamedTuple):
    """The construction of a layer: `kind` is the class name ("Dense"), `inner` the wrapped layer of TimeDistributed."""

    call: ast.Call
    kind: str
    inner: ast.Call | None = None


def keras_name(file: SourceFile, node: ast.expr) -> str | None:
    """The part after the Keras package of what `node` names ("layers.Dense"); None: not Keras.

    A well-known layer name that nothing binds counts too.
    """
    for name in file.names.candidates(node):
        if (path := keras_path(name)) is not None:
            return path
    if isinstance(node, ast.Name) and node.id in WELL_KNOWN and not file.names.lookup(node)[1] and is_keras_code(file):
        return f"layers.{node.id}"
    return None


def is_keras_code(file: SourceFile) -> bool:
    """Whether the program speaks of TensorFlow or Keras and does not import torch: what unbound layer names are judged by."""
    text = file.document.text
    if "torch" in text and IMPORTS_TORCH.search(text):
        return False
    return any(word in text for word in ("keras", "tensorflow", "tf.", "layers."))


def speaks_of_keras(file: SourceFile) -> bool:
    """Whether the program may build Keras layers, of which those that nothing binds count only in programs without torch."""
    return is_keras_code(file) or IMPORTS_KERAS.search(file.document.text) is not None


def layer_of(file: SourceFile, call: ast.Call) -> Layer | None:
    """The layer that `call` builds, or None."""
    if not file.names.may_be_class(call.func):
        return None
    path = keras_name(file, call.func)
    if path is None:
        return None
    kind = path.rpartition(".")[2]
    if kind in NOT_LAYERS or not kind[:1].isupper() or not (path.startswith("layers.") or kind in WELL_KNOWN):
        return None
    inner = argument(call, "layer", 0) if kind in ("TimeDistributed", "Bidirectional") else None
    return Layer(call, kind, inner if isinstance(inner, ast.Call) else None)


def activation(file: SourceFile, layer: Layer) -> str:
    """The name of the layer's activation: "softmax", "linear" where it has none, "?" where it can't be told."""
    if layer.kind in ("Softmax", "ReLU", "LeakyReLU", "ELU", "PReLU"):
        return layer.kind.lower()
    position = 0 if layer.kind == "Activation" else 1 if layer.kind == "Dense" else None
    given = argument(layer.call, "activation", position)
    if given is None:
        if any(k.arg is None for k in layer.call.keywords):
            return UNKNOWN
        return "tanh" if layer.kind in RECURRENT else "linear"
    found = {activation_name(file, d) for d in file.values.definitions(given) if isinstance(d, ast.expr)}
    return found.pop() if len(found) == 1 else UNKNOWN


def activation_name(file: SourceFile, node: ast.expr) -> str:
    """The activation that an expression names: a string, a function of Keras or tf.nn, None; "?" otherwise."""
    if isinstance(node, ast.Constant):
        return node.value.lower() if isinstance(node.value, str) else "linear" if node.value is None else UNKNOWN
    for name in file.names.candidates(node):
        path = keras_path(name)
        if (path is not None and path.startswith(ACTIVATION_CALLS)) or name.startswith(
            ("tensorflow.nn.", "tensorflow.math.", "tensorflow.sigmoid")
        ):
            return name.rpartition(".")[2]
    return UNKNOWN
