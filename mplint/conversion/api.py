"""Converting from Python: files by their paths, and live models."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mplint.conversion import policy as policies
from mplint.conversion.hardware import fitted
from mplint.conversion.judged import obedient
from mplint.conversion.policy import ConversionError, Metric, Options, Policy, Tolerance
from mplint.conversion.result import Conversion
from mplint.hardware import resolve_target

if TYPE_CHECKING:
    from mplint.conversion.keras.verify import Original
    from mplint.conversion.onnx.convert import Prepared


def convert(
    model: object,
    policy: str | Sequence[str] | None = None,
    *,
    target: str | None = None,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    calibration: Sequence[str] = (),
    input_ranges: Mapping[str, tuple[float, float]] | None = None,
    tolerance: Tolerance = None,
    metric: Metric | None = None,
    keep: Sequence[str] = (),
    device: str | None = None,
) -> Conversion:
    """Convert a model to a mixed-precision policy and prove it; `save(path)` of the result writes it.

    The `policy` is mixed_float16 or mixed_bfloat16: what is fast on the `target` ("Tesla T4"), mixed_float16 where none is named. A list
    may say of some layers otherwise: ["mixed_float16", "*/head/*=bfloat16"].

    `model` is the path of an ONNX model, a .keras archive or a .pt2 program, a keras.Model, a torch.export.ExportedProgram, or a
    torch.nn.Module. A module needs `example_inputs`: a tensor, a tuple of the positional or a dict of the keyword arguments; its
    `dynamic_shapes` are those of torch.export.
    `calibration` are .npz files, `input_ranges` the least and largest value of inputs, `tolerance` the largest relative error of an output,
    or words ("abs=0.5", "boxes:rel=0.01") or a list of them, `metric` a function that says the error of a sample instead: it takes the
    outputs of the original and of the result by their names.
    `keep` names and patterns of what stays float32, `device` the device type that a torch program is for. Raises ConversionError.
    """
    path = os.fspath(model) if isinstance(model, str | os.PathLike) else ""
    asked = policies.asked([policy] if isinstance(policy, str) else policy or ())
    fit = fitted(resolve_target(target) if target is not None else None, asked.name, None, onnx=path.endswith(".onnx"))
    options = Options((*keep, *asked.keep), halves=asked.halves, ranges=dict(input_ranges or {}), reasons=fit.reasons)
    wanted, device = policies.policy(fit.policy, tolerance, metric, asked.halves), device or fit.device
    if path:
        return convert_file(path, path, wanted, options, list(calibration), device)
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(model).__mro__}
    if "torch.Module" in kinds:
        from mplint.conversion.torch.convert import export

        if example_inputs is None or example_inputs == ():
            raise ConversionError("a torch module is converted on example inputs: give example_inputs=(tensor, …)")
        model = export(model, example_inputs, dynamic_shapes)  # type: ignore[arg-type]
        kinds.add("torch.ExportedProgram")
    if "torch.ExportedProgram" in kinds:
        from mplint.conversion.torch.convert import convert_program

        return obedient(
            model,
            ".pt2",
            wanted,
            options,
            lambda chosen: convert_program(model, wanted, chosen, device, list(calibration)),  # type: ignore[arg-type]
        )
    if "keras.Model" in kinds:
        from mplint.conversion.keras.convert import convert_live

        return obedient(model, ".keras", wanted, options, lambda chosen: convert_live(model, wanted, chosen, list(calibration)))
    raise ConversionError(f"{type(model).__name__} is no path, no keras.Model, no torch.nn.Module and no ExportedProgram")


def convert_file(source: str, target: str, wanted: Policy, options: Options, calibration: Sequence[str], device: str) -> Conversion:
    """Convert the model in a file by the converter of its format; raises ConversionError and UsageError."""
    from mplint.graph.load import format_of
    from mplint.graph.model import GraphError

    try:
        found = format_of(source).name
    except GraphError as error:
        raise ConversionError(f"{source}: {error}") from None

    if options.halves and found == "savedmodel":
        raise ConversionError(
            f"--policy {'='.join(options.halves[0])}: TensorFlow's graph optimizer turns a SavedModel to one half dtype; say "
            f"{options.halves[0][0]}=float32, or convert the .keras model, which may have two"
        )
    known: list[Prepared] = []
    run: list[Original] = []

    def converted(options: Options) -> Conversion:
        match found:
            case "keras" | "keras-h5":
                return convert_keras(source, target, wanted, options, calibration, run, h5=found == "keras-h5")
            case "savedmodel":
                return convert_savedmodel(source, wanted, options, calibration)
            case "torch-export" | "torchscript" if target.endswith(".onnx"):
                return convert_to_onnx(source, wanted, options, calibration, script=found == "torchscript")
            case "torch-export":
                return convert_torch(source, wanted, options, device, calibration)
            case "torchscript":
                if target not in (source, "converted.keras") and not target.endswith(".pt2"):
                    raise ConversionError(
                        f"-o {target}: TorchScript becomes a program of torch.export (.pt2) or an ONNX model (.onnx): let it end so"
                    )
                return convert_torch(source, wanted, options, device, calibration, script=True)
            case "onnx":
                return convert_onnx(source, wanted, options, calibration, known)
        raise ConversionError(
            f"{source} is a {found} file; `mplint convert` takes ONNX models, .keras and .h5 files, SavedModels, .pt2 programs "
            "and TorchScript"
        )

    try:
        ending = ".onnx" if target.endswith(".onnx") else os.path.splitext(source)[1]
        result = obedient(source, ending, wanted, options, converted)
    except ConversionError as error:
        raise ConversionError(without_folders(str(error), source)) from None
    for told in (result.notes, result.problems, result.gaps, result.verified):
        told[:] = [without_folders(text, source) for text in told]
    return result


def without_folders(text: str, source: str) -> str:
    """A text in which the model that the user gave stands for what was written of it in between."""
    return re.sub(r"\S*[/\\]\.?mplint-[^/\\\s]+(?:[/\\][^\s:,;'\")]+)?", source, text)


def convert_onnx(source: str, wanted: Policy, options: Options, calibration: Sequence[str], known: list[Prepared]) -> Conversion:
    """Convert an ONNX model with ONNX Runtime; what does not depend on the options is `known` once it is prepared."""
    try:
        import onnxruntime  # noqa: F401

        from mplint.conversion.onnx.convert import planned, prepare
    except ImportError as error:
        raise ConversionError(f'converting ONNX models needs {error.name}: pip install "mplint[convert]"') from None
    known[:] = known or [prepare(source, wanted, options, calibration)]
    return planned(known[0], wanted, options)


def convert_to_onnx(source: str, wanted: Policy, options: Options, calibration: Sequence[str], *, script: bool) -> Conversion:
    """Convert a .pt2 program or a TorchScript file to an ONNX model, with torch's exporter."""
    try:
        from mplint.conversion.torch.to_onnx import through_onnx
    except ImportError as error:
        raise ConversionError(f'converting {source} needs {error.name}: pip install torch "mplint[torch]"') from None
    options.tell("making an ONNX model of it")
    return through_onnx(source, calibration, lambda path: convert_onnx(path, wanted, options, calibration, []), script=script)


