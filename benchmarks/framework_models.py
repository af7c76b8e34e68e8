"""How conversion does on torch and Keras models: `python benchmarks/framework_models.py torch|keras OUT.jsonl [PACKAGES [NAME]]`.

At least thirty of each: of torchvision, timm, segmentation-models-pytorch and transformers with small configurations, and of
keras.applications at small sizes, without trained weights; others are written here. Each runs in a process of its own, with a limit of
time. Normalizations take their statistics of samples first, so that outputs follow inputs. Two inputs are data,
two others judge: the result runs on the CPU, whose half kernels store in half, and its outputs are compared with the original's. Beside it,
the same model as the framework itself would run it: torch under autocast to float16, Keras with the global policy mixed_float16.
Expected before the first run: every result is valid, and accurate on the inputs that judge. Of the torch models from GPT-2 on, which were
written down last: all of them valid and accurate as well, none refused, and as much in half as autocast has.
PACKAGES is a folder of packages as real_models.py takes it, some of which ship Keras models.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
TOLERANCE, GIVEN, JUDGING, SECONDS = 0.02, 2, 2, 400
Named = tuple[str, Callable[[], Any]]


def error(expected: Sequence[np.ndarray], got: Sequence[np.ndarray]) -> float:
    """The largest error of an output against its size; infinite where something else is wrong."""
    worst = 0.0
    for one, other in zip(expected, got, strict=True):
        far = float(np.abs(one.astype(np.float64) - other).max()) if one.shape == other.shape else np.inf
        worst = max(worst, far / (float(np.abs(one).max()) + 1e-6)) if np.isfinite(far) else np.inf
    return worst


def smooth(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Pictures, channels last: areas of 8 x 8 that go over into each other."""
    coarse = rng.standard_normal((shape[0], 9, 9, shape[3]))
    for axis in (1, 2):
        at = np.linspace(0, 7.999, shape[axis])
        low = at.astype(int)
        share = (at - low).reshape([-1 if each == axis else 1 for each in range(4)])
        coarse = coarse.take(low, axis) * (1 - share) + coarse.take(low + 1, axis) * share
    return np.asarray(coarse + 0.02 * rng.standard_normal(shape), np.float32)


# torch


