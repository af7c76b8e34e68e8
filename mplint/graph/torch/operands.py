"""Which arguments of torch's operations are numbers that it computes with: those become operands, all others stay attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mplint.graph.model import FLOATS, Tensor, literal

# The arguments of each operation in order; a number in one that is marked with * is an operand.
_SIGNATURES = """
add *self *other
sub *self *other
rsub *self *other
subtract *self *other
mul *self *other
multiply *self *other
div *self *other
divide *self *other
true_divide *self *other
floor_divide *self *other
remainder *self *other
fmod *self *other
pow *self *exponent
float_power *self *exponent
maximum *self *other
minimum *self *other
clamp *self *min *max
clip *self *min *max
clamp_min *self *min
clamp_max *self *max
hardtanh *self *min_val *max_val
where condition *self *other
masked_fill *self mask *value
fill *self *value
full size *fill_value
full_like *self *fill_value
new_full *self size *fill_value
scalar_tensor *s
constant_pad_nd *self pad *value
pad *self pad mode *value
"""
SIGNATURES: dict[str, tuple[str, ...]] = {
    name: tuple(arguments) for name, *arguments in (line.split() for line in _SIGNATURES.splitlines() if line)
}


def operands_of(operation: str) -> tuple[str, ...]:
    """The arguments of an operation that a number is an operand in, in order; () where there are none."""
    return _OPERANDS.get(operation, ())


_OPERANDS = {name: tuple(a[1:] for a in arguments if a.startswith("*")) for name, arguments in SIGNATURES.items()}


def argument_at(operation: str, place: int) -> str:
    """The name of the argument at a place, "" where it is not known."""
    arguments = SIGNATURES.get(operation, ())
    return arguments[place].removeprefix("*") if place < len(arguments) else ""


def placed(operation: str, tensors: Mapping[str, Tensor], numbers: Mapping[str, float], made: str | None) -> Iterator[Tensor | None]:
    """The operands of an operation in its order: tensors, and the numbers among its arguments; `made` is the dtype of the result."""
    beside = next((tensor.dtype for tensor in tensors.values() if tensor.dtype in FLOATS), made)
    names = [argument.removeprefix("*") for argument in SIGNATURES[operation]]
    wanted = [name for name in names if name in tensors or name in _OPERANDS[operation]]
    while wanted and wanted[-1] not in tensors and wanted[-1] not in numbers:
        wanted.pop()
    for name in wanted:
        number = numbers.get(name)
        yield literal(number, beside, exact=True) if number is not None else tensors.get(name)
