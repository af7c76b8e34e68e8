"""TensorFlow's own rewriting of graphs to mixed precision (grappler's auto_mixed_precision), run ahead of time on one graph.

For float16 it wants a GPU, so it is shown a virtual one, and its estimate of what that would gain is switched off; for bfloat16 a CPU does.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mplint.conversion.policy import ConversionError

HOST, GPU = "/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:GPU:0"
UNPRICED = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_IGNORE_PERFORMANCE"
OTHERS = (
    "layout_optimizer",
    "constant_folding",
    "shape_optimization",
    "remapping",
    "common_subgraph_elimination",
    "arithmetic_optimization",
    "dependency_optimization",
    "loop_optimization",
    "function_optimization",
    "debug_stripper",
    "scoped_allocator_optimization",
    "pin_to_host_optimization",
    "implementation_selector",
)


def in_half(graph: Any, fetched: Sequence[str], half: str, kept: Collection[str]) -> Any:
    """The GraphDef with operations in half and the casts that they need; the tensors `fetched` keep their types, the nodes `kept` stay.

    Nodes keep their names; nothing but casts is added and nothing taken away. Raises ConversionError where TensorFlow refuses.
    """
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow.python.grappler import cluster, tf_optimizer

    from mplint.conversion.quiet import quiet

    wanted = meta_graph_pb2.MetaGraphDef()
    wanted.graph_def.CopyFrom(graph)
    elsewhere = HOST if half == "float16" else GPU
    for node in wanted.graph_def.node:
        # Only nodes of the device that is optimized for are rewritten.
        node.device = elsewhere if node.name in kept else GPU if half == "float16" else HOST
    ends = wanted.signature_def["ends"]
    for index, name in enumerate(fetched):
        ends.outputs[str(index)].name = name
    try:
        with _unpriced(), quiet():
            machine = cluster.Cluster(devices=_devices())
            try:
                return tf_optimizer.OptimizeGraph(_settings(half), wanted, verbose=False, cluster=machine)
            finally:
                machine.Shutdown()
    except ValueError as error:
        raise ConversionError(f"TensorFlow's graph optimizer refuses the model: {str(error).splitlines()[0][:160]}") from None


def _settings(half: str) -> Any:
    from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

    toggles = rewriter_config_pb2.RewriterConfig
    config = config_pb2.ConfigProto()
    rewriting = config.graph_options.rewrite_options
    for name in OTHERS:
        setattr(rewriting, name, toggles.OFF)
    rewriting.memory_optimization = toggles.NO_MEM_OPT
    rewriting.disable_model_pruning = True
    rewriting.min_graph_nodes = -1
    rewriting.meta_optimizer_iterations = toggles.ONE
    rewriting.fail_on_optimizer_errors = True
    setattr(rewriting, "auto_mixed_precision" if half == "float16" else "auto_mixed_precision_onednn_bfloat16", toggles.ON)
    return config


def _devices() -> list[Any]:
    """A host, and a GPU with tensor cores."""
    from tensorflow.core.protobuf import device_properties_pb2

    host, gpu = device_properties_pb2.NamedDevice(name=HOST), device_properties_pb2.NamedDevice(name=GPU)
    host.properties.type, host.properties.num_cores, host.properties.frequency = "CPU", 4, 1000
    gpu.properties.type, gpu.properties.vendor, gpu.properties.num_cores, gpu.properties.frequency = "GPU", "NVIDIA", 80, 1000
    gpu.properties.memory_size, gpu.properties.bandwidth = 1 << 34, 10**8
    for key, value in (("architecture", "8.0"), ("cuda", "12000"), ("cudnn", "8900")):
        gpu.properties.environment[key] = value
    return [host, gpu]


@contextmanager
def _unpriced() -> Iterator[None]:
    given = os.environ.get(UNPRICED)
    os.environ[UNPRICED] = "1"
    try:
        yield
    finally:
        if given is None:
            del os.environ[UNPRICED]
        else:
            os.environ[UNPRICED] = given
