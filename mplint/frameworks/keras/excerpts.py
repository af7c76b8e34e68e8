"""What names mean in notebooks, articles and other excerpts of Keras programs, where no import binds them."""

from __future__ import annotations

from mplint.frameworks.vocabulary import Vocabulary

vocabulary = Vocabulary()

SPEAKS = frozenset(["keras", "tensorflow", "tf", "layers"])
OTHERS = frozenset(["torch", "paddle", "flax", "mxnet", "oneflow"])
MODELS = frozenset(["Input", "Sequential", "Model"])
LAYERS = frozenset(
    [
        *(f"{kind}Conv{n}D{back}" for kind in ("", "Separable") for n in (1, 2, 3) for back in ("", "Transpose")),
        *(f"DepthwiseConv{n}D" for n in (1, 2, 3)),
        *(f"{kind}Pooling{n}D" for kind in ("GlobalAverage", "GlobalMax", "Average", "Max") for n in (1, 2, 3)),
        *(f"{kind}{n}D" for kind in ("Cropping", "ZeroPadding", "UpSampling") for n in (1, 2, 3)),
        *("Dense", "EinsumDense", "BatchNormalization", "LayerNormalization", "MultiHeadAttention", "Bidirectional", "TimeDistributed"),
        *("InputLayer", "SimpleRNN", "ConvLSTM2D", "Activation", "Reshape", "Permute", "RepeatVector", "Lambda", "Concatenate"),
        *("Add", "Multiply"),
    ]
)


def meant(name: str, words: frozenset[str]) -> str | None:
    """The class of Keras that a program means by its bare name: one that speaks of Keras and of no other framework."""
    if name not in LAYERS and name not in MODELS:
        return None
    if words.isdisjoint(SPEAKS) or not words.isdisjoint(OTHERS):
        return None
    return f"keras.{name}" if name in MODELS else f"keras.layers.{name}"


vocabulary.excerpts.append(meant)
