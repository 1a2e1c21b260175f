"""The command line of `requests`."""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from ... import __version__
from ...config.options import ConfigError, add_flags, gather
from ...config.values import number
from ...economics.profiles import deployed
from ...judgement.findings import hint
from ...measures.history import Window
from ...observe.result import ExporterResult
from ...observe.settings import Settings
from ...per_request.acceptance import BatchCost, ends_early
from ...per_request.aggregation import RequestAggregator
from ...per_request.grouping import RequestSettings
from ...per_request.observation import Source
from ...per_request.summary import (
    ModelRequests,
    RequestsResult,
    RequestsVerdict,
    is_problem,
    requests_verdict,
)
from ...publish import snapshot
from ...publish import terminal_report as report
from ...publish.numbers import count
from ...publish.request_report import Costs
from ...publish.terminal import printable, wrap
from ...settings import configuration
from ...settings.option_table import OPTIONS as ALL_OPTIONS
from ...settings.request_options import build_requests
from ..arguments import add_flag, add_output_flags, wants_color
from .recorded import EntryReader

# Exit codes, as those of `check`.
FINE, PROBLEM, USAGE, UNKNOWN = range(4)

#: The options of `serve` with the same meaning here. The window is the whole file.
_SHARED = (
    "spec.",
    "threshold",
    "requests.",
    "cost.profile",
    "cost.file",
    "cost.hardware",
    "cost.model",
    "cost.draft-size",
)
OPTIONS = tuple(
    option
    for option in ALL_OPTIONS
    if option.name.startswith(_SHARED) and option.name != "requests.window"
)

STDIN = "-"
#: Without --batch, speedups are printed for these batch sizes; in the last, rejected
#: tokens cost much.
BATCHES = (1.0, 16.0, 64.0)
#: Limit of the reasons that are printed: errors may quote the file, and a screen has
#: about 40 lines.
_MAX_REASONS = 20
#: The time of all requests: they are judged together.
_NOW = 0.0


