"""`sweep`: real requests at several temperatures and loads, and their acceptance."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...config.options import ConfigError
from ...publish import plots
from ...publish.wording import printable
from . import page, report
from . import record as recordfile
from .arguments import add_flags_of_sweep, read_endpoint, read_plan
from .endpoint import Unreachable
from .progress import show_progress
from .runner import OtherTraffic, run_sweep

if TYPE_CHECKING:
    import argparse

    from .grid import SweepPlan, Zones
    from .record import SweepRecord
    from .runner import SweepOutcome

# Exit codes.
FINE, PROBLEM, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 4, 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `sweep` to `parser`."""
    parser.epilog = (
        f"Exit codes: {FINE} finished; {PROBLEM} cells failed or were disturbed, or the sweep ended early; "
        f"{USAGE} bad usage; {UNREACHABLE} the server cannot be reached, is no OpenAI endpoint, or has no "
        "vLLM metrics."
    )
    add_flags_of_sweep(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, write the files, print the report and return the exit code."""
    plan, endpoint = read_plan(args), read_endpoint(args)
    if not args.no_html:
        try:
            plots.require()  # before half an hour of measuring, not after
        except ConfigError as error:
            raise ConfigError(f"{error} (or give --no-html)") from error
    directory: Path = args.out or Path(time.strftime("sweep-%Y%m%d-%H%M%S"))
    latest: list[SweepRecord] = []
    try:
        outcome = asyncio.run(
            run_sweep(
                plan,
                endpoint,
                directory=directory,
                progress=show_progress(quiet=args.quiet),
                begun=latest.append,
            )
        )
    except (Unreachable, OtherTraffic) as error:
        print(f"vllm-specdec-exporter sweep: error: {printable(str(error))}", file=sys.stderr)
        return UNREACHABLE if isinstance(error, Unreachable) else PROBLEM
    except KeyboardInterrupt:
        if latest:
            _write(directory, latest[-1], plan.zones, html=not args.no_html)
            _tell_how_to_go_on("interrupted", directory, len(latest[-1].cells), len(plan.cells()))
        return INTERRUPTED
    _write(directory, outcome.record, plan.zones, html=not args.no_html)
    _print(outcome, plan, as_json=args.json)
    if outcome.stopped:
        _tell_how_to_go_on(
            f"stopped: {outcome.stopped}",
            directory,
            len(plan.cells()) - outcome.left,
            len(plan.cells()),
        )
    elif not args.quiet:
        files = [recordfile.FILE, "sweep.csv", *([] if args.no_html else ["report.html"])]
        print(f"written to {directory}: {', '.join(files)}", file=sys.stderr)
    return FINE if outcome.clean else PROBLEM


def _print(outcome: SweepOutcome, plan: SweepPlan, *, as_json: bool) -> None:
    if as_json:
        found = report.document(outcome.record, plan.zones)
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        print(report.render(outcome.record, plan.zones))
    sys.stdout.flush()


def _write(directory: Path, found: SweepRecord, zones: Zones, *, html: bool) -> None:
    recordfile.save(directory / "sweep.csv", report.to_csv(found, zones).encode("utf-8", "replace"))
    if html:
        recordfile.save(directory / "report.html", page.render(found, zones).encode("utf-8", "replace"))


def _tell_how_to_go_on(why: str, directory: Path, done: int, total: int) -> None:
    print(
        f"{why}; {done} of {total} cells are kept in {directory}; the same command with --out {directory} "
        "goes on from there",
        file=sys.stderr,
    )
