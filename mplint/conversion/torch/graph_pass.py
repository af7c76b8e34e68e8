"""Converting a program by a pass over its graph: measure, cut, write, verify, and cut again until the result holds."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from mplint.conversion.planner import ATTEMPTS, FILL_SHARE, HEAVY_GAIN, plan, reasons
from mplint.conversion.policy import ConversionError, Options, Policy
from mplint.conversion.result import Conversion
from mplint.conversion.torch.bodies import heavy_within, staying
from mplint.conversion.torch.files import first_line, save, weight_bytes
from mplint.conversion.torch.measure import Measurement, saturates
from mplint.conversion.torch.program import Program, analyze, functional
from mplint.conversion.torch.run import Arrays, Runner, cast, flat_run
from mplint.conversion.torch.samples import Sample
from mplint.conversion.torch.steps import by_steps, is_recurrent
from mplint.conversion.torch.verify import Expected, verify
from mplint.conversion.torch.write import Written, unstorable, write

if TYPE_CHECKING:
    from torch.export import ExportedProgram

REPLANS = 3  # how often a plan is made anew with less of the tolerance, where the result takes more than was measured
TIGHTER, ROOM = 0.7, 0.8  # what is left of the tolerance then at most, and how much of it a result is to take where it runs


def convert_graph(original: ExportedProgram, policy: Policy, options: Options, expected: Expected) -> Conversion:
    """Put half into the graph of a program, decomposed or not, where measurement allows it.

    Raises ConversionError where the program can't be made functional or can't be run.
    """
    try:
        import scipy.sparse.csgraph  # noqa: F401
    except ImportError as error:
        raise ConversionError(f'planning needs {error.name}: pip install "mplint[torch]"') from None
    try:
        exported = functional(original)
    except Exception as error:
        raise ConversionError(
            f"the program can't be made functional: {first_line(error)}; give the float32 program of torch.export.export"
        ) from None
    options.tell("trying every operator in half")
    try:
        program = analyze(exported, policy, options, expected.samples[0], expected.device)
        measured = Measurement(program, policy, expected)
    except ConversionError:
        raise
    except Exception as error:
        raise ConversionError(f"the program does not run on the CPU: {first_line(error)}; export it for the CPU") from None
    options.tell("measuring which tensors may be half")
    unsafe = measured.unsafe(policy.tolerance, options.tell)
    beyond = [node for node, size in measured.largest.items() if size > policy.largest and node.op == "placeholder" and saturates(node)]
    stays = staying(exported.graph_module, policy, options, measured.largest)
    options.check_keep()
    within = heavy_within(exported.graph_module)

    def tried(attempt: int) -> tuple[Conversion, Sequence[bool]]:
        nonlocal stays
        halves = plan(program, unsafe, attempt)
        if infinite := unstorable(program, halves, beyond):
            unsafe.update(dict.fromkeys(infinite, f"float32 is asked of it too, and it is beyond the range of {policy.half}"))
            halves = plan(program, unsafe, attempt)
        result = _attempt(original, program, halves, policy, measured.references, expected, stays)
        if result.problems and len(stays) < len(within):  # with all bodies in float32
            stays |= {name: f"in half, {result.problems[0]}" for name in within if name not in stays}
            result = _attempt(original, program, halves, policy, measured.references, expected, stays)
        return result, halves

    for attempt in range(ATTEMPTS):
        options.tell("writing and verifying" if attempt == 0 else f"writing and verifying, attempt {attempt + 1} of {ATTEMPTS}")
        known, tolerance = len(expected.samples), policy.tolerance
        result, halves = tried(attempt)
        for _ in range(REPLANS if attempt == 0 else 0):
            if not result.problems or not result.heavy_half:
                break
            for at in _not_measured(expected, result, known):
                measured.learn(expected.shown[at][0], f"sample {at + 1}")
            tolerance = min(TIGHTER * tolerance, _wanted(result, known))
            options.tell("measuring with less of the tolerance")
            unsafe |= measured.unsafe(tolerance, options.tell)
            known = len(expected.samples)
            result, halves = tried(attempt)
        if not result.problems or attempt == ATTEMPTS - 1:
            result.kept = reasons(program, halves, unsafe)
            result.kept += stays.items()
            return result
    raise AssertionError("no attempt was made")


def _wanted(result: Conversion, measured: int) -> float:
    """The tolerance to plan with where a result is off, by how much more it was off when it ran than when it was `measured`."""
    known = max((error for trial in result.trials[:measured] for error in trial.errors if error is not None), default=0.0)
    if not known or not result.error or not math.isfinite(result.error):
        return result.policy.tolerance  # what is infinite says nothing of how much is too much
    return ROOM * result.policy.tolerance * known / result.error / FILL_SHARE


def _not_measured(expected: Expected, result: Conversion, measured: int) -> Iterator[int]:
    """The numbers of the runs that a result fails on and that the plan does not know; `measured` is how many samples it knew."""
    for at, trial in enumerate(result.trials[measured:]):
        sample = expected.shown[at][0]
        worst = max((error for error in trial.errors if error is not None), default=0.0)
        if (trial.broken or worst > result.policy.tolerance) and not any(sample is known for known in expected.samples):
            yield at


def _attempt(
    original: ExportedProgram,
    program: Program,
    halves: Sequence[bool],
    policy: Policy,
    references: Sequence[Arrays],
    expected: Expected,
    stays: Collection[str],
) -> Conversion:
    try:
        written = write(program, halves, policy, stays)
    except Exception as error:
        raise ConversionError(f"torch refuses the graph with casts ({first_line(error)}): --keep what it names, or report it") from None
    heavy = [n for n, operation in enumerate(program.operations) if operation.gain == HEAVY_GAIN]
    computing = [n for n, operation in enumerate(program.operations) if operation.node is not None]
    within = len(heavy_within(program.exported.graph_module))
    result = Conversion(
        policy,
        save=lambda target: save(written.program, target),
        heavy=len(heavy) + within,
        heavy_half=sum(halves[n] for n in heavy) + len(written.bodies.halves),
        operations=len(computing) + within,
        operations_half=sum(halves[n] for n in computing) + len(written.bodies.halves),
        casts_added=written.casts,
        size_before=weight_bytes(original),
        size_after=weight_bytes(written.program),
        halves=tuple(sorted({program.half_at(n) for n in computing if halves[n]}, reverse=True)),
    )
    found = [expected.far(references, at, emulated(written, sample)) for at, sample in enumerate(expected.samples)]
    result.verified.append(
        f"true {' and '.join(result.halves or (policy.half,))} semantics on {len(found)} sample{'s' if len(found) > 1 else ''}"
    )
    verify(result, original, written.program, expected, found)
    return result


def emulated(written: Written, sample: Sample) -> Arrays:
    """The outputs where each operator computes in float32 and stores in half, as tensor cores do."""

    class Emulator(Runner):
        def run_node(self, n: fx.Node) -> Any:
            if n not in written.halves:
                return super().run_node(n)
            half = written.dtypes[n]
            args, kwargs = (cast(given, half, torch.float32) for given in self.fetch_args_kwargs_from_env(n))
            stepping = is_recurrent(n) and not kwargs
            result = by_steps(n.target, args, half) if stepping else n.target(*args, **kwargs)  # type: ignore[operator]
            if not isinstance(result, tuple | list):
                return result.to(half) if 0 in written.halves[n] else result
            return type(result)(part.to(half) if at in written.halves[n] else part for at, part in enumerate(result))

    return flat_run(written.program, sample, runner=Emulator)
