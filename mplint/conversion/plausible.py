"""What inputs plausibly hold, by their names, and sound: for inputs that are made up, of any format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

RATE = 16000  # samples of sound a second
TONES = 12
CHANNELS = 8  # of sound, at most
COLORS, LEAST = (1, 3, 4), 16  # channels of a picture, and the least rows and columns of one
AREAS = 6  # a picture has so many across
FULL = 30000.0  # a peak of sound in 16-bit steps, which half holds at twice its size
SOUNDS = r"audio|wave(form)?s?$|speech|pcm|sound|samples?$|signals?$"
SOUND = ((0.0, 4000.0), (0.0, 0.3))
KINDS = ("normal", "uniform", "rows", "positive")  # of sound, and of numbers
# Names that say what an input holds, and the (mean, deviation) of such values.
NAMES: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = (
    (SOUNDS, SOUND),
    (r"image|images|pixels?|pixel_values|img|picture|photo|rgb|bgr", ((127.0, 74.0),)),
    (r"time_?steps?|t|steps?|positions?|position_ids|lengths?|ages?|days?|index|indices", ((500.0, 290.0),)),
    (r"boxe?s?|bbox(es)?|rois?|coords?|coordinates|points?|corners?|keypoints?|centers?|vertices", ((500.0, 290.0), (0.0, 100.0))),
    (r"prob(abilit(y|ie)s?|s)?|probas?|confidences?|survival|alphas?|distances?|p", ((0.5, 0.29),)),
    (r"f_?min|min_?freq(uency)?|low_?(freq|cut)", ((50.0, 10.0),)),
    (r"f_?max|max_?freq(uency)?|high_?(freq|cut)", ((2000.0, 300.0),)),
    (r"prices?|amounts?|money|income|balance|salary|costs?|revenue|counts?|populations?", ((1e5, 5e4),)),
)


def likely_by(name: str) -> Iterator[tuple[float, float]]:
    """What the name of an input says of its values: means and deviations."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")
    for pattern, likely in NAMES:
        if re.search(rf"(?:^|[_.:/ ])(?:{pattern})(?:$|[_.:/ \d])", words):
            yield from likely
            return


def is_sound(name: str) -> bool:
    """Whether an input is called like one of sound."""
    return re.search(SOUNDS, name.lower()) is not None


