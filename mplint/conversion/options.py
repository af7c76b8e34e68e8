"""The options of `mplint convert`."""

from __future__ import annotations

import argparse

from mplint.conversion.policy import POLICIES


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `mplint convert`."""
    parser.add_argument(
        "input",
        metavar="INPUT",
        help="an ONNX model, a Keras model (.keras, .h5), a SavedModel folder, a torch program (.pt2), or a training script (.py, .ipynb)",
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="where to write the converted model")
    parser.add_argument(
        "--policy",
        choices=sorted(POLICIES),
        default="mixed_float16",
        metavar="POLICY",
        help=f"{' or '.join(POLICIES)} (default: mixed_float16)",
    )
    data = parser.add_argument_group("data")
    data.add_argument(
        "--calibration", action="append", default=[], metavar="FILE", help="an .npz file with an array for each input, or a folder of them"
    )
    data.add_argument(
        "--input-range", action="append", default=[], metavar="NAME=LOW:HIGH", help="the values that an input takes, e.g. x=0:255"
    )
    data.add_argument(
        "--tolerance",
        type=float,
        metavar="ERROR",
        help="the largest error of an output, relative to its largest value (default: 0.02, bfloat16 0.08)",
    )
    parser.add_argument("--device", default="cuda", metavar="TYPE", help="the device type that a torch program is for (default: cuda)")
    plan = parser.add_argument_group("plan")
    plan.add_argument(
        "--keep", action="append", default=[], metavar="NAME", help="a node, an op type or a pattern (*/head/*) that stays float32"
    )
    io = plan.add_mutually_exclusive_group()
    io.add_argument("--keep-io", action="store_true", help="inputs and outputs stay float32 (the default)")
    io.add_argument("--half-io", action="store_true", help="inputs and outputs become half")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and its proof, write nothing")
    parser.add_argument("--apply", action="store_true", help="write an adopted training script in place (default: show the diff)")
    parser.add_argument("--report", metavar="FILE", help="write every figure and reason to FILE (.json or .html)")
    parser.add_argument("--force", action="store_true", help="write the result even if verification fails")
