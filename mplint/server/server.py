"""`mplint server`: answers an editor over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from mplint.about import VERSION
from mplint.config import Config
from mplint.dev.facts import Facts, LineFacts, facts, said_of
from mplint.engine.select import known_rules
from mplint.engine.texts import Texts
from mplint.errors import UsageError, describe
from mplint.findings import Finding
from mplint.python.suffixes import PROGRAMS
from mplint.server.actions import EXPLAIN, FIX_ALL, Offer, actions_at, fix_all
from mplint.server.project import Project
from mplint.server.translate import Cells, Places

PAUSE = 0.3  # seconds without a keystroke before the project is checked
WATCHED = "**/*.{py,pyi,ipynb,json,yaml,yml,toml,cfg,txt}"
SETTINGS = ("pyproject.toml", "mplint.toml", "setup.cfg", "requirements.txt")
NOTEBOOKS = types.NotebookDocumentSyncOptions(
    notebook_selector=[types.NotebookDocumentFilterWithCells(cells=[types.NotebookCellLanguage(language="python")])], save=True
)
NO_CELLS: Cells = {}


class Checked(NamedTuple):
    """The findings of a check by path, the texts that they point into, and where the cells of notebooks are."""

    findings: Mapping[str, list[Finding]]
    texts: Texts
    places: Places


NOTHING = Checked({}, Texts(), Places(Texts(), NO_CELLS))


class Server(LanguageServer):
    """The state of one editor's session."""

    def __init__(self) -> None:
        super().__init__("mplint", VERSION, notebook_document_sync=NOTEBOOKS)
        self.project: Project | None = None
        self.checked = NOTHING
        self._checker = ThreadPoolExecutor(1, "mplint")  # one check at a time: the next one is of all that changed meanwhile
        self._turn = 0
        self._shown: set[str] = set()
        self._facts: dict[str, tuple[bytes, Facts]] = {}

    def opened(self, root: str) -> Project:
        """The project, read when it is first needed."""
        if self.project is None:
            os.chdir(root)
            self.project = Project(root)
        return self.project

    def project_of(self, path: str) -> Project:
        """The project that a file belongs to: that of the folder that the editor has open, else the file's own folder."""
        folders = [uris.to_fs_path(uri) for uri in self.workspace.folders] or [self.workspace.root_path]
        roots = [folder for folder in folders if folder]
        below = (root for root in roots if path.startswith(os.path.join(root, "")))
        return self.opened(next(below, roots[0] if roots else os.path.dirname(path)))

    def set_aside(self) -> None:
        """Forget the project, whose configuration has changed; what is being edited stays."""
        old, self.project = self.project, None
        if old is not None:
            for path, text in old.edited().items():
                self.opened(old.root).edit(path, text)

    async def check_soon(self) -> None:
        """Check when nothing has been typed for a moment, and show what was found."""
        self._turn += 1
        turn = self._turn
        await asyncio.sleep(PAUSE)
        if turn != self._turn or self.project is None:
            return
        project, edited = self.project, self.project.edited()
        loop = asyncio.get_running_loop()
        try:
            found, faults = await loop.run_in_executor(self._checker, project.check)
        except UsageError as error:
            self.window_show_message(types.ShowMessageParams(types.MessageType.Error, f"mplint: {error}"))
            return
        for fault in faults:
            self.window_log_message(types.LogMessageParams(types.MessageType.Error, f"mplint: internal error: {fault}"))
        texts = Texts(edited)
        self.checked = Checked(found, texts, Places(texts, self.cells()))
        self._publish()

    def cells(self) -> Cells:
        """The addresses of the cells of open notebooks, by path and index among all cells."""
        return {
            (path, index): cell.document
            for uri, notebook in self.workspace.notebook_documents.items()
            if (path := uris.to_fs_path(uri)) is not None
            for index, cell in enumerate(notebook.cells)
        }

    def _publish(self) -> None:
        diagnostics: dict[str, list[types.Diagnostic]] = {uri: [] for uri in self._shown}
        for found in self.checked.findings.values():
            for finding in found:
                uri = self.checked.places.uri(finding.location)
                diagnostics.setdefault(uri, []).append(self.checked.places.diagnostic(finding))
        for uri, items in diagnostics.items():
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, items))
        self._shown = {uri for uri, items in diagnostics.items() if items}

    def findings_of(self, uri: str) -> list[Finding]:
        """What is shown in a document."""
        return [f for found in self.checked.findings.values() for f in found if self.checked.places.uri(f.location) == uri]

    async def facts_of(self, path: str) -> Facts | None:
        """What the interpreter sees in a program as it is being edited."""
        project = self.project_of(path)
        edited = project.edited()
        key = json.dumps(sorted((name, hash(text)) for name, text in edited.items())).encode()
        known = self._facts.get(path)
        if known is None or known[0] != key:
            loop = asyncio.get_running_loop()
            try:
                found = await loop.run_in_executor(self._checker, lambda: facts(path, project.root, edited))
            except UsageError:
                return None
            known = self._facts[path] = (key, found)
        return known[1]


