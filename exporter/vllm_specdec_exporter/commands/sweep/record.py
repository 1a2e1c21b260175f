"""The record of a sweep, `sweep.json`: settings, server, and every measured cell.

A later run with the same settings and server continues it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from ... import __version__
from ...config import files
from ...config.options import ConfigError
from ...economics.statistics import ClusterInterval, TimeSummary
from .client import StreamedAnswer  # noqa: TC001 - read at run time, to decode
from .grid import Cell, SweepPlan

if TYPE_CHECKING:
    from pathlib import Path


FORMAT = "vllm-specdec-sweep"
FORMAT_VERSION = 1


class Status(StrEnum):
    """Whether the result of a cell is valid."""

    OK = "ok"
    DISTURBED = "disturbed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The measured server; another one means another sweep."""

    target: str  # its address, without secrets
    model: str  # the model's name
    root: str = ""  # the path of the model's weights, from the server
    version: str = ""  # the server's version, empty if not known
    dialect: str = ""
    num_speculative_tokens: int = 0  # K, 0 if not known


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings, as in `grid.SweepPlan`; `prompts` has a fingerprint of each set by its name."""

    prompts: dict[str, str]
    temperatures: tuple[float, ...]
    concurrencies: tuple[int, ...]
    requests: int
    max_tokens: int
    api: str
    seed: int | None
    top_p: float | None
    ignore_eos: bool


@dataclass(frozen=True, slots=True)
class CellAcceptance:
    """Acceptance of a cell, from one of two sources; as in `measures.Measures`."""

    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    acceptance_ratio: float | None = None  # accepted over draft tokens, 0 to 1
    mean_acceptance_length: float | None = None  # tokens emitted per draft, 1 to 1 + K
    #: At index i, the share of drafts in which position i was accepted.
    position_acceptance_ratio: tuple[float, ...] = ()
    mean_draft_length: float | None = None  # draft tokens per draft, 0 to K
    coverage_ratio: float | None = None  # share of the generated tokens from drafts, 0 to 1


@dataclass(frozen=True, slots=True)
class CellResult:
    """What was measured in one cell."""

    prompts: str  # name of the set of prompts; with the next two, which cell this is
    concurrency: int  # number of workers
    temperature: float
    #: ``ok``; ``disturbed``: the server did more than the cell's requests; ``failed``: no result.
    status: Status
    reasons: tuple[str, ...] = ()  # why it is not ``ok``, or what else is to be known of it
    started: float = 0.0  # Unix time at which the cell began
    seconds: float = 0.0  # from the first request to the end of the last answer
    requests: int = 0
    errors: int = 0  # of these, without a whole answer
    completion_tokens: int = 0  # tokens of the whole answers, as their usage says
    generated_tokens: float | None = None  # tokens that the server's counters say were generated meanwhile
    tokens_per_second: float | None = None  # completion tokens by seconds
    #: Time to first token, in seconds; measured by the client, as all times.
    ttft: TimeSummary = TimeSummary()
    tpot: TimeSummary = TimeSummary()  # time per output token behind the first, in seconds, of each answer
    latency: TimeSummary = TimeSummary()  # from request to the end of the answer, in seconds
    #: Accepted over draft tokens: from the requests' own records where all answers have one, otherwise from
    #: the counters.
    acceptance_ratio: float | None = None
    acceptance_interval: ClusterInterval | None = None  # its 95 % interval
    mean_acceptance_length: float | None = None  # tokens per draft, from the same source
    counters: CellAcceptance | None = None  # acceptance from the increase of the server's counters
    #: The same from the requests' own records, where all answers have one.
    records: CellAcceptance | None = None
    answers: tuple[StreamedAnswer, ...] = ()  # every request
    attempts: int = 1  # how often the cell was measured; more than once where the server restarted

    @property
    def cell(self) -> Cell:
        """Which cell this is."""
        return Cell(self.prompts, self.concurrency, self.temperature)

    @property
    def position_acceptance_ratio(self) -> tuple[float, ...]:
        """By position from 0 on, from the requests' own records where there are; empty without either."""
        source = self.records or self.counters
        return () if source is None else source.position_acceptance_ratio


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """A sweep: the document in `sweep.json`."""

    server: ServerIdentity
    setup: Setup
    cells: tuple[CellResult, ...] = ()
    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    exporter_version: str = field(default=__version__)

    def with_cell(self, result: CellResult) -> SweepRecord:
        """Return the record with a cell added, or replaced after a repeated attempt, in the grid's order."""
        others = tuple(one for one in self.cells if one.cell != result.cell)
        return replace(self, cells=tuple(sorted((*others, result), key=self.place)))

    def place(self, result: CellResult) -> tuple[int, int, int]:
        """Return the index of a cell in the grid; ValueError if it is not in it."""
        setup = self.setup
        return (
            list(setup.prompts).index(result.prompts),
            setup.concurrencies.index(result.concurrency),
            setup.temperatures.index(result.temperature),
        )

    def finished(self, *, allow_other_traffic: bool) -> frozenset[Cell]:
        """Return the cells that need not be measured again."""
        good = {Status.OK, Status.DISTURBED} if allow_other_traffic else {Status.OK}
        return frozenset(result.cell for result in self.cells if result.status in good)


