"""`mplint estimate`: what training a model would take in float32 and in mixed precision."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from mplint.cli.arguments import Parser, add_color
from mplint.cli.terminal import CLEAN, style_of
from mplint.errors import UsageError

if TYPE_CHECKING:
    from mplint.estimate.sizes import Sized

EPILOG = """\
MODEL is a model file (ONNX, .keras, .h5, SavedModel, .pt2, TorchScript), or
PACKAGE.MODULE:FACTORY, a function without arguments that is called and returns
a keras.Model, or a torch.nn.Module with its example inputs: (module, inputs).

examples:
  mplint estimate model.onnx --batch 64 --target "Tesla T4"
  mplint estimate train.models:build --optimizer adamw --target A100

exit status:
  0  estimated
  2  misuse, or a model that could not be read"""


def add_options(parser: Parser) -> None:
    """The options of `mplint estimate`."""
    parser.add_argument("model", metavar="MODEL", help="a model file, or PACKAGE.MODULE:FACTORY, which is run")
    parser.add_argument("--target", metavar="HARDWARE", help='the device to train on ("Tesla T4"), or auto to ask this machine')
    parser.add_argument("--batch", type=int, metavar="N", help="samples of a step (default: what the model fixes, else 32)")
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="NAME=N",
        help='another size that the inputs leave open ("sequence=128", "image[2]=224")',
    )
    parser.add_argument(
        "--optimizer",
        default="adam",
        metavar="NAME",
        help="sgd, momentum, rmsprop, adagrad, adam, adamw, lion, adafactor or none (default: adam)",
    )
    parser.add_argument("--output-format", choices=("text", "json"), default="text", metavar="FORMAT", help="text or json (default: text)")
    add_color(parser)


def run(options: argparse.Namespace) -> int:
    """Print the estimate; raises UsageError for misuse and for a model that can't be read."""
    from mplint.errors import nearest
    from mplint.estimate.estimate import estimate
    from mplint.estimate.memory import OPTIMIZERS
    from mplint.report.estimate import estimate_json, estimate_text

    if options.optimizer not in OPTIMIZERS:
        hint = nearest(options.optimizer, OPTIMIZERS) or f"; known are {', '.join(OPTIMIZERS)}"
        raise UsageError(f'--optimizer: nothing is known of "{options.optimizer}"{hint}')
    if options.batch is not None and options.batch < 1:
        raise UsageError(f"--batch: {options.batch} is no number of samples")
    target = device = None
    if options.target:
        from mplint.hardware import resolve_target
        from mplint.hardware.figures import figures_of

        target = resolve_target(options.target)
        device = figures_of(target)
    found = estimate(_sized(options), options.optimizer, target, device)
    sys.stdout.write(estimate_json(found) if options.output_format == "json" else estimate_text(found, style_of(options, sys.stdout)))
    return CLEAN


def _sized(options: argparse.Namespace) -> Sized:
    from mplint.estimate.sizes import load_sized, sized
    from mplint.graph.model import GraphError

    named = dict(map(_size, options.size))
    if not os.path.exists(options.model) and ":" in options.model:
        from mplint.cli.factory import graph_of

        model = graph_of(options.model, option="")
    else:
        model = None
    try:
        return load_sized(options.model, options.batch, named) if model is None else sized(model, options.batch, named)
    except GraphError as error:
        raise UsageError(f"{options.model}: {error}") from None


def _size(text: str) -> tuple[str, int]:
    name, equals, number = text.rpartition("=")
    if not equals or not name or not number.isdecimal() or int(number) < 1:
        raise UsageError(f'--size: "{text}" is not NAME=N, such as "sequence=128"')
    return name, int(number)
