"""The settings for Neovim that the documentation shows, in a Neovim without a screen."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```lua\n(.*?)```", (ROOT / "docs" / "editors.md").read_text(), re.S)
# What a user does: looks at the findings, at what holds on a line, at what is offered, takes a fix, and looks again.
SESSION = """
local told = {}
local function wait(what) return vim.wait(60000, what, 50) end
local function lines() return vim.tbl_map(function(d) return { d.lnum + 1, d.code } end, vim.diagnostic.get(0)) end
wait(function() return #vim.diagnostic.get(0) > 0 end)
told.found = lines()
vim.api.nvim_win_set_cursor(0, { LINE, 12 })
local place = vim.lsp.util.make_position_params(0, "utf-16")
for _, answer in pairs(vim.lsp.buf_request_sync(0, "textDocument/hover", place, 60000) or {}) do
  told.hover = answer.result and answer.result.contents.value
end
vim.lsp.buf.code_action({ apply = true, filter = function(action) return action.title:match("unscale_") ~= nil end })
told.changed = wait(function() return vim.bo.modified end)
told.mended = wait(function()
  return vim.iter(lines()):all(function(found) return found[2] ~= "MP304" end)
end)
told.text = vim.api.nvim_buf_get_lines(0, 0, -1, false)
io.stdout:write(vim.json.encode(told) .. "\\n")
vim.cmd("qa!")
"""


def neovim(oldest: tuple[int, int]) -> str:
    """The Neovim of this machine, where it is new enough."""
    found = shutil.which("nvim")
    if found is None:
        pytest.skip("Neovim is not installed")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    version = re.match(r"NVIM v(\d+)\.(\d+)", told)
    assert version is not None, told
    if (int(version[1]), int(version[2])) < oldest:
        pytest.skip(f"Neovim {version[1]}.{version[2]} is older than {oldest[0]}.{oldest[1]}, which these settings need")
    return found


def lived(editor: str, settings: str, folder: Path) -> dict[str, Any]:
    """What a session with some settings saw in the training script of the quickstart."""
    project = folder / "project"
    shutil.copytree(ROOT / "fixtures" / "quickstart" / "torch_captions", project)
    (project / "mplint.toml").write_text("")
    line = (project / "train.py").read_text().splitlines().index("            nn.utils.clip_grad_norm_(model.parameters(), 1.0)") + 1
    (folder / "init.lua").write_text(f"vim.cmd('filetype on')\n{settings}")
    (folder / "session.lua").write_text(SESSION.replace("LINE", str(line)))
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("STATE", "DATA", "CACHE", "CONFIG")}
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    command = [editor, "--headless", "-u", str(folder / "init.lua"), "train.py", "-c", f"luafile {folder / 'session.lua'}"]
    ran = subprocess.run(
        command, cwd=project, env={**os.environ, **homes, "PATH": path}, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.stdout.startswith("{"), ran.stdout + ran.stderr
    seen: dict[str, Any] = json.loads(ran.stdout.splitlines()[0])
    return seen


@pytest.mark.parametrize(("number", "oldest"), [(0, (0, 11)), (1, (0, 10))], ids=["enable", "start"])
def test_what_is_shown_for_neovim_works(number: int, oldest: tuple[int, int], tmp_path: Path) -> None:
    seen = lived(neovim(oldest), BLOCKS[number], tmp_path)
    assert "MP304" in [code for _, code in seen["found"]] and "MP101" in [code for _, code in seen["found"]]
    assert "scaled" in seen["hover"]
    assert seen["changed"] and seen["mended"]
    assert any("scaler.unscale_(optimizer)" in text for text in seen["text"])
