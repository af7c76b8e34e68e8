"""Distributions of TensorFlow Probability: they compute in the dtype of their parameters, which layers give them.

A distribution holds its parameters under `#parameters`, or the distributions that it is made of. A log-probability of an independent
distribution is a sum over the parts of an event, in that dtype.
"""

from __future__ import annotations

from mplint.frameworks.keras.tensors import TF, added_up_here, held_in, tensor
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.conditions import Path
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.store import join
from mplint.program.values import DOUBLE, INTEGER, SINGLE, Atom, Items, Object, Place, Tensor, Unknown, Value, atoms

vocabulary = Vocabulary()

KIND = "distribution"
HOMES = ("tensorflow_probability.distributions.", "tensorflow_probability.python.distributions.")
DENSITIES = frozenset({"log_prob", "prob", "log_cdf", "cdf", "survival_function", "log_survival_function"})
MOMENTS = frozenset({"mean", "mode", "stddev", "variance", "entropy", "covariance", "quantile", "kl_divergence", "cross_entropy"})
SAMPLES = frozenset({"sample", "experimental_sample_and_log_prob"})
SUMMED = frozenset({"Independent", "MultivariateNormalDiag", "MultivariateNormalTriL", "MultivariateNormalFullCovariance", "Sample"})
WHOLE = frozenset({"Bernoulli", "Categorical", "Binomial", "Poisson", "Multinomial", "OneHotCategorical", "Geometric"})
FLOATS = {"loc", "scale", "logits", "probs", "concentration", "rate", "scale_diag", "temperature"}


@vocabulary.prefix(*HOMES)
def new_distribution(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """A distribution of parameters, or of other distributions; or a divergence of two."""
    last = name.rpartition(".")[2]
    if last == "kl_divergence":
        ways = [way for value in args.all()[:2] for way in parameters_of(m, value, m.path)]
        return computed(m, ways, place, last, False)
    if not last[:1].isupper():
        return None
    made = Object((KIND, m.identity(place), m.round()), KIND, name, place)
    m.write(made.id, "#parameters", Items(tuple(args.all())))
    return made


def parameters_of(m: Machine, value: Value, path: Path, depth: int = 0) -> list[tuple[Path, Tensor]]:
    """The tensors that are the parameters of a distribution, each with its path."""
    found = held_in(m, value, path)
    for atom in atoms(value) if depth < 4 else ():
        held = m.read(atom.id, "#parameters") if type(atom) is Object and atom.kind == KIND else None
        for given in held.items if type(held) is Items else ():
            found += parameters_of(m, given, path, depth + 1)
    return [(path, t) for path, t in found if INTEGER not in t.dtypes]


def computed(m: Machine, ways: list[tuple[Path, Tensor]], place: Place, name: str, summed: bool) -> Value:
    """What is computed of parameters, on each of their ways."""
    if not ways:
        return Unknown(f"distribution.{name}(){IDENTITY}{place.path}:{place.position}")

    def one(given: Tensor) -> Tensor:
        made = Tensor(given.dtypes, half=given.half, forward=given.forward, tags=frozenset({TF}))
        return added_up_here(made, place) if summed else made

    low = [(path - m.path, one(t)) for path, t in ways if not t.dtypes & {SINGLE, DOUBLE}]
    return join(low or [(path - m.path, one(t)) for path, t in ways])


@vocabulary.method(KIND)
def of_distribution(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """Densities, moments and samples: in the dtype of the parameters."""
    last = str(receiver.type).rpartition(".")[2]
    if name in DENSITIES | MOMENTS or (name in SAMPLES and last not in WHOLE):
        summed = name in ("log_prob", "entropy") and last in SUMMED
        return computed(m, parameters_of(m, receiver, m.path), place, name, summed)
    if name in SAMPLES and last != "OneHotCategorical":
        return tensor(INTEGER)
    return Unknown(f"distribution.{name}(){IDENTITY}{place.path}:{place.position}")


def attribute(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """The parameters themselves."""
    if type(atom) is not Object or atom.kind != KIND or name not in FLOATS:
        return None
    return computed(m, parameters_of(m, atom, m.path), place, name, False)


vocabulary.atom_attributes.append(attribute)