def convert_keras(
    source: str, target: str, wanted: Policy, options: Options, calibration: Sequence[str], known: list[Original], *, h5: bool
) -> Conversion:
    """Convert a .keras archive or an .h5 model to a .keras archive, and prove it with Keras where Keras is installed.

    What the original gives is `known` once it was run.
    """
    try:
        from mplint.conversion.keras.convert import convert_archive, convert_h5
    except ImportError as error:
        raise ConversionError(f'converting Keras files needs {error.name}: pip install "mplint[keras]"') from None

    if target != source and not target.endswith(".keras"):
        raise ConversionError(f"-o {target}: the result is a .keras archive, and Keras goes by the name: let it end in .keras")
    name = target if target != source else "converted.keras"
    if h5:
        return convert_h5(source, name, wanted, options, list(calibration))
    return convert_archive(source, name, wanted, options, list(calibration), known=known)


def convert_savedmodel(source: str, wanted: Policy, options: Options, calibration: Sequence[str]) -> Conversion:
    """Convert a SavedModel with TensorFlow."""
    from mplint.conversion.quiet import quiet

    if options.half_io:
        raise ConversionError("--half-io is for ONNX: SavedModels keep the signatures that they have")
    try:
        with quiet():
            import tensorflow  # noqa: F401

            from mplint.conversion.feeds import load_feeds
            from mplint.conversion.tensorflow.savedmodel import convert
    except ImportError:
        raise ConversionError(
            f"converting {source} needs TensorFlow, whose graph optimizer does it: pip install tensorflow. "
            "A Keras model that is saved as .keras is converted without"
        ) from None
    return convert(source, wanted, options, load_feeds(calibration, ()) if calibration else [])


def convert_torch(
    source: str, wanted: Policy, options: Options, device: str, calibration: Sequence[str], *, script: bool = False
) -> Conversion:
    """Convert a .pt2 program, or a TorchScript file, with torch."""
    try:
        from mplint.conversion.torch.convert import convert, convert_script
    except ImportError as error:
        raise ConversionError(f'converting {source} needs {error.name}: pip install torch "mplint[torch]"') from None
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (convert_script if script else convert)(source, wanted, options, device, calibration)
