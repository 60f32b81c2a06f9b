"""The command line: what can be done with a recorded run, without torch and without a model.

Exit codes: 0 the runs are the same, the run is sound, or what was asked for is done; 1 they differ, or it is not;
2 it could not be done, for the reason on stderr.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Sequence
from typing import Any

import msgspec

from minisgl.errors import MinisglError
from minisgl.events.export import FORMATS, export
from minisgl.events.state import CACHE, FREE
from minisgl.events.table import Table
from minisgl.events.trace import Trace
from minisgl.events.words import count

TABLES = ("requests", "steps", "admissions", "handoffs", "pages")
HEAD = 20  # rows and lines that an overview shows
SIGPIPE = 141  # what a shell reports of a program that a closed pipe ended


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if "run" not in args:  # no command was named: say which there are
        args.help()
        return 2
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `| head` has seen enough; Python must not complain again at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SIGPIPE
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
    except MinisglError as error:
        reason = str(error)
    print(f"minisgl: {' '.join(reason.split())}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m minisgl", description="minisgl: an inference engine to watch")
    parser.set_defaults(help=parser.print_help)
    trace = parser.add_subparsers(metavar="COMMAND").add_parser("trace", help="work with a recorded run")
    trace.set_defaults(help=trace.print_help)
    commands = trace.add_subparsers(metavar="COMMAND")

    def command(name: str, run: Any, says: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=says, description=says)
        sub.set_defaults(run=run, fail=sub.error)
        return sub

    show = command("show", _show, "what happened in a run: an overview, one step, or one of its tables")
    show.add_argument("file")
    what = show.add_mutually_exclusive_group()
    what.add_argument("--step", type=int, metavar="N", help="the state after step N: requests, pages, tree")
    for name in TABLES:
        what.add_argument(f"--{name}", action="store_const", dest="table", const=name, help=f"the table of {name}")
    form = show.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="the table as CSV; what is missing as in minisgl's tables")
    form.add_argument("--json", action="store_true", help="the table, the step or the figures as JSON; NaN is null")

    diff = command("diff", _diff, "where two runs part; exit code 1 if they do")
    diff.add_argument("file")
    diff.add_argument("other")
    diff.add_argument("--times", action="store_true", help="times count as well")

    check = command("check", _check, "whether every page had one owner at every step; exit code 1 if not")
    check.add_argument("file")

    write = command("export", _export, "write a run for another tool's viewer")
    write.add_argument("file")
    write.add_argument("out")
    write.add_argument("--format", choices=FORMATS, required=True)
    return parser


def _load(path: str) -> Trace:
    """The run in a file; what it warns of (a file cut short, events of a newer version) as lines on stderr."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trace = Trace.load(path)
    for warning in said:
        print(f"minisgl: {warning.message}", file=sys.stderr)
    return trace


def _show(args: argparse.Namespace) -> int:
    if args.csv and not args.table:
        args.fail(f"--csv needs a table: {', '.join(f'--{name}' for name in TABLES)}")
    trace = _load(args.file)
    if args.table:
        _print_table(getattr(trace, args.table), args)
    elif args.step is not None:
        snapshot = trace.at(args.step)
        print(_json(snapshot.to_dict()) if args.json else snapshot.text())
    elif args.json:
        print(_json(trace.figures.to_dict()))
    else:
        _overview(trace)
    return 0


def _overview(trace: Trace) -> None:
    print(f"{trace.title}: {trace!r}" if trace.title else repr(trace))
    for name, value in trace.about.items():
        said = f"{name}: {_settings(value)}"
        print(textwrap.fill(said, _width(), initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False))
    print(f"\n{trace.figures!r}\n\nRequests\n{trace.requests.text(HEAD, _width())}")
    print("\nPages after each batch was allocated")
    lines = trace.table().splitlines()
    print("\n".join(lines[: HEAD + 1]))
    if len(lines) > HEAD + 1:
        print(f"... and {count(len(lines) - HEAD - 1, 'more batch', 'more batches')}")


def _settings(value: Any) -> str:
    return ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def _print_table(table: Table, args: argparse.Namespace) -> None:
    if args.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(row.values() for row in table.rows())
    elif args.json:
        print(_json(list(table.rows())))
    else:
        print((_owners_in_words(table) if args.table == "pages" else table).text(width=_width()))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _owners_in_words(pages: Table) -> Table:
    """The table of pages as people read it: nobody has to know that -1 means free, -2 the prefix cache, or no node."""
    owners = [{FREE: "free", CACHE: "cache"}.get(owner, f"request {owner}") for owner in pages.owner.tolist()]
    nodes = ["" if node < 0 else str(node) for node in pages.node.tolist()]
    columns: dict[str, Any] = {**pages, "owner": owners, "node": nodes}
    return Table(pages.name, pages.units | {"owner": "text", "node": "text"}, list(columns.values()))


def _width() -> int:
    """The terminal's, or what COLUMNS says, or 80; --csv and --json have the columns that find no room."""
    return shutil.get_terminal_size().columns


def _diff(args: argparse.Namespace) -> int:
    diff = _load(args.file).diff(_load(args.other), times=args.times)
    print(diff)
    return 1 if diff else 0


def _check(args: argparse.Namespace) -> int:
    trace = _load(args.file)
    found = trace.check()
    for step, violation in found:
        print(f"step {step}: {violation}")
    verdict = count(len(found), "broken rule") if found else "sound, every page had one owner at every step"
    print(f"{trace!r}: {verdict}")
    return 1 if found else 0


def _export(args: argparse.Namespace) -> int:
    path = export(_load(args.file), args.out, args.format)
    print(f"{path}: {path.stat().st_size} bytes")
    return 0
