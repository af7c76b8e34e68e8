"""Structural similarity (SSIM) of other packages: variances as differences of means, which convolutions compute in a region's dtype.

Read in pytorch-msssim 1.0.0, piq 0.8.0 and MONAI 1.6.1, whose cast to float32 stands before the convolutions. kornia leaves autocast,
torchmetrics cuts negative variances off.
"""

from __future__ import annotations

from mplint.frameworks.torch.promotion import HALVES, lowered
from mplint.frameworks.torch.protocol import gradients_off
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.machine import Args, Machine
from mplint.program.store import under
from mplint.program.values import SINGLE, Autocast, Object, Place, Tensor, Value

vocabulary = Vocabulary()

FUNCTIONS = (
    *("pytorch_msssim.ssim", "pytorch_msssim.ms_ssim", "pytorch_msssim.ssim.ssim", "pytorch_msssim.ssim.ms_ssim"),
    *("piq.ssim", "piq.multi_scale_ssim"),
)
MODULES = ("pytorch_msssim.SSIM", "pytorch_msssim.MS_SSIM", "piq.SSIMLoss", "piq.MultiScaleSSIMLoss", "monai.losses.SSIMLoss")


@vocabulary.call(*FUNCTIONS)
def compared(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The similarity of two batches of images."""
    return similarity(m, name, place)


@vocabulary.call(*MODULES)
def measure(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A measure as a module."""
    return Object(("similarity", m.identity(place), m.round()), "similarity", name, place)


@vocabulary.invoke("similarity")
def measured(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """What a measure gives."""
    return similarity(m, str(receiver.type), place)


def similarity(m: Machine, name: str, place: Place) -> Value:
    """Note variances that are trained on in half precision; the result is float32 only outside of regions."""
    base, letters, short = m.path, frozenset({SINGLE}), name.rpartition(".")[2]
    for path, region in under(m.state("autocast"), base):
        if type(region) is not Autocast or region.dtype is None or region.device == "cpu":
            continue
        letters, chain = lowered(region, short, place)
        if letters <= HALVES and not gradients_off(m):
            m.path = path
            m.emit("cancellation in half", place, tensor=Tensor(letters, chain, forward=letters), module=None, name=short)
    m.path = base
    return Tensor(letters, forward=letters if letters != {SINGLE} else frozenset())
