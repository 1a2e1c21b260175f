"""Saved texts of `/metrics`: what one says of a server's whole life, and what two or
more say of the time between them.

Counters begin at 0 when a server starts, so one text is an increase as well. It has no
load but that of its last moment, and nothing says when its tokens came: the time of a
copied file is that of the copy, so there are no rates.
"""

import os
import re
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from select import select
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from .. import __version__
from ..config.files import read_regular
from ..engines import Unrecognized, read
from ..engines.reading import EngineKey, EngineReading, Latencies, Reading
from ..exposition.histogram import Histogram
from ..exposition.text import MalformedExposition
from ..judgement.findings import hint
from ..judgement.messages import encode_message, message
from ..measures.history import Window
from ..measures.measures import LIFETIME, Measures
from ..observe import pipeline
from ..observe.result import EngineResult, ExporterResult, TargetResult
from ..observe.settings import Settings
from ..observe.state import EngineState

#: Stands for standard input.
STDIN = "-"
_STDIN_FILE = 0
#: A response or snapshot of a thousand engines has about 10 MiB.
_MAX_BYTES = 64 * 1024 * 1024
#: How long an unnamed pipe may take to its first byte: `curl` ends by itself after
#: this, and a pipe that nobody writes to must not stop a script.
_PIPE_SECONDS = 5.0
_HTTP_HEAD = re.compile(rb"\AHTTP/[\s\S]*?\r?\n\r?\n")
#: Length of a window whose real length nothing tells. It is shown nowhere.
_UNKNOWN_SPAN = 1.0
_RATES = (
    "drafts_per_second",
    "draft_tokens_per_second",
    "accepted_tokens_per_second",
    "generation_tokens_per_second",
    "span_seconds",
)


class SavedText(Struct, frozen=True):
    """A saved text, and the Unix time at which it was saved, if that is known."""

    name: str
    body: bytes
    saved_at: float | None = None

    @property
    def is_snapshot(self) -> bool:
        """Whether it is a snapshot, as ``check --json`` writes it."""
        return self.body.lstrip()[:1] == b"{"


class SavedTextError(Exception):
    """A text that cannot be read, or says nothing."""


def piped_text() -> SavedText | None:
    """Return what another program writes into this one; ``None`` if none does."""
    try:
        kind = os.fstat(_STDIN_FILE).st_mode
    except OSError:  # closed
        return None
    if not stat.S_ISFIFO(kind) and not stat.S_ISREG(kind):
        return None
    if not select([_STDIN_FILE], [], [], _PIPE_SECONDS)[0]:
        return None
    text = read_text(STDIN)
    if text.body:
        return text
    return None


def read_text(path: str) -> SavedText:
    """Return the text in a file, or of standard input; SavedTextError if unreadable."""
    if path == STDIN:
        body = sys.stdin.buffer.read(_MAX_BYTES + 1)
        if len(body) > _MAX_BYTES:
            raise SavedTextError(f"standard input: larger than {_MAX_BYTES >> 20} MiB")
        return SavedText("standard input", _HTTP_HEAD.sub(b"", body), time.time())
    content, problem = read_regular(path, _MAX_BYTES)
    if content is None:
        raise SavedTextError(f"{path}: {problem}")
    body = _HTTP_HEAD.sub(b"", content)
    return SavedText(path, body, Path(path).stat().st_mtime)


def result_of(
    texts: Sequence[SavedText], settings: Settings, seconds: float | None = None
) -> ExporterResult:
    """Return what saved texts of one server say: of its whole life, or of the time
    between the first and the last.

    `seconds` is the time between two, which the times of the files tell otherwise.
    Raises SavedTextError if that is nothing.
    """
    readings = [_reading(text) for text in texts]
    once = len(texts) == 1
    span: float | None = None
    name = LIFETIME
    period = "the server's whole life"
    if once:
        readings.insert(0, _at_start(readings[0]))
    else:
        span = seconds or _between(texts[0].saved_at, texts[-1].saved_at)
        name = "between" if span is None else Window(round(span)).name
        period = "the time between the texts"
    engines = _judge(readings, settings, span or _UNKNOWN_SPAN)
    if any(engine.engine_resets_total for engine in engines):
        raise SavedTextError(
            f"counters fell between {texts[0].name} and {texts[-1].name}: the server "
            "restarted, or the texts are not in the order in which they were saved"
        )
    if span is None:
        shown = f"the last {Window(_UNKNOWN_SPAN).name}"
        engines = _with_period(engines, shown, period)
    target = TargetResult(
        target=", ".join(text.name for text in texts),
        up=True,
        engines=tuple(
            _finished(engine, readings[-1], name, once=once, timed=bool(span))
            for engine in engines
        ),
        last_success_timestamp_seconds=texts[-1].saved_at or time.time(),
    )
    return ExporterResult(
        version=__version__,
        timestamp_seconds=texts[-1].saved_at or time.time(),
        targets=(target,),
        thresholds=dict(settings.thresholds.items()),
    )


