"""How R's packages put layers together: `object %>% layer_dense(10)` adds to a sequential model, and calls the layer with a tensor."""

from __future__ import annotations

from mplint.frameworks.keras.layers import is_model
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.values import Atom, Object, Place, Unknown, Value
from mplint.python.r.functions import COMPOSED

vocabulary = Vocabulary()


@vocabulary.call(COMPOSED)
def composed(m: Machine, name: str, args: Args, place: Place) -> Value:
    """What R's `create_layer` gives: the model that got another layer, or the layer's output."""
    given, layer = args.get(0), args.get(1)
    if given is None or layer is None:  # a function's `...`
        return Unknown(f"layer(){IDENTITY}{place.path}:{place.position}")

    def one(atom: Atom) -> Value:
        if type(atom) is Object and is_model(m, atom) and is_sequential(atom):
            m.library.method(m, atom, "add", Args((layer,), None, args.places[1:]), place)
            return atom
        return m.call(layer, Args((given,), None, args.places[:1]), place.position)

    return m.each(given, one)


def is_sequential(model: Object) -> bool:
    """Whether layers are added to a model one after the other."""
    return str(model.type).endswith("Sequential")
