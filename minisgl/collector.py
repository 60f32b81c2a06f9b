"""The garbage collector, out of the way of code that makes many objects and no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause the collector: it would look through all that is made again and again and find nothing to free.

    What was made is old at once, or the first collection afterwards would look through all of it.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():  # else somebody else's frozen objects would thaw
                gc.freeze()
                gc.unfreeze()
            gc.enable()
