"""Known bugs, put back one at a time: each must make a test fail. ``make mutants`` shows which.

The numbers are those of the inputs that broke other engines of this kind, as the tests' names have them. A mutation
replaces text in a copy of the package, so it also tells when the code it speaks of has moved.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Mutation:
    """``broken``: the bug in a sentence. ``edits``: old text, found once in ``file``, and new. ``test``: a node id."""

    broken: str
    file: str
    edits: dict[str, str]
    test: str
    case: int | None = None

    @property
    def name(self) -> str:
        return self.broken if self.case is None else f"{self.case}: {self.broken}"


ALLOCATOR, RADIX = "kvcache/allocator.py", "kvcache/radix.py"
CACHE, TABLE, PREFILL = "scheduler/cache.py", "scheduler/table.py", "scheduler/prefill.py"
SCHEDULER, INBOX = "scheduler/scheduler.py", "scheduler/inbox.py"
RECEIVE, LEAVING = "scheduler/receive.py", "scheduler/leaving.py"

POLICIES, SETTINGS = "scheduler/policies.py", "scheduler/settings.py"

CASES, OVERLAP, ORACLES = (f"tests/scheduler/test_{name}.py" for name in ("cases", "overlap", "oracles"))
ORDER, ADMISSION, RETRACTION, PHASE = (
    f"tests/scheduler/test_policies.py::Test{name}" for name in ("Order", "Admission", "Retraction", "Phase")
)
REFUSED = f"{CASES}::test_19_20_a_bad_request_fails_alone"
DECODING = "tests/scheduler/test_decoding.py"
REPLAY, LIVE = "tests/sim/test_replay.py", "tests/scheduler/test_settings.py"
FREE_LIST, TREE = "tests/kvcache/test_allocator.py", "tests/kvcache/test_radix.py"
NATIVE = "tests/kernel/test_native.py"
PAGES = f"{ORACLES}::TestPagesNotTokens"
DRAIN = f"{OVERLAP}::test_an_allocation_that_needs_pending_pages_drains_the_pipeline"

MUTATIONS = (
    Mutation(
        case=1,
        broken="duplicate pages are freed and the row still names them",
        file=CACHE,
        edits={
            "replaced = request.pages[mine] = self": "replaced = self",
            "                self.table.write_pages(request.row, mine.start, replaced)\n": "",
        },
        test=f"{CASES}::test_01_duplicates_in_one_batch_in_a_tight_pool",
    ),
    Mutation(
        case=2,
        broken="the row is rewritten on the host, and the device never hears of it",
        file=CACHE,
        edits={"                self.table.write_pages(request.row, mine.start, replaced)\n": ""},
        test=f"{CASES}::test_02_duplicates_and_a_third",
    ),
    Mutation(
        broken="duplicates are read from the row after it was rewritten: the cache's own pages are freed",
        file=CACHE,
        edits={
            "pages = request.pages[:]  # the pages": "pages = request.pages  # the pages",
            "released.append((request.uid, pages[mine]))\n": "\n",
            "mine.start, replaced)\n": "mine.start, replaced)\n            released += [(request.uid, pages[mine])]\n",
        },
        test=f"{ORACLES}::test_the_four_segments",
    ),
    Mutation(
        case=3,
        broken="the extra sample of a stopped request reaches the user",
        file=SCHEDULER,
        edits={
            'if request.status == "finished":  # it ended while this batch was in flight: nobody wants the token\n': (
                "if request.finished:\n                request.output_ids.append(token)\n"
            )
        },
        test=f"{OVERLAP}::test_03_a_stop_token_is_seen_one_step_late_and_nothing_follows_it",
    ),
    Mutation(
        case=4,
        broken="the end by length is judged by what was launched, not by what was received",
        file=SCHEDULER,
        edits={
            "leaving import fail, ": "leaving import fail, finish, ",
            "                received(self, request)\n": (
                "                received(self, request)\n"
                "            if not request.finished and request.device_len >= request.end:\n"
                "                finish(self, request, 'length')\n"
            ),
        },
        test=f"{OVERLAP}::test_04_the_oracles_order_and_the_flag_with_the_last_token",
    ),
    Mutation(
        case=5,
        broken="an aborted request's pages are freed while a batch in flight writes to them",
        file=CACHE,
        edits={"        ps, old, n = self.page_size,": "        pending = False\n        ps, old, n = self.page_size,"},
        test=f"{OVERLAP}::test_05_abort_while_in_flight",
    ),
    Mutation(
        case=6,
        broken="a row is given away while the extra step still writes to it",
        file=LEAVING,
        edits={"if request.row >= 0 and not s.names(request):": "if request.row >= 0:"},
        test=f"{OVERLAP}::test_06_a_row_is_not_given_away_while_the_extra_step_writes_to_it",
    ),
    Mutation(
        case=7,
        broken="the worst case is counted in tokens, without rounding up to pages",
        file=CACHE,
        edits={
            "return pages_for(worst, self.page_size) - matched // self.page_size": (
                "return (worst - matched) // self.page_size"
            )
        },
        test=f"{PAGES}::test_three_prompts_of_4",
    ),
    Mutation(
        case=8,
        broken="the page table's row is not rounded up to whole pages",
        file="engine/executor.py",
        edits={"pages_for(max_seq_len, page_size) * page_size)": "max_seq_len)"},
        test="tests/engine/test_executor.py::test_tables_are_whole_pages_wide_with_a_dummy_row_last",
    ),
    Mutation(
        case=9,
        broken="max_tokens is clamped in the caller's own object",
        file=INBOX,
        edits={
            "max_tokens = min(params.max_tokens, longest - n)\n": (
                "max_tokens = min(params.max_tokens, longest - n)\n"
                "        __import__('msgspec').structs.force_setattr(params, 'max_tokens', max_tokens)\n"
            )
        },
        test=f"{CASES}::test_09_params_are_clamped_per_request_and_never_changed",
    ),
    Mutation(
        case=9,
        broken="max_tokens is clamped without counting the prompt",
        file=INBOX,
        edits={"min(params.max_tokens, longest - n)": "min(params.max_tokens, longest)"},
        test=f"{CASES}::test_09_params_are_clamped_per_request_and_never_changed",
    ),
    Mutation(
        case=10,
        broken="a page's number is taken for its first slot",
        file="core.py",
        edits={"starts = np.asarray(pages, dtype=np.int32) * page_size": "starts = np.asarray(pages, np.int32)"},
        test=f"{ORACLES}::test_page_table_rows",
    ),
    Mutation(
        case=11,
        broken="a match does not count as use",
        file=RADIX,
        edits={"            node.used = self.tick\n": ""},
        test=f"{TREE}::test_what_was_just_used_goes_last",
    ),
    Mutation(
        case=11,
        broken="the rest of a split node counts as used, too",
        file=RADIX,
        edits={
            "upper.locks, upper.uses = node.locks, node.uses": (
                "upper.locks, upper.uses, node.used = node.locks, node.uses, self.tick + 1"
            )
        },
        test=f"{TREE}::test_what_was_just_used_goes_last",
    ),
    Mutation(
        case=12,
        broken="a lock skips the node itself and begins above it",
        file=RADIX,
        edits={
            "def lock(self, handle: Handle, uid: int) -> None:\n        node = handle.node\n": (
                "def lock(self, handle: Handle, uid: int) -> None:\n        node = handle.node.parent or self.root\n"
            )
        },
        test=f"{TREE}::test_a_locked_leaf_stays",
    ),
    Mutation(
        case=13,
        broken="the tree keeps a view of the row",
        file=RADIX,
        edits={"new = np.array(tokens[hit_len:end], dtype=np.int32)": "new = tokens[hit_len:end]"},
        test=f"{TREE}::test_the_tree_keeps_copies",
    ),
    Mutation(
        case=14,
        broken="only the prompt is asked whether it fits into the pool, not what it may generate",
        file=INBOX,
        edits={"if need > pool:": "if pages_for(n, ps) > pool:"},
        test=f"{CASES}::test_14_a_request_that_can_never_fit_is_refused_with_the_numbers",
    ),
    Mutation(
        case=15,
        broken="an evicted node can still be found",
        file=RADIX,
        edits={"            del parent.children[node.tokens[: self.page_size].tobytes()]\n": ""},
        test=f"{CASES}::test_15_a_refilled_page_is_not_mistaken_for_its_old_content",
    ),
    Mutation(
        case=16,
        broken="a prompt is handed over in whole after its first chunk: others hit pages not yet computed",
        file=SCHEDULER,
        edits={
            "            request.done_len = end\n            if not samples:\n": (
                "            request.done_len = max(end, request.prompt_len)\n            if not samples:\n"
                "                self.cache.handoff(request, finished=False)\n"
            )
        },
        test=f"{CASES}::test_16_two_identical_prompts_in_chunks",
    ),
    Mutation(
        broken="the handoff takes what was launched for what is done",
        file=CACHE,
        edits={"request.handle, request.done_len": "request.handle, request.device_len"},
        test=f"{OVERLAP}::test_05_abort_while_in_flight",
    ),
    Mutation(
        case=17,
        broken="a length is rounded down to whole pages, and the token beyond the border is lost",
        file=CACHE,
        edits={"-(-r.device_len // ps) - len(r.pages)": "max(1, r.device_len // ps) - len(r.pages)"},
        test=f"{CASES}::test_17_prefilled_again_across_a_page_border",
    ),
    Mutation(
        case=18,
        broken="temperature 0 with a top_p is sampled",
        file="core.py",
        edits={"return self.temperature == 0 or self.top_k == 1": "return self.temperature == 0 and self.top_p == 1"},
        test="tests/engine/test_sampler.py::test_greedy_is_the_argmax_always",
    ),
    Mutation(
        case=18,
        broken="a greedy request is sampled when others of its batch are",
        file="engine/sampler.py",
        edits={"if not p.greedy:": "if not all(q.greedy for q in params):"},
        test="tests/engine/test_sampler.py::test_a_greedy_row_among_sampled_ones_is_the_argmax",
    ),
    Mutation(
        case=19,
        broken="an empty prompt is let in",
        file=INBOX,
        edits={"if n == 0:": "if n < 0:"},
        test=REFUSED,
    ),
    Mutation(
        case=19,
        broken="max_tokens 0 is let in",
        file="core.py",
        edits={"self.max_tokens >= 1": "self.max_tokens >= 0"},
        test=REFUSED,
    ),
    Mutation(
        case=19,
        broken="a temperature that is not a number is let in",
        file="core.py",
        edits={
            "_is_number(self.temperature) and self.temperature >= 0": (
                "_is_number(self.max_tokens) and not self.temperature < 0"
            )
        },
        test=REFUSED,
    ),
    Mutation(
        case=19,
        broken="the vocabulary is one token larger than it is",
        file=INBOX,
        edits={"if vocab is None else vocab\n": "if vocab is None else vocab + 1\n"},
        test=REFUSED,
    ),
    Mutation(
        case=20,
        broken="a prompt of max_seq_len tokens is let in",
        file=INBOX,
        edits={"if n >= longest:": "if n > longest:"},
        test=REFUSED,
    ),
    Mutation(
        case=21,
        broken="every eviction looks at all leaves",
        file=RADIX,
        edits={
            "            entry = heapq.heappop(self._leaves)\n            self.visited += 1\n": (
                "            self.visited += len(self._leaves)\n"
                "            self._leaves.sort()\n            entry = self._leaves.pop(0)\n"
            )
        },
        test=f"{TREE}::test_eviction_does_not_walk_the_tree",
    ),
    Mutation(
        broken="stale entries of the eviction heap are never dropped",
        file=RADIX,
        edits={"if len(self._leaves) > 2 * self._size + 64:": "if False:"},
        test=f"{TREE}::test_use_alone_does_not_grow_the_heap",
    ),
    Mutation(
        broken="dropping stale entries leaves the heap in disorder: others go first",
        file=RADIX,
        edits={"            heapq.heapify(self._leaves)\n": ""},
        test="tests/kvcache/test_prefix_machine.py::test_a_long_life",
    ),
    Mutation(
        broken="a node that was evicted can be evicted again",
        file=RADIX,
        edits={"            node.parent = None\n": ""},
        test=f"{TREE}::test_a_leaf_that_was_offered_twice_is_evicted_once",
    ),
    Mutation(
        case=22,
        broken="the decode order is not by uid",
        file=SCHEDULER,
        edits={"in sorted(running) if": "in sorted(running, reverse=True) if"},
        test=f"{ORACLES}::test_admission",
    ),
    Mutation(
        case=23,
        broken="a uid is given again once its request has ended",
        file=INBOX,
        edits={"            uid = self.next_uid\n": "            uid = self._messages.qsize()\n"},
        test=f"{CASES}::test_23_calls_do_not_mix",
    ),
    Mutation(
        case=24,
        broken="an allocated page stays in the free list",
        file=ALLOCATOR,
        edits={"        self._first += n\n": ""},
        test=f"{FREE_LIST}::test_two_requests_get_two_different_pages",
    ),
    Mutation(
        case=25,
        broken="a free page can be freed again",
        file=ALLOCATOR,
        edits={"if len(self._used) != left:": "if False:"},
        test=f"{FREE_LIST}::test_freeing_what_is_not_taken_is_an_error_and_changes_nothing",
    ),
    Mutation(
        case=25,
        broken="when a page of a group cannot be freed, those before it are lost",
        file=ALLOCATOR,
        edits={"            self._used = set(range(self.num_pages)).difference(self)\n": ""},
        test=f"{FREE_LIST}::test_freeing_what_is_not_taken_is_an_error_and_changes_nothing",
    ),
    Mutation(
        case=26,
        broken="an allocation that is no whole number of pages is rounded, silently",
        file=ALLOCATOR,
        edits={'raise LedgerError(f"allocate({n!r}): whole pages only")': "n = int(n)"},
        test=f"{FREE_LIST}::test_only_whole_pages",
    ),
    Mutation(
        case=27,
        broken="a request exactly as large as the pool waits for ever on a strict inequality",
        file=CACHE,
        edits={"need + self.reserved <= self.free": "need + self.reserved < self.free"},
        test=f"{CASES}::test_27_exactly_as_large_as_the_pool",
    ),
    Mutation(
        case=28,
        broken="padding reads the dummy page and relies on the mask: 0 * NaN is NaN",
        file="attention/torch_backend.py",
        edits={
            "self.padding_mask = torch.from_numpy(columns <= last).to(slots.device)[:, None, None]\n": (
                "self.padding_mask = torch.from_numpy(columns <= last).to(slots.device)[:, None, None]\n"
                "            dummy = self.pool.data[0, 0, :, :, 0, 0].numel() - 1\n"
                "            self.padded_slots[~self.padding_mask.flatten()] = dummy\n"
            )
        },
        test="tests/attention/test_torch_backend.py::test_every_mixture_equals_attention_written_out",
    ),
    Mutation(
        case=28,
        broken="the pool is not zeroed",
        file="kvcache/pool.py",
        edits={"huge_zeros(*shape, dtype=dtype)\n        else": "torch.full(shape, torch.nan)\n        else"},
        test="tests/engine/test_pool.py::test_store_three_tokens",
    ),
    # -- overlap -----------------------------------------------------------------------------------------------------
    Mutation(
        broken="admission does not count the pages that wait for the batch in flight",
        file=CACHE,
        edits={"self.reserved <= self.free + self.prefix.evictable + self.pending": "self.reserved <= self.free"},
        test=DRAIN,
    ),
    Mutation(
        broken="an allocation does not wait for the pages that the batch in flight holds",
        file=SCHEDULER,
        edits={"if self.flying:\n                self._drained": "if False:\n                self._drained"},
        test=DRAIN,
    ),
    Mutation(
        broken="a request that ended in the drain is launched again",
        file=SCHEDULER,
        edits={"            requests = [r for r in requests if r.row >= 0]\n": ""},
        test=f"{OVERLAP}::test_a_drain_may_end_a_request_that_was_about_to_be_launched",
    ),
    Mutation(
        broken="a finished request's prefix is unlocked while a batch in flight still reads it",
        file=CACHE,
        edits={"keeps = not finished or pending": "keeps = not finished"},
        test=f"{OVERLAP}::test_a_finished_requests_prefix_stays_locked_while_a_batch_in_flight_reads_it",
    ),
    Mutation(
        broken="pages are poisoned one batch late, when somebody else may have filled them",
        file=CACHE,
        edits={
            "pages, self._poison = self._poison, []": (
                "pages, self._late, self._poison = getattr(self, '_late', []), self._poison, []"
            )
        },
        test=f"{CASES}::test_15_a_refilled_page_is_not_mistaken_for_its_old_content",
    ),
    Mutation(
        broken="draining does nothing, and a recorder begins with a batch in flight",
        file=SCHEDULER,
        edits={
            "if not self.flying:\n            return None\n        self._begin()": "return None\n        self._begin()"
        },
        test=f"{OVERLAP}::test_a_recorder_attached_in_mid_flight_drains_first",
    ),
    Mutation(
        broken="a changed order or admission is not tried before something else happens",
        file=SETTINGS,
        edits={"    s.prefill.retest = True": "    s.prefill.retest = s.prefill.retest"},
        test=f"{LIVE}::test_who_was_refused_is_tested_again",
    ),
    Mutation(
        broken="leaves that stand ready to go are no longer found when their policy changes",
        file=RADIX,
        edits={"in self._nodes().values():": "in ():"},
        test=f"{LIVE}::test_leaves_that_stand_ready_change_places",
    ),
    Mutation(
        broken="an engine is rewound to a cache whose pages others have written over",
        file="sim/rewind.py",
        edits={"    if gone:\n": "    if False:\n"},
        test="tests/sim/test_rewind.py::test_a_used_cache_that_gave_pages_up_will_not",
    ),
    Mutation(
        broken="BatchScheduled's counters are taken before the batch's pages are",
        file=SCHEDULER,
        edits={
            "        if self.cache.allocate(lacking):\n": (
                "        counters = self.counters()\n        if self.cache.allocate(lacking):\n"
            ),
            "**dict(zip(COUNTERS, self.counters(), strict=True))": "**dict(zip(COUNTERS, counters, strict=True))",
        },
        test=f"{ORACLES}::test_admission",
    ),
    # -- admission ---------------------------------------------------------------------------------------------------
    Mutation(
        broken="admission is not tested again once the prefix is locked",
        file=PREFILL,
        edits={"if cache.fits(need + taken):\n                    verdict": "if True:\n                    verdict"},
        test=f"{CASES}::test_the_second_test_is_after_the_lock",
    ),
    Mutation(
        broken="a page stays promised for the last token, which never gets KV",
        file=SCHEDULER,
        edits={"pages_for(request.worst - 1, ps) - pages_for(request.worst, ps)": "0"},
        test=f"{ORACLES}::test_admission",
    ),
    Mutation(
        broken="a prompt that is cached in whole is matched in whole: nothing is left to compute",
        file=PREFILL,
        edits={"request.tokens(request.prefill_len - 1)": "request.tokens(request.prefill_len)"},
        test=f"{ORACLES}::test_the_same_prompt_twice_computes_one_token",
    ),
    Mutation(
        broken="a refused head is tested again at every step",
        file=PREFILL,
        edits={'self.retest = verdict == "budget"': "self.retest = True"},
        test=f"{CASES}::test_a_refused_head_is_not_tested_again_while_others_decode",
    ),
    Mutation(
        broken="an eviction does not let a refused head be tested again",
        file=SCHEDULER,
        edits={
            "if self.cache.allocate(lacking):\n            self.prefill.retest = True\n": (
                "self.cache.allocate(lacking)\n"
            )
        },
        test=f"{CASES}::test_an_eviction_lets_a_refused_head_be_tested_again",
    ),
    Mutation(
        broken="a chunk does not use up the budget",
        file=PREFILL,
        edits={"budget -= self._extend(self.chunked, budget)": "self._extend(self.chunked, budget)"},
        test=f"{ORACLES}::test_chunked_prefill",
    ),
    # -- policies ----------------------------------------------------------------------------------------------------
    Mutation(
        broken="who was passed over too often is passed over again",
        file=PREFILL,
        edits={"return 0 if self.waiting[0].passed >= PATIENCE else self.order": "return self.order"},
        test=f"{ORDER}::test_who_is_passed_over_too_often_is_next",
    ),
    Mutation(
        broken="the longest prefix is looked for in the first of the queue alone",
        file=POLICIES,
        edits={"key=lambda i: (matched(waiting[i]), -i)": "key=lambda i: (matched(waiting[0]), -i)"},
        test=f"{ORDER}::test_lpm_takes_who_has_most_in_the_cache",
    ),
    Mutation(
        broken="the shortest is who has the shortest prompt, whatever it generates",
        file=POLICIES,
        edits={"waiting[i].prefill_len + waiting[i].remain_len": "waiting[i].prefill_len"},
        test=f"{ORDER}::test_shortest_counts_what_may_be_generated_as_well",
    ),
    Mutation(
        broken="a share of max_tokens is rounded down",
        file=POLICIES,
        edits={"math.ceil(share * request.remain_len)": "math.floor(share * request.remain_len)"},
        test=f"{ADMISSION}::test_what_is_promised",
    ),
    Mutation(
        broken="who takes more than was promised to it takes what is promised to others",
        file=CACHE,
        edits={", unpromised and unpromised + self.reserved - had - self.pending)": ")"},
        test=f"{RETRACTION}::test_a_prompt_under_way_gives_way_to_those_who_decode",
    ),
    Mutation(
        broken="a retraction frees the cached prefix as well",
        file=CACHE,
        edits={"pages = request.pages[request.handle.length // self.page_size :]": "pages = request.pages[:]"},
        test=f"{RETRACTION}::test_its_own_pages_are_freed_at_once_and_its_cached_prefix_stays",
    ),
    Mutation(
        broken="a retracted request keeps its promise",
        file=CACHE,
        edits={"        self.reserve(request, -request.reserved)\n        return pages": "        return pages"},
        test=f"{RETRACTION}::test_a_prompt_under_way_gives_way_to_those_who_decode",
    ),
    Mutation(
        broken="a retracted request waits behind all others",
        file=PREFILL,
        edits={"self.waiting.appendleft(request)": "self.waiting.append(request)"},
        test=f"{RETRACTION}::test_it_waits_before_all_others",
    ),
    Mutation(
        broken="the first one admitted is retracted",
        file=LEAVING,
        edits={"request = max(seated.values()": "request = min(seated.values()"},
        test=f"{RETRACTION}::test_the_last_one_admitted_goes",
    ),
    Mutation(
        broken="who comes back samples again what it had generated",
        file="core.py",
        edits={"        self.prefill_len = self.num_tokens\n": ""},
        test=f"{RETRACTION}::test_it_comes_back_under_the_full_promise_with_what_it_has_generated",
    ),
    Mutation(
        broken="who comes back is promised as little as before",
        file=POLICIES,
        edits={"    share = 1.0 if request.retractions else share\n": ""},
        test=f"{RETRACTION}::test_it_comes_back_under_the_full_promise_with_what_it_has_generated",
    ),
    Mutation(
        broken="what a retracted request had computed itself counts as cached",
        file=PREFILL,
        edits={"if not request.retractions:": "if True:"},
        test=f"{RETRACTION}::test_it_comes_back_under_the_full_promise_with_what_it_has_generated",
    ),
    Mutation(
        broken="a retracted chunk goes on",
        file=LEAVING,
        edits={"    _unseat(s, request)\n    if s.bus": "    s.running.pop(request.uid, None)\n    if s.bus"},
        test=f"{RETRACTION}::test_a_prompt_under_way_gives_way_to_those_who_decode",
    ),
    Mutation(
        broken="a mixed batch lets a prompt in on pages that its decodes take",
        file=POLICIES,
        edits={"(prefill.budget - len(running), running)": "(prefill.budget - len(running))"},
        test=f"{RETRACTION}::test_a_prompt_that_is_not_computed_to_its_end",
    ),
    Mutation(
        broken="a mixed batch gives prompts the whole budget",
        file=POLICIES,
        edits={"prefill.schedule(prefill.budget - len(running), running)": "prefill.schedule(prefill.budget, running)"},
        test=f"{PHASE}::test_a_mixed_batch_keeps_the_budget",
    ),
    Mutation(
        broken="decode-first lets others in while somebody decodes",
        file=POLICIES,
        edits={
            "return decodable() or prefill.schedule(prefill.budget)": "return prefill_first(prefill, decodable)",
        },
        test=f"{PHASE}::test_decode_first_makes_static_batches",
    ),
    Mutation(
        broken="least often used: nothing is counted",
        file=RADIX,
        edits={"            node.uses += 1\n": ""},
        test=f"{TREE}::test_who_is_evicted_first",
    ),
    Mutation(
        broken="the upper part of a split node forgets how often it was used",
        file=RADIX,
        edits={"upper.locks, upper.uses = node.locks, node.uses": "upper.locks = node.locks"},
        test=f"{TREE}::test_lfu_counts_the_uses_of_both_parts_of_a_split_node",
    ),
    # -- replay ------------------------------------------------------------------------------------------------------
    Mutation(
        broken="a cache that is restored forgets how often a node was used",
        file=RADIX,
        edits={'node.locks, node.uses = n["locks"], n["uses"]': 'node.locks = n["locks"]'},
        test=f"{REPLAY}::test_how_often_nodes_were_used_is_in_the_keyframe",
    ),
    Mutation(
        broken="a checkpoint forgets who was admitted when",
        file="scheduler/checkpoint.py",
        edits={'    "admitted",\n': ""},
        test=f"{REPLAY}::test_who_was_admitted_first_is_not_in_the_keyframe",
    ),
    Mutation(
        broken="whose end was passed in many steps at a time is still read by the steps after it",
        file="scheduler/advance.py",
        edits={" - sum([requests[i].device_len + done for i in ending])": ""},
        test="tests/sim/test_advance.py::test_at_once_or_one_by_one",
    ),
    # -- aborts and failures -----------------------------------------------------------------------------------------
    Mutation(
        broken="an aborted chunk goes on",
        file=LEAVING,
        edits={"        _unseat(s, request)\n        s": "        s.running.pop(request.uid, None)\n        s"},
        test=f"{CASES}::TestAbort::test_at_any_step",
    ),
    Mutation(
        broken="who has left is still among those who decode",
        file=LEAVING,
        edits={"    s.decoding = None\n": ""},
        test=f"{DECODING}::test_every_random_run",
    ),
    Mutation(
        broken="what was reckoned for all who decode outlives a batch of some of them",
        file=SCHEDULER,
        edits={"self.decoding = group = None": "group = None"},
        test=f"{DECODING}::test_a_policy_may_let_some_of_them_wait",
    ),
    Mutation(
        broken="a stop token is overlooked where all go on together",
        file="scheduler/decoding.py",
        edits={"if not self._stops.isdisjoint(tokens):": "if False:"},
        test=f"{OVERLAP}::test_03_a_stop_token_is_seen_one_step_late_and_nothing_follows_it",
    ),
    Mutation(
        broken="they go on together though one of them has all its tokens",
        file="scheduler/decoding.py",
        edits={"return self.left > 0": "return True"},
        test=f"{DECODING}::test_every_random_run",
    ),
    Mutation(
        broken="an aborted request keeps its promise",
        file=LEAVING,
        edits={"        s.cache.reserve(request, -request.reserved)\n": ""},
        test=f"{CASES}::TestAbort::test_at_any_step",
    ),
    Mutation(
        broken="an aborted request's pages come back a step late",
        file=RECEIVE,
        edits={"    s.cache.free_gathered()\n    return received": "    return received"},
        test=f"{CASES}::TestAbort::test_gives_row_and_pages_to_who_is_admitted_in_the_same_step",
    ),
    Mutation(
        broken="an aborted request's row comes back a step late",
        file=LEAVING,
        edits={"    if request.row >= 0 and not s.names(request):\n        _release(s, request)\n": ""},
        test=f"{CASES}::TestAbort::test_gives_row_and_pages_to_who_is_admitted_in_the_same_step",
    ),
    Mutation(
        broken="a broken rule of our own is taken for a broken forward, and the engine goes on",
        file=SCHEDULER,
        edits={"        except LedgerError:\n            raise\n": ""},
        test=f"{CASES}::TestBrokenForward::test_a_broken_rule_of_our_own_is_no_broken_forward",
    ),
    Mutation(
        broken="the writes of a batch that never reached the device are lost",
        file=SCHEDULER,
        edits={"self.table.put_back(batch.page_writes, batch.token_writes)  # other": "# other"},
        test=f"{CASES}::TestBrokenForward::test_the_writes_it_carried_for_others_are_not_lost",
    ),
    Mutation(
        broken="writes that are put back come after newer ones",
        file=TABLE,
        edits={"self._page_writes[:0] = page_writes": "self._page_writes += page_writes"},
        test="tests/scheduler/test_table_machine.py::test_what_is_put_back_comes_before_newer_writes",
    ),
    Mutation(
        broken="a broken batch stays in flight",
        file=SCHEDULER,
        edits={"            self.flying.pop()\n": ""},
        test=f"{CASES}::TestBrokenForward::test_ends_its_own_requests_only",
    ),
    Mutation(
        broken="check=True checks nothing",
        file=SCHEDULER,
        edits={"        if self._check:\n            self.check_integrity()\n": ""},
        test=f"{CASES}::test_with_check_a_wrong_ledger_stops_the_step_that_made_it",
    ),
    # -- rows and the tree -------------------------------------------------------------------------------------------
    Mutation(
        broken="a row given out again looks like the one before",
        file=TABLE,
        edits={"self.generations[row] += 1": "self.generations[row] = 1"},
        test=f"{CASES}::test_a_rows_generation_grows",
    ),
    Mutation(
        broken="the upper part of a split node forgets who holds it",
        file=RADIX,
        edits={"upper.locks, upper.uses = node.locks, node.uses": "upper.locks, upper.uses = 0, node.uses"},
        test=f"{TREE}::test_locks_survive_a_split",
    ),
    Mutation(
        broken="a leaf is never evicted once it was locked",
        file=RADIX,
        edits={
            "self.evictable += len(node.pages)\n                self._offer(node)\n": (
                "self.evictable += len(node.pages)\n"
            )
        },
        test=f"{TREE}::test_a_locked_leaf_stays",
    ),
    Mutation(
        broken="a leaf is never evicted once it was used again",
        file=RADIX,
        edits={"        self._offer(last)\n": ""},
        test=f"{TREE}::test_what_was_used_can_still_be_evicted",
    ),
    Mutation(
        broken="freed pages keep their KV under poison=True",
        file=CACHE,
        edits={"self._poison += pages": "pass"},
        test=f"{CASES}::test_freed_and_evicted_pages_are_poisoned_with_the_next_batch",
    ),
    Mutation(
        broken="a node whose children are gone is never evicted",
        file=RADIX,
        edits={"            self._offer(parent)\n": ""},
        test=f"{TREE}::test_a_locked_leaf_stays",
    ),
    # -- what computes -----------------------------------------------------------------------------------------------
    Mutation(
        broken="of two writes of one place the earlier wins",
        file="engine/executor.py",
        edits={"values[::-1][last]": "values[last]"},
        test="tests/engine/test_executor.py::test_the_later_of_two_writes_wins",
    ),
    Mutation(
        broken="behind a cached prefix a token sees those that come after it",
        file="attention/torch_backend.py",
        edits={".tril(start)": ".tril(end)"},
        test="tests/attention/test_torch_backend.py::test_every_mixture_equals_attention_written_out",
    ),
    Mutation(
        broken="a sample depends on the seed alone, whatever its position",
        file="engine/sampler.py",
        edits={"_mix(_mix(seed & _MASK) ^ position)": "_mix(_mix(seed & _MASK))"},
        test="tests/engine/test_sampler.py::test_uniform_is_a_fixed_function_of_seed_and_position",
    ),
    # -- the C++ kernels ---------------------------------------------------------------------------------------------
    Mutation(
        broken="gates and ups lie in the panels as any other weight",
        file="kernel/native.py",
        edits={"(2, panels, panel // 2, steps) if gated else": "(panels, 2, panel // 2, steps) if gated else"},
        test=f"{NATIVE}::test_packing_gates_and_ups_by_hand",
    ),
    Mutation(
        broken="packed weights are kept a second time as they were read",
        file="kernel/native.py",
        edits={"module.weight.data = module.weight.new_empty(0)": "self._kept.append(module.weight.data)"},
        test=f"{NATIVE}::test_weights_exist_once_while_they_are_loaded",
    ),
    Mutation(
        broken="an engine takes the weights of another that has them in other numbers",
        file="engine/loader.py",
        edits={"times, dtype, device, kernels, quantize)": "times, dtype, device, kernels)"},
        test=f"{NATIVE}::test_int8_weights_are_shared_with_those_alike_only",
    ),
    Mutation(
        broken="kernels compiled for another CPU are taken from a shared cache",
        file="kernel/build.py",
        edits={"(compiler, target, FLAGS, _cpu())": "(compiler, target, FLAGS)"},
        test="tests/kernel/test_build.py::test_it_says_that_it_compiles_and_does_so_once",
    ),
    Mutation(
        broken="a token sees those of its block that come after it",
        file="kernel/csrc/attention.h",
        edits={"std::min(there, t.first + (row + i) / t.group + 1 - block)": "there"},
        test=f"{NATIVE}::test_every_family_computes_what_torch_computes",
    ),
    Mutation(
        broken="values summed up before a larger score came keep their weight",
        file="kernel/csrc/attention.h",
        edits={"load<vf>(sums) * rescale[i]": "load<vf>(sums)"},
        test=f"{NATIVE}::test_a_prompt_longer_than_blocks_and_windows",
    ),
    Mutation(
        broken="a context that is not split is summed up in one piece",
        file="kernel/csrc/attention.h",
        edits={
            "if (block % RUN == 0) s.run.begin": "if (block == t.begin) s.run.begin",
            "if ((block + KEYS) % RUN == 0 || block + KEYS >= t.end)": "if (block + KEYS >= t.end)",
            "if (t.first + row / t.group >= block / RUN * RUN) {": "{",
        },
        test=f"{NATIVE}::TestOnlyItsOwnHistoryDecides",
    ),
    Mutation(
        broken="NaN of an earlier token stays behind the end of a row",
        file="kernel/csrc/decoder.cpp",
        edits={"std::fill(line, line + hidden_width, 0.f);": ""},
        test=f"{NATIVE}::test_nan_stays_with_its_own_request",
    ),
    Mutation(
        broken="all requests write their keys where the first does",
        file="kernel/csrc/decoder.cpp",
        edits={"b.page_table[t[i].row * int64_t(b.width) + t[i].position];": "b.page_table[t[i].position];"},
        test=f"{NATIVE}::test_every_family_computes_what_torch_computes",
    ),
    Mutation(
        broken="int8 weights are 128 too large",
        file="kernel/csrc/product.h",
        edits={"total == total ? -128 * int32_t(total) : 0;": "0;"},
        test=f"{NATIVE}::test_int8_is_float32_with_rounded_weights_and_inputs",
    ),
    Mutation(
        broken="NaN becomes a number before int8 weights",
        file="kernel/csrc/product.h",
        edits={" + 0.f * total;": ";"},
        test=f"{NATIVE}::test_nan_stays_with_its_own_request",
    ),
    Mutation(
        broken="a thread goes on when the others' items are taken, done or not",
        file="kernel/csrc/team.h",
        edits={"phase.done.load(std::memory_order_acquire) < items": "phase.next.load() < items"},
        test=f"{NATIVE}::TestOnlyItsOwnHistoryDecides::test_company",
    ),
)


def mutated(source: str, edits: dict[str, str]) -> str:
    for old, new in edits.items():
        assert source.count(old) == 1, f"found {source.count(old)} times, so nothing is known any more: {old!r}"
        source = source.replace(old, new)
    return source


def run(tests: Sequence[str], mutation: Mutation | None = None) -> tuple[int, str]:
    """Run tests on a copy of the package, mutated or not: pytest's exit code, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "minisgl"
        shutil.copytree(ROOT / "minisgl", package)
        if mutation:
            path = package / mutation.file
            path.write_text(mutated(path.read_text(encoding="utf-8"), mutation.edits), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-p", "pytest_timeout", "--timeout=60"]
        command += ["-p", "no:cacheprovider", "-o", f"pythonpath={folder} .", *tests]
        own = {"HYPOTHESIS_PROFILE": "ci", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "MINISGL_FUZZ": "0"}
        if mutation and "csrc" in mutation.file:
            own["MINISGL_CACHE"] = f"{folder}/cache"  # for the broken kernels
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | own
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


def caught_by(mutation: Mutation) -> str:
    """The test that fails with this mutation. AssertionError if it survives, or breaks so that no test can tell."""
    code, output = run([mutation.test], mutation)
    assert code != 0, f"survives {mutation.test}: {mutation.name}"
    failed = re.findall(r"^FAILED (.+?)(?: - .*)?$", output, re.M)
    assert code == 1 and failed, f"no test failed, but something broke: {mutation.name}\n{output}"
    return failed[0]


def main() -> int:
    """Print the table, case by case, as the mutations are tried; 1 if one survives."""
    survivors = 0
    with ThreadPoolExecutor(2) as pool:
        attempts: Iterator = zip(MUTATIONS, [pool.submit(caught_by, m) for m in MUTATIONS], strict=True)
        print(f"{'bug':92} caught by")
        for mutation, attempt in attempts:
            try:
                print(f"{mutation.name:92} {attempt.result().split('/')[-1]}", flush=True)
            except AssertionError as survived:
                survivors += 1
                print(f"{mutation.name:92} NOTHING: {survived}", flush=True)
    print(f"{len(MUTATIONS) - survivors} of {len(MUTATIONS)} caught")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
