"""Functions with a backward of their own: what `apply` runs, the kernels that it calls, and what its backward computes again.

Events: "custom function applied", and "kernel called" for a compiled function that gets tensors of several dtypes, or half (`lacks`)
ones that its sources have no version for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeGuard

from mplint.frameworks.packages import in_table
from mplint.frameworks.torch.kernels import lacks_half, takes_both
from mplint.frameworks.torch.modules import bounded, has_custom_fwd, with_inputs_cast
from mplint.frameworks.torch.promotion import HALVES, SCALAR
from mplint.frameworks.torch.protocol import gradients_off
from mplint.frameworks.torch.tensors import NO_GRADIENT, PARAMETER, SURE, inherit
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.conditions import extend
from mplint.program.expressions import ancestors, class_member
from mplint.program.lower import IR
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.store import under
from mplint.program.values import (
    NONE,
    SINGLE,
    Atom,
    Autocast,
    Class,
    Code,
    External,
    Function,
    Method,
    Place,
    State,
    Tensor,
    Unknown,
    Value,
    Wrapped,
    atoms,
)

vocabulary = Vocabulary()

FUNCTIONS = ("torch.autograd.Function", "torch.autograd.function.Function")
HALF_NAMES = frozenset({"float16", "half", "bfloat16"})  # of dtypes
FULL_NAMES = frozenset({"float32", "float", "float64", "double"})
RUNNING = "own function"  # the slot of the Function whose forward is running
vocabulary.defaults[RUNNING] = NONE


def is_function(m: Machine, cls: Class) -> bool:
    """Whether a class is an autograd Function."""
    return any(isinstance(a, str) and m.library.canonical(a) in FUNCTIONS for a in ancestors(m, cls))  # type: ignore[attr-defined]


PRODUCTS = frozenset(
    [
        "matmul",
        "mm",
        "bmm",
        "addmm",
        "baddbmm",
        "mv",
        "linear",
        "einsum",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv2d_input",
        "conv2d_weight",
        "tensordot",
    ]
)


CASTING = frozenset(["dtype", "type_as", "float", "half", "autocast", "custom_bwd"])  # words of a backward that minds the dtypes


def code_of(callee: Value) -> Code | None:
    """The code of a function behind its decorators."""
    while type(callee) is Wrapped:
        callee = callee.callee
    return callee.code if type(callee) is Function else None


def region_around(callee: Value) -> Autocast | None:
    """The region that a function's own decorator enters, `@autocast()`."""
    while type(callee) is Wrapped:
        if type(callee.context) is Autocast:
            return callee.context
        callee = callee.callee
    return None


def product_in(code: Code | None) -> Place | None:
    """Where a backward multiplies what forward saved, which may be float32, with a gradient, which may be half."""
    if code is None or code.words.isdisjoint({"saved_tensors", "saved_variables"}) or not code.words.isdisjoint(CASTING):
        return None
    position = product_of(code.body)
    return Place(code.path, position) if position is not None else None


def without_gradient(code: Code | None) -> frozenset[int]:
    """Which arguments of a forward its backward gives nothing for, by their numbers: None stands there in each result."""
    found: frozenset[int] | None = None
    for value in results_of(code.body) if code is not None else ():
        items = value[2] if value[0] == "tuple" else (value,)
        stars = next((n for n, item in enumerate(items) if item[0] == "star"), len(items))
        nothing = frozenset(n for n, item in enumerate(items[:stars]) if item[0] == "constant" and item[2] is None)
        found = nothing if found is None else found & nothing
    return found or frozenset()


def results_of(body: Sequence[IR]) -> Iterator[IR]:
    """What the return statements of lowered code give, those of functions inside left out."""
    for statement in body:
        if statement[0] == "return" and statement[2] is not None:
            yield statement[2]
        elif statement[0] not in ("define", "class"):
            yield from results_of([part for block in statement if isinstance(block, tuple) for part in block if is_statement(part)])


def is_statement(part: object) -> bool:
    """Whether a part of lowered code is a statement, or a handler of exceptions."""
    return isinstance(part, tuple) and len(part) > 2 and isinstance(part[0], str) and isinstance(part[1], int)


def product_of(ir: object) -> int | None:
    """The first matrix product or convolution in lowered code."""
    if not isinstance(ir, tuple):
        return None
    if len(ir) > 3 and ir[0] == "binary" and ir[2] == "@":
        return int(ir[1])
    if len(ir) > 3 and ir[0] == "call" and isinstance(ir[2], tuple) and ir[2][-1] in PRODUCTS:
        return int(ir[1])
    return next((found for part in ir if (found := product_of(part)) is not None), None)