def setup_of(plan: SweepPlan, api: str) -> Setup:
    """Return the settings of `plan` with `api`."""
    return Setup(
        prompts={one.name: one.digest for one in plan.prompts},
        temperatures=plan.temperatures,
        concurrencies=plan.concurrencies,
        requests=plan.requests,
        max_tokens=plan.max_tokens,
        api=api,
        seed=plan.seed,
        top_p=plan.top_p,
        ignore_eos=plan.ignore_eos,
    )


def decode(body: bytes) -> SweepRecord:
    """Return the record in a file's content; ValueError, to follow the name of the file, if invalid."""
    try:
        head = msgspec.json.decode(body)
        ours = isinstance(head, dict) and head.get("format") == FORMAT
        if ours and head.get("format_version") == FORMAT_VERSION:
            record = msgspec.json.decode(body, type=SweepRecord)
            for result in record.cells:
                record.place(result)
            return record
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not the record of a sweep: {' '.join(str(error).split())}") from error
    if ours:
        raise ValueError(f"has format version {head.get('format_version')}, known: {FORMAT_VERSION}")
    raise ValueError("is not the record of a sweep")


def encode(record: SweepRecord) -> bytes:
    """Return the record as JSON."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def server_differences(old: ServerIdentity, new: ServerIdentity) -> list[str]:
    """Return the differences between two servers; unknown properties do not count."""
    told = {name: value for name, value in asdict(old).items() if value and getattr(new, name)}
    return _differences(told, asdict(new))


def _differences(old: dict[str, object], new: dict[str, object]) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {_show(value)} there, {_show(new[name])} now"
        for name, value in old.items()
        if value != new[name]
    ]


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{item:g}" for item in value)
    if isinstance(value, dict):
        return ",".join(f"{name} ({digest})" for name, digest in value.items())
    if isinstance(value, str):
        return value or "unknown"
    return json.dumps(value)


FILE = "sweep.json"


def load(directory: Path) -> SweepRecord | None:
    """Return the record in `directory`, ``None`` without; ConfigError if it cannot be used."""
    path = directory / FILE
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"--out {_quote(directory)}: {FILE} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"--out {_quote(directory)}: {FILE} {error}") from error


def check_same(directory: Path, old: SweepRecord, server: ServerIdentity, setup: Setup) -> None:
    """Raise ConfigError with the differences if the record in `directory` is of another sweep."""
    found = server_differences(old.server, server) + _differences(asdict(old.setup), asdict(setup))
    if found:
        raise ConfigError(
            f"--out {_quote(directory)}: holds another sweep: {'; '.join(found)}; "
            "repeat that one's settings to continue it, or choose another directory"
        )


def save(path: Path, body: bytes) -> None:
    """Write a file atomically; ConfigError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, body)
    except OSError as error:
        where = f"--out {_quote(path.parent)}: {path.name}"
        raise ConfigError(f"{where} cannot be written: {error.strerror}") from error


def _quote(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)