async def initialized(ls: Server, params: types.InitializedParams) -> None:
    """The session begins."""
    await watch(ls)


async def opened(ls: Server, params: types.DidOpenTextDocumentParams) -> None:
    """A program was opened."""
    await changed(ls, params.text_document.uri)


async def edited(ls: Server, params: types.DidChangeTextDocumentParams) -> None:
    """A program was edited."""
    await changed(ls, params.text_document.uri)


async def closed(ls: Server, params: types.DidCloseTextDocumentParams) -> None:
    """A program was closed: what lies on disk counts again."""
    path = program(params.text_document.uri)
    if path is not None:
        ls.project_of(path).forget(path)
        await ls.check_soon()


async def notebook_opened(ls: Server, params: types.DidOpenNotebookDocumentParams) -> None:
    """A notebook was opened."""
    await notebook_changed(ls, params.notebook_document.uri)


async def notebook_edited(ls: Server, params: types.DidChangeNotebookDocumentParams) -> None:
    """A notebook, its cells or their order were edited."""
    await notebook_changed(ls, params.notebook_document.uri)


async def notebook_closed(ls: Server, params: types.DidCloseNotebookDocumentParams) -> None:
    """A notebook was closed."""
    path = program(params.notebook_document.uri)
    if path is not None:
        ls.project_of(path).forget(path)
        await ls.check_soon()


async def written(ls: Server, params: types.DidChangeWatchedFilesParams) -> None:
    """Files were written, made or removed, by the editor or by others."""
    paths = [path for change in params.changes if (path := uris.to_fs_path(change.uri)) is not None]
    if any(os.path.basename(path) in SETTINGS for path in paths):
        ls.set_aside()
    if ls.project is not None:
        ls.project.touch(paths)
        await ls.check_soon()


def actions(ls: Server, params: types.CodeActionParams) -> list[Offer]:
    """What is offered at a range."""
    return offered(ls, params)


async def hover(ls: Server, params: types.HoverParams) -> types.Hover | None:
    """What is in force on a line."""
    path = program(params.text_document.uri)
    found = await ls.facts_of(path) if path is not None else None
    line = next((line for line in found.lines if line.number == params.position.line + 1), None) if found is not None else None
    return None if line is None or found is None else types.Hover(types.MarkupContent(types.MarkupKind.Markdown, in_words(line, found)))


def explain(ls: Server, code: str) -> str:
    """Show a rule's page, and return its text."""
    rule = known_rules(ls.project.config if ls.project is not None else Config())[code].load()
    if rule.url():
        ls.window_show_document(types.ShowDocumentParams(rule.url(), external=True))
    return f"# {rule.code} {rule.name}\n\n{rule.documentation()}\n"


def program(uri: str) -> str | None:
    """The path of a program or notebook; None for other documents."""
    path = uris.to_fs_path(uri)
    return path if path is not None and path.endswith(PROGRAMS) else None


async def changed(ls: Server, uri: str) -> None:
    """A document was opened or edited."""
    path = program(uri)
    if path is not None:
        ls.project_of(path).edit(path, ls.workspace.get_text_document(uri).source.encode("utf-8", "surrogatepass"))
        await ls.check_soon()


