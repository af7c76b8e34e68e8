// Starts `mplint server` and lets VS Code speak with it.
"use strict";

const path = require("path");
const vscode = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

const SELECTOR = [
  ...["python", "r", "rmd", "quarto"].map((language) => ({ scheme: "file", language })),
  { notebook: { scheme: "file", notebookType: "jupyter-notebook" }, language: "python" },
];

let client;

/** The command of the settings, a relative path with folders in it taken from the first folder of the workspace. */
function command() {
  const [name, ...args] = vscode.workspace.getConfiguration("mplint").get("command");
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  const isPath = name.includes("/") || name.includes("\\");
  return { command: isPath && folder ? path.resolve(folder, name) : name, args, transport: TransportKind.stdio };
}

/** Start the server, and say what to do where that is not possible. */
async function start() {
  const run = command();
  client = new LanguageClient("mplint", "mplint", { run, debug: run }, { documentSelector: SELECTOR });
  try {
    await client.start();
  } catch (error) {
    const how = 'Install it with `python -m pip install "mplint[lsp]"`, or set `mplint.command`.';
    vscode.window.showErrorMessage(`mplint: ${run.command} can't be started: ${error.message ?? error}. ${how}`);
    client = undefined;
  }
}

/** Stop the server, if one runs. */
async function stop() {
  const old = client;
  client = undefined;
  await old?.stop();
}

async function restart() {
  await stop();
  await start();
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("mplint.restart", restart),
    vscode.workspace.onDidChangeConfiguration((change) => change.affectsConfiguration("mplint.command") && restart()),
  );
  await start();
}

module.exports = { activate, deactivate: stop };
