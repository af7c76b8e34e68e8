"""How R's packages put layers together: `object %>% layer_dense(10)` adds to a sequential model, and calls the layer with a tensor."""

from __future__ import annotations

from mplint.frameworks.keras.layers import is_model
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.machine import Args, Machine
from mplint.program.values import Atom, Object, Place, Value
from mplint.python.r.functions import COMPOSED

vocabulary = Vocabulary()


@vocabulary.call(COMPOSED)
def composed(m: Machine, name: str, args: Args, place: Place) -> Value:
    """What R's `create_layer` gives: the model that got another layer, or the layer's output."""
    given, layer = args.positional

    def one(atom: Atom) -> Value:
        if type(atom) is Object and is_model(m, atom) and is_sequential(atom):
            m.library.method(m, atom, "add", Args((layer,), None, args.places[1:]), place)
            return atom
        return m.call(layer, Args((given,), None, args.places[:1]), place.position)

    return m.each(given, one)


def is_sequential(model: Object) -> bool:
    """Whether layers are added to a model one after the other."""
    return str(model.type).endswith("Sequential")
