"""A real JupyterLab in a real Chromium: nbval runs no JavaScript, so a blank widget would pass it.

    def test_something(open_notebook):
        page = open_notebook("notebooks/00_watch_a_run.ipynb")   # a copy of it, all cells run
        page.locator(".my-widget canvas").hover(position={"x": 5, "y": 5})
        assert page.trouble() == []                              # no page errors, no request off this machine

A screenshot of every open page is kept in the folder MINISGL_SHOTS names, if it names one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVER_SECONDS = 90
RUN_ALL_MS = 120_000

SETTINGS: dict[str, dict[str, Any]] = {
    # No pop-up that asks about news, no look-up of newer versions.
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Cells out of sight exist too, so that a test can find them.
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
}
# The command resolves when the last cell is done; what cells raised is read from their outputs.
# page.evaluate() has no time limit of its own, and a dialog that nobody answers would hold it for ever.
RUN_ALL = """async limit => {
    const app = window.jupyterapp, notebook = app.shell.currentWidget;
    const run = async () => {
        await notebook.sessionContext.ready;
        await app.commands.execute("notebook:run-all-cells");
        return "done";
    };
    const late = new Promise(resolve => setTimeout(resolve, limit, "late"));
    if (await Promise.race([run(), late]) === "late") {
        const dialog = document.querySelector(".jp-Dialog")?.textContent ?? "none";
        const busy = document.querySelectorAll(".jp-InputPrompt").length;
        throw new Error(`the notebook did not finish in ${limit / 1000} s (open dialog: ${dialog}; ${busy} prompts)`);
    }
    return notebook.content.widgets
        .filter(cell => cell.model.type === "code")
        .flatMap(cell => cell.model.sharedModel.outputs)
        .filter(output => output.output_type === "error")
        .map(output => `${output.ename}: ${output.evalue}`);
}"""
SHUT_DOWN = "async () => { await window.jupyterapp?.serviceManager.sessions.shutdownAll(); }"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab server."""

    url: str
    notebooks: Path  # what it shows; notebooks are copied in here
    log: Path


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One JupyterLab for all browser tests, in folders of its own: nobody's settings matter, nobody's are changed."""
    home = tmp_path_factory.mktemp("lab")
    for name, value in SETTINGS.items():
        file = home / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value), encoding="utf-8")
    notebooks = home / "notebooks"
    notebooks.mkdir()
    own = {
        "IPYTHONDIR": home / "ipython",
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_DATA_DIR": home / "data",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
    }
    search = [str(ROOT), str(ROOT / "widgets"), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, **{k: str(v) for k, v in own.items()}, "PYTHONPATH": os.pathsep.join(search)}

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url, log = f"http://127.0.0.1:{port}", home / "server.log"
    options = [
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        "--IdentityProvider.token=",
        "--ServerApp.disable_check_xsrf=True",
        f"--ServerApp.root_dir={notebooks}",
        "--LabApp.expose_app_in_browser=True",
    ]
    with log.open("w", encoding="utf-8") as stream:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], env=env, cwd=notebooks, stdout=stream, stderr=stream
        )
    try:
        deadline = time.monotonic() + SERVER_SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"{url}/api", timeout=2):
                    break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                if server.poll() is not None or time.monotonic() > deadline:
                    pytest.fail("JupyterLab did not start:\n" + log.read_text(encoding="utf-8")[-3000:], pytrace=False)
                time.sleep(0.2)
        yield Lab(url, notebooks, log)
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@dataclass
class NotebookPage:
    """An open notebook. Whatever it does not define itself is Playwright's ``Page``."""

    page: Any
    errors: list[str] = field(default_factory=list)  # exceptions that nothing in the page caught
    requests: list[str] = field(default_factory=list)  # addresses asked for that are not this machine's JupyterLab
    cell_errors: list[str] = field(default_factory=list)  # exceptions that cells ended in

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)

    def trouble(self) -> list[str]:
        """All that must not happen, in words; empty when all is well."""
        return (
            [f"error in the page: {e}" for e in self.errors]
            + [f"request off this machine: {r}" for r in self.requests]
            + [f"a cell failed: {e}" for e in self.cell_errors]
        )

    def run_all(self) -> None:
        """Run all cells and wait for the last one."""
        self.cell_errors = self.page.evaluate(RUN_ALL, RUN_ALL_MS)


def use_our_kernel(path: Path) -> None:
    """Name this environment's kernel in a copied notebook; a notebook that names none opens a dialog."""
    nb = json.loads(path.read_text(encoding="utf-8"))
    nb["metadata"]["kernelspec"] = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    path.write_text(json.dumps(nb), encoding="utf-8")


@pytest.fixture
def open_notebook(lab: Lab, chromium: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., NotebookPage]]:
    """Open a copy of a notebook and run all its cells: ``open_notebook(path, run=True, dark=False)``."""
    opened: list[NotebookPage] = []

    def open_(path: str | Path, *, run: bool = True, dark: bool = False, width: int = 1400, height: int = 1400) -> Any:
        source = ROOT / path
        folder = lab.notebooks / f"{len(list(lab.notebooks.iterdir())):03d}"
        folder.mkdir()
        # Notebooks may read what lies beside them (recorded traces), so all of a small folder comes along.
        if source.parent == ROOT / "notebooks":
            shutil.copytree(source.parent, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
        else:
            shutil.copy(source, folder)
        use_our_kernel(folder / source.name)

        context = chromium.new_context(viewport={"width": width, "height": height})
        page = NotebookPage(context.new_page())
        opened.append(page)
        page.set_default_timeout(30_000)
        own = (lab.url, "ws" + lab.url[4:], "blob:", "data:", "about:")
        page.on("request", lambda r: None if r.url.startswith(own) else page.requests.append(r.url))
        page.on("websocket", lambda w: None if w.url.startswith(own) else page.requests.append(w.url))
        page.on("pageerror", lambda e: page.errors.append(str(e)))
        page.goto(f"{lab.url}/lab/tree/{folder.name}/{source.name}?reset")
        page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.context?.isReady", timeout=90_000)
        # always: the server remembers what the test before it chose
        page.evaluate(
            "async (theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })",
            "JupyterLab Dark" if dark else "JupyterLab Light",
        )
        page.wait_for_function("(light) => document.body.dataset.jpThemeLight === light", arg=str(not dark).lower())
        if run:
            page.run_all()
        return page

    yield open_

    shots = os.environ.get("MINISGL_SHOTS")
    for index, page in enumerate(opened):
        if shots:
            Path(shots).mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^\w.-]+", "_", f"{request.node.path.stem}-{request.node.name}-{index}")
            page.screenshot(path=str(Path(shots) / f"{name}.png"))
        # Kernels outlive their page; the next test must not inherit one.
        page.evaluate(SHUT_DOWN)
        page.context.close()
