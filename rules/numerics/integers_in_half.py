"""MP212: positions in half precision."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mplint.findings import Confidence, Finding, Severity
from mplint.frameworks.keras.evidence import excluded, programs, untold
from mplint.frameworks.keras.tensors import ELEMENTS
from mplint.frameworks.torch import half
from mplint.frameworks.torch.tensors import ENDING, FOLLOWING
from mplint.limits import EXACT_INTEGERS
from mplint.program.trace import CALLERS, Trace, Words, shown_symbol
from mplint.program.values import BFLOAT, COMPUTE, DTYPE_NAMES, HALF, Place, Step, Tensor
from mplint.python.document import is_test_path
from mplint.rule import Rule

HALF_WORDS = Words(("float16", "bfloat16", "bf16", "fp16", "autocast(", ".half()"))
LONGER = re.compile(r"^(.*) ([<>])=? (?!-?\d{1,2}(?!\d))(.*)$", re.S)  # compared with a length, and not with 0
LENGTH = re.compile(r"len|seq|shape\[|size\(|pos|tokens?$|frames?$|(?:^|\.)[tn]$|time$", re.I)  # in what a length of an input is called
MOST = re.compile(r"max|long|limit|cap|cach|bound|most", re.I)  # and in what the length is called that a table was made for
SIDE = re.compile(r"^(.*)\[(-?\d|slice\]\[\d)\]$", re.S)  # one of the sizes that a shape holds
WHY = "From 2048 on float16 holds only every second whole number, and bfloat16 from 256 on: neighbouring positions become the same."
ROUNDED = (
    "Rounded to bfloat16 a frequency is off by up to 0.4 %, to float16 by up to 0.05 %: a thousand positions on its angle is off by some "
    "radians, by half a radian in float16. A cast to float32 that comes later does not bring it back."
)
ANGLES = (
    "An angle of a thousand is off by up to 2 in bfloat16 and by up to 0.25 in float16: its sine and cosine are those of another angle."
)
STEPS = (
    "From 256 on bfloat16 holds only every second whole number, from 512 on every fourth: the model gets the time step of another noise."
)
LATER = "keep the time steps in float32 up to the embedding, and cast what that gives"
KEEP = "compute the frequencies in float32 where they are used, or bring them back to their values after the cast of the model"
HELP = "keep positions and their angles in float32 and cast the result: `torch.outer`, which autocast leaves alone, or a region that is off"


class IntegersInHalf(Rule):
    """Positions in half precision

    ## What it does
    Finds positions (`torch.arange` up to a length that nobody knows) that become float16 or bfloat16 before they are computed with: by a
    cast, also to the dtype of a buffer (`.type_as(self.inv_freq)`) of a model that is cast to half precision, buffers included, and by a
    product that autocast computes (`einsum`, `matmul`). And the frequencies of rotary and sinusoidal embeddings
    (`1 / 10000 ** (torch.arange(0, dim, 2) / dim)`) that such a cast rounds before they become angles, or the angles themselves. Time
    steps of a diffusion (`scheduler.timesteps`, `torch.linspace(1, 0, count) * 1000`) that are cast to bfloat16. Modules that a
    distribution offers, and whose own code or tests speak of float16, are read as a caller runs them, under float16 autocast.
    In Keras and TensorFlow: positions (`tf.range`) that are cast to the compute dtype before their sine or cosine is taken, and numbers
    of elements (`tf.size`, the product of a shape) that become float16.

    ## Why is this bad?
    float16 holds whole numbers up to 2048 exactly, bfloat16 up to 256. Beyond, neighbours become the same number: rotary and sinusoidal
    tables repeat, and a model loses the order of a long sequence.

    ## Example
    ```python
    import torch

    def rotate(x, rates):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            positions = torch.arange(x.shape[1], device=x.device).float()
            angles = torch.einsum("i,j->ij", positions, rates)
            return x * angles.cos()
    ```

    ## Use instead
    ```python
    import torch

    def rotate(x, rates):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            positions = torch.arange(x.shape[1], device=x.device).float()
            angles = torch.outer(positions, rates)
            return x * angles.cos()
    ```

    ## Evidence
    Shown on the CPU by tests/witness/test_mp212.py.

    ## References
    - transformers keeps rotary positions in float32 for this: https://github.com/huggingface/transformers/pull/29285
    """

    code = "MP212"
    name = "integers-in-half"
    severity = Severity.WARNING
    frameworks = ("torch", "keras")
    tokens = ("arange", "range", "reduce_prod", "size")
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report positions and frequencies where they are cast before arithmetic, or where autocast casts them for a product."""
        told = {place for place, ways in grown_tables(trace, "integers in half").items() if any(ways)}
        borrowed: list[half.Found] = []
        grids = of_grids(trace)
        for item in half.found(trace, "integers in half"):
            tensor, used = item.event.data["tensor"], item.event.data["used"]
            assert isinstance(tensor, Tensor) and isinstance(used, Place)
            if item.event.place in told or (FOLLOWING in tensor.tags and not speaks_of_half(trace)):
                continue
            if item.event.place in grids:
                continue  # as wide as a feature map, whose sides half precision counts
            if FOLLOWING in tensor.tags:
                borrowed.append(item)
                continue
            told.add(item.event.place)
            dtype = DTYPE_NAMES[next(iter(tensor.dtypes & {HALF, BFLOAT}), HALF)]
            if item.event.get("what") is not None and not reaches(trace, item):
                continue
            if item.event.get("what") == ELEMENTS:
                yield self.of_elements(trace, item)
                continue
            yield self.at(
                trace,
                item.event.place,
                f"`{item.event.data['name']}` takes positions in {dtype}{under(item)}"
                if used == item.event.place
                else f"these positions are {dtype} before `{item.event.data['name']}` takes them{under(item)}",
                why=WHY,
                help=HELP if item.event.get("what") is None else "keep positions and their angles in float32 and cast the result",
                confidence=sureness(trace, item),
                steps=(*item.chain(tensor), *(() if used == item.event.place else (Step(used, "they are computed with here"),))),
            )
        lines = {line_of(place) for place in told}
        for item in borrowed:
            if not is_test_path(item.event.place.path) and line_of(item.event.place) not in lines:
                told.add(item.event.place)
                yield self.of_borrowed(trace, item)
        told |= {place for place, ways in grown_tables(trace, "frequencies in half").items() if all(ways)}
        for item in half.found(trace, "frequencies in half"):
            tensor = item.event.data["tensor"]
            if item.event.place in told or (isinstance(tensor, Tensor) and FOLLOWING in tensor.tags and not speaks_of_half(trace)):
                continue
            told.add(item.event.place)
            yield self.of_frequencies(trace, item)
        yield from self.of_casts(trace, told)

    def of_casts(self, trace: Trace, told: set[Place]) -> Iterator[Finding]:
        """Angles, and steps of a diffusion, that a cast rounds, wherever they are computed with."""
        for kind, what, why, help in (("angles in half", "angles", ANGLES, HELP), ("steps in half", "time steps", STEPS, LATER)):
            for item in half.found(trace, kind):
                tensor = item.event.data["tensor"]
                assert isinstance(tensor, Tensor)
                if item.event.place in told or (what == "time steps" and is_share(trace, item.event.place)):
                    continue
                told.add(item.event.place)
                dtype = DTYPE_NAMES[next(iter(tensor.dtypes & {HALF, BFLOAT}), HALF)]
                yield self.at(
                    trace,
                    item.event.place,
                    f"these {what} are rounded to {dtype}{item.condition}",
                    why=why,
                    help=help,
                    confidence=sureness(trace, item).at_most(Confidence.HIGH if what == "angles" else Confidence.MEDIUM),
                    steps=item.chain(),
                )

    def of_borrowed(self, trace: Trace, item: half.Found) -> Finding:
        """Positions in the dtype of a tensor that a caller gives."""
        used = item.event.data["used"]
        assert isinstance(used, Place)
        return self.at(
            trace,
            item.event.place,
            "these positions take the dtype of the input, which rounds them where it is half, "
            f"before `{item.event.data['name']}` takes them{item.condition}",
            why=WHY,
            help="make the positions in float32, and cast the cosine and sine",
            confidence=sureness(trace, item),
            steps=(*item.chain(), Step(used, "they become angles here")),
        )

    def of_elements(self, trace: Trace, item: half.Found) -> Finding:
        """How many elements something has, in float16."""
        tensor = item.event.data["tensor"]
        return self.at(
            trace,
            item.event.place,
            f"this number of elements is float16, which ends at 65504{under(item)}",
            why="A map of 64 x 64 with 16 channels has more elements: the number is inf, and what is divided by it is 0.",
            help="divide in float32, or by a float32 number and cast the result",
            confidence=sureness(trace, item).at_most(Confidence.MEDIUM),
            steps=item.chain(tensor if isinstance(tensor, Tensor) else None),
        )

    def of_frequencies(self, trace: Trace, item: half.Found) -> Finding:
        """Frequencies that were rounded before they became angles."""
        tensor, used = item.event.data["tensor"], item.event.data["used"]
        assert isinstance(tensor, Tensor) and isinstance(used, Place)
        words = tensor.half[-1].words if tensor.half else ""
        dtype = next((name for name in ("bfloat16", "float16") if name in words), "half precision")
        before = f"before `{item.event.data['name']}` takes their angles"
        if FOLLOWING in tensor.tags:
            return self.at(
                trace,
                item.event.place,
                f"these frequencies take the dtype of the input, which rounds them where it is half, {before}{item.condition}",
                why=ROUNDED,
                help="multiply the positions with float32 frequencies, and cast the cosine and sine",
                confidence=sureness(trace, item),
                steps=(*item.chain(), Step(used, "their angles are taken here")),
            )
        return self.at(
            trace,
            item.event.place,
            f"these frequencies are rounded to {dtype} {before}{item.condition}",
            why=ROUNDED,
            help=KEEP,
            confidence=sureness(trace, item),
            steps=(*item.chain(tensor), Step(used, "their angles are taken here")),
        )


