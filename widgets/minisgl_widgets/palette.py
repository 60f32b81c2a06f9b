"""The colours, once for Python: ``static/stage.css`` has the same ones, and a test holds the two together.

The hues are those of Okabe and Ito, which people with any of the common colour blindnesses can tell apart. A colour is
never the only sign: cells carry characters, bars carry names.
"""

from __future__ import annotations

BLACK, WHITE = "#000000", "#ffffff"
# A request's colour is UIDS[uid % 7]; the cache's pages belong to nobody and are grey.
UIDS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
GREY = "#787878"  # writing that reads on white and on JupyterLab's black (4.4 and 4.3 to 1)
GHOST = "rgba(128, 128, 128, 0.75)"  # a run as it was, behind one as it would be
LINE, BAD = "#b4bbc4", "#b3261e"
KINDS = {"free": "#e8e8e8", "owned": "#0072b2", "evictable": "#b8b8b8", "protected": "#6e6e6e"}
LEDGER = {"need": "#0072b2", "promised": "#e69f00", "free": "#e8e8e8", "evictable": "#b8b8b8", "pending": "#cc79a7"}


def of_uid(uid: int) -> str:
    """The colour of a request, the same in every view."""
    return UIDS[uid % len(UIDS)]


def ink(fill: str) -> str:
    """Black or white, whichever is easier to read on a fill (WCAG relative luminance)."""
    channels = [int(fill[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return BLACK if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else WHITE
