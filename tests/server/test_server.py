"""The editor server, spoken to by a client over standard input and output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_lsp
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

PROGRAM = "import torch\n\n\nwith torch.cuda.amp.autocast():\n    pass\n"
LOSS = "import torch.nn.functional as F\n\n\ndef criterion(output, target):\n    return F.binary_cross_entropy(output.sigmoid(), target)\n"
TRAIN = """\
import torch

from loss import criterion


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(x)


def main(loader):
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    main(torch.utils.data.DataLoader([]))
"""


@pytest_lsp.fixture(config=ClientServerConfig(server_command=[sys.executable, "-m", "mplint", "server"]))
async def client(lsp_client: LanguageClient, tmp_path: Path) -> AsyncIterator[None]:
    (tmp_path / "old.py").write_text(PROGRAM)
    (tmp_path / "loss.py").write_text(LOSS)
    (tmp_path / "train.py").write_text(TRAIN)

    @lsp_client.feature(types.CLIENT_REGISTER_CAPABILITY)
    def registered(_: LanguageClient, params: types.RegistrationParams) -> None:
        assert [request.method for request in params.registrations] == [types.WORKSPACE_DID_CHANGE_WATCHED_FILES]

    folder = types.WorkspaceFolder(tmp_path.as_uri(), "project")
    capabilities = client_capabilities("visual-studio-code")
    await lsp_client.initialize_session(types.InitializeParams(capabilities=capabilities, workspace_folders=[folder]))
    lsp_client.folder = tmp_path  # type: ignore[attr-defined]
    yield
    await lsp_client.shutdown_session()


def uri(client: LanguageClient, name: str) -> str:
    return (client.folder / name).as_uri()  # type: ignore[attr-defined,no-any-return]


def open_document(client: LanguageClient, name: str, text: str | None = None) -> str:
    where = uri(client, name)
    text = (client.folder / name).read_text() if text is None else text  # type: ignore[attr-defined]
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(where, "python", 1, text)))
    return where


def type_text(client: LanguageClient, where: str, version: int, text: str) -> None:
    document = types.VersionedTextDocumentIdentifier(version, where)
    client.text_document_did_change(types.DidChangeTextDocumentParams(document, [types.TextDocumentContentChangeWholeDocument(text)]))


async def told(client: LanguageClient, where: str, *codes: str) -> list[types.Diagnostic]:
    """The diagnostics of a document, once they have these codes."""
    for _ in range(600):
        found = list(client.diagnostics.get(where, ()))
        if [str(d.code) for d in found] == list(codes) and (codes or where in client.diagnostics):
            return found
        await asyncio.sleep(0.05)
    raise AssertionError([d.code for d in client.diagnostics.get(where, ())])


async def actions(
    client: LanguageClient, where: str, found: types.Range, only: str | None = None
) -> dict[str, types.CodeAction | types.Command]:
    kinds = [only] if only else None
    asked = types.CodeActionParams(types.TextDocumentIdentifier(where), found, types.CodeActionContext([], only=kinds))
    offered = await client.text_document_code_action_async(asked)
    return {action.title: action for action in offered or ()}


def applied(text: str, action: types.CodeAction | types.Command, where: str) -> str:
    assert isinstance(action, types.CodeAction) and action.edit is not None and action.edit.changes is not None
    lines = text.splitlines(keepends=True)
    for edit in sorted(action.edit.changes[where], key=lambda e: (e.range.start.line, e.range.start.character), reverse=True):
        assert isinstance(edit, types.TextEdit)
        first, last = edit.range.start, edit.range.end
        before, after = lines[first.line][: first.character], lines[last.line][last.character :]
        lines[first.line : last.line + 1] = [before + edit.new_text + after]
    return "".join(lines)


@pytest.mark.asyncio
async def test_opening_a_file_shows_what_the_whole_project_knows(client: LanguageClient) -> None:
    open_document(client, "train.py")
    (found,) = await told(client, uri(client, "loss.py"), "MP206")
    assert found.range.start == types.Position(4, 11) and found.severity == types.DiagnosticSeverity.Error
    assert found.source == "mplint" and "RuntimeError" in found.message
    related = found.related_information or []
    assert uri(client, "train.py") in {place.location.uri for place in related}
    (deprecated,) = await told(client, uri(client, "old.py"), "MP101")
    assert list(deprecated.tags or ()) == [types.DiagnosticTag.Deprecated]


@pytest.mark.asyncio
async def test_typing_brings_and_takes_findings_also_in_other_files(client: LanguageClient) -> None:
    where = open_document(client, "train.py")
    await told(client, uri(client, "loss.py"), "MP206")
    type_text(client, where, 2, TRAIN.replace('torch.autocast("cuda")', 'torch.autocast("cuda", enabled=False)'))
    await told(client, uri(client, "loss.py"))
    type_text(client, where, 3, "def f(:\n")
    await told(client, where, "MP001")
    type_text(client, where, 4, TRAIN)
    await told(client, where)
    await told(client, uri(client, "loss.py"), "MP206")


@pytest.mark.asyncio
async def test_fixes_comments_and_pages_are_offered_and_hold(client: LanguageClient) -> None:
    where = open_document(client, "old.py")
    (found,) = await told(client, where, "MP101")
    offered = await actions(client, where, found.range)
    assert len(offered) == 3, list(offered)
    fix, ignore, explain = offered.values()
    assert isinstance(fix, types.CodeAction) and fix.is_preferred and ignore.title == "mplint: ignore MP101 on this line"
    fixed = applied(PROGRAM, fix, where)
    assert 'with torch.amp.autocast("cuda"):' in fixed
    ignored = applied(PROGRAM, ignore, where)
    assert "autocast():  # mplint: ignore[MP101]\n" in ignored
    assert isinstance(explain, types.Command)
    page = await client.workspace_execute_command_async(types.ExecuteCommandParams(explain.command, explain.arguments))
    assert client.shown_documents[0].uri.endswith("deprecated-torch-amp.md")
    assert isinstance(page, str) and page.startswith("# MP101 deprecated-torch-amp")
    (every,) = (await actions(client, where, found.range, "source.fixAll")).values()
    assert applied(PROGRAM, every, where) == fixed
    for number, text in enumerate((fixed, ignored), 2):
        type_text(client, where, number, text)
        await told(client, where)


@pytest.mark.asyncio
async def test_nothing_is_offered_for_a_text_that_was_not_checked(client: LanguageClient) -> None:
    where = open_document(client, "old.py")
    (found,) = await told(client, where, "MP101")
    type_text(client, where, 2, "# a new line\n" + PROGRAM)
    assert await actions(client, where, found.range) == {}


@pytest.mark.asyncio
async def test_columns_count_as_the_protocol_does(client: LanguageClient) -> None:
    where = open_document(client, "wide.py", 'import torch\n\nx = "😀😀"; y = torch.cuda.amp.autocast()\nwith y:\n    pass\n')
    (found,) = await told(client, where, "MP101")
    assert found.range.start == types.Position(2, 16)


@pytest.mark.asyncio
async def test_hovering_tells_what_is_in_force(client: LanguageClient) -> None:
    where = open_document(client, "loss.py")
    asked = types.HoverParams(types.TextDocumentIdentifier(where), types.Position(4, 12))
    hover = await client.text_document_hover_async(asked)
    assert hover is not None and isinstance(hover.contents, types.MarkupContent)
    assert "float16" in hover.contents.value and "autocast" in hover.contents.value
    assert await client.text_document_hover_async(types.HoverParams(types.TextDocumentIdentifier(where), types.Position(1, 0))) is None
    train = open_document(client, "train.py")
    line = next(number for number, text in enumerate(TRAIN.splitlines()) if "scaler.step(" in text)
    hover = await client.text_document_hover_async(types.HoverParams(types.TextDocumentIdentifier(train), types.Position(line, 10)))
    assert hover is not None and isinstance(hover.contents, types.MarkupContent)
    assert "scaler `torch.amp.GradScaler`" in hover.contents.value and "scaler step" in hover.contents.value


@pytest.mark.asyncio
async def test_what_is_written_on_disk_and_what_is_configured_count(client: LanguageClient) -> None:
    open_document(client, "train.py")
    await told(client, uri(client, "old.py"), "MP101")
    folder: Any = client.folder  # type: ignore[attr-defined]

    def written(name: str, kind: types.FileChangeType) -> None:
        client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([types.FileEvent(uri(client, name), kind)]))

    (folder / "old.py").unlink()
    written("old.py", types.FileChangeType.Deleted)
    await told(client, uri(client, "old.py"))
    (folder / "mplint.toml").write_text('ignore = ["MP206"]\n')
    written("mplint.toml", types.FileChangeType.Created)
    await told(client, uri(client, "loss.py"))


@pytest.mark.asyncio
async def test_a_wrong_configuration_is_said_in_the_editor(client: LanguageClient) -> None:
    open_document(client, "train.py")
    await told(client, uri(client, "old.py"), "MP101")
    folder: Any = client.folder  # type: ignore[attr-defined]
    (folder / "mplint.toml").write_text('ignroe = ["MP206"]\n')
    event = types.FileEvent(uri(client, "mplint.toml"), types.FileChangeType.Created)
    client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
    for _ in range(200):
        if client.messages:
            break
        await asyncio.sleep(0.05)
    assert 'unknown key "ignroe"; did you mean "ignore"?' in client.messages[0].message


@pytest.mark.asyncio
async def test_findings_of_a_notebook_stand_in_its_cells(client: LanguageClient) -> None:
    where = uri(client, "n.ipynb")
    cells = ("import torch\n", "# text", "with torch.cuda.amp.autocast():\n    pass\n")
    kinds = (types.NotebookCellKind.Code, types.NotebookCellKind.Markup, types.NotebookCellKind.Code)
    named = [f"vscode-notebook-cell:/n.ipynb#{number}" for number in range(3)]
    notebook = types.NotebookDocument(
        where, "jupyter-notebook", 1, [types.NotebookCell(kind, name) for kind, name in zip(kinds, named, strict=True)]
    )
    documents = [
        types.TextDocumentItem(name, "python", 1, text)
        for name, text, kind in zip(named, cells, kinds, strict=True)
        if kind == types.NotebookCellKind.Code
    ]
    client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, documents))
    (found,) = await told(client, named[2], "MP101")
    assert found.range.start == types.Position(0, 5)
    fix, *_ = (await actions(client, named[2], found.range)).values()
    assert 'with torch.amp.autocast("cuda"):' in applied(cells[2], fix, named[2])