def in_range(mean: float, spread: float, drawn: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Numbers as a name says: of a range around the mean where it is not 0, else as they were drawn."""
    return np.asarray(mean + spread * rng.uniform(-1.7, 1.7, drawn.shape)) if mean else np.asarray(spread * drawn)


def hinted(name: str, shape: Sequence[int], seed: int) -> np.ndarray | None:
    """What a float input with a telling name may hold, its first dimension being the batch; None where its name says nothing."""
    rng = np.random.default_rng(seed)
    if is_sound(name) and 1 < len(shape) <= 3:
        return sound(shape, KINDS[seed % len(KINDS)], rng)
    likely = list(likely_by(name))
    return in_range(*likely[seed % len(likely)], rng.standard_normal(shape), rng) if likely else None


def time_axis(shape: Sequence[object]) -> int:
    """The axis of a signal that counts its samples: the last, or the one before a few channels; None in a shape is a size that is open."""
    if len(shape) < 3:
        return len(shape) - 1
    before, last = shape[-2:]
    few = isinstance(last, int) and last <= CHANNELS and not (isinstance(before, int) and before <= last)
    return len(shape) - (2 if few else 1)


def is_picture(shape: Sequence[int]) -> bool:
    """Whether arrays of a shape are batches of pictures: of 1, 3 or 4 channels, which stand before rows and columns or behind them."""
    if len(shape) != 4:
        return False
    first, last = shape[1] in COLORS, shape[3] in COLORS
    return first != last and min(shape[2:] if first else shape[1:3]) >= LEAST


def picture(shape: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Pictures as they are normalized, from -2.5 to 2.5 or so: areas that go over into each other, an edge, hardly any noise."""
    if shape[1] not in COLORS:
        return np.ascontiguousarray(picture([shape[0], shape[3], *shape[1:3]], rng).transpose(0, 2, 3, 1))
    count, channels, *size = shape
    areas = rng.normal(0.0, 1.0, (count, 1, AREAS, AREAS)) + rng.normal(0.0, 0.4, (count, channels, AREAS, AREAS))
    for axis, length in enumerate(size, start=2):
        at = np.linspace(0, AREAS - 1, length)
        low = np.minimum(at.astype(int), AREAS - 2)
        share = (at - low).reshape((-1, 1) if axis == 2 else (-1,))
        areas = areas.take(low, axis) * (1 - share) + areas.take(low + 1, axis) * share
    edge = np.where(np.arange(size[1]) < rng.uniform(0.2, 0.8) * size[1], 0.5, -0.5)
    contrast = rng.uniform(0.3, 1.0, (count, 1, 1, 1))
    return np.asarray(np.clip(contrast * (areas + edge), -2.5, 2.5) + rng.normal(0.0, 0.02, tuple(shape)))


def sound(shape: Sequence[int], name: str, rng: np.random.Generator) -> np.ndarray:
    """Sound that peaks at 1: voiced with pauses, chords that fade ("uniform"), bursts of noise ("rows"), a click in tones ("positive")."""
    if shape and time_axis(shape) != len(shape) - 1:
        return np.ascontiguousarray(np.swapaxes(sound([*shape[:-2], shape[-1], shape[-2]], name, rng), -1, -2))
    time = np.arange(shape[-1] if shape else 1) / RATE
    pitch = rng.uniform(90, 220)
    tones = (pitch * np.arange(1, TONES + 1)) if name == "normal" else rng.uniform(80, 4000, TONES)
    made = sum(np.sin(2 * np.pi * tone * time + rng.uniform(0, 6)) * rng.uniform(0.1, 1) for tone in tones)
    rhythm = np.sin(2 * np.pi * 3 * time + rng.uniform(0, 3))
    if name == "normal":
        made = made * np.clip(rhythm, 0, 1) + rng.normal(0, 0.02, time.shape)
    elif name == "uniform":
        made = made * np.exp(-4 * (time % 0.5))
    elif name == "rows":
        made = rng.normal(0, 1, time.shape) * np.exp(3 * rhythm - 3)
    else:
        made = made / TONES
        made[made.size // 2] = TONES
    loud = 0.5 ** np.arange(np.prod(shape[:-1], dtype=int)).reshape((*shape[:-1], 1)) if shape else 1.0
    return np.asarray(made / (np.max(np.abs(made)) + 1e-9) * np.ones(tuple(shape)) * loud)


SEQUENCES = ("slow", "events", "held")  # kinds of what follows itself in time
STEPS = 300  # over which errors add up: some seconds of frames
LAG = 0.97  # what a step keeps of the one before: thirty steps or so
BURST = 0.9  # what an event keeps
QUIET, LOUD = 0.02, 3.0  # how large a sequence begins and ends
RISES = 1 / 15  # events a step
LARGEST = 8.0  # of an event, as logarithms of sound have it
HELD = 40  # steps for which nothing changes
BANDS = 6  # features that go over into each other


def sequence(shape: Sequence[int], axis: int, name: str, rng: np.random.Generator) -> np.ndarray:
    """Numbers that go over into each other along an axis and from feature to feature, as what is heard or measured does.

    "slow" ones drift, quiet first and loud at the end; "events" rise at once and fade, and are positive; "held" ones stay for a while.
    What rounding adds to the state of a recurrent layer adds up over such steps, and averages out over noise.
    """
    steps, others = shape[axis], [size for at, size in enumerate(shape) if at != axis]
    smooth = _smooth(rng.normal(0.0, 1.0, (steps, *others)))
    if name == "events":
        begins = rng.random((steps, *(1 for _ in others))) < RISES
        made = np.minimum(_carried(begins * rng.uniform(0.0, LARGEST) * (0.5 + np.abs(smooth)) / 2, BURST), LARGEST)
    elif name == "held":
        every = max(1, min(HELD, steps // 4))
        made = 1.5 * np.repeat(smooth[::every], every, axis=0)[:steps]
    else:
        loudness = np.geomspace(QUIET, LOUD, steps).reshape(-1, *(1 for _ in others))
        made = loudness * _carried((1 - LAG**2) ** 0.5 * smooth, LAG)
    return np.ascontiguousarray(np.moveaxis(made, 0, axis))


def _smooth(noise: np.ndarray) -> np.ndarray:
    """Noise whose last axis goes from one number to the next over a few elements."""
    size = noise.shape[-1]
    if noise.ndim < 2 or size <= BANDS:
        return noise
    at = np.arange(size) / BANDS
    low = at.astype(int)
    return np.asarray(noise[..., low] * (1 - at + low) + noise[..., low + 1] * (at - low))


def _carried(added: np.ndarray, kept: float) -> np.ndarray:
    """What stays of all steps so far, a share of it after each."""
    made = np.array(added, dtype=np.float64)
    for step in range(1, len(made)):
        made[step] += kept * made[step - 1]
    return made
