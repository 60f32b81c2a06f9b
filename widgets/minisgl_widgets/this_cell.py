"""Which cell of a notebook is running, so that what it made before can go."""

from __future__ import annotations

from typing import Any, NamedTuple


class ThisCell(NamedTuple):
    cell: str
    run: str  # of the cell, which may be run again

    def again(self, earlier: ThisCell | None) -> bool:
        """Is this another run of the same cell?"""
        return earlier is not None and earlier.cell == self.cell and earlier.run != self.run


def this_cell() -> ThisCell | None:
    """None where no front end says so."""
    from IPython import get_ipython

    shell = get_ipython()
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)()
    cell = parent.get("metadata", {}).get("cellId")
    return ThisCell(cell, parent["header"]["msg_id"]) if cell else None
