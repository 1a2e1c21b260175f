"""`requests`: what files of recorded answers tell of single requests, in the terminal."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ... import __version__
from ...config.options import ConfigError, add_flags, gather
from ...economics.profiles import deployed
from ...judgement.findings import Finding, Severity
from ...measures.window import Window
from ...observe.result import ExporterResult
from ...publish import snapshot
from ...publish import terminal_report as report
from ...publish.markup import count
from ...publish.request_report import Costs
from ...publish.wording import printable, wrap
from ...requests.aggregation import RequestAggregator
from ...requests.judgement import Load
from ...requests.observation import Source
from ...requests.result import RequestsVerdict, is_problem, requests_verdict
from ...serve import configuration as config
from ...serve.option_table import OPTIONS as ALL_OPTIONS
from ...serve.request_options import build_requests
from .entries import Recording, lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from ...observe.state import Settings
    from ...requests.judgement import RequestSettings
    from ...requests.result import ModelRequests, RequestsResult

# Exit codes, as those of `check`.
FINE, PROBLEM, USAGE, UNKNOWN = range(4)

#: The options of `serve` that mean the same here: of the window, all of the file takes the place.
_TAKEN = ("spec.", "cost.profile", "cost.file", "cost.draft-size", "threshold", "requests.")
_LEFT = ("requests.window", "requests.bounds.")
OPTIONS = tuple(o for o in ALL_OPTIONS if o.name.startswith(_TAKEN) and not o.name.startswith(_LEFT))

STDIN = "-"
#: Without --batch, speedups are told for these: alone, some, and so many that rejected tokens cost.
BATCHES = (1.0, 16.0, 64.0)
_MOST_BATCH = 1_000_000.0
#: All requests of a file are judged together: it has no time.
_NOW = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do.

    Attributes:
        files: paths, or `STDIN`.
        settings: thresholds and what steps cost.
        requests: how requests are grouped.
        batch: requests in the batch, where that was said.
    """

    files: tuple[str, ...]
    settings: Settings
    requests: RequestSettings
    batch: float | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the flags of `requests`."""
    parser.epilog = (
        f"Exit codes: {FINE} the requests do not lose; {PROBLEM} a part of them loses, or some gain and some "
        f"lose; {USAGE} bad usage, or a file that cannot be read; {UNKNOWN} they cannot be judged (too few, "
        "or no record of speculation in their answers)."
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="Recorded answers, - for standard input: documents of JSON, on a line each, one after another "
        "or in an array, or streams of events (data: ...), also gzipped. An entry is an OpenAI answer with "
        "metrics.speculative_decoding, "
        '{"request": ..., "response": ...}, a line of vLLM run-batch (the file with its requests comes '
        "first), or an observation as POST /api/v1/requests takes it.",
    )
    parser.add_argument(
        "--batch",
        metavar="N",
        help="Requests in the batch while these were served, for the estimated speedup. Without it, speedups "
        f"are told for {', '.join(f'{batch:g}' for batch in BATCHES)} and for no group.",
    )
    parser.add_argument("--json", action="store_true", help="Print the snapshot as JSON instead.")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="Colours. Default: auto."
    )
    add_flags(parser, OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Read the files, print what they tell and return the exit code."""
    plan = _plan(args)
    recording = Recording(plan.requests.classification)
    book = _read(plan, recording)
    costs = {model: _costs(plan, model) for model in book.shapes(_NOW)}
    requests = _judge(plan, book, costs)
    result = ExporterResult(
        version=__version__,
        timestamp_seconds=time.time(),
        thresholds=dict(plan.settings.thresholds.items()),
        requests=requests,
    )
    told = [*_head(plan.files, recording)]
    if args.json:
        sys.stdout.write(f"{snapshot.encode(result).decode()}\n")
        sys.stderr.writelines(f"{line.strip()}\n" for line in told[1:])
    else:
        wanted = args.color == "auto" and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        colour = wanted or args.color == "always"
        sys.stdout.writelines(f"{line}\n" for line in told)
        sys.stdout.write(f"{report.render(result, colour=colour, costs=costs)}\n")
    sys.stdout.flush()
    return exit_code(requests.models)


