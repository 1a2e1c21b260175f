"""The command line of `requests`."""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ... import __version__
from ...config.options import ConfigError, add_flags
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
from ..arguments import add_flag, add_output_flags, option_values, wants_color
from ..exit_codes import FINE, PROBLEM, UNKNOWN, USAGE
from .recorded import EntryReader

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
    if args.files.count(STDIN) > 1:
        raise ConfigError(f"{STDIN} given twice: standard input can be read once")
    settings, grouping = _settings(args)
    reader = EntryReader(grouping.classification)
    aggregator = RequestAggregator(grouping, settings.thresholds, (Source.FILE,))
    configured_k = _read(args.files, reader, aggregator)
    costs = {}
    loads = {}
    for model in aggregator.shapes(_NOW):
        own = settings.named(model)
        profile = deployed(own.costs, own.speculation, model)
        costs[model] = Costs(profile, BATCHES)
        if args.batch is not None:
            costs[model] = Costs(profile, (args.batch,))
            loads[model] = BatchCost(args.batch, profile)
    requests = _without_trees(aggregator.result(_NOW, loads), configured_k)
    result = ExporterResult(
        version=__version__,
        timestamp_seconds=time.time(),
        thresholds=dict(settings.thresholds.items()),
        requests=requests,
    )
    head = [*_head(args.files, reader)]
    if args.json:
        print(snapshot.encode(result).decode())
        for line in head[1:]:
            print(line.strip(), file=sys.stderr)
    else:
        print("\n".join(head))
        print(report.render(result, colour=wants_color(args), costs=costs))
    sys.stdout.flush()
    return exit_code(requests.models)


def exit_code(models: Sequence[ModelRequests]) -> int:
    """Return the exit code: the worst of all models."""
    if is_problem(models):
        return PROBLEM
    if not models or RequestsVerdict.UNKNOWN in map(requests_verdict, models):
        return UNKNOWN
    return FINE


def _settings(args: argparse.Namespace) -> tuple[Settings, RequestSettings]:
    """Return thresholds and the cost of steps, and how requests are grouped."""
    values = option_values(OPTIONS, vars(args))
    values["requests.window"] = math.inf
    # Pushed observations contain their tenant, so no --requests.tenant-header is
    # needed.
    values["push.bearer-token-file"] = STDIN
    window = Window(1.0)
    settings = configuration.build_settings(values, (window,), judged=window, slack=0.0)
    return settings, build_requests(values)


def _read(
    paths: Sequence[str], reader: EntryReader, aggregator: RequestAggregator
) -> set[str]:
    """Add the requests of files; return the models whose drafted tokens are computed
    from the configured K.
    """
    configured_k = set()
    for path in paths:
        name = _shown(path) if len(paths) > 1 else ""
        for observation in reader.read_file(name, _lines(path)):
            aggregator.add(observation, Source.FILE, _NOW)
            # Whether that K is right shows only when all requests are read.
            if observation.record is not None and observation.record.configured_k:
                configured_k.add(observation.model_name)
    reader.end()
    return configured_k


def _lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a file; ConfigError if it cannot be read to its end."""
    try:
        # 0 is standard input
        with open(0 if path == STDIN else path, "rb") as file:  # noqa: PTH123
            yield from file
    except OSError as error:
        shown = json.dumps(_shown(path), ensure_ascii=False)
        raise ConfigError(
            f"{shown}: cannot be read: {error.strerror or error}"
        ) from error


def _shown(path: str) -> str:
    if path == STDIN:
        return "standard input"
    return printable(path)


def _without_trees(result: RequestsResult, configured_k: set[str]) -> RequestsResult:
    """Return the result without what rests on drafted tokens that were not drafted:
    records that end early show that K was only configured.
    """
    models = {}
    wrong = set()
    for model in result.models:
        name = model.model_name
        models[name] = model
        if name in configured_k and ends_early(model):
            wrong.add(name)
            models[name] = _undrafted(model)
    return replace(
        result,
        groups=tuple(group for group in result.groups if group.model_name not in wrong),
        tenants=tuple(each for each in result.tenants if each.model_name not in wrong),
        models=tuple(models.values()),
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
