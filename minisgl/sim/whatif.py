"""What if: a recorded run's own requests under another configuration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from minisgl.config import EngineConfig
from minisgl.errors import ConfigError, CostError, TraceError
from minisgl.events.diff import Diff
from minisgl.events.recorder import Recorder
from minisgl.events.table import WIDTH, Table
from minisgl.events.trace import Trace
from minisgl.events.types import SettingsChanged
from minisgl.events.words import count
from minisgl.scheduler.settings import NOT_OF_THE_SCHEDULER
from minisgl.sim.costs import DEFAULT, CostModel
from minisgl.sim.fit import fit
from minisgl.sim.outcome import Outcome
from minisgl.sim.replay import config_of, replay
from minisgl.sim.simulator import Simulator
from minisgl.sim.workload import Workload

# what can be changed of the requests themselves, beside the fields of EngineConfig that the scheduler looks at
OF_THE_WORKLOAD = {"rate": 1.0, "max_tokens": 1.0, "ignore_eos": None}


def whatif(trace: Trace, costs: CostModel | None = None, **changes: Any) -> WhatIf:
    """Run a record's requests again, with the tokens that they generated, under another configuration.

    Args:
        trace: the record.
        costs: how long a batch takes; None: fitted to the record's own batches, or ``DEFAULT`` (a small model on two
            CPU cores) where they are too few.
        changes: fields of EngineConfig (``num_pages=32, page_size=16, order="lpm", ...``), and of the workload:
            ``rate`` (arrivals so many times as fast), ``max_tokens`` (times as many), ``ignore_eos``.

    Without a change the record itself is replayed from its first keyframe, step for step, and must come out equal. With
    one, both runs start from an empty cache on the modelled clock, the unchanged one too, so that they can be compared.

    Raises:
        ConfigError: an unknown name, or a value that cannot be.
        TraceError: the record does not hold its configuration, or one of a version that this one does not know.
    """
    return WhatIf(trace, costs or clock_of(trace), changes)


class WhatIf:
    """``before`` and ``after``: outcomes of the run as it was and as it would be, on the same modelled clock.

    ``trace`` is the full record of what would be, ``diff`` compares it with the record, ``table`` the two outcomes.
    Steps are exact; milliseconds are modelled by ``costs``. ``notes`` say what to keep in mind.
    """

    def __init__(
        self, record: Trace, costs: CostModel, changes: dict[str, Any], unchanged: WhatIf | None = None
    ) -> None:
        self.record = record
        self.costs = costs
        self.changes = changes
        self._unchanged = unchanged
        self.base: EngineConfig = unchanged.base if unchanged else recorded_config(record)
        self.recorded: Workload = unchanged.recorded if unchanged else Workload.from_trace(record)
        self.config, self.workload = changed(self.base, self.recorded, changes)
        self.notes = _notes(record, self.workload, changes)
        if changes and costs is DEFAULT:
            self.notes.append("the clock is that of a small model on two CPU cores, not the record's own")

    def change(self, **changes: Any) -> WhatIf:
        """The same record on the same clock with these changes instead; the run as it was is not made again."""
        return WhatIf(self.record, self.costs, changes, self._unchanged or self)

    @cached_property
    def before(self) -> Outcome:
        return self._unchanged.before if self._unchanged else Simulator(self.base, self.costs).run(self.recorded)

    @cached_property
    def after(self) -> Outcome:
        return Simulator(self.config, self.costs).run(self.workload) if self.changes else self.before

    @cached_property
    def trace(self) -> Trace:
        """The run as it would be, with every event."""
        if not self.changes:
            return replay(self.record, self.costs)
        simulator = Simulator(self.config, self.costs)
        with Recorder(simulator, f"{self.record.title} with {said(self.changes)}".strip()) as recorder:
            simulator.run(self.workload)
        trace = recorder.trace
        trace.texts = dict(self.record.texts)
        return trace

    @cached_property
    def diff(self) -> Diff:
        """The record against what would be, times left out; without a change it is empty."""
        return self.record.diff(self.trace)

    @cached_property
    def table(self) -> Table:
        """Both outcomes, figure by figure."""
        before, after = self.before.figures, self.after.figures
        units = {"figure": "text", "before": "s", "after": "s", "change": "s"}
        return Table.of_rows(
            "what if", units, [(name, before[name], after[name], after[name] - before[name]) for name in before]
        )

    def __repr__(self) -> str:
        lines = [f"WhatIf({said(self.changes) or 'nothing changes'})", f"  before: {self.before}"]
        lines.append(f"  after:  {self.after}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        what = escape(said(self.changes) or "nothing changes")
        return f"<p><b>{what}</b></p>{self.table._repr_html_()}<ul>{notes}</ul>"


class Sweep:
    """One outcome per value of one setting. ``table`` holds the figures; ``cliff`` is the value where they break off.

    The cliff is the value nearest to the best one at which the mean TTFT is more than twice the best; None where none
    is. A value at which requests are refused that another one serves is beyond it: those left are faster without them.
    ``between`` has the cliff and the next value towards the best, in the order in which they were given: where exactly
    it breaks off between the two, other values would show.
    """

    def __init__(self, name: str, values: list[Any], outcomes: list[Outcome | ConfigError]) -> None:
        self.name = name
        self.values = [v for v, o in zip(values, outcomes, strict=True) if isinstance(o, Outcome)]
        self.refused = {v: o for v, o in zip(values, outcomes, strict=True) if isinstance(o, ConfigError)}
        self.outcomes = [o for o in outcomes if isinstance(o, Outcome)]

    @cached_property
    def table(self) -> Table:
        figures = [o.figures for o in self.outcomes]
        names = list(figures[0]) if figures else []
        number = all(isinstance(v, int) for v in self.values)
        units = {self.name: "value" if number else "text"} | dict.fromkeys(names, "s")
        return Table.of_rows(
            f"sweep of {self.name}",
            units,
            [(v if number else str(v), *f.values()) for v, f in zip(self.values, figures, strict=True)],
        )

    @cached_property
    def cliff(self) -> Any:
        at = self._cliff
        return None if at is None else self.values[at[0]]

    @cached_property
    def between(self) -> tuple[Any, Any] | None:
        return None if self._cliff is None else (self.values[min(self._cliff)], self.values[max(self._cliff)])

    @cached_property
    def _cliff(self) -> tuple[int, int] | None:
        return cliff_at([o.figures for o in self.outcomes])

    def __repr__(self) -> str:
        cliff = "" if self.between is None else f", cliff between {self.name}={self.between[0]} and {self.between[1]}"
        return f"Sweep({self.name}: {len(self.values)} values{cliff})\n{self.table.text(width=WIDTH)}"

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def sweep(trace: Trace, costs: CostModel | None = None, **values: Iterable[Any]) -> Sweep:
    """The whole curve: ``sweep(trace, num_pages=range(32, 256, 8))`` runs the record's requests once for each value.

    Raises ConfigError unless exactly one setting is given; values that cannot be are in ``refused``.
    """
    if len(values) != 1:
        raise ConfigError(f"sweep takes the values of one setting, not of {len(values)}: num_pages=range(32, 256, 8)")
    ((name, each),) = values.items()
    costs = costs or clock_of(trace)
    base, workload = recorded_config(trace), Workload.from_trace(trace)
    outcomes: list[Outcome | ConfigError] = []
    every = list(each)
    for value in every:
        try:
            config, requests = changed(base, workload, {name: value})
            outcomes.append(Simulator(config, costs).run(requests))
        except ConfigError as error:
            outcomes.append(error)
    return Sweep(name, every, outcomes)


def cliff_at(figures: Sequence[dict[str, Any]]) -> tuple[int, int] | None:
    """Which of the values of a setting, in order, is the cliff, and which the next one towards the best.

    Found from the figures at each value (see :class:`Sweep`).
    """
    fewest = min((f["refused"] for f in figures), default=0)
    times = np.array([f["ttft_mean"] if f["refused"] == fewest else np.nan for f in figures])
    if np.isnan(times).all():
        return None
    best = int(np.nanargmin(times))
    beyond = [i for i in range(len(times)) if not times[i] <= 2 * times[best]]
    if not beyond:
        return None
    cliff = min(beyond, key=lambda i: abs(i - best))
    return cliff, cliff + (1 if best > cliff else -1)


def clock_of(trace: Trace) -> CostModel:
    """The cost model fitted to a record; the default one where its batches are too few to fit anything to."""
    try:
        return fit(trace)
    except CostError:
        return DEFAULT


def recorded_config(trace: Trace) -> EngineConfig:
    """The configuration a record was made under, for the simulator. TraceError if it names none that is known here."""
    if "config" not in trace.about:
        raise TraceError("this record does not say under which configuration it was made, so none can be changed")
    return replace(config_of(trace.about["config"]), check=False, poison=False, kv_gib=None)


def changed(base: EngineConfig, workload: Workload, changes: dict[str, Any]) -> tuple[EngineConfig, Workload]:
    """Configuration and workload with ``changes``. ConfigError for a name that the scheduler does not know."""
    known = [n for n in EngineConfig.__dataclass_fields__ if n not in NOT_OF_THE_SCHEDULER]
    unknown = [n for n in changes if n not in known and n not in OF_THE_WORKLOAD]
    if unknown:
        names = ", ".join([*known, *OF_THE_WORKLOAD])
        raise ConfigError(f"{', '.join(unknown)}: nothing that a scheduler could change; there are {names}")
    for name in ("rate", "max_tokens"):
        value = changes.get(name, 1.0)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < np.inf:
            raise ConfigError(f"{name}={value!r}: must be a finite number above 0")
    config = replace(base, **{n: v for n, v in changes.items() if n in known})
    of_the_workload: dict[str, Any] = {n: changes.get(n, v) for n, v in OF_THE_WORKLOAD.items()}
    return config, workload.change(**of_the_workload)


def _notes(record: Trace, workload: Workload, changes: dict[str, Any]) -> list[str]:
    notes = ["steps are exact, milliseconds are modelled"] if changes else []
    if changes and record.of(SettingsChanged):
        notes.append("the record's settings changed in its middle; both runs here keep those of its beginning")
    if changes and any(record.keyframe["counters"][n] for n in ("evictable_pages", "protected_pages")):
        notes.append("the record began with a used prefix cache; both runs here begin with an empty one")
    beyond = sum(len(a.output) < a.params.max_tokens for a in workload.arrivals)
    if beyond and (changes.get("max_tokens", 1.0) > 1.0 or changes.get("ignore_eos")):
        notes.append(
            f"{count(beyond, 'request')} may go on beyond what the record knows of them: their further tokens are "
            "drawn, which matters only if another prompt would have continued with the real ones"
        )
    return notes


def said(changes: dict[str, Any]) -> str:
    """``num_pages=32, order=lpm``."""
    return ", ".join(f"{name}={value}" for name, value in changes.items())
