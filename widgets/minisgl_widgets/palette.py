"""What the colours stand for, once for Python: ``static/stage.css`` says the same, and a test holds the two together.

The hues are those of Okabe and Ito, stated in ``minisgl.sim.answers.pictures``: people with any of the common colour
blindnesses can tell them apart. A colour is never the only sign: cells carry characters, bars carry names.
"""

from __future__ import annotations

from minisgl.sim.answers.pictures import BLUE, GREEN, ORANGE, PALE, PINK, RED, SKY, YELLOW
from minisgl.sim.answers.pictures import GREY as SILVER

BLACK, WHITE = "#000000", "#ffffff"
# A request's colour is UIDS[uid % 7]; the cache's pages belong to nobody and are grey.
UIDS = (BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW)
GREY = "#787878"  # writing that reads on white and on JupyterLab's black (4.4 and 4.3 to 1)
GHOST = "rgba(128, 128, 128, 0.75)"  # a run as it was, behind one as it would be
LINE, BAD = "#b4bbc4", "#b3261e"
KINDS = {"free": PALE, "owned": BLUE, "evictable": SILVER, "protected": "#6e6e6e"}
LEDGER = {"need": BLUE, "promised": ORANGE, "free": PALE, "evictable": SILVER, "pending": PINK}
DECODE = "#c3b58c"  # tokens of requests that decode: the views' brown, mixed with white


def of_uid(uid: int) -> str:
    """The colour of a request, the same in every view."""
    return UIDS[uid % len(UIDS)]


def luminance(fill: str) -> float:
    """Relative luminance of ``#rrggbb`` as WCAG has it, 0 to 1."""
    channels = [int(fill[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ink(fill: str) -> str:
    """Black or white, whichever is easier to read on a fill."""
    light = luminance(fill) + 0.05
    return BLACK if light / 0.05 >= 1.05 / light else WHITE
