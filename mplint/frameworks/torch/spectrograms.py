"""Front ends of other packages that turn sound into log-mel spectrograms: a product that autocast lowers, an epsilon, and a logarithm."""

from __future__ import annotations

from mplint.frameworks.epsilons import is_lost, lost
from mplint.frameworks.torch.promotion import lowered
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.store import under
from mplint.program.values import FALSE, HALF, NONE, SINGLE, Autocast, Constant, Object, Place, Step, Tensor, Unknown, Value

vocabulary = Vocabulary()

# what multiplies by the filters of mel scales, and what takes the logarithm, with the position and default of its least power
FILTERS = frozenset({"LogmelFilterBank", "MelSpectrogram", "MelScale"})
LEAST = {"LogmelFilterBank": (7, "amin", 1e-10), "AmplitudeToDB": (-1, "amin", 1e-10)}
NAMES = (
    *("torchlibrosa.LogmelFilterBank", "torchlibrosa.stft.LogmelFilterBank"),
    *(f"torchaudio.transforms.{name}" for name in ("MelSpectrogram", "MelScale", "AmplitudeToDB")),
)


@vocabulary.call(*NAMES)
def front_end(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A front end as a module."""
    made = Object(("front end", m.identity(place), m.round()), "front end", name, place)
    index, word, default = LEAST.get(name.rpartition(".")[2], (-1, "amin", 0.0))
    given = args.get(index, word)
    linear = name.endswith("LogmelFilterBank") and args.get(5, "is_log") == FALSE
    m.write(made.id, "#least", NONE if linear else given if given is not None else Constant(default))
    return made


@vocabulary.invoke("front end")
def extracted(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """The spectrogram: in the region's dtype after the filters, and in float32 after the logarithm, of what the least power has become."""
    last = str(receiver.type).rpartition(".")[2]
    region, least = m.state("autocast"), m.read(receiver.id, "#least")
    given = args.get(0)
    made: Value = given if type(given) is Tensor else Unknown(f"{last}(){IDENTITY}{place.path}:{place.position}")
    base = m.path
    for path, state in under(region, base):
        if last in FILTERS and type(state) is Autocast and state.dtype is not None and state.device != "cpu":
            letters, chain = lowered(state, "matmul", place)
            made = Tensor(letters, chain, forward=letters)
            m.path = path
            break
    value = least.value if type(least) is Constant and isinstance(least.value, float) else None
    if last in LEAST and type(made) is Tensor and made.dtypes == {HALF} and value is not None and is_lost(value):
        lost(m, made.but(epsilon=Step(place, repr(value))), "logarithm", place)
    m.path = base
    return Tensor(frozenset({SINGLE}), forward=made.forward) if last in LEAST and type(made) is Tensor else made