def applied(m: Machine, cls: Class, args: Args, place: Place) -> Value | None:
    """`MyFunction.apply(x)`: its forward, with the autocast state of the caller."""
    if not is_function(m, cls):
        return None
    member = class_member(m, cls, "forward")
    if member is None:
        return inherit(m, args.all())
    callee = member[0]
    forward = code_of(callee)
    backward = class_member(m, cls, "backward")
    m.emit(
        "custom function applied",
        place,
        function=cls,
        forward=Place(forward.path, forward.place) if forward is not None else None,
        product=product_in(code_of(backward[0])) if backward is not None else None,
        again=run_again(forward, code_of(backward[0])) if backward is not None else None,
        decorated=has_custom_fwd(callee),
        region=region_around(callee),
        autocast=m.state("autocast"),
        trained=not gradients_off(m),
    )
    given = marked(m, with_inputs_cast(m, callee, args, place), without_gradient(code_of(backward[0]) if backward is not None else None))
    context = Unknown(f"ctx{IDENTITY}{place.path}:{place.position}")
    while type(callee) is Wrapped and callee.how == "staticmethod":
        callee = callee.callee
    setup = class_member(m, cls, "setup_context")
    outer = m.state(RUNNING)
    told = Place(forward.path, forward.place) if forward is not None else place
    m.set_state(RUNNING, State((cls, told, has_custom_fwd(callee), forward is not None and checks_dtypes(forward.body))))
    result = bounded(m, callee, given if setup is not None else given.shifted(context), place)
    m.set_state(RUNNING, outer)
    if result is None:
        return inherit(m, args.all())
    found = inherit(m, args.all())
    if found is not None and type(result) is Unknown:
        return found
    return result


def marked(m: Machine, args: Args, numbers: frozenset[int]) -> Args:
    """Arguments of which those of some numbers are tensors that get no gradient."""

    def one(atom: Atom) -> Value:
        return atom.but(tags=atom.tags | {NO_GRADIENT}) if type(atom) is Tensor else atom

    if not numbers or args.opaque:
        return args
    given = [m.each(value, one) if n in numbers else value for n, value in enumerate(args.positional)]
    return Args(given, args.named, args.places, args.named_places)


def of_function(m: Machine, receiver: Atom, name: str, args: Args, place: Place) -> Value | None:
    """`MyFunction.apply(x)`."""
    return applied(m, receiver, args, place) if type(receiver) is Class and name == "apply" else None


