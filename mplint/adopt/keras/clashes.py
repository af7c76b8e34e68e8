"""Layers in which half and float32 tensors meet: those that this program makes compute in float32 as a whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.adopt.keras.heads import Kept, keep
from mplint.adopt.keras.scene import Scene
from mplint.frameworks.keras.evidence import excluded
from mplint.frameworks.keras.tensors import LOW, TF
from mplint.program.machine import Event
from mplint.program.trace import Entry
from mplint.program.values import SINGLE, Class, Object, Place, Tensor
from mplint.python.syntax import argument

WHY = "stays float32: it mixes what it is given with float32 tensors of its own"

WITH_LOSS = "stays float32: what it gives is computed with together with float32 tensors"


def clashing_layers(scene: Scene) -> Iterator[Kept]:
    """Each layer that is made here without a dtype and takes one, and in whose computation dtypes clash."""
    done: set[ast.Call] = set()
    for entry in scene.trace.entries:
        made = {event.place for event in entry.of("layer made") if event.data["dtype"] is None}
        for event in entry.of("dtypes clash"):
            layer, low = layer_around(entry, event), event.data["low"]
            why, place = WHY, None
            if layer is not None:
                place = layer.made if takes_dtype(scene, layer) else None
            elif isinstance(low, Tensor) and low.half and low.half[-1].place in made and not scene.chain(event)[:-1]:
                why, place = WITH_LOSS, low.half[-1].place
            node = scene.node(place)
            if not isinstance(node, ast.Call) or node in done or argument(node, "dtype") is not None:
                continue
            if all(keyword.arg is not None for keyword in node.keywords):
                done.add(node)
                yield Kept(node, why, keep(scene, [node]))


def layers_beside(scene: Scene) -> Iterator[Kept]:
    """Each layer that is made here without a dtype, and whose half output is computed with together with a float32 tensor."""
    made = {event.place for _, event in scene.events("layer made") if event.data["dtype"] is None}
    done: set[ast.Call] = set()
    for operation in scene.file.syntax.all(ast.BinOp):
        values = [scene.program.execution.values(side) for side in (operation.left, operation.right)]
        sides = [[atom for atom in found if isinstance(atom, Tensor)] for found in values]
        for low, other in (sides, sides[::-1]):
            if not other or not all(tensor.dtypes == {SINGLE} and TF in tensor.tags for tensor in other):
                continue
            for tensor in low:
                place = tensor.half[-1].place if tensor.half and tensor.dtypes <= frozenset(LOW) else None
                node = scene.node(place) if place in made else None
                if isinstance(node, ast.Call) and node not in done and argument(node, "dtype") is None:
                    done.add(node)
                    yield Kept(node, WITH_LOSS, keep(scene, [node]))


def clashes_elsewhere(scene: Scene) -> Iterator[tuple[ast.AST, str]]:
    """The places of this file that lead to layers and losses of other files in which dtypes clash, and which are to be mended there."""
    told: set[tuple[ast.AST, Place]] = set()
    for entry, event in scene.events("dtypes clash"):
        node = scene.here(event)
        if event.place.path == scene.path or node is None or (node, event.place) in told or excluded(event.path):
            continue
        layer = layer_around(entry, event)
        if layer is not None and layer.made is not None and layer.made.path == scene.path and takes_dtype(scene, layer):
            continue
        told.add((node, event.place))
        where = f"{event.place.path}:{scene.trace.span(event.place).line}"
        text = f"`{scene.text(node)}` leads to {where}, where half and float32 tensors meet and TensorFlow raises: cast there first"
        yield node, text


def layer_around(entry: Entry, event: Event) -> Object | None:
    """The innermost layer that was being called when something happened."""
    called: dict[Place, list[Object]] = {}
    for other in entry.of("layer called"):
        layer = other.data["layer"]
        if isinstance(layer, Object):
            called.setdefault(other.place, []).append(layer)
    around = next((called[place] for place in reversed(event.calls) if place in called), [])
    own = [layer for layer in around if isinstance(layer.type, Class) and layer.type.path == event.place.path]
    return next(iter(own or around[-1:]), None)  # a model calls all of its layers at one place


def takes_dtype(scene: Scene, layer: Object) -> bool:
    """Whether a layer passes a dtype on to Keras: a Lambda, or one of the project whose constructor hands on its keywords."""
    if isinstance(layer.type, str):
        return layer.type == "keras.layers.Lambda"
    file = scene.trace.file(layer.type.path)
    owner = next((c for c in file.syntax.all(ast.ClassDef) if c.name == layer.type.name), None) if file is not None else None
    if file is None or owner is None:
        return False
    made = file.names.method(owner, "__init__")
    if made is None:
        return True
    rest = made.args.kwarg.arg if made.args.kwarg is not None else None
    handed = (keyword for node in ast.walk(made) if isinstance(node, ast.Call) for keyword in node.keywords if keyword.arg is None)
    return rest is not None and any(ast.unparse(keyword.value) == rest for keyword in handed)
