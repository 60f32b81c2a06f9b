"""fit: a cost model from a record's own batches, with its error on batches that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from msgspec.structs import astuple

from minisgl.errors import CostError
from minisgl.events import types as ev
from minisgl.events.trace import Trace
from minisgl.sim.costs import LinearCost, work_of

LEAST = 12  # batches
HELD_OUT = 3  # every third batch is kept to test with


@dataclass(frozen=True, slots=True, repr=False)
class Fitted(LinearCost):
    """A ``LinearCost`` fitted to a record, and how well it does.

    Args:
        batches: how many it was fitted to.
        median_error, p90_error: of the held-out batches, the absolute error in proportion to the time measured: half of
            them, and nine in ten, are predicted at least this well.
        r2: share of the held-out times' variance that is explained; 1 is all.
        notes: what the record could not tell.
    """

    batches: int = 0
    median_error: float = 0.0
    p90_error: float = 0.0
    r2: float = 0.0
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        units = ("", "/prefill token", "/decode request", "/KV token", "/attention pair")
        values = (self.constant, self.prefill_token, self.decode_request, self.kv_token, self.pair)
        prices = [_time(value) + unit for value, unit in zip(values, units, strict=True) if value]
        notes = "".join(f"; {note}" for note in self.notes)
        return (
            f"Fitted({' + '.join(prices)}, from {self.batches} batches; held out: median error "
            f"{self.median_error:.1%}, p90 {self.p90_error:.1%}, R² {self.r2:.3f}{notes})"
        )


def _time(seconds: float) -> str:
    scale, unit = next((s, u) for s, u in ((1e3, "ms"), (1e6, "µs"), (1e9, "ns")) if seconds * s >= 1 or u == "ns")
    return f"{seconds * scale:.3g} {unit}"


def fit(trace: Trace) -> Fitted:
    """What a batch of this run costs: a constant and a price for each term of ``Work``, none of them negative.

    A batch's time is its forward's, from ForwardFinished; with overlap off, the rest of its step, from the step's first
    event to its last, is the host's time and its median goes to the constant. (What lies between steps is left out: it
    may be a person who steps by hand.) Least squares of the error in proportion to the time, so that short decodes
    count as much as long prefills, with Huber's weights, so that a few outliers do not matter. The error is
    that of a fit to two batches in three, on the third; the prices come from all.

    Raises:
        CostError: the record has fewer than 12 batches with times.
    """
    scheduled = {e.batch: e for e in trace.of(ev.BatchScheduled)}
    finished = [e for e in trace.of(ev.ForwardFinished) if e.batch in scheduled and not e.error]
    finished = [e for e in finished if e.finished > e.started]
    if len(finished) < LEAST:
        raise CostError(
            f"{len(finished)} batches of this record have a duration, and a fit needs {LEAST}: record a longer run, or "
            "use roofline(model, device)"
        )
    seconds = np.array([e.finished - e.started for e in finished])
    works = np.array([astuple(work_of(scheduled[e.batch])) for e in finished], float)
    terms = np.column_stack((np.ones(len(works)), works))
    held = np.arange(len(seconds)) % HELD_OUT == HELD_OUT - 1
    host = _host(trace)
    trial = terms[held] @ _robust(terms[~held], seconds[~held])
    error = np.abs(trial - seconds[held]) / seconds[held]
    spread = float(((seconds[held] - seconds[held].mean()) ** 2).sum())
    r2 = 1 - float(((trial - seconds[held]) ** 2).sum()) / spread if spread else 1.0
    prices = _robust(terms, seconds)
    notes = []
    prefill, decode = terms[:, 1].any(), terms[:, 2].any()
    if not prefill:
        prices[1] = prices[2] or float(np.median(seconds))
        notes.append("no prefill was seen: a prompt's token is priced as a decode")
    if not decode:
        prices[2] = prices[1]
        notes.append("no decode was seen: it is priced as a prompt's token")
    constant, prefill_token, decode_request, kv_token, pair = prices.tolist()
    return Fitted(
        constant=constant + host,
        prefill_token=prefill_token,
        decode_request=decode_request,
        kv_token=kv_token,
        pair=pair,
        batches=len(seconds),
        median_error=float(np.median(error)),
        p90_error=float(np.quantile(error, 0.9)),
        r2=r2,
        notes=tuple(notes),
    )


def _host(trace: Trace) -> float:
    """Seconds of a typical step that are not its forward's."""
    rests, begun, forward = [], None, 0.0
    for e in trace.events:
        begun = e.t if begun is None else begun
        if isinstance(e, ev.ForwardFinished):
            forward = e.finished - e.started
        elif isinstance(e, ev.StepFinished):
            if e.launched is not None and e.launched == e.processed:
                rests.append(max(0.0, e.t - begun - forward))
            begun, forward = None, 0.0
    return float(np.median(rests)) if rests else 0.0


def _robust(terms: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Non-negative prices with the least error in proportion to the time (Huber, 1964: iterated weights)."""
    relative, goal = terms / seconds[:, None], np.ones(len(seconds))
    weights = goal
    for _ in range(10):
        prices = _non_negative(relative * weights[:, None], goal * weights)
        errors = np.abs(relative @ prices - goal)
        usual = 1.345 * 1.4826 * float(np.median(errors)) or 1e-12
        weights = np.sqrt(np.minimum(1.0, usual / np.maximum(errors, 1e-12)))
    return prices


def _non_negative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``x >= 0`` with the least ``|a x - b|``: five terms have few subsets, so each is solved and the best one kept.

    Among equals it is the one with the fewest terms: of terms that never differ in a record, one takes the price.
    """
    scale = np.sqrt((a * a).sum(axis=0))
    usable = np.flatnonzero(scale)
    # a small triangle says as much about x as all rows do
    q, triangle = np.linalg.qr(a[:, usable] / scale[usable])
    goal = q.T @ b
    best, least = np.zeros(a.shape[1]), float(goal @ goal)
    enough = 1e-12 * least
    for count in range(1, len(usable) + 1):
        for chosen in combinations(range(len(usable)), count):
            part = triangle[:, chosen]
            x = np.linalg.lstsq(part, goal, rcond=1e-10)[0]
            left = float(((part @ x - goal) ** 2).sum())
            if (x >= 0).all() and left < least - enough:
                best, least = np.zeros(a.shape[1]), left
                best[usable[list(chosen)]] = x / scale[usable[list(chosen)]]
    return best