def exit_code(models: Sequence[ModelRequests]) -> int:
    """Return what a script should know: the gravest of all models."""
    if is_problem(models):
        return PROBLEM
    unknown = not models or any(requests_verdict(found) is RequestsVerdict.UNKNOWN for found in models)
    return UNKNOWN if unknown else FINE


def _plan(args: argparse.Namespace) -> Plan:
    values, _ = gather(OPTIONS, vars(args), os.environ, None)
    # What is not an option here has the value of one that was not given.
    given, _ = gather([option for option in ALL_OPTIONS if option.name.startswith("requests.")], {}, {}, None)
    values = {option.name: None for option in ALL_OPTIONS} | given | values
    # Pushed observations name their tenant without any header.
    values["push.bearer-token-file"] = STDIN
    if args.files.count(STDIN) > 1:
        raise ConfigError(f"{STDIN} given twice: standard input can be read once")
    window = Window(1.0)
    return Plan(
        files=tuple(args.files),
        settings=config.build_settings(values, (window,), judged=window, slack=0.0),
        requests=build_requests(values),
        batch=_batch(args.batch),
    )


def _batch(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        batch = float(text)
    except ValueError:
        batch = 0.0
    if not 1 <= batch <= _MOST_BATCH:
        raise ConfigError(
            f"--batch {json.dumps(text, ensure_ascii=False)}: allowed: a number from 1 to {_MOST_BATCH:,.0f}"
        )
    return batch


def _read(plan: Plan, recording: Recording) -> RequestAggregator:
    book = RequestAggregator(plan.requests, plan.settings.thresholds, (Source.FILE,))
    several = len(plan.files) > 1
    for path in plan.files:
        with _opened(path) as file:
            for place, observation in recording.read(_shown(path) if several else "", lines(file)):
                # Those without an identifier are found by their place.
                named = replace(observation, request_id=observation.request_id or place)
                book.add(named, Source.FILE, _NOW)
    recording.end()
    return book


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """Open a file for as long as it is read.

    Raises:
        ConfigError: it cannot be opened, or not read to its end.
    """
    try:
        if path == STDIN:
            yield sys.stdin.buffer
        else:
            with Path(path).open("rb") as file:
                yield file
    except OSError as error:
        raise ConfigError(
            f"{json.dumps(_shown(path), ensure_ascii=False)}: cannot be read: {error.strerror or error}"
        ) from error


def _shown(path: str) -> str:
    return "standard input" if path == STDIN else printable(path)


def _costs(plan: Plan, model: str) -> Costs:
    settings = plan.settings
    profile = deployed(settings.profile, settings.size_ratio, settings.speculation.draft_model, model)
    return Costs(profile, (plan.batch,) if plan.batch else BATCHES)


def _judge(plan: Plan, book: RequestAggregator, costs: dict[str, Costs]) -> RequestsResult:
    batch = plan.batch
    loads = {model: Load(batch, found.profile) for model, found in costs.items()} if batch else {}
    result = book.result(_NOW, loads)
    return replace(result, models=tuple(_of_file(found, plan) for found in result.models))


def _of_file(found: ModelRequests, plan: Plan) -> ModelRequests:
    """Return what is said of a model's requests where there is no window, but all of a file."""
    found = replace(found, window="")
    if requests_verdict(found) is not RequestsVerdict.UNKNOWN:
        return found
    few = Finding(
        Severity.HINT,
        f"{found.window_requests} requests had something drafted, "
        f"{plan.settings.thresholds.minimum_requests:.0f} are needed to judge them one by one",
        "Record more requests, or be content with less: --threshold minimum_requests=NUMBER.",
    )
    return replace(found, findings=(few,))


def _head(files: Sequence[str], recording: Recording) -> Iterator[str]:
    """Yield what was read, and what of it could not be used."""
    total = recording.entries.total()
    names = ", ".join(_shown(path) for path in files)
    yield from wrap(f"{names}: {count(total)} {'entry' if total == 1 else 'entries'}", "", 2)
    for reason, found in recording.unusable.items():
        where = f" ({'; '.join(found.places)}{'; ...' if found.count > len(found.places) else ''})"
        words = f"{count(found.count)} not used: {reason}{where if found.places else ''}"
        yield from wrap(printable(words), "  entries   ", 12)
