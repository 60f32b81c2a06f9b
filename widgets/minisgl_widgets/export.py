"""A recorded run as one HTML file: the same views, no kernel, no network."""

from __future__ import annotations

import base64
import gzip
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from minisgl_widgets.bundle import bundle, styles

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
html {{ color-scheme: light dark; }}
body {{ margin: 0; padding: 12px 20px 24px; background: #fff; color: #1b1f24; font: 14px/1.5 system-ui, "DejaVu Sans", sans-serif; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #181c20; color: #e8ebef; }} }}
body > header {{ max-width: 1600px; margin: 0 auto 8px; }}
h1 {{ margin: 0; font-size: 20px; line-height: 1.3; }}
body > header p {{ margin: 0; }}
kbd {{ font: inherit; padding: 0 4px; border: 1px solid currentColor; border-radius: 3px; }}
main {{ max-width: 1600px; margin: 0 auto; }}
{styles}
.msgl .msgl-title {{ visibility: hidden; }}
</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p>A recorded run of minisgl, {facts}. <kbd>space</kbd> plays, <kbd>←</kbd> <kbd>→</kbd> step, <kbd>Home</kbd> <kbd>End</kbd> jump;
point at a page, a request or a node to see all that belongs to it.</p>
</header>
<main id="stage"><noscript>This page needs JavaScript to show the run; it loads nothing from anywhere.</noscript></main>
<script type="text/plain" id="record">{record}</script>
<script type="text/plain" id="module">{module}</script>
<script type="module">
const text = (id) => document.getElementById(id).textContent;
const el = document.getElementById("stage");
try {{
  const packed = Uint8Array.from(atob(text("record")), (c) => c.charCodeAt(0));
  const record = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const module = await import(URL.createObjectURL(new Blob([text("module")], {{ type: "text/javascript" }})));
  let timer = 0;
  const moved = (step) => {{
    clearTimeout(timer);
    timer = setTimeout(() => history.replaceState(null, "", `#step=${{step}}`), 200);
  }};
  const traits = {{ record, length: 0, exported: true, moved }};
  const model = {{ get: (name) => traits[name], set() {{}}, on() {{}}, off() {{}}, send() {{}}, save_changes() {{}} }};
  const views = module.default();
  views.initialize({{ model }});
  views.render({{ model, el }});
  const follow = () => {{
    const wanted = new URLSearchParams(location.hash.slice(1));
    el.stage.goto(wanted.has("step") ? Number(wanted.get("step")) : el.stage.store.first);
    if (wanted.has("req")) el.stage.pin({{ kind: "uid", uid: Number(wanted.get("req")) }});
  }};
  addEventListener("hashchange", follow);
  addEventListener("keydown", (event) => {{
    if (event.target === document.body && el.stage.player.key(event)) event.preventDefault();
  }});
  follow();
  document.body.dataset.ready = "true";
}} catch (error) {{
  el.textContent = `This browser cannot show the run: ${{error}}`;
  throw error;
}}
</script>
</body>
</html>
"""


def export_html(record: dict[str, Any], path: str | Path, title: str = "") -> Path:
    """Write ``History.record()`` as one HTML file that plays it; the same record gives the same bytes.

    ``#step=17`` at the end of its address opens it at step 17; ``#step=17&req=4`` also marks request 4.
    """
    path = Path(path)
    title = title or record.get("title") or "A run of minisgl"
    assert "</script" not in bundle(), "the page holds the module inside a script element"
    data = msgspec.json.encode({**record, "title": title})
    steps, pages = len(record["deltas"]), record["keyframe"]["num_pages"]
    page = _PAGE.format(
        title=escape(title),
        facts=f"{steps} steps on {pages} pages of {record['keyframe']['page_size']} tokens",
        styles=styles(),
        record=base64.b64encode(gzip.compress(data, 9, mtime=0)).decode(),
        module=bundle(),
    )
    path.write_text(page, "utf-8", newline="\n")
    return path
