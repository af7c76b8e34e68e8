"""Targets: every name in the table, the ways people write them, and what is said when there is none."""

from __future__ import annotations

import pytest

from mplint.errors import UsageError
from mplint.hardware import Target, resolve_target
from mplint.hardware import detect as detection
from mplint.hardware.detect import Device, describe, parse_smi
from mplint.hardware.table import rows


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.target.name)
def test_every_device_is_found_by_its_own_name(row: object) -> None:
    target: Target = row.target  # type: ignore[attr-defined]
    assert resolve_target(target.name) == target


@pytest.mark.parametrize(
    ("name", "capability", "half_fast", "bf16"),
    [
        ("Tesla T4", (7, 5), True, False),
        ("T4", (7, 5), True, False),
        ("RTX3090", (8, 6), True, True),
        ("GTX1080Ti", (6, 1), False, False),
        ("tesla t4", (7, 5), True, False),
        ("NVIDIA A100-SXM4-40GB", (8, 0), True, True),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", (8, 0), True, True),
        ("A100", (8, 0), True, True),
        ("h100", (9, 0), True, True),
        ("V100", (7, 0), True, False),
        ("Tesla V100-SXM2-16GB", (7, 0), True, False),
        ("Tesla P100-PCIE-16GB", (6, 0), False, False),
        ("GeForce GTX 1660 Ti", (7, 5), False, False),
        ("NVIDIA GeForce GTX 1650 with Max-Q Design", (7, 5), False, False),
        ("GTX 1080 Ti", (6, 1), False, False),
        ("RTX 3090", (8, 6), True, True),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", (8, 6), True, True),
        ("7.5", (7, 5), True, False),
        ("sm_86", (8, 6), True, True),
        ("compute capability 6.1", (6, 1), False, False),
        ("13.0", (13, 0), True, True),
    ],
)
def test_nvidia_names_and_capabilities(name: str, capability: tuple[int, int], half_fast: bool, bf16: bool) -> None:
    target = resolve_target(name)
    assert (target.kind, target.capability, target.half_fast, target.bf16_native) == ("cuda", capability, half_fast, bf16)


def test_formats_begin_where_the_table_says() -> None:
    assert not resolve_target("8.6").fp8 and resolve_target("8.9").fp8
    assert not resolve_target("7.5").tf32 and resolve_target("8.0").tf32
    assert not resolve_target("6.1").tensor_cores and resolve_target("7.0").tensor_cores


@pytest.mark.parametrize("name", ["tpu", "TPU v3", "v5e", "v5litepod-8", "tpu-v4"])
def test_tpus_compute_in_bfloat16(name: str) -> None:
    target = resolve_target(name)
    assert (target.kind, target.bf16_native) == ("tpu", True)


@pytest.mark.parametrize(
    ("name", "kind"), [("cpu", "cpu"), ("AMD Instinct MI300X", "rocm"), ("MI250X", "rocm"), ("Apple M1 Max", "mps"), ("Arc A770", "xpu")]
)
def test_other_makers(name: str, kind: str) -> None:
    assert resolve_target(name).kind == kind


def test_what_is_not_known_is_none() -> None:
    assert resolve_target("cpu").bf16_native is None
    assert resolve_target("Apple M2").half_fast is None
    assert resolve_target("MI100").half_fast is True


@pytest.mark.parametrize(
    ("name", "hint"), [("Tesla T44", 'did you mean "Tesla T4"?'), ("GeForce RTX 3091", "GeForce RTX 309"), ("toaster", "nvidia-smi")]
)
def test_an_unknown_name_is_misuse_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match="unknown target") as caught:
        resolve_target(name)
    assert hint in str(caught.value)


@pytest.mark.parametrize("name", ["RTX 4000", "TITAN X", "M4"])
def test_a_name_that_fits_devices_of_different_kinds_is_misuse(name: str) -> None:
    with pytest.raises(UsageError, match="fits several devices"):
        resolve_target(name)


def test_a_capability_that_no_gpu_has_is_misuse() -> None:
    with pytest.raises(UsageError, match="no GPU has compute capability"):
        resolve_target("6.9")


def test_auto_takes_the_weakest_gpu_and_says_when_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "nvml", list)
    monkeypatch.setattr(detection, "nvidia_smi", lambda: [Device("NVIDIA H200", (9, 0)), Device("Tesla T4", (7, 5))])
    assert resolve_target("auto") == resolve_target("Tesla T4")
    monkeypatch.setattr(detection, "nvidia_smi", list)
    with pytest.raises(UsageError, match="no GPU found on this machine"):
        resolve_target("auto")


def test_a_gpu_that_the_table_does_not_know_goes_by_its_capability() -> None:
    target = describe(Device("NVIDIA Future 9000", (8, 9)))
    assert (target.name, target.fp8, target.certainty) == ("NVIDIA Future 9000", True, "unsure")


def test_nvidia_smi_lines_are_read() -> None:
    assert parse_smi("Tesla T4, 7.5\nNVIDIA A100-SXM4-40GB, 8.0\n[N/A], [N/A]\n") == [
        Device("Tesla T4", (7, 5)),
        Device("NVIDIA A100-SXM4-40GB", (8, 0)),
    ]
