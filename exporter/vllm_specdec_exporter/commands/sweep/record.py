"""The record of a sweep, `sweep.json`: settings, server, and every measured cell."""

import json
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct, field
from msgspec.structs import fields

from ... import __version__
from ...config.options import ConfigError
from ...economics.statistics import ClusterInterval, TimeSummary
from .grid import Cell, SweepPlan
from .stream import StreamedAnswer

FILE = "sweep.json"
FORMAT = "vllm-specdec-sweep"
FORMAT_VERSION = 2


class Status(StrEnum):
    """Whether the result of a cell is valid."""

    OK = "ok"
    DISTURBED = "disturbed"
    FAILED = "failed"


class ServerIdentity(Struct, frozen=True):
    """The measured server."""

    target: str  # its address, without secrets
    model: str  # the model's name
    version: str = ""  # the server's version, empty if not known
    dialect: str = ""
    num_speculative_tokens: int = 0  # K, 0 if not known


class SweepSettings(Struct, frozen=True):
    """The settings, as in `grid.SweepPlan`; `prompts` has a fingerprint of each set by
    its name.
    """

    prompts: dict[str, str]
    temperatures: tuple[float, ...]
    concurrencies: tuple[int, ...]
    requests: int
    max_tokens: int
    api: str
    top_p: float | None
    ignore_eos: bool


class CellAcceptance(Struct, frozen=True):
    """Acceptance of a cell, from one of two sources; as in `measures.Measures`."""

    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    acceptance_ratio: float | None = None  # accepted over draft tokens, 0 to 1
    mean_acceptance_length: float | None = None  # tokens emitted per draft, 1 to 1 + K
    #: At index i, the share of drafts in which position i was accepted.
    position_acceptance_ratio: tuple[float, ...] = ()
    mean_draft_length: float | None = None  # draft tokens per draft, 0 to K


class CellResult(Cell, frozen=True):
    """What was measured in one cell."""

    #: ``ok``; ``disturbed``: the server did more than the cell's requests; ``failed``:
    #: no result.
    status: Status
    #: Why it is not ``ok``, or what else is to be known of it.
    reasons: tuple[str, ...] = ()
    started: float = 0.0  # Unix time at which the cell began
    seconds: float = 0.0  # from the first request to the end of the last answer
    requests: int = 0
    errors: int = 0  # of these, without a whole answer
    completion_tokens: int = 0  # tokens of the whole answers, as their usage says
    #: Tokens that the server's counters say were generated meanwhile.
    generated_tokens: float | None = None
    tokens_per_second: float | None = None  # completion tokens by seconds
    #: Time to first token, in seconds; measured by the client, as all times.
    ttft: TimeSummary = TimeSummary()
    #: Time per output token behind the first, in seconds, of each answer.
    tpot: TimeSummary = TimeSummary()
    #: From request to the end of the answer, in seconds.
    latency: TimeSummary = TimeSummary()
    #: Accepted over draft tokens: from the requests' own records where all answers have
    #: one, otherwise from the counters.
    acceptance_ratio: float | None = None
    acceptance_interval: ClusterInterval | None = None  # its 95 % interval
    #: Tokens per draft, from the same source.
    mean_acceptance_length: float | None = None
    #: Acceptance from the increase of the server's counters.
    counters: CellAcceptance | None = None
    #: The same from the requests' own records, where all answers have one.
    records: CellAcceptance | None = None
    answers: tuple[StreamedAnswer, ...] = ()  # every request

    @property
    def position_acceptance_ratio(self) -> tuple[float, ...]:
        """By position from 0 on, from the requests' own records where there are; empty
        without either.
        """
        source = self.records or self.counters
        if source is None:
            return ()
        return source.position_acceptance_ratio


class SweepRecord(Struct, frozen=True):
    """A sweep: the document in `sweep.json`."""

    server: ServerIdentity
    setup: SweepSettings
    cells: tuple[CellResult, ...] = ()
    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    exporter_version: str = field(default=__version__)


def settings_of(plan: SweepPlan) -> SweepSettings:
    """Return the settings of `plan`."""
    values = {each.name: getattr(plan, each.name) for each in fields(SweepSettings)}
    values["prompts"] = {prompts.name: prompts.digest for prompts in plan.prompts}
    return SweepSettings(**values)


def encode(record: SweepRecord) -> bytes:
    """Return the record as JSON."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def prepare(directory: Path) -> None:
    """Create `directory`; ConfigError if that fails, or if it has a record already,
    which would be lost.
    """
    flag = f"--out {json.dumps(str(directory), ensure_ascii=False)}"
    if (directory / FILE).exists():
        raise ConfigError(f"{flag}: has a {FILE} already; choose another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{flag}: cannot be created: {error.strerror}") from error
