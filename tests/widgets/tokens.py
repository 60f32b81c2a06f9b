"""The style sheet's variables, for tests that compare colours."""

from __future__ import annotations

import re

from minisgl_widgets.bundle import styles

PAIR = r"var\(--msgl-light, (?P<light>[^)]+)\) var\(--msgl-dark, (?P<dark>[^)]+)\)"


def tokens(scheme: str) -> dict[str, str]:
    """Name -> value in "light" or "dark", as they are without JupyterLab."""
    (block,) = re.findall(r"\.msgl, \.msgl-page \{(.*?)\n\}", styles(), re.DOTALL)
    said = dict(re.findall(r"--msgl-([\w-]+): ([^;]*);", re.sub(PAIR, rf"\g<{scheme}>", block)))
    said["bg"] = re.sub(r"var\(--jp-layout-color0, (.*)\)", r"\1", said["bg"])
    return said