def torch_models() -> Iterator[Named]:
    """The name of a model, and what makes it with its inputs: a seed gives others."""
    import segmentation_models_pytorch as smp
    import timm
    import torch
    import torchvision
    import transformers
    from torch import nn

    def pictures(size: int) -> Callable[[int], tuple[Any, ...]]:
        return lambda seed: (torch.from_numpy(smooth(np.random.default_rng(seed), 2, size, size, 3).transpose(0, 3, 1, 2).copy()),)

    def words(limit: int, length: int = 24) -> Callable[[int], tuple[Any, ...]]:
        return lambda seed: (torch.from_numpy(np.random.default_rng(seed).integers(3, limit, (2, length))),)

    def noise(*shape: int) -> Callable[[int], tuple[Any, ...]]:
        return lambda seed: (torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)),)

    for name in ("resnet18", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1", "mnasnet0_5", "regnet_y_400mf"):
        yield f"torchvision {name}", lambda name=name: (getattr(torchvision.models, name)(weights=None), pictures(64))
    for name in ("efficientnet_b0", "densenet121", "googlenet", "convnext_tiny"):
        more = {"init_weights": True, "aux_logits": False} if name == "googlenet" else {}
        yield f"torchvision {name}", lambda name=name, more=more: (getattr(torchvision.models, name)(weights=None, **more), pictures(64))
    for name in (
        "resnet10t",
        "ghostnet_050",
        "mobilevit_xxs",
        "levit_128s",
        "poolformer_s12",
        "edgenext_xx_small",
        "repvgg_a0",
        "vit_tiny_patch16_224",
    ):
        size = {"levit_128s": 224, "vit_tiny_patch16_224": 224}.get(name, 96)
        yield f"timm {name}", lambda name=name, size=size: (timm.create_model(name, pretrained=False), pictures(size))

    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 200}
    configs: dict[str, tuple[str, dict[str, Any]]] = {
        "Bert": ("BertModel", small),
        "Roberta": ("RobertaModel", small),
        "Electra": ("ElectraModel", {**small, "embedding_size": 64}),
        "DistilBert": ("DistilBertModel", {"dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4, "vocab_size": 200}),
        "MobileBert": ("MobileBertModel", {**small, "embedding_size": 64, "intra_bottleneck_size": 64, "true_hidden_size": 64}),
        "Albert": ("AlbertModel", {**small, "embedding_size": 32}),
    }
    for name, (kind, options) in configs.items():

        def transformer(name: str = name, kind: str = kind, options: dict[str, Any] = options) -> tuple[Any, Any]:
            config = getattr(transformers, f"{name}Config")(**options)
            config._attn_implementation = "eager"
            inner = getattr(transformers, kind)(config)

            class Output(nn.Module):
                def __init__(self) -> None:
                    super().__init__()
                    self.inner = inner

                def forward(self, ids: Any) -> Any:
                    return self.inner(input_ids=ids).last_hidden_state

            return Output(), words(200)

        yield f"transformers {kind}", transformer

    wide = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    grouped = {**small, "num_key_value_heads": 2}
    waves = {**wide, "conv_dim": (32, 32, 32), "conv_stride": (5, 4, 4), "conv_kernel": (10, 8, 8), "num_feat_extract_layers": 3}
    waves |= {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
    more_configs: dict[str, tuple[str, str, dict[str, Any], Callable[[int], tuple[Any, ...]]]] = {
        "GPT2Model": ("GPT2Config", "input_ids", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 200}, words(200)),
        "T5EncoderModel": ("T5Config", "input_ids", {"d_model": 64, "d_ff": 128, "d_kv": 16, "num_layers": 2, "num_heads": 4}, words(200)),
        "LlamaModel": ("LlamaConfig", "input_ids", grouped, words(200)),
        "MambaModel": ("MambaConfig", "input_ids", {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 200}, words(200, 12)),
        "DebertaV2Model": (
            "DebertaV2Config",
            "input_ids",
            {**small, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
            words(200),
        ),
        "ConvBertModel": ("ConvBertConfig", "input_ids", {**small, "embedding_size": 64}, words(200)),
        "ViTModel": ("ViTConfig", "pixel_values", {**wide, "image_size": 64, "patch_size": 16}, pictures(64)),
        "SwinModel": (
            "SwinConfig",
            "pixel_values",
            {"image_size": 64, "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
            pictures(64),
        ),
        "SegformerModel": ("SegformerConfig", "pixel_values", {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]}, pictures(64)),
        "ConvNextV2Model": ("ConvNextV2Config", "pixel_values", {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]}, pictures(64)),
        "Wav2Vec2Model": ("Wav2Vec2Config", "input_values", waves, noise(2, 4000)),
        "HubertModel": ("HubertConfig", "input_values", waves, noise(2, 4000)),
    }
    for kind, (config_kind, taken, options, made) in more_configs.items():

        def other(kind: str = kind, config_kind: str = config_kind, taken: str = taken, options: Any = options, made: Any = made) -> Any:
            config = getattr(transformers, config_kind)(**options)
            config._attn_implementation = "eager"
            inner = getattr(transformers, kind)(config)

            class Output(nn.Module):
                def __init__(self) -> None:
                    super().__init__()
                    self.inner = inner

                def forward(self, given: Any) -> Any:
                    return self.inner(**{taken: given}).last_hidden_state

            return Output(), made

        yield f"transformers {kind}", other

    for kind, encoder in (("Unet", "resnet18"), ("FPN", "mobilenet_v2"), ("DeepLabV3Plus", "resnet18")):
        yield (
            f"segmentation-models {kind} {encoder}",
            lambda kind=kind, encoder=encoder: (getattr(smp, kind)(encoder, encoder_weights=None, classes=3), pictures(64)),
        )

    class Recurrent(nn.Module):
        def __init__(self, kind: type[Any]) -> None:
            super().__init__()
            self.inner, self.head = kind(16, 32, 2, batch_first=True), nn.Linear(32, 5)

        def forward(self, x: Any) -> Any:
            return self.head(self.inner(x)[0])

    class Wave(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv1d(1, 16, 32, 16), nn.GroupNorm(4, 16)
            self.second, self.back = nn.Conv1d(16, 16, 5, padding=2), nn.ConvTranspose1d(16, 1, 32, 16)

        def forward(self, x: Any) -> Any:
            code = torch.relu(self.norm(self.first(x)))
            return self.back(code * torch.sigmoid(self.second(code)))

    class Energy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(40, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 8))

        def forward(self, x: Any) -> Any:
            power = (100 * x).square().mean(1)
            return self.inner(torch.log(power + 1e-9))

    yield "LSTM", lambda: (Recurrent(nn.LSTM), noise(2, 20, 16))
    yield "GRU", lambda: (Recurrent(nn.GRU), noise(2, 20, 16))
    yield "encoder and decoder of waves", lambda: (Wave(), noise(2, 1, 1600))
    yield "log energies", lambda: (Energy(), noise(2, 30, 40))
    yield (
        "TransformerEncoder",
        lambda: (nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2), noise(2, 12, 32)),
    )


def torch_judged(name: str, make: Callable[[], Any]) -> dict[str, object]:
    """What conversion makes of one torch model."""
    import torch

    import mplint

    torch.manual_seed(0)
    model, inputs = make()
    for module in model.modules():
        if hasattr(module, "track_running_stats"):
            module.momentum = None  # the mean of what it sees
    drops = [module for module in model.modules() if type(module).__name__.startswith(("Drop", "StochasticDepth"))]
    model.train()
    for module in drops:
        module.eval()
    with torch.no_grad():
        for seed in range(20, 23):
            model(*inputs(seed))
    model.eval()
    found: dict[str, object] = {"model": name, "kind": "torch"}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        names = ["x"]
        start = time.process_time()
        try:
            program = torch.export.export(model, inputs(0))
            names = [one.arg.name for one in program.graph_signature.input_specs if one.kind.name == "USER_INPUT"]
            for seed in range(1, GIVEN):
                np.savez(Path(folder, f"{seed}.npz"), **{n: x.numpy() for n, x in zip(names, inputs(seed), strict=True)})
            exported, start = time.process_time() - start, time.process_time()
            result = mplint.convert(program, "mixed_float16", calibration=[folder], device="cpu")
            found |= {"verdict": result.verdict.value, "heavy": result.heavy, "half": result.heavy_half, "claimed": result.error}
            found |= {"problems": (result.problems + result.gaps + result.notes)[:2]}
            path = str(Path(folder, "b.pt2"))
            result.save(path)
        except Exception as problem:
            return found | {"verdict": "refused", "why": f"{type(problem).__name__}: {problem}"[:200], "cpu": time.process_time() - start}
        found |= {"cpu": time.process_time() - start, "export": exported}
        half = torch.export.load(path).module()
        fresh = [inputs(10 + seed) for seed in range(JUDGING)]
        expected = [arrays(model(*one)) for one in fresh]
        found["error"] = max(error(a, arrays(half(*one))) for a, one in zip(expected, fresh, strict=True))
        with torch.autocast("cpu", torch.float16):
            found["autocast"] = max(error(a, arrays(model(*one))) for a, one in zip(expected, fresh, strict=True))
    return found


def arrays(outputs: Any) -> list[np.ndarray]:
    """The tensors in the outputs of a model."""
    if isinstance(outputs, dict):
        outputs = list(outputs.values())
    if not isinstance(outputs, list | tuple):
        return [np.asarray(outputs.detach().float().numpy() if hasattr(outputs, "detach") else outputs, np.float32)]
    return [array for one in outputs for array in arrays(one)]


# Keras


def keras_models(packages: str) -> Iterator[Named]:
    """The name of a model, and what makes it, under whatever policy is global."""
    import keras
    from keras import layers

    at = keras.applications
    small = {"weights": None, "classes": 10}
    for name, size in (
        ("MobileNet", 64),
        ("MobileNetV2", 64),
        ("MobileNetV3Small", 64),
        ("MobileNetV3Large", 64),
        ("EfficientNetB0", 64),
        ("EfficientNetV2B0", 64),
        ("ResNet50", 64),
        ("ResNet50V2", 64),
        ("DenseNet121", 64),
        ("NASNetMobile", 64),
        ("Xception", 80),
        ("VGG16", 48),
        ("InceptionV3", 80),
        ("ConvNeXtTiny", 64),
    ):
        yield f"applications {name}", lambda name=name, size=size: getattr(at, name)(input_shape=(size, size, 3), **small)

    def functional(*shape: int, dtype: str = "float32") -> Callable[[Callable[[Any], Any]], Callable[[], Any]]:
        def made(body: Callable[[Any], Any]) -> Callable[[], Any]:
            def make() -> Any:
                x = keras.Input(shape, dtype=dtype)
                return keras.Model(x, body(x))

            return make

        return made

    def block(x: Any) -> Any:
        y = layers.MultiHeadAttention(4, 8)(x, x)
        x = layers.LayerNormalization()(x + y)
        return layers.LayerNormalization()(x + layers.Dense(32)(layers.Dense(64, "gelu")(x)))

    def unet(x: Any) -> Any:
        one = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
        two = layers.Conv2D(16, 3, 2, padding="same", activation="relu")(one)
        back = layers.Conv2DTranspose(8, 3, 2, padding="same")(two)
        return layers.Conv2D(1, 1, activation="sigmoid")(layers.Concatenate()([one, back]))

    yield "LSTM", functional(20, 8)(lambda x: layers.Dense(3)(layers.LSTM(16)(x)))
    yield "GRU, twice", functional(20, 8)(lambda x: layers.Dense(3)(layers.GRU(16)(layers.GRU(16, return_sequences=True)(x))))
    yield "Bidirectional", functional(20, 8)(lambda x: layers.Dense(3, "softmax")(layers.Bidirectional(layers.LSTM(8))(x)))
    yield "transformer", functional(12, 32)(lambda x: layers.Dense(5)(block(block(x))))
    yield "U-Net", functional(32, 32, 3)(unet)
    yield (
        "text CNN",
        functional(30, dtype="int32")(
            lambda x: layers.Dense(4, "softmax")(layers.GlobalMaxPooling1D()(layers.Conv1D(16, 3)(layers.Embedding(100, 16)(x))))
        ),
    )
    pooled = layers.GlobalAveragePooling1D
    yield (
        "separable waves",
        functional(400, 1)(lambda x: layers.Dense(2)(pooled()(layers.SeparableConv1D(16, 9)(layers.Conv1D(8, 32, 8)(x))))),
    )
    yield "Conv3D", functional(8, 16, 16, 1)(lambda x: layers.Dense(3)(layers.Flatten()(layers.Conv3D(4, 3, 2, activation="relu")(x))))
    yield "ConvLSTM2D", functional(4, 12, 12, 1)(lambda x: layers.Dense(2)(layers.Flatten()(layers.ConvLSTM2D(4, 3)(x))))
    grouped = layers.GroupNormalization
    yield "GroupNormalization", functional(16, 16, 8)(lambda x: layers.Conv2D(4, 1)(grouped(4)(layers.Conv2D(8, 3)(x))))
    yield (
        "rescaled picture",
        functional(24, 24, 3)(lambda x: layers.Dense(2)(layers.Flatten()(layers.Conv2D(4, 3)(layers.Rescaling(1 / 3)(x))))),
    )
    yield "EinsumDense", functional(10, 16)(lambda x: layers.Dense(2)(layers.EinsumDense("abc,cd->abd", (10, 24))(x)))
    yield "TimeDistributed", functional(5, 12)(lambda x: layers.Dense(1)(layers.LSTM(8)(layers.TimeDistributed(layers.Dense(16))(x))))
    shipped = {
        "spliceai": "spliceai/spliceai/models/spliceai1.h5",
        "spliceai, the second": "spliceai/spliceai/models/spliceai2.h5",
    }
    for name, file in shipped.items():
        path = Path(packages, file)
        if packages and path.exists():
            yield f"{name} (trained)", lambda path=path: str(path)
    yield "residual tabular", functional(30)(lambda x: layers.Dense(1)(layers.Add()([x, layers.Dense(30)(layers.Dense(64, "relu")(x))])))


def keras_inputs(model: Any, seed: int) -> list[np.ndarray]:
    """Inputs as a model takes them."""
    rng = np.random.default_rng(seed)
    found = []
    for value in model.inputs:
        shape = [2, *(size or 120 for size in value.shape[1:])]
        if "int" in str(value.dtype):
            found.append(rng.integers(0, 100, shape).astype(str(value.dtype)))
        elif len(shape) == 4 and shape[-1] in (1, 3):
            found.append(smooth(rng, *shape))
        elif shape[-1] == 4:  # bases of a genome, one of four
            found.append(np.eye(4, dtype=np.float32)[rng.integers(0, 4, [1, 10400])])
        else:
            found.append(rng.standard_normal(shape).astype(np.float32))
    return found


def keras_judged(name: str, make: Callable[[], Any]) -> dict[str, object]:
    """What conversion makes of one Keras model."""
    import keras

    import mplint

    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    model = make()
    found: dict[str, object] = {"model": name, "kind": "keras"}
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        source, target = str(Path(folder, "a.keras")), str(Path(folder, "b.keras"))
        try:
            if isinstance(model, str):
                source, model = model, keras.models.load_model(model, compile=False)
            else:
                settle(keras, model)
                model.save(source)
            names = [value._keras_history.operation.name for value in model.inputs]
            for seed in range(GIVEN):
                np.savez(Path(folder, f"{seed}.npz"), **dict(zip(names, keras_inputs(model, seed), strict=True)))
            start = time.process_time()
            result = mplint.convert(source, "mixed_float16", calibration=[folder])
            found |= {"verdict": result.verdict.value, "heavy": result.heavy, "half": result.heavy_half, "claimed": result.error}
            found |= {"problems": (result.problems + result.gaps + result.notes)[:2], "cpu": time.process_time() - start}
            result.save(target)
            half = keras.models.load_model(target, compile=False)
        except Exception as problem:
            return found | {"verdict": "refused", "why": f"{type(problem).__name__}: {problem}"[:200], "cpu": time.process_time() - start}
        fresh = [keras_inputs(model, 10 + seed) for seed in range(JUDGING)]
        expected = [arrays(model(one)) for one in fresh]
        found["error"] = max(error(a, arrays(half(one))) for a, one in zip(expected, fresh, strict=True))
        if not source.endswith(".h5"):
            keras.config.set_dtype_policy("mixed_float16")
            try:
                other = make()
                other.set_weights(model.get_weights())
                found["global"] = max(error(a, arrays(other(one))) for a, one in zip(expected, fresh, strict=True))
            finally:
                keras.config.set_dtype_policy("float32")
    return found


def settle(keras: Any, model: Any) -> None:
    """Give normalizations the statistics of samples, so that outputs follow inputs."""
    norms = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.BatchNormalization)]
    kept = [layer.momentum for layer in norms]
    for layer in norms:
        layer.momentum = 0.0
    if norms:
        model(keras_inputs(model, 20), training=True)
    for layer, momentum in zip(norms, kept, strict=True):
        layer.momentum = momentum


