"""Small builders for the tests of the core: drafts, counters, samples, exposition text,
recorded answers.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

from hypothesis import strategies as st

from support.repository import ROOT
from vllm_specdec_exporter.engines.reading import Counters, EngineKey, Reading
from vllm_specdec_exporter.measures.history import Delta, Sample
from vllm_specdec_exporter.observe.pipeline import judge_reading
from vllm_specdec_exporter.observe.result import EngineResult
from vllm_specdec_exporter.observe.settings import Settings
from vllm_specdec_exporter.observe.state import EngineState

DATA = ROOT / "tests/data"

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

#: One draft as vLLM verifies it: how many tokens were drafted, and how many of them
#: were accepted.
Draft = tuple[int, int]


# --- counters, samples, increases


def counters(
    drafts: float | None = None,
    positions: Sequence[float] = (),
    *,
    draft_tokens: float | None = None,
    accepted: float | None = None,
    generation: float | None = None,
    created: float | None = None,
) -> Counters:
    """Counters that agree with each other: every draft is full, all tokens came out of
    drafts.
    """
    if drafts is None:
        return Counters(generation_tokens=generation, created=created)
    accepted = sum(positions) if accepted is None else accepted
    return Counters(
        drafts=drafts,
        draft_tokens=drafts * len(positions) if draft_tokens is None else draft_tokens,
        accepted_tokens=accepted,
        accepted_tokens_per_position=tuple(positions),
        generation_tokens=accepted + drafts if generation is None else generation,
        created=created,
    )


def sample(
    time: float,
    drafts: float | None = None,
    positions: Sequence[float] = (),
    **more: Any,
) -> Sample:
    """A sample at `time`, with `counters` of the other arguments."""
    return Sample(time, counters(drafts, positions, **more))


def increase(
    drafts: float | None = None,
    positions: Sequence[float] = (),
    *,
    span: float = 10.0,
    **more: Any,
) -> Delta:
    """The increases over `span` seconds from nothing to `counters`."""
    end = counters(drafts, positions, **more)
    return Delta(
        span=span,
        drafts=end.drafts,
        draft_tokens=end.draft_tokens,
        accepted_tokens=end.accepted_tokens,
        accepted_tokens_per_position=end.accepted_tokens_per_position,
        generation_tokens=end.generation_tokens,
    )


def count(drafts: Iterable[Draft], k: int, *, plain_tokens: int = 0) -> Counters:
    """Count drafts the way vLLM does, one by one; `plain_tokens` were generated without
    a draft.
    """
    rounds = draft_tokens = accepted_tokens = 0
    positions = [0] * k
    for length, accepted in drafts:
        rounds += 1
        draft_tokens += length
        accepted_tokens += accepted
        for position in range(accepted):
            positions[position] += 1
    return Counters(
        drafts=rounds,
        draft_tokens=draft_tokens,
        accepted_tokens=accepted_tokens,
        accepted_tokens_per_position=tuple(positions),
        generation_tokens=accepted_tokens + rounds + plain_tokens,
    )


def process_reading(
    *arguments: Any, **more: Any
) -> tuple[dict[EngineKey, EngineState], tuple[EngineResult, ...]]:
    """`judge_reading`, with the reasons and findings of the results."""
    states, judged = judge_reading(*arguments, **more)
    return states, tuple(engine.explained() for engine in judged)


def processed(
    readings: Iterable[tuple[float, Reading]], settings: Settings, **more: Any
) -> list[tuple[EngineResult, ...]]:
    """The results after each reading of one server, with its time; `more` is for
    `process_reading`.
    """
    states: dict[EngineKey, EngineState] = {}
    history = []
    for time, reading in readings:
        states, results = process_reading(states, reading, time, settings, **more)
        history.append(results)
    return history


# --- strategies


def drafts_of(
    k: int, *, least: int = 0, most: int = 60
) -> st.SearchStrategy[list[Draft]]:
    """Lists of drafts of at most `k` tokens, of which some first ones were accepted."""
    draft = st.integers(1, k).flatmap(
        lambda length: st.tuples(st.just(length), st.integers(0, length))
    )
    return st.lists(draft, min_size=least, max_size=most)


def lives(k: int) -> st.SearchStrategy[list[Counters]]:
    """The counters of one life, poll by poll, untorn."""

    def cumulate(steps: list[list[Draft]]) -> list[Counters]:
        return [count(so_far, k) for so_far in accumulate(steps)]

    return st.lists(drafts_of(k, most=8), min_size=1, max_size=8).map(cumulate)


@st.composite
def torn_lives(draw: st.DrawFn) -> list[Counters]:
    """The counters of one life where each counter rises as it likes: any tearing at
    all, and more.
    """
    k = draw(st.integers(0, 5))
    polls = draw(st.integers(1, 8))

    def rising() -> list[int]:
        return list(
            accumulate(
                draw(st.lists(st.integers(0, 50), min_size=polls, max_size=polls))
            )
        )

    if k:
        positions = zip(*[rising() for _ in range(k)], strict=True)
    else:
        positions = [()] * polls
    columns = [rising(), rising(), rising(), positions, rising()]
    return [Counters(*row) for row in zip(*columns, strict=True)]


# --- exposition text


def lines(*samples: str, end: str = "\n") -> bytes:
    """An exposition of these sample lines."""
    return "".join(f"{line}{end}" for line in samples).encode()


def escape(value: str) -> str:
    """A label value as the exposition formats write it."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def labels(pairs: Mapping[str, str]) -> str:
    """A label block, empty for no labels."""
    if not pairs:
        return ""
    rows = [f'{name}="{escape(value)}"' for name, value in pairs.items()]
    return "{" + ",".join(rows) + "}"