def sureness(trace: Trace, item: half.Found) -> Confidence:
    """How sure a finding is: of a layer that follows the policy as its program is, and not at all where only callers choose half."""
    tensor = item.event.data["tensor"]
    if isinstance(tensor, Tensor) and COMPUTE in tensor.dtypes:
        return programs(trace).sureness(item.event.place.path, item.entry)
    return Confidence.LOW if item.entry.context == CALLERS else item.confidence


def is_share(trace: Trace, place: Place) -> bool:
    """Whether the function around a cast only goes on with shares of what it gives: a model that takes half takes no more of these."""
    file, node = trace.node(place) or (None, None)
    if file is None or not isinstance(node, ast.expr):
        return False
    parents = file.syntax.parents
    uses: list[ast.AST] = [node]
    match parents.get(node):
        case ast.Assign(targets=[ast.Name(id=name)]):
            function = file.syntax.function(node)
            uses = [n for n in file.syntax.all(ast.Name) if n.id == name and isinstance(n.ctx, ast.Load) and n.lineno >= node.lineno]
            uses = [use for use in uses if file.syntax.function(use) is function]
    return bool(uses) and all(is_divided(parents.get(use), use) for use in uses)


def is_divided(node: ast.AST | None, part: ast.AST) -> bool:
    """Whether an expression divides a part of it by what may be the number of all time steps: one that bfloat16 can't count to."""
    match node:
        case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=int() | float() as number)):
            return left is part and number > EXACT_INTEGERS["bfloat16"]
    return False


