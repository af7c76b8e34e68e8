"""What tensors are estimated to cost, against what each of them does by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx_models import model, rng

from mplint.conversion.onnx.convert import load
from mplint.conversion.onnx.instrument import Change, Stencil
from mplint.conversion.onnx.program import analyze
from mplint.conversion.onnx.ranking import Ranking
from mplint.conversion.onnx.run import Session
from mplint.conversion.policy import Options

DEPTH, WIDTH = 24, 256


def test_errors_of_the_first_layers_of_a_deep_network_do_not_fade(tmp_path: Path) -> None:
    layers = [f"a{at} = MatMul(r{at}, W{at}) r{at + 1} = Relu(a{at})" for at in range(DEPTH)]
    text = f"g (float[8,{WIDTH}] r0) => (float[8,{WIDTH}] r{DEPTH}) {{ {' '.join(layers)} }}"
    weights = {f"W{at}": (rng(WIDTH, WIDTH) + 0.04) * np.float32(np.sqrt(1.4 / WIDTH)) for at in range(DEPTH)}
    path = model(text, tmp_path / "a.onnx", **weights)
    feed = {"r0": rng(8, WIDTH)}
    program = analyze(load(path).model, "float16", Options())
    candidates = [value for value in program.producers if (value.name or "")[0] in "aW" or value.name == "r0"]
    stencil = Stencil(program.model, candidates, [program.halves_of(value) for value in candidates])
    ranking = Ranking(program, stencil)
    ranking.look(feed)
    ranking.close()

    (reference,) = Session(path).run(feed)
    for number, value in enumerate(candidates):
        session = Session(stencil.copy(Change([number], saturating=True)))
        (got,) = session.run(feed)
        session.close()
        alone = float(np.sqrt(np.mean((got - reference) ** 2) / np.mean(np.square(reference))))
        assert alone / 30 < ranking.costs[value] < 30 * alone, (value.name, alone, ranking.costs[value])
