"""MP208: an autograd function that breaks under autocast."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from mplint.findings import Applicability, Confidence, Finding, Fix, Replace, Severity, Span
from mplint.frameworks.torch import half
from mplint.program.conditions import Path
from mplint.program.machine import Event
from mplint.program.trace import Trace, possible
from mplint.program.values import BFLOAT, HALF, Autocast, Class, Place, Step
from mplint.program.verdict import Verdict
from mplint.python.syntax import FUNCTIONS
from mplint.rule import Rule


class CustomFunctionWithoutCustomFwd(Rule):
    """Autograd function without custom_fwd under autocast

    ## What it does
    Finds subclasses of `torch.autograd.Function` that multiply matrices in `forward` and, with the inputs they saved, in `backward`, are
    applied under autocast, and have neither `custom_fwd` and `custom_bwd` nor casts of their own. Where nothing of the project applies one
    under autocast, but a distribution whose code or tests use autocast offers it, it is read as a caller runs it. So is one that gives a
    compiled kernel what it gets beside a float32 tensor that it makes, where a function beside it that does the same is decorated; and one
    that gives half tensors to a kernel whose C++ and CUDA sources, where the repository holds them, have no version for half. And one whose
    `forward` is decorated with `autocast()` itself, where the program runs it without autocast too, or in another dtype.

    ## Why is this bad?
    Autocast is in force in `forward`, so the product is half precision and so is the gradient that comes back; in `backward` it is not,
    and the saved inputs are still float32: "RuntimeError: expected mat1 and mat2 to have the same dtype". `custom_bwd` runs
    `backward` under the same autocast state as `forward`. A region of its own, `@autocast()`, does not follow the caller: with mixed
    precision off the function still computes in float16, and nothing scales its gradients.

    ## Example
    ```python
    import torch

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            return grad @ weight.t(), x.t() @ grad

    def loss_of(x, weight):
        with torch.autocast("cuda"):
            return Product.apply(x, weight).sum()
    ```

    ## Use instead
    ```python
    import torch

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda")
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            return grad @ weight.t(), x.t() @ grad

    def loss_of(x, weight):
        with torch.autocast("cuda"):
            return Product.apply(x, weight).sum()
    ```

    ## Fix safety
    Safe: the decorators only restore in `backward` the autocast state of `forward`; outside autocast they change nothing. Before torch 2.4
    the fix writes the decorators of `torch.cuda.amp`.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp208.py.

    ## References
    - PyTorch: https://pytorch.org/docs/stable/notes/amp_examples.html#functions-with-multiple-inputs-or-autocastable-ops
    """

    code = "MP208"
    name = "custom-function-without-custom-fwd"
    severity = Severity.WARNING
    fix = Applicability.SAFE
    frameworks = ("torch",)
    tokens = ("save_for_backward", "custom_fwd")
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each function that autocast breaks, at its `forward`."""
        told: set[Place] = set()
        for item in (*half.found(trace, "custom function applied", is_trained), *half.found(trace, "kernel called")):
            event = item.event
            function, forward = event.data["function"], event.data["forward"]
            mistake = mistake_of(event)
            if event.data["decorated"] or mistake is None or not isinstance(forward, Place) or not isinstance(function, Class):
                continue
            path, region = region_of(event)
            if region is None or forward in told:
                continue
            if region.by:
                mistake = under_apex(mistake, event) if region.by == "apex" else None
            if mistake is None:
                continue
            told.add(forward)
            verdict = self.verdict(trace, item.entry, path, half.first_line(forward))
            without = "apex without `amp.float_function`" if region.by else "autocast without `custom_fwd` and `custom_bwd`"
            yield self.at(
                trace,
                half.first_line(forward),
                f"`{function.name}` runs under {without}{verdict.condition()}",
                why=mistake.why,
                help=mistake.help,
                confidence=sureness(item, verdict),
                steps=(*region.chain, *mistake.steps),
                fix=decorators(trace, forward, region.device) if mistake.fixable and region.device else None,
            )
        yield from self.of_own_regions(trace, told)
        yield from self.of_callers(trace, told)

    def of_own_regions(self, trace: Trace, told: set[Place]) -> Iterator[Finding]:
        """Functions that enter a region of their own, also where their callers run without one or in another dtype."""
        for item in half.found(trace, "custom function applied", is_trained):
            event = item.event
            own, function, forward = event.data["region"], event.data["function"], event.data["forward"]
            if not isinstance(own, Autocast) or own.dtype is None or not isinstance(function, Class) or not isinstance(forward, Place):
                continue
            other = unlike(trace, event, own.dtype) if forward not in told else None
            if other is None:
                continue
            told.add(forward)
            where, without = other
            dtype = DTYPES.get(own.dtype, "half precision")
            yield self.at(
                trace,
                own.chain[0].place,
                f"`{function.name}` computes in {dtype} also where {'autocast is off' if without else 'autocast runs in another dtype'}",
                why="The decorator enters a region whatever the caller has chosen: what this one computes in float32 is rounded "
                "to half here, and so are the gradients, which nothing scales then.",
                help=DECORATE + " in its place: they follow the caller",
                confidence=Confidence.MEDIUM,
                steps=(Step(where, "the caller chooses the precision here"), Step(event.place, "it is applied here")),
            )

    def of_callers(self, trace: Trace, told: set[Place]) -> Iterator[Finding]:
        """Functions that nothing of the project runs under autocast, and that their callers may."""
        for item in half.found(trace, "function breaks under autocast"):
            event = item.event
            function, reason, product, kernel = (event.data[name] for name in ("function", "reason", "product", "kernel"))
            if event.place in told or not isinstance(function, Class) or not isinstance(reason, Step):
                continue
            told.add(event.place)
            if isinstance(product, Place):
                mistake, way = of_product(product), "runs it under autocast"
            else:
                assert isinstance(kernel, Place)
                mistake, way = of_kernel(kernel), "gives it what autocast has made half"
            yield self.at(
                trace,
                half.first_line(event.place),
                f"`{function.name}` breaks when a caller {way}: it has no `custom_fwd` and `custom_bwd`",
                why=mistake.why,
                help=mistake.help,
                confidence=Confidence.MEDIUM if event.data["usual"] else Confidence.LOW,
                steps=(reason, *mistake.steps),
            )


