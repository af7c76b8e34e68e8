"""No command that runs none of the user's code opens a connection or asks for an address."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OLD = "import torch\nscaler = torch.cuda.amp.GradScaler()\n"
# Python tells of these before it does them, whatever library asks.
WATCHED = """
import sys
FORBIDDEN = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.sendto", "urllib.Request")
def refuse(event, args):
    if event in FORBIDDEN:
        sys.stderr.write(f"NETWORK {event} {args}\\n")
        sys.stderr.flush()
        import os
        os._exit(99)
sys.addaudithook(refuse)
from mplint.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
COMMANDS = [
    ("check . --no-cache", 1),
    ("check . --jobs 2 --output-format sarif", 1),
    ("fix .", 1),
    ("fix . --apply", 0),
    ("convert plain.py --policy mixed_float16", 0),
    ("baseline create", 0),
    ("init --dry-run", 0),
    ("explain MP304", 0),
    ("rules", 0),
    ("completion bash", 0),
    ("check --show-settings --target 7.5", 0),
]
TRAIN = """\
import torch

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader([]):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
"""


def watched(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that ends with 99 where it reaches for the network."""
    environment = {**os.environ, "MPLINT_CACHE_DIR": str(folder / ".cache")}
    command = [sys.executable, "-c", WATCHED, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(("command", "code"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_command_reaches_no_network(tmp_path: Path, command: str, code: int) -> None:
    (tmp_path / "old.py").write_text(OLD)
    (tmp_path / "plain.py").write_text(TRAIN)
    done = watched(tmp_path, *command.split())
    assert "NETWORK" not in done.stderr and "Traceback" not in done.stderr
    assert done.returncode == code, done.stdout + done.stderr


def test_converting_a_model_reaches_no_network(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,64] x, float[64,10] w) => (float[N,10] y) { y = MatMul(x, w) }'
    onnx.save(onnx.parser.parse_model(text), str(tmp_path / "model.onnx"))
    done = watched(tmp_path, "convert", "model.onnx", "--policy", "mixed_float16", "-o", "half.onnx")
    assert "NETWORK" not in done.stderr and done.returncode == 0, done.stdout + done.stderr
    assert watched(tmp_path, "check", "half.onnx", "--statistics").returncode in (0, 1)


def test_the_watch_works(tmp_path: Path) -> None:
    reaching = WATCHED.replace("from mplint.cli.main import main", "import socket\nsocket.getaddrinfo('localhost', 80)\nmain = len")
    done = subprocess.run([sys.executable, "-c", reaching], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 99 and "NETWORK socket.getaddrinfo" in done.stderr
