"""Modules that are sharded (FSDP) with a policy, in whose dtype they compute and get gradients without any autocast.

A policy is an object of the kind "sharding policy", its slot "#dtype" that of the parameters. Event: "module sharded".
"""

from __future__ import annotations

from mplint.frameworks.torch.modules import compute_in
from mplint.frameworks.torch.promotion import dtypes_given, named
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.machine import Args, Machine
from mplint.program.values import NONE, Atom, Object, Place, Step, Unknown, Value, atoms

vocabulary = Vocabulary()
HOMES = (
    "torch.distributed.fsdp",
    "torch.distributed.fsdp.api",
    "torch.distributed.fsdp.fully_sharded_data_parallel",
    "torch.distributed._composable.fsdp",
)
OPTIONS = {"FullyShardedDataParallel": "mixed_precision", "fully_shard": "mp_policy"}


@vocabulary.call(*(f"{home}.{name}" for home in HOMES for name in ("MixedPrecision", "MixedPrecisionPolicy")))
def new_policy(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A policy of dtypes."""
    made = Object(m.identity(place), "sharding policy", name, place)
    m.write(made.id, "#dtype", args.get(0, "param_dtype") or NONE)
    m.emit("sharding policy made", place, name=name, dtype=args.get(0, "param_dtype"), args=args)
    return made


@vocabulary.call(*(f"{home}.{name}" for home in HOMES for name in OPTIONS))
def sharded(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A module that computes what it computed before, in the dtype of its policy."""
    option = OPTIONS[name.rpartition(".")[2]]
    policy = args.named.get(option)
    module = args.get(0, "module")
    at = Place(place.path, args.named_places.get(option, place.position))

    def one(atom: Atom) -> Value:
        if type(atom) is Object and atom.kind == "sharding policy":
            dtype = m.read(atom.id, "#dtype") or NONE
            m.emit("module sharded", place, module=module, policy=atom, given=at, dtype=dtype)
            m.each(dtype, lambda chosen: computing(m, module, chosen, at))
        return NONE

    if policy is not None:
        m.each(policy, one)
    return module if module is not None else Unknown("sharded module")


def computing(m: Machine, module: Value | None, dtype: Atom, place: Place) -> Value:
    """Have the modules that are sharded compute in the dtype of their policy."""
    asked = dtypes_given(dtype)
    if asked is not None:
        chain = (Step(place, f"the model computes in {named(next(iter(asked[0])))}: its shards are gathered in that dtype"),)
        for atom in atoms(module) if module is not None else ():
            compute_in(m, atom, dtype, chain)
    return NONE