class Mistake(NamedTuple):
    """What goes wrong in a function under autocast, and what to do about it."""

    why: str
    help: str
    steps: tuple[Step, ...]
    fixable: bool


DECORATE = "decorate `forward` with `torch.amp.custom_fwd` and `backward` with `torch.amp.custom_bwd`"


def sureness(item: half.Found, verdict: Verdict) -> Confidence:
    """How sure a finding is: what a compiled function takes, nobody knows where its sources are not at hand."""
    if item.event.kind == "kernel called":
        return Confidence.MEDIUM if item.event.data["known"] else Confidence.LOW
    return item.confidence if verdict.proven else item.confidence.at_most(Confidence.MEDIUM)


def is_trained(event: Event) -> bool:
    """Whether a function runs where gradients are computed: without them its backward, and all that goes wrong there, never runs."""
    return event.data["trained"] is True


def mistake_of(event: Event) -> Mistake | None:
    """What goes wrong in the function of an event, or None."""
    if event.kind == "kernel called":
        return of_kernel(event.place) if not event.get("lacks") else of_kernel_without_half(event.place)
    applied = Step(event.place, "it is applied here")
    product, again = event.data["product"], event.data["again"]
    if isinstance(product, Place):
        return of_product(product, applied)
    if isinstance(again, Place):
        return Mistake(
            "`backward` runs without autocast: what it computes again is float32, at twice the memory, and not what `forward` computed.",
            DECORATE,
            (applied, Step(again, "`backward` runs the forward pass again here")),
            True,
        )
    return None


def of_kernel(place: Place) -> Mistake:
    """A compiled kernel that gets tensors of two dtypes."""
    return Mistake(
        "Autocast casts nothing for a compiled kernel: it gets half and float32 tensors side by side, and raises or misreads one.",
        f"{DECORATE}, with `cast_inputs=torch.float32` where the kernel has no half version",
        (Step(place, "the kernel gets half and float32 tensors here"),),
        False,
    )