def main() -> None:
    kind, out = sys.argv[1:3]
    packages = sys.argv[3] if len(sys.argv) > 3 else ""
    named = dict(torch_models() if kind == "torch" else keras_models(packages))
    if len(sys.argv) > 4:  # one model in a process of its own
        print(json.dumps((torch_judged if kind == "torch" else keras_judged)(sys.argv[4], named[sys.argv[4]])))
        return
    lines = Path(out).read_text(encoding="utf-8").splitlines() if Path(out).exists() else []
    done = {json.loads(line)["model"] for line in lines}
    for name in named:
        if name in done:
            continue
        failed: dict[str, object] = {"model": name, "kind": kind, "verdict": "not judged"}
        try:
            asked = [sys.executable, __file__, kind, out, packages, name]
            run = subprocess.run(asked, capture_output=True, text=True, timeout=SECONDS, check=False)
            told = next((line for line in reversed(run.stdout.splitlines()) if line.startswith("{")), "")
            failed["why"] = run.stderr.strip()[-200:]
        except subprocess.TimeoutExpired:
            told, failed["why"] = "", f"more than {SECONDS} s"
        with open(out, "a", encoding="utf-8") as stream:
            stream.write((told or json.dumps(failed)) + "\n")


if __name__ == "__main__":
    main()
