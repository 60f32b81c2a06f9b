"""made_once: a folder that is either complete or not there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """``folder``, filled by ``make(temporary folder beside it)`` if it does not exist yet, and returned.

    The temporary folder is renamed when it is complete, so an interrupted run leaves nothing half made, and of two
    processes at work at once one result stays.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        make(temporary)
        temporary.chmod(0o755)  # temporary folders and some writers' files are private; a cache may be shared
        for file in temporary.iterdir():
            file.chmod(0o644)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder
