"""How much memory `mplint convert` takes: `python benchmarks/convert_memory.py MODEL.onnx …`, each a run in a process of its own.

Prints the size of a model with the weights beside it, and the most memory that a run held above what Python and its packages take, as a
multiple of that size: at most 3 below 1 GB and 1.6 above is the aim. Below some 30 MB the multiple says little: 80 MB are for any model.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGES = "import mplint.conversion.onnx.convert, numpy, onnxruntime, scipy.sparse.csgraph"


def peak(*arguments: str) -> int:
    """The most memory that Python holds with these arguments, in bytes."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Measure each model that the command line names."""
    packages = peak("-c", PACKAGES)
    for name in sys.argv[1:]:
        size = sum(path.stat().st_size for path in Path(name).parent.glob(f"{Path(name).name}*"))
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            most = peak("-m", "mplint", "convert", name, "-o", f"{folder}/half.onnx", "--force")
        taken = time.perf_counter() - start
        print(f"{name}: {size / 1e6:.1f} MB, peak {most / 1e6:.0f} MB, {(most - packages) / size:.2f} × the file, {taken:.1f} s")


if __name__ == "__main__":
    main()
