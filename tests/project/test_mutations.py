"""Every known bug, put back, makes a test fail; without it those tests pass. So they test what they say they do."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.mutations import MUTATIONS, Mutation, caught_by, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def attempts(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[str]]]:
    """All that were selected, tried two at a time: most of an attempt is waiting for an interpreter to start."""
    params = [getattr(item, "callspec", None) and item.callspec.params for item in request.session.items]
    chosen = [p["mutation"] for p in params if p and "mutation" in p]
    with ThreadPoolExecutor(2) as pool:
        yield {mutation.name: pool.submit(caught_by, mutation) for mutation in chosen}
        pool.shutdown(cancel_futures=True)  # after a failure with -x nobody asks for the rest


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_is_caught(mutation: Mutation, attempts: dict[str, Future[str]]) -> None:
    assert attempts[mutation.name].result().startswith(mutation.test)


def test_without_any_they_all_pass() -> None:
    code, output = run(sorted({m.test for m in MUTATIONS}))
    assert code == 0, output


def test_every_case_that_broke_others_is_put_back() -> None:
    assert {m.case for m in MUTATIONS} - {None} == set(range(1, 29))
    assert len({m.name for m in MUTATIONS}) == len(MUTATIONS)
