"""The extension for VS Code: how it starts the server, in Node with a stand-in for VS Code, and that it packs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = ROOT / "docs" / "editors" / "vscode"
STAND_IN = """
const Module = require("module");
const told = [];
let listener;
let settings = SETTINGS;
const vscode = {
  workspace: {
    getConfiguration: (section) => ({ get: (key) => settings[`${section}.${key}`] }),
    workspaceFolders: [{ uri: { fsPath: "/home/project" } }],
    onDidChangeConfiguration: (heard) => { listener = heard; return { dispose() {} }; },
  },
  window: { showErrorMessage: (text) => told.push(["error", text]) },
  commands: { registerCommand: (name, run) => { told.push(["command", name]); vscode.restart = run; return { dispose() {} }; } },
};
class LanguageClient {
  constructor(id, name, server, client) { this.server = server; told.push(["made", id, server.run, client.documentSelector]); }
  async start() { if (this.server.run.command === "missing") throw new Error("spawn missing ENOENT"); told.push(["started"]); }
  async stop() { told.push(["stopped"]); }
}
const load = Module._load;
Module._load = function (name, ...rest) {
  if (name === "vscode") return vscode;
  if (name === "vscode-languageclient/node") return { LanguageClient, TransportKind: { stdio: 0 } };
  return load.call(this, name, ...rest);
};
(async () => {
  const extension = require(PATH);
  const context = { subscriptions: [] };
  await extension.activate(context);
  await listener({ affectsConfiguration: (name) => name === "mplint.command" });
  await extension.deactivate();
  await extension.deactivate();
  console.log(JSON.stringify({ told, subscriptions: context.subscriptions.length }));
})();
"""


def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("Node is not installed")
    return found


def lived(command: list[str]) -> list[list[object]]:
    """What a session with this command in the settings did."""
    script = STAND_IN.replace("SETTINGS", json.dumps({"mplint.command": command})).replace(
        "PATH", json.dumps(str(EXTENSION / "extension.js"))
    )
    done = subprocess.run([node(), "-e", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    session = json.loads(done.stdout)
    assert session["subscriptions"] == 2
    told: list[list[object]] = session["told"]
    return told


def test_the_server_is_started_restarted_and_stopped() -> None:
    told = lived(["mplint", "server"])
    made = ["made", "mplint", {"command": "mplint", "args": ["server"], "transport": 0}]
    assert [one[:3] for one in told] == [["command", "mplint.restart"], made, ["started"], ["stopped"], made, ["started"], ["stopped"]]
    selector = told[1][3]
    assert {"scheme": "file", "language": "python"} in selector  # type: ignore[operator]


def test_a_relative_path_is_one_of_the_workspace() -> None:
    assert lived([".venv/bin/mplint", "server"])[1][2] == {"command": "/home/project/.venv/bin/mplint", "args": ["server"], "transport": 0}


def test_a_server_that_is_not_there_is_told_with_how_to_get_it() -> None:
    errors = [one[1] for one in lived(["missing"]) if one[0] == "error"]
    assert len(errors) == 2 and 'python -m pip install "mplint[lsp]"' in str(errors[0]) and "ENOENT" in str(errors[0])


def test_what_the_package_says_is_true() -> None:
    package = json.loads((EXTENSION / "package.json").read_text())
    source = (EXTENSION / "extension.js").read_text()
    asked = set(re.findall(r'"mplint\.([\w.]+)"', source)) | set(re.findall(r'get\("([\w.]+)"\)', source))
    commands = {entry["command"].removeprefix("mplint.") for entry in package["contributes"]["commands"]}
    settings = {name.removeprefix("mplint.") for name in package["contributes"]["configuration"]["properties"]}
    assert asked <= commands | settings and commands <= asked
    assert package["contributes"]["configuration"]["properties"]["mplint.command"]["default"] == ["mplint", "server"]
    assert (EXTENSION / package["main"]).exists()


@pytest.mark.slow
def test_it_packs_with_what_it_needs(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or subprocess.run([npm, "ping"], capture_output=True, timeout=60).returncode:
        pytest.skip("npm is not installed, or reaches no registry")
    folder = tmp_path / "docs" / "editors" / "vscode"
    shutil.copytree(EXTENSION, folder, ignore=shutil.ignore_patterns("node_modules", "*.vsix"))
    shutil.copy(ROOT / "LICENSE", tmp_path)
    for command in (["install", "--no-audit", "--no-fund"], ["run", "package"]):
        done = subprocess.run([npm, *command], cwd=folder, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
    (packed,) = folder.glob("*.vsix")
    names = set(zipfile.ZipFile(packed).namelist())
    assert {"extension/extension.js", "extension/package.json", "extension/LICENSE.txt"} <= names
    assert "extension/node_modules/vscode-languageclient/package.json" in names
