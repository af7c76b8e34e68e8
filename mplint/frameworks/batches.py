"""Where programs choose the size of batches, and the loops that take them: PyTorch's loaders and pipelines of tf.data."""

from __future__ import annotations

from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.machine import Args, Machine, shown
from mplint.program.values import Atom, Place, Unknown, Value

vocabulary = Vocabulary()
LOADER = "torch.utils.data.DataLoader"


@vocabulary.prefix(LOADER)
def loader(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """`DataLoader(data, batch_size=…)`."""
    m.emit("loader made", place, args=args)
    return None


def taken(m: Machine, atom: Atom, place: Place) -> Value | None:
    """A loop takes the batches of a loader."""
    if type(atom) is Unknown and shown(atom.symbol).startswith(f"{LOADER}("):
        m.emit("batches taken", place, source=atom.symbol)
    return None


def batched(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """`dataset.batch(100)`."""
    if name in ("batch", "padded_batch") and type(atom) is Unknown and shown(atom.symbol).startswith("tensorflow.data."):
        m.emit("data batched", place, args=args)
    return None


vocabulary.elements.append(taken)
vocabulary.atom_methods.append(batched)