def of_kernel_without_half(place: Place) -> Mistake:
    """A compiled kernel that has no version for the half tensors that it gets."""
    return Mistake(
        "Its sources choose among float32 and float64 alone: a half tensor raises \"not implemented for 'Half'\".",
        f"{DECORATE}, with `cast_inputs=torch.float32`, or compile a half version too",
        (Step(place, "the kernel gets a half tensor here"),),
        False,
    )


def under_apex(mistake: Mistake, event: Event) -> Mistake | None:
    """The same under apex, whose casts are in the functions of torch, in `backward` too: only a kernel gets two dtypes."""
    if event.kind != "kernel called" or event.get("lacks"):
        return None
    return mistake._replace(
        why="apex casts what the functions of torch are given, and nothing for a compiled kernel: it gets half and float32 tensors side "
        "by side, and raises or misreads one. `custom_fwd` does nothing there: it acts under autocast alone.",
        help="decorate what calls `apply` with `apex.amp.float_function`, or move to `torch.autocast`, which `custom_fwd` works with",
    )


def of_product(place: Place, *before: Step) -> Mistake:
    """A product of the backward that gets tensors of two dtypes."""
    return Mistake(
        "`backward` runs without autocast: it gets a half gradient and float32 saved inputs, and their product raises.",
        DECORATE,
        (*before, Step(place, "half and float32 meet in this product")),
        True,
    )


def region_of(event: Event) -> tuple[Path, Autocast | None]:
    """The autocast region that is in force at an event, with the path on which it is."""
    for path, atom in possible(event.data["autocast"], event.path):  # type: ignore[arg-type]
        if isinstance(atom, Autocast) and atom.dtype is not None:
            return path, atom
    return event.path, None


DTYPES = {HALF: "float16", BFLOAT: "bfloat16"}


def unlike(trace: Trace, event: Event, own: str) -> tuple[Place, bool] | None:
    """Where the caller of a function chooses another precision than the function's own region has, and whether that is none.

    A caller that enters no region at all may be run in one by a trainer, which nobody sees: only one that has the choice tells.
    """
    states = [atom for _, atom in possible(event.data["autocast"], event.path) if isinstance(atom, Autocast)]  # type: ignore[arg-type]
    regions = [state for state in states if state.dtype is not None and state.chain and not state.by]
    for region in regions:
        place = region.chain[0].place
        if region.dtype != own:
            return place, False
        if len(states) > len(regions) or is_left_off(trace, place):
            return place, True
    return None


def is_left_off(trace: Trace, place: Place) -> bool:
    """Whether a region is also entered switched off: its program offers to run without it."""
    entered = (event for _, event in trace.of("autocast entered") if event.place == place)
    states = (atom for event in entered for _, atom in possible(event.data["autocast"], event.path))  # type: ignore[arg-type]
    return any(isinstance(atom, Autocast) and atom.dtype is None for atom in states)


def decorators(trace: Trace, forward: Place, device: str) -> Fix | None:
    """The two decorators for a function anywhere in the program, in the spelling that its torch knows."""
    file, method = trace.node(forward) or (None, None)
    owner = file.syntax.parents[method] if file is not None and method is not None else None
    if file is None or not isinstance(method, FUNCTIONS) or not isinstance(owner, ast.ClassDef):
        return None
    backward = next((m for m in owner.body if isinstance(m, FUNCTIONS) and m.name == "backward"), None)
    package = next((a.asname or "torch" for s in file.syntax.all(ast.Import) for a in s.names if a.name == "torch"), None)
    old = trace.targets(forward.path).torch_lacks("2.4")
    # a decorated class may be compiled as it stands
    if owner.decorator_list or backward is None or package is None or (old and device != "cuda"):
        return None
    changes = []
    for function, name in ((method, "custom_fwd"), (backward, "custom_bwd")):
        decorator = f"@{package}.cuda.amp.{name}" if old else f'@{package}.amp.{name}(device_type="{device}")'
        at = Span(function.lineno, function.col_offset, function.lineno, function.col_offset)
        changes.append(Replace(at, f"{decorator}\n{file.lines[function.lineno - 1][: function.col_offset]}"))
    return Fix("run `backward` under the autocast state of `forward`", Applicability.SAFE, tuple(changes))