def _reading(text: SavedText) -> Reading:
    if not text.body.strip():
        raise SavedTextError(f"{text.name}: empty; save the server's /metrics in it")
    try:
        return read(text.body, latencies=True)
    except (MalformedExposition, Unrecognized) as error:
        raise SavedTextError(f"{text.name}: {error}") from error


def _between(first: float | None, last: float | None) -> float | None:
    """Return the seconds between two moments, ``None`` if that cannot be known: files
    copied together have one time.
    """
    if first is None or last is None or last - first < 1:
        return None
    return last - first


def _at_start(reading: Reading) -> Reading:
    """Return the reading of the same server when it had counted nothing."""
    return replace(reading, engines=tuple(map(_engine_at_start, reading.engines)))


def _engine_at_start(engine: EngineReading) -> EngineReading:
    counters = engine.counters
    latencies = None
    if engine.latencies is not None:
        latencies = Latencies(**_zeros(engine.latencies))
    return replace(
        engine,
        counters=replace(
            counters,
            **_zeros(counters)
            | {"created": counters.created, "resolution": counters.resolution},
        ),
        steps=replace(engine.steps, **_zeros(engine.steps)),
        latencies=latencies,
        load=replace(engine.load, requests_running=None),
    )


def _zeros(totals: Struct) -> dict[str, Any]:
    """Return the fields of a record of totals as they were before anything was counted:
    what is not counted stays unknown.
    """
    return {name: _zero(value) for name, value in asdict(totals).items()}


def _zero(value: object) -> object:
    if isinstance(value, tuple):
        return (0.0,) * len(value)
    if isinstance(value, Histogram):
        counts = (0.0,) * len(value.counts)
        return replace(value, counts=counts, count=0.0, sum=0.0)
    return None if value is None else 0.0


def _judge(
    readings: Sequence[Reading], settings: Settings, span: float
) -> tuple[EngineResult, ...]:
    """Return the results at the last of some readings, which lie within `span` seconds
    at equal distances.
    """
    window = Window(span)
    settings = replace(
        settings, windows=(window,), judged=window, slack=span, latencies=True
    )
    states: dict[EngineKey, EngineState] = {}
    judged: tuple[pipeline.JudgedEngine, ...] = ()
    for index, reading in enumerate(readings):
        moment = span * index / (len(readings) - 1)
        states, judged = pipeline.judge_reading(
            states, _without_idle_load(reading), moment, settings
        )
    return tuple(engine.explained() for engine in judged)


def _without_idle_load(reading: Reading) -> Reading:
    """Return the reading without the load of engines that are idle at its moment: their
    batch was another one when they worked.
    """
    engines = []
    for engine in reading.engines:
        load = engine.load
        if not load.requests_running:
            load = replace(load, requests_running=None)
        engines.append(replace(engine, load=load))
    return replace(reading, engines=tuple(engines))


def _with_period(
    engines: tuple[EngineResult, ...], shown: str, period: str
) -> tuple[EngineResult, ...]:
    """Return the results whose sentences speak of `period` where they said `shown`, a
    window of a length that is not the real one.
    """
    # As JSON, because sentences stand in many fields of many records.
    document = msgspec.json.encode(engines, enc_hook=encode_message).decode()
    return msgspec.json.decode(
        document.replace(shown, period), type=tuple[EngineResult, ...]
    )


def _finished(
    engine: EngineResult, reading: Reading, name: str, *, once: bool, timed: bool
) -> EngineResult:
    """Return a result under the name of its window, with what it cannot say."""
    findings = engine.findings
    advice = engine.advice
    if once:
        findings = (*hint("saved_once"), *findings)
        if engine.payoff.verdict is None:
            advice = replace(advice, reason=message("no_advice.saved_once"))
    elif not timed:
        findings = (*hint("saved_untimed"), *findings)
    windows = engine.windows
    if engine.window(LIFETIME) is None:
        windows = tuple(_named(measures, name, timed=timed) for measures in windows)
    loads = {each.key: each.load for each in reading.engines}
    return replace(
        engine,
        advice=advice,
        findings=findings,
        windows=windows,
        judged_window=name,
        load=loads[engine.key],
    )


def _named(measures: Measures, name: str, *, timed: bool) -> Measures:
    unknown = dict.fromkeys(() if timed else _RATES)
    return replace(measures, window=name, **unknown)
