"""Functions of torch and other packages that run a function or module that they are given: activation checkpointing, functional calls."""

from __future__ import annotations

from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.expressions import items_of
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.values import NONE, Place, Unknown, Value

vocabulary = Vocabulary()
# torch 2.13, utils/checkpoint.py: what these take for themselves
OF_CHECKPOINT = frozenset({"use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"})


CHECKPOINTS = (
    "torch.utils.checkpoint.checkpoint",
    "deepspeed.checkpointing.checkpoint",
    "deepspeed.runtime.activation_checkpointing.checkpointing.checkpoint",
)


@vocabulary.call(*CHECKPOINTS)
def checkpoint(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`checkpoint(function, *args)`: the function runs as it stands, and again in the backward pass under the same autocast state."""
    function = args.get(0, "function")
    if function is None:
        return unknown(name, place)
    rest = args.positional[1:] if args.positional else ()
    named = {key: value for key, value in args.named.items() if key not in OF_CHECKPOINT and key != "function"}
    return m.call(function, Args(rest, named, args.places[1:], args.named_places, args.opaque, args.holders, args.rest), place.position)


@vocabulary.call("torch.utils.checkpoint.checkpoint_sequential")
def in_segments(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`checkpoint_sequential(functions, segments, input)`: each on what the one before gives."""
    functions, value = args.get(0, "functions"), args.get(2, "input")
    if functions is None or value is None:
        return unknown(name, place)
    items = items_of(m, functions, place.position)
    for function in items if items is not None else [functions]:
        value = m.call(function, Args((value,)), place.position)
    return value


@vocabulary.call("torch.func.functional_call", "torch.nn.utils.stateless.functional_call")
def with_parameters(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`functional_call(module, parameters, args, kwargs)`."""
    module, given = args.get(0, "module"), args.get(2, "args")
    if module is None:
        return unknown(name, place)
    items = items_of(m, given, place.position) if given is not None and given != NONE else []
    return m.call(module, Args(items if items is not None else [given] if given is not None else []), place.position)


@vocabulary.call("torch.nn.parallel.data_parallel")
def on_devices(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`data_parallel(module, inputs)`."""
    module, given = args.get(0, "module"), args.get(1, "inputs")
    if module is None or given is None:
        return unknown(name, place)
    items = items_of(m, given, place.position)
    return m.call(module, Args(items if items is not None else [given]), place.position)


def unknown(name: str, place: Place) -> Unknown:
    """What nobody knows."""
    return Unknown(f"{name.rpartition('.')[2]}(){IDENTITY}{place.path}:{place.position}")