def line_of(place: Place) -> tuple[str, int]:
    """The line that a place begins in."""
    return place.path, place.position & 0xFFFFF


def under(item: half.Found) -> str:
    """What has to be turned for it, or the policy that callers of a layer may set."""
    tensor = item.event.data["tensor"]
    caller = isinstance(tensor, Tensor) and COMPUTE in tensor.dtypes
    return item.condition or (" under a mixed policy" if caller else "")


def reaches(trace: Trace, item: half.Found) -> bool:
    """Whether half precision reaches whole numbers of a program of Keras: by its policy, or by what it has in mind."""
    tensor = item.event.data["tensor"]
    if excluded(item.event.path) or untold(trace, item.event.path):
        return False
    known = isinstance(tensor, Tensor) and COMPUTE not in tensor.dtypes
    return known or programs(trace).in_mind(item.event.place.path, item.entry)


def of_grids(trace: Trace) -> set[Place]:
    """Where positions along several sides of one shape become half: the columns and rows of a grid."""
    sides: dict[tuple[object, ...], dict[str, set[Place]]] = {}
    for entry, event in trace.of("integers in half"):
        tensor = event.data["tensor"]
        for tag in tensor.tags if isinstance(tensor, Tensor) else ():
            side = SIDE.search(shown_symbol(tag.removeprefix(ENDING))) if tag.startswith(ENDING) else None
            if side is not None:
                places = sides.setdefault((id(entry), event.function, side[1]), {})
                places.setdefault(side[2], set()).add(event.place)
    return {place for places in sides.values() if len(places) > 1 for held in places.values() for place in held}


def speaks_of_half(trace: Trace) -> bool:
    """Whether some program of the project speaks of half precision, so that inputs may have it."""
    held = trace.held.setdefault("MP212 half", any(True for _ in half_programs(trace)))
    return bool(held)


def half_programs(trace: Trace) -> Iterator[str]:
    """The programs that speak of half precision."""
    yield from (path for path in sorted(trace.words) if trace.ask is not None and trace.ask(path, HALF_WORDS))


def grown_tables(trace: Trace, kind: str) -> dict[Place, list[bool]]:
    """Whether a table is made only once a length exceeds the one that it was made for, at each of its runs."""
    found: dict[Place, list[bool]] = {}
    for _, event in trace.of(kind):
        grown = any(key[0] == "true" and exceeds(shown_symbol(key[1]), sense) for key, sense in event.path)
        found.setdefault(event.place, []).append(grown)
    return found


def exceeds(shown: str, sense: bool) -> bool:
    """Whether a comparison says that a length of an input exceeds the one that a table was made for, and not that it is within bounds."""
    compared = LONGER.match(shown)
    if compared is None:
        return False
    left, sign, right = compared.groups()
    longer, shorter = (left, right) if (sign == ">") is sense else (right, left)
    return LENGTH.search(longer) is not None and (MOST.search(shorter) is not None or MOST.search(longer) is None)
