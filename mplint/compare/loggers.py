"""The curves of a comparison, handed to TensorBoard and to Weights & Biases."""

from __future__ import annotations

import os
from importlib.util import find_spec

from mplint.compare.comparison import Comparison, Measured
from mplint.errors import UsageError

PACKAGES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb"}


def require(package: str) -> None:
    """Raise UsageError where a logger's package is not installed."""
    if find_spec(package) is None:
        raise UsageError(f"--{package} needs {package}: pip install {package}")


def log_tensorboard(comparison: Comparison, folder: str) -> None:
    """Write an event file for each policy into a folder of its own."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for each in comparison.measured:
        writer = EventFileWriter(os.path.join(folder, each.policy))
        for step, values in enumerate(_points(each)):
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
            writer.add_event(Event(step=step, summary=summary))
        writer.close()


def log_wandb(comparison: Comparison, project: str, script: str) -> None:
    """Log each policy as a run of a project; offline where WANDB_MODE says so."""
    import wandb

    for each in comparison.measured:
        told = {"policy": each.policy, "device": comparison.device, "versions": comparison.versions}
        with wandb.init(project=project, name=each.policy, group=os.path.basename(script), config=told) as run:
            for step, values in enumerate(_points(each)):
                run.log(values, step=step)
            run.summary["seconds a step"] = each.seconds
            run.summary["steps skipped"] = each.skipped


def _points(each: Measured) -> list[dict[str, float]]:
    pairs = zip(each.losses, each.scales, strict=True)
    return [{name: value for name, value in (("loss", loss), ("loss scale", scale)) if value is not None} for loss, scale in pairs]