def vllm_lines(
    values: Counters, *, prefix: str = "vllm:", **identity: str
) -> list[str]:
    """The sample lines that vLLM prints for one engine with these counters."""
    spec = prefix + "spec_decode_num_"
    rows = [
        (f"{spec}drafts_total", {}, values.drafts),
        (f"{spec}draft_tokens_total", {}, values.draft_tokens),
        (f"{spec}accepted_tokens_total", {}, values.accepted_tokens),
        *(
            (f"{spec}accepted_tokens_per_pos_total", {"position": str(position)}, value)
            for position, value in enumerate(values.accepted_tokens_per_position)
        ),
        (f"{prefix}generation_tokens_total", {}, values.generation_tokens),
        (f"{spec}drafts_created", {}, values.created),
    ]
    return [
        f"{name}{labels({**identity, **more})} {value!r}"
        for name, more, value in rows
        if value is not None
    ]


def vllm_text(values: Counters, **identity: str) -> bytes:
    """What a vLLM with one engine answers; by default model `m`, engine `0`."""
    return lines(
        *vllm_lines(values, **(identity or {"model_name": "m", "engine": "0"}))
    )


# --- recorded answers


def upstream(name: str) -> bytes:
    """A fixture of `tests/data/upstream`."""
    return (DATA / "upstream" / name).read_bytes()


def tensorrt(drafted: Sequence[float], accepted: Sequence[float], k: int = 3) -> bytes:
    """The composed answer of TensorRT-LLM with these counts by position, of which those
    of 0 are missing.
    """
    text = re.sub(
        r"(?m)^.*token_position=.*\n", "", upstream("trtllm-k3.composed.txt").decode()
    )
    engine = 'engine_type="trtllm",model_name="llama"'
    rows = []
    for kind, values in (("drafted", drafted), ("accepted", accepted)):
        name = f"trtllm_spec_decode_{kind}_tokens_total"
        for position, value in enumerate(values):
            if value:
                rows.append(f'{name}{{{engine},token_position="{position}"}} {value}')
    rows.append(
        f"trtllm_generation_tokens_total{{{engine}}} {drafted[0] + sum(accepted)}"
    )
    text = re.sub(r"(?m)^trtllm_generation_tokens_total.*\n", "", text)
    return text.replace(
        'spec_num_tokens="3"', f'spec_num_tokens="{k}"'
    ).encode() + lines(*rows)


def rendered(name: str) -> bytes:
    """A snapshot of `tests/data/captures/rendered`."""
    return gzip.decompress((DATA / "captures/rendered" / f"{name}.gz").read_bytes())


def final_answer(scenario: str = "ngram-phases") -> bytes:
    """The last answer of a recorded scenario."""
    return (DATA / "captures" / scenario / "metrics-final.txt").read_bytes()


@cache
def series(scenario: str) -> tuple[tuple[float, bytes], ...]:
    """The recorded answers of a scenario with their times, one a second."""
    return tuple(
        (row["t"], row["text"].encode()) for row in _rows(scenario, "metrics-series")
    )


@cache
def requests(scenario: str) -> tuple[dict[str, Any], ...]:
    """What vLLM said of each request of a scenario, in order of completion."""
    return tuple(_rows(scenario, "requests"))


def vllm_log(scenario: str) -> list[str]:
    """The lines that vLLM itself logged about speculation during a scenario."""
    return (DATA / "captures" / scenario / "vllm-log.txt").read_text().splitlines()


def _rows(scenario: str, name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / "captures" / scenario / f"{name}.jsonl.gz", "rt") as file:
        return list(map(json.loads, file))


# --- what is refused


def refusal(
    error: type[Exception], call: Callable[..., object], *arguments: object
) -> str:
    """The message with which a call refuses its arguments; empty where it takes
    them.
    """
    try:
        call(*arguments)
    except error as refused:
        return str(refused)
    return ""