def function_attribute(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """`apply` of a Function, to be called by another name."""
    return Method(atom, "apply") if type(atom) is Class and name == "apply" and is_function(m, atom) else None


vocabulary.atom_methods.append(of_function)
vocabulary.atom_attributes.append(function_attribute)


def run_again(forward: Code | None, backward: Code | None) -> Place | None:
    """Where a backward runs what its forward kept and ran, in whatever autocast state a backward has."""
    if forward is None or backward is None or "enable_grad" not in backward.words or "autocast" in forward.words | backward.words:
        return None
    kept = {name for statement in forward.body for name in kept_callables(statement, forward)}
    position = call_of(backward.body, kept) if kept else None
    return Place(backward.path, position) if position is not None else None


def kept_callables(statement: IR, forward: Code) -> Iterator[str]:
    """The attributes in which a statement keeps a parameter that the function calls."""
    if statement[0] != "assign" or statement[3][0] != "name":
        return
    name = statement[3][2]
    if any(parameter[0] == name for parameter in forward.parameters) and call_of(forward.body, {name}) is not None:
        yield from (target[3] for target in statement[2] if target[0] == "attribute")


def call_of(ir: object, names: set[str]) -> int | None:
    """The first call of a variable, attribute or method of one of these names in lowered code."""
    if not isinstance(ir, tuple):
        return None
    if len(ir) > 3 and ir[0] == "call" and isinstance(ir[2], tuple) and ir[2][-1] in names:
        return int(ir[1])
    return next((found for part in ir if (found := call_of(part, names)) is not None), None)


def kernel_called(m: Machine, atom: Atom, args: Args, place: Place) -> Value | None:
    """A compiled function that a Function's forward gives half and float32 tensors: autocast casts nothing for it."""
    running = m.state(RUNNING)
    if type(running) is not State or not isinstance(running.data, tuple) or not is_kernel(atom):
        return None
    low = mixed(m, args)
    both = takes_both(m.project, place.path, kernel_name(atom)) if low is not None else True
    given = next((a for value in args.all() for _, a in under(value, m.path) if is_surely_half(a)), None) if both else None
    lacks = given is not None and lacks_half(m.project, place.path, kernel_name(atom))
    if lacks or not both:
        function, forward, decorated, checked = running.data
        if checked:
            return None
        m.emit(
            "kernel called",
            place,
            function=function,
            forward=forward,
            decorated=decorated,
            tensor=given if lacks else low,
            autocast=m.state("autocast"),
            known=lacks or both is False or computed_in_float32(args),
            lacks=lacks,
        )
    return None


def checks_dtypes(ir: object) -> bool:
    """Whether lowered code asserts something of dtypes, or raises after a test of them: then nothing that it did not mean goes on."""
    if not isinstance(ir, tuple):
        return False
    if ir[:1] == ("assert",):
        return asks_for_dtype(ir[2], True)
    if ir[:1] == ("if",) and len(ir) > 3 and isinstance(ir[3], tuple) and any(part[:1] == ("raise",) for part in ir[3]):
        return asks_for_dtype(ir[2], False)
    return any(checks_dtypes(part) for part in ir)


def asks_for_dtype(ir: object, holds: bool, alone: bool = True) -> bool:
    """Whether nothing goes on but tensors of one floating dtype, or of the same, where an expression is true (`holds`), or false.

    `alone`: whether a test has to come out so by itself, and not one of several.
    """
    if not isinstance(ir, tuple):
        return False
    if ir[:1] == ("compare",):
        return compares_dtypes(ir, alone)
    if ir[:1] in (("and",), ("or",)):
        alone = alone and (ir[0] == "and") is holds
    elif ir[:1] == ("unary",) and ir[2] == "not":
        holds = not holds
    return any(asks_for_dtype(part, holds, alone) for part in ir)


def compares_dtypes(ir: IR, alone: bool) -> bool:
    """Whether a comparison is one of the dtypes of two tensors, or (where it stands `alone`) with floating dtypes of one size."""
    sides = [frozenset(attributes_in(side)) for side in (ir[2], *ir[4])]
    if sum("dtype" in names for names in sides) > 1:
        return True
    named = frozenset[str]().union(*sides)
    return alone and "dtype" in named and named.isdisjoint(HALF_NAMES) != named.isdisjoint(FULL_NAMES)


def attributes_in(ir: object) -> Iterator[str]:
    """The names of the attributes that an expression reads."""
    if isinstance(ir, tuple):
        if ir[:1] == ("attribute",):
            yield str(ir[-1])
        for part in ir:
            yield from attributes_in(part)


def kernel_name(atom: Atom) -> str:
    """What a compiled function is called, without arguments."""
    shown = atom.name if type(atom) is External else atom.symbol.partition(IDENTITY)[0] if type(atom) is Unknown else ""
    return shown.partition("(")[0]


def mixed(m: Machine, args: Args) -> Tensor | None:
    """A half tensor among the arguments that another argument can be a float32 tensor beside, on one path."""
    given = [[(path, a) for path, a in under(value, m.path) if type(a) is Tensor] for value in args.all()]
    for number, ways in enumerate(given):
        for path, low in ways:
            if len(low.dtypes) != 1 or not low.dtypes <= HALVES or SURE not in low.tags:
                continue
            for other in (*given[:number], *given[number + 1 :]):
                if any(is_full(full) and extend(path, beside) is not None for beside, full in other):
                    return low
    return None


def is_surely_half(atom: Atom) -> TypeGuard[Tensor]:
    """Whether something is a tensor in half precision, and no other."""
    return type(atom) is Tensor and len(atom.dtypes) == 1 and atom.dtypes <= HALVES and SURE in atom.tags


def computed_in_float32(args: Args) -> bool:
    """Whether something that was computed under autocast is float32: not a weight alone, which a kernel may take so on purpose."""
    given = (atom for value in args.all() for atom in atoms(value))
    return any(type(a) is Tensor and is_full(a) and a.forward and PARAMETER not in a.tags for a in given)


def is_full(tensor: Tensor) -> bool:
    """Whether a tensor is float32 and counts: coordinates for which a function gives no gradient are so on purpose."""
    return tensor.dtypes == {SINGLE} and NO_GRADIENT not in tensor.tags and not is_number(tensor)


def is_number(tensor: Tensor) -> bool:
    """Whether a tensor was made of numbers of the program: a kernel reads such a factor on its own."""
    return SCALAR in tensor.tags or (tensor.made is not None and tensor.made.words.startswith(("`tensor`", "`as_tensor`", "`full`")))


def is_kernel(atom: Atom) -> bool:
    """Whether something is called that a package or a compiled library holds, of which no table knows what it does."""
    if type(atom) is External:
        return not in_table(atom) and "." in atom.name
    shown = atom.symbol.partition(IDENTITY)[0] if type(atom) is Unknown else ""
    return "." in shown and not shown.startswith("ctx.") and not in_table(atom)


vocabulary.atom_calls.append(kernel_called)

__all__ = ["vocabulary"]
