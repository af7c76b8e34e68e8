"""How long model files take and how much memory: python benchmarks/loaders.py [folder for scratch files].

Prints one line a case: the best of nine runs of `mplint check`, end to end in a new process, wall clock and CPU, the peak memory of that
process, and the limits. Weights are sparse files: no values are written, and none may be read.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 9
LAYERS, WIDTH, INNER, VOCABULARY = 32, 4096, 11008, 32000  # a model of 7 billion parameters
SHARD = 5_000_000_000


def seven_billion(folder: Path) -> Path:
    """An index of safetensors files with the tensors of a 7B language model, in bfloat16."""
    shapes = {"model.embed_tokens.weight": [VOCABULARY, WIDTH], "lm_head.weight": [VOCABULARY, WIDTH], "model.norm.weight": [WIDTH]}
    for layer in range(LAYERS):
        front = f"model.layers.{layer}."
        shapes |= {f"{front}self_attn.{name}_proj.weight": [WIDTH, WIDTH] for name in "qkvo"}
        shapes |= {f"{front}mlp.{name}_proj.weight": [INNER, WIDTH] for name in ("gate", "up")}
        shapes |= {f"{front}mlp.down_proj.weight": [WIDTH, INNER]}
        shapes |= {f"{front}{name}_layernorm.weight": [WIDTH] for name in ("input", "post_attention")}
    shards: list[dict[str, object]] = [{}]
    sizes, places = [0], {}
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        if sizes[-1] + size > SHARD:
            shards.append({})
            sizes.append(0)
        shards[-1][name] = {"dtype": "BF16", "shape": shape, "data_offsets": [sizes[-1], sizes[-1] + size]}
        sizes[-1] += size
        places[name] = len(shards)
    for number, (header, size) in enumerate(zip(shards, sizes, strict=True), 1):
        text = json.dumps(header).encode()
        with open(folder / shard(number, len(shards)), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + size)
    index = folder / "model.safetensors.index.json"
    names = {name: shard(number, len(shards)) for name, number in places.items()}
    index.write_text(json.dumps({"metadata": {"total_size": sum(sizes)}, "weight_map": names}))
    return index


def experts(folder: Path) -> Path:
    """One safetensors file of 7 billion parameters in 32 layers of 32 experts, an odd number wide."""
    header: dict[str, object] = {}
    place = 0
    for layer in range(LAYERS):
        for expert in range(32):
            for name, shape in (("gate", [1156, 2048]), ("up", [1156, 2048]), ("down", [2048, 1156])):
                size = 2 * shape[0] * shape[1]
                key = f"model.layers.{layer}.mlp.experts.{expert}.{name}_proj.weight"
                header[key] = {"dtype": "BF16", "shape": shape, "data_offsets": [place, place + size]}
                place += size
    text = json.dumps(header).encode()
    path = folder / "experts.safetensors"
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + place)
    return path


def shard(number: int, total: int) -> str:
    """The name of a file of a sharded model."""
    return f"model-{number:05d}-of-{total:05d}.safetensors"


def keras_file(folder: Path) -> Path:
    """A .keras file of 60 layers with 20 million parameters."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "graph"))
    import h5py
    import model_files
    import numpy as np

    blocks, before = [], "dense"
    buffer = folder / "weights.h5"
    with h5py.File(buffer, "w") as file:
        for number in range(60):
            name = f"block{number}"
            blocks.append(model_files.layer("Dense", name, before, units=576))
            group = file.create_group(f"layers/dense_{number}/vars")
            group.attrs["name"] = name
            group["0"], group["1"] = np.zeros((576, 576), "float32"), np.zeros(576, "float32")
            before = name
    path = folder / "model.keras"
    path.write_bytes(model_files.keras_archive(model_files.keras_config(*blocks), buffer.read_bytes()))
    return path


# A process of its own, so that the memory of this one is not counted.
LAUNCHER = """
import resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024)
"""


def measure(path: Path) -> tuple[float, float, int]:
    """Seconds and CPU seconds of the fastest run, and the most memory of any, in MB."""
    command = [sys.executable, "-m", "mplint", "check", "--isolated", "--no-cache", "--exit-zero", "--select", "ALL", str(path)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    runs = []
    for _ in range(RUNS):
        done = subprocess.run([sys.executable, "-c", LAUNCHER, *command], check=True, capture_output=True, text=True, env=environment)
        runs.append(tuple(float(value) for value in done.stdout.split()))
    return min(run[0] for run in runs), min(run[1] for run in runs), int(max(run[2] for run in runs))


def scan(folder: Path) -> float:
    """The speed at which the values of a weight of 1 GB are read, in GB a second."""
    import numpy as np

    from mplint.graph.storage import FileWeights

    path = folder / "values.bin"
    np.zeros(1 << 28, "float32").tofile(path)
    best = 0.0
    for _ in range(3):
        start = time.perf_counter()
        for _piece in FileWeights(str(path), 0, 1 << 30, "float32").chunks():
            pass
        best = max(best, (1 << 30) / 1e9 / (time.perf_counter() - start))
    path.unlink()
    return best


# A name, the file, and the most seconds and megabytes that checking it may take.
CASES = (
    ("60 layers in a .keras file", keras_file, 0.150, 300),
    ("7B index of safetensors", seven_billion, 0.500, 100),
    ("7B of a mixture of experts", experts, 0.500, 100),
)


def main() -> None:
    """Measure every case."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as scratch:
        folder = Path(scratch)
        for label, make, limit, most in CASES:
            wall, cpu, memory = measure(make(folder))
            print(f"{label:28} {wall * 1000:5.0f} ms, CPU {cpu * 1000:5.0f} ms (limit {limit * 1000:.0f})  {memory:4d} MB (limit {most})")
        print(f"{'values of a weight':28} {scan(folder):7.1f} GB/s")


if __name__ == "__main__":
    main()