class RequestsConfig(Struct, frozen=True):
    """The validated configuration."""

    files: tuple[str, ...]  # paths, or `STDIN`
    settings: Settings  # thresholds and the cost of steps
    requests: RequestSettings  # how requests are grouped
    batch: float | None  # requests in the batch; ``None`` if not given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `requests` to `parser`."""
    parser.epilog = (
        f"Exit codes: {FINE} the requests do not lose; {PROBLEM} a part of them "
        f"loses, or some gain and some lose; {USAGE} bad usage, or a file that cannot "
        f"be read; {UNKNOWN} they cannot be judged (too few, or no record of "
        "speculation in their responses)."
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="Recorded responses, - for standard input: a JSON object on each line. "
        'It is a response with metrics.speculative_decoding, {"request": ..., '
        '"response": ...}, a line of vLLM run-batch (the file with its requests '
        "first), or one request as POST /api/v1/requests accepts it.",
    )
    add_flag(
        parser,
        "--batch N",
        "Requests in the batch while these were served, for the estimated speedup. "
        "Without it, speedups are printed for {:g}, {:g} and {:g}, and for no "
        "group.".format(*BATCHES),
        parse=number(1.0, 1_000_000.0, "a number from 1 to 1,000,000"),
    )
    add_output_flags(parser)
    add_flags(parser, OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Read the files, print the result and return the exit code."""
    config = _config(args)
    reader = EntryReader(config.requests.classification)
    aggregator, configured_k = _read(config, reader)
    settings = config.settings
    costs = {}
    for model in aggregator.shapes(_NOW):
        profile = deployed(settings.costs, settings.speculation, model)
        costs[model] = Costs(profile, (config.batch,) if config.batch else BATCHES)
    requests = _judge(config, aggregator, costs, configured_k)
    result = ExporterResult(
        version=__version__,
        timestamp_seconds=time.time(),
        thresholds=dict(settings.thresholds.items()),
        requests=requests,
    )
    head = [*_head(config.files, reader)]
    if args.json:
        sys.stdout.write(f"{snapshot.encode(result).decode()}\n")
        sys.stderr.writelines(f"{line.strip()}\n" for line in head[1:])
    else:
        sys.stdout.writelines(f"{line}\n" for line in head)
        sys.stdout.write(
            f"{report.render(result, colour=wants_color(args), costs=costs)}\n"
        )
    sys.stdout.flush()
    return exit_code(requests.models)


def exit_code(models: Sequence[ModelRequests]) -> int:
    """Return the exit code: the worst of all models."""
    if is_problem(models):
        return PROBLEM
    if not models or RequestsVerdict.UNKNOWN in map(requests_verdict, models):
        return UNKNOWN
    return FINE


def _config(args: argparse.Namespace) -> RequestsConfig:
    # Options of `serve` that do not exist here have no value, or their defaults.
    values: dict[str, Any] = {option.name: None for option in ALL_OPTIONS}
    grouping = [option for option in ALL_OPTIONS if option.name.startswith("requests.")]
    values |= gather(grouping, flags={}, environment={}, document=None)[0]
    values |= gather(OPTIONS, vars(args), os.environ, None)[0]
    # Pushed observations contain their tenant, so no --requests.tenant-header is
    # needed.
    values["push.bearer-token-file"] = STDIN
    if args.files.count(STDIN) > 1:
        raise ConfigError(f"{STDIN} given twice: standard input can be read once")
    window = Window(1.0)
    return RequestsConfig(
        files=tuple(args.files),
        settings=configuration.build_settings(
            values, (window,), judged=window, slack=0.0
        ),
        requests=replace(build_requests(values), window_seconds=math.inf),
        batch=args.batch,
    )


def _read(
    config: RequestsConfig, reader: EntryReader
) -> tuple[RequestAggregator, set[str]]:
    """Return the requests, and the models whose drafted tokens are computed from the
    configured K.
    """
    configured_k = set()
    aggregator = RequestAggregator(
        config.requests, config.settings.thresholds, (Source.FILE,)
    )
    several = len(config.files) > 1
    for path in config.files:
        with _opened(path) as file:
            for observation in reader.read_file(_shown(path) if several else "", file):
                aggregator.add(observation, Source.FILE, _NOW)
                # Whether that K is right shows only when all requests are read.
                if observation.record is not None and observation.record.configured_k:
                    configured_k.add(observation.model_name)
    reader.end()
    return aggregator, configured_k


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """Open a file; ConfigError if it cannot be opened, or not read to its end."""
    try:
        if path == STDIN:
            yield sys.stdin.buffer
        else:
            with Path(path).open("rb") as file:
                yield file
    except OSError as error:
        shown = json.dumps(_shown(path), ensure_ascii=False)
        raise ConfigError(
            f"{shown}: cannot be read: {error.strerror or error}"
        ) from error


def _shown(path: str) -> str:
    if path == STDIN:
        return "standard input"
    return printable(path)


def _judge(
    config: RequestsConfig,
    aggregator: RequestAggregator,
    costs: dict[str, Costs],
    configured_k: set[str],
) -> RequestsResult:
    loads = {}
    if config.batch:
        for name, cost in costs.items():
            loads[name] = BatchCost(config.batch, cost.profile)
    result = aggregator.result(_NOW, loads)
    # The drafted tokens of such a model follow from K, and records that end early show
    # that fewer were drafted.
    models: list[ModelRequests] = []
    wrong = set()
    for model in result.models:
        if model.model_name in configured_k and ends_early(model):
            wrong.add(model.model_name)
            models.append(_undrafted(model))
        else:
            models.append(model)
    return replace(
        result,
        groups=tuple(group for group in result.groups if group.model_name not in wrong),
        tenants=tuple(each for each in result.tenants if each.model_name not in wrong),
        models=tuple(models),
    )


def _undrafted(model: ModelRequests) -> ModelRequests:
    """Return the result of a model whose records lack how many tokens were drafted."""
    depth = sum(map(bool, model.accepted_per_position))
    unknown = hint("trees", drafted=len(model.drafted_per_position), depth=depth)
    return ModelRequests(model.model_name, "", findings=tuple(unknown))


def _head(files: Sequence[str], reader: EntryReader) -> Iterator[str]:
    """Yield lines with the number of entries, and of those not used by reason."""
    names = ", ".join(map(_shown, files))
    noun = "entry" if reader.entries == 1 else "entries"
    yield from wrap(f"{names}: {count(reader.entries)} {noun}", "", 2)
    for reason, entries in reader.unused.most_common(_MAX_REASONS):
        text = f"{count(entries)} not used: {reason}"
        if reason in reader.first:
            text += f" (first: {reader.first[reason]})"
        yield from wrap(printable(text), "  entries   ", 12)
