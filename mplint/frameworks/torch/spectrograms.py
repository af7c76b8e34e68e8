"""Front ends of other packages that turn sound into log-mel spectrograms: powers, a product that autocast lowers, an epsilon, a logarithm.

Events: "power in half", where the product takes powers.
"""

from __future__ import annotations

from mplint.frameworks.epsilons import is_lost, lost
from mplint.frameworks.torch.promotion import lowered
from mplint.frameworks.torch.spectra import POWER, SPECTRUM
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.store import under
from mplint.program.values import ANY, FALSE, HALF, NONE, SINGLE, Autocast, Constant, Object, Place, Step, Tensor, Unknown, Value

vocabulary = Vocabulary()

# what multiplies by the filters of mel scales, and what takes the logarithm, with the position and default of its least power
FILTERS = frozenset({"LogmelFilterBank", "MelSpectrogram", "MelScale"})
LEAST = {"LogmelFilterBank": (7, "amin", 1e-10), "AmplitudeToDB": (-1, "amin", 1e-10)}
TORCHAUDIO = ("Spectrogram", "MelSpectrogram", "MelScale", "AmplitudeToDB")
NAMES = (
    *(f"{home}.{name}" for home in ("torchlibrosa", "torchlibrosa.stft") for name in ("LogmelFilterBank", "Spectrogram")),
    *(f"torchaudio.transforms.{name}" for name in TORCHAUDIO),
    *(f"{home}.MelSpectrogram" for home in ("nnAudio.features", "nnAudio.features.mel", "nnAudio.Spectrogram")),
)
EXPONENTS = {"torchaudio": {"Spectrogram": 5, "MelSpectrogram": 9}, "torchlibrosa": {"Spectrogram": 6}, "nnAudio": {"MelSpectrogram": 8}}
TOLD = "power in half"  # tag: of filtered powers, of which more is not to be said


@vocabulary.call(*NAMES)
def front_end(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A front end as a module."""
    made = Object(("front end", m.identity(place), m.round()), "front end", name, place)
    last = name.rpartition(".")[2]
    index, word, default = LEAST.get(last, (-1, "amin", 0.0))
    given = args.get(index, word)
    linear = name.endswith("LogmelFilterBank") and args.get(5, "is_log") == FALSE
    m.write(made.id, "#least", NONE if linear else given if given is not None else Constant(default))
    position = EXPONENTS[name.partition(".")[0]].get(last)
    if position is not None:
        power = args.get(position, "power")
        scaled = args.get(position + 1, "normalized") if name.startswith("torchaudio") else None
        squared = (power is None or power in (Constant(2), Constant(2.0))) and scaled in (None, FALSE) and not args.opaque
        m.write(made.id, "#tag", Constant(POWER if squared else SPECTRUM))
    return made


@vocabulary.call("torchaudio.functional.spectrogram")
def spectrogram(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The same as a function, whose exponent has no default."""
    given, power, scaled = args.get(0, "waveform"), args.get(6, "power"), args.get(7, "normalized")
    squared = power in (Constant(2), Constant(2.0)) and scaled == FALSE
    return spectrum(given, POWER if squared else SPECTRUM)


def spectrum(given: Value | None, tag: str) -> Tensor:
    """The spectrogram of a sound, in its dtype."""
    return Tensor(given.dtypes if type(given) is Tensor else frozenset({ANY}), tags=frozenset({tag}))


@vocabulary.invoke("front end")
def extracted(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """The spectrogram: in the region's dtype after the filters, and in float32 after the logarithm, of what the least power has become."""
    last = str(receiver.type).rpartition(".")[2]
    region, least, tag = m.state("autocast"), m.read(receiver.id, "#least"), m.read(receiver.id, "#tag")
    given = args.get(0)
    if last == "Spectrogram" and type(tag) is Constant:
        return spectrum(given, str(tag.value))
    made: Value = given if type(given) is Tensor else Unknown(f"{last}(){IDENTITY}{place.path}:{place.position}")
    power = tag == Constant(POWER) or (type(given) is Tensor and POWER in given.tags)
    base = m.path
    for path, state in under(region, base):
        if last in FILTERS and type(state) is Autocast and state.dtype is not None and state.device != "cpu":
            letters, chain = lowered(state, "matmul", place)
            told = power and letters == {HALF}
            made = Tensor(letters, chain, forward=letters, tags=frozenset({TOLD} if told else ()))
            m.path = path
            if told:
                m.emit("power in half", place, name=last, tensor=made)
            break
    value = least.value if type(least) is Constant and isinstance(least.value, float) else None
    lost_here = last in LEAST and type(made) is Tensor and made.dtypes == {HALF} and TOLD not in made.tags
    if lost_here and type(made) is Tensor and value is not None and is_lost(value):
        lost(m, made.but(epsilon=Step(place, repr(value))), "logarithm", place)
    m.path = base
    return Tensor(frozenset({SINGLE}), forward=made.forward) if last in LEAST and type(made) is Tensor else made
