"""How many processors this process may use: those that it may run on, and no more than its container is granted."""

from __future__ import annotations

import math
import os

CGROUPS = "/sys/fs/cgroup"
OWN_GROUPS = "/proc/self/cgroup"


def processors(root: str = CGROUPS, groups: str = OWN_GROUPS) -> int:
    """The number of processors, 1 or more; `root` and `groups` say where the limits of containers are found."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([available, *quotas(root, groups)]))


def quotas(root: str, groups: str) -> list[int]:
    """The processors that the groups of this process are granted, of both versions of cgroups and up to the outermost group."""
    found: list[int | None] = []
    for line in _lines(groups):
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        folder = root if not controllers else os.path.join(root, "cpu")
        if controllers and "cpu" not in controllers.split(","):
            continue
        parts = [part for part in group.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            found.append(_quota(os.path.join(folder, *parts[:depth]), controllers))
    return [number for number in found if number is not None]


def _quota(folder: str, controllers: str) -> int | None:
    """The processors that one group is granted; half of one is one."""
    if controllers:
        words = [*_lines(os.path.join(folder, "cpu.cfs_quota_us")), *_lines(os.path.join(folder, "cpu.cfs_period_us"))]
    else:
        words = (_lines(os.path.join(folder, "cpu.max")) or [""])[0].split()
    try:
        quota, period = map(int, words)
    except ValueError:  # "max", or no such file
        return None
    return max(1, math.ceil(quota / period)) if quota > 0 and period > 0 else None


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read().splitlines()
    except OSError:
        return []