async def notebook_changed(ls: Server, uri: str) -> None:
    """A notebook was opened or edited; what it would be on disk stands for it."""
    path = program(uri)
    notebook = ls.workspace.get_notebook_document(notebook_uri=uri)
    if path is None or notebook is None:
        return
    documents = ls.workspace.text_documents
    cells: list[dict[str, object]] = [
        {
            "cell_type": "code" if cell.kind == types.NotebookCellKind.Code else "markdown",
            "metadata": {},
            "source": documents[cell.document].source if cell.document in documents else "",
        }
        for cell in notebook.cells
    ]
    text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    ls.project_of(path).edit(path, text.encode())
    await ls.check_soon()


async def watch(ls: Server) -> None:
    """Ask the editor to tell what is written on disk, where it can."""
    workspace = ls.client_capabilities.workspace
    can = workspace is not None and workspace.did_change_watched_files is not None
    if can and workspace is not None and workspace.did_change_watched_files and workspace.did_change_watched_files.dynamic_registration:
        options = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher(WATCHED)])
        asked = types.Registration("mplint-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        await ls.client_register_capability_async(types.RegistrationParams([asked]))


def offered(ls: Server, params: types.CodeActionParams) -> list[Offer]:
    """The actions at a range of a document; none while it is newer than what was checked."""
    uri, wanted = params.text_document.uri, params.context.only
    path = uris.to_fs_path(uri)
    checked = ls.checked
    found = ls.findings_of(uri)
    edited = ls.project.edited() if ls.project is not None else {}
    if path is not None and path.endswith(PROGRAMS) and not checked.texts.holds(path, edited.get(path, b"")):
        return []
    here = [f for f in found if overlap(checked.places.range(f.location), params.range)]
    try:
        offers = actions_at(here, checked.texts, checked.places)
        every = fix_all(found, checked.texts, checked.places)
    except RuntimeError as error:
        ls.window_log_message(types.LogMessageParams(types.MessageType.Error, f"mplint: {describe(error)}"))
        return []
    offers += [every] if every is not None else []
    kinds = [(offer, offer.kind if isinstance(offer, types.CodeAction) else "") for offer in offers]
    if wanted:
        return [offer for offer, kind in kinds if kind and any(kind.startswith(asked) for asked in wanted)]
    return [offer for offer, kind in kinds if kind != FIX_ALL]


def overlap(one: types.Range, other: types.Range) -> bool:
    """Whether two ranges share a line."""
    return one.start.line <= other.end.line and other.start.line <= one.end.line


def in_words(line: LineFacts, found: Facts) -> str:
    """What is in force on a line."""
    said = [f"- {text}" if not text.startswith("    ") else f"  - {text.strip()}" for text in said_of(line, len(found.entries) > 1)]
    return "\n".join(["**mplint sees here**", "", *said])


FEATURES: tuple[tuple[str, Callable[..., object], object], ...] = (
    (types.INITIALIZED, initialized, None),
    (types.TEXT_DOCUMENT_DID_OPEN, opened, None),
    (types.TEXT_DOCUMENT_DID_CHANGE, edited, None),
    (types.TEXT_DOCUMENT_DID_CLOSE, closed, None),
    (types.NOTEBOOK_DOCUMENT_DID_OPEN, notebook_opened, None),
    (types.NOTEBOOK_DOCUMENT_DID_CHANGE, notebook_edited, None),
    (types.NOTEBOOK_DOCUMENT_DID_CLOSE, notebook_closed, None),
    (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, written, None),
    (types.TEXT_DOCUMENT_CODE_ACTION, actions, types.CodeActionOptions([types.CodeActionKind.QuickFix, FIX_ALL])),
    (types.TEXT_DOCUMENT_HOVER, hover, None),
)


def make_server() -> Server:
    """A server with every feature."""
    server = Server()
    for name, answer, options in FEATURES:
        server.feature(name, options)(answer)
    server.command(EXPLAIN)(explain)
    return server
