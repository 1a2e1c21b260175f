"""A past with a known speedup: traffic over days, and replicas that draft so many
tokens in their lives.

The time per token grows with load and prompt length, drifts over hours for all replicas
together, and is divided by the speedup of K at that load. What a server counts in each
step of time follows from it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from vllm_specdec_exporter.commands.history.cells import BlockLength
from vllm_specdec_exporter.commands.history.configuration import (
    Configuration,
    Replica,
    runs_of,
)
from vllm_specdec_exporter.commands.history.matching import BinSpeedup
from vllm_specdec_exporter.commands.history.past import GridValues, Past, TimeGrid

Numbers = NDArray[np.float64]
DAY = 86400.0
STEP = 300.0
BLOCK = 3600.0
MODEL = "llama"
#: Unix time at which every past begins: a Monday.
BEGIN = 1_762_128_000.0
#: Seconds of a request, and its tokens.
_SECONDS = 8.0
_TOKENS = 200.0
#: Share of drafts in which each position is accepted.
ACCEPTED = (0.8, 0.6, 0.45, 0.3, 0.2)


def speedup(k: int, running: Numbers) -> Numbers:
    """Return the speedup of K at a load: the longer the drafts, the sooner it is lost
    in large batches.
    """
    gain = sum(ACCEPTED[:k])
    return (1 + gain) / (1 + 0.05 * k + 0.004 * k * running)


@dataclass(frozen=True)
class Life:
    """A time in which a replica drafts K tokens; begin and end in days."""

    replica: str
    begin: float
    end: float
    k: int


@dataclass
class World:
    """All lives with what they count in each step of time."""

    lives: Sequence[Life]
    seed: int = 0
    #: Factors of the load from a day on.
    busier: Mapping[float, float] = field(default_factory=dict)
    effect: bool = True  # whether speculation has one
    step: float = STEP
    model: str = MODEL
    sglang: bool = False  # whether the servers are SGLang
    #: Whether Ray Serve exports them from one node, to a Prometheus without positions.
    ray: bool = False
    #: Whether they come from another Prometheus, without buckets, its labels renamed.
    federated: bool = False

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.number = round(max(life.end for life in self.lives) * DAY / self.step)
        self.times = BEGIN + self.step * np.arange(self.number + 1)
        hours = math.ceil(self.number * self.step / 3600) + 1
        drift = np.zeros(hours)
        level = 0.0
        for hour in range(hours):
            level = 0.9 * level + math.sqrt(1 - 0.81) * rng.normal() * 0.03
            drift[hour] = level
        hour = ((self.times - BEGIN) // 3600).astype(int)
        clock = hour % 24
        load = 8 * (1 + 0.7 * np.sin((clock - 9) / 12 * np.pi))
        load *= np.exp(0.3 * rng.normal(size=hours))[hour]
        for day, factor in self.busier.items():
            load = np.where(self.times >= BEGIN + day * DAY, load * factor, load)
        self._drift = np.exp(drift)[hour]
        self._load = load
        self._prompt = np.where(clock % 20 < 8, 3000.0, 900.0)
        self.counts = {life: self._counts(life, rng) for life in self.lives}

    def _counts(self, life: Life, rng: np.random.Generator) -> dict[str, Numbers]:
        here = slice(
            round(life.begin * DAY / self.step), round(life.end * DAY / self.step) + 1
        )
        size = self.times[here].shape
        running = np.maximum(
            0.1, self._load[here] * np.exp(0.15 * rng.normal(size=size))
        )
        finished = rng.poisson(running * self.step / _SECONDS).astype(float)
        plain = 0.01 * (1 + running / 15) * (1 + self._prompt[here] / 20_000)
        fast = plain / (speedup(life.k, running) if self.effect else 1.0)
        noise = np.exp(0.5 * rng.normal(size=size) / np.sqrt(np.maximum(1.0, finished)))
        seconds = finished * fast * self._drift[here] * noise
        generated = finished * _TOKENS
        if life.k:
            drafts = (generated - finished) / (1 + sum(ACCEPTED[: life.k]))
        else:
            drafts = 0.0 * finished
        counts = {
            # What is sampled of the load is not exactly what it was.
            "requests_running": np.maximum(
                0.0, running + 0.12 * np.sqrt(running) * rng.normal(size=size)
            ),
            "generation_tokens": generated,
            "requests": finished,
            "prompt_tokens": finished * self._prompt[here],
            "tpot_sum": seconds,
            "tpot_count": finished,
            "step_seconds": seconds * (_TOKENS - 1),
        }
        if life.k:
            counts |= {"drafts": drafts, "draft_tokens": life.k * drafts}
            counts["accepted_tokens"] = drafts * sum(ACCEPTED[: life.k])
        return counts

    def grids(
        self,
    ) -> tuple[
        TimeGrid, dict[Replica, list[Configuration | None]], dict[str, GridValues]
    ]:
        """Return the times, and by replica its configuration at each of them, and its
        counts by name.
        """
        grid = TimeGrid(BEGIN, self.step, self.number + 1)
        shown = {}
        grids = {}
        for life in self.lives:
            replica = (("instance", life.replica), ("model_name", MODEL))
            here = slice(
                round(life.begin * DAY / self.step),
                round(life.end * DAY / self.step) + 1,
            )
            runs = shown.setdefault(replica, [None] * grid.number)
            runs[here.start : here.stop - 1] = [Configuration(life.k)] * (
                here.stop - 1 - here.start
            )
            for name, counts in self.counts[life].items():
                columns = grids.setdefault(name, {})
                columns.setdefault(replica, np.full(grid.number, np.nan))[here] = counts
        return grid, shown, grids

    def past(
        self, *, leave_out: Sequence[str] = (), shortest_block: float = 0.0
    ) -> Past:
        """Return the past that is read of it, without Prometheus."""
        grid, shown, grids = self.grids()
        past = Past(
            grid,
            BlockLength(BLOCK, shortest_block),
            lambda _: MODEL,
            {
                replica: runs_of(configurations)
                for replica, configurations in shown.items()
            },
        )
        past.add(
            grid,
            {name: columns for name, columns in grids.items() if name not in leave_out},
        )
        return past


def truth(bins: Sequence[BinSpeedup], k: int, k_before: int = 0) -> float:
    """Return the true speedup of K against another one over bins of running requests,
    by their traffic.
    """
    running = np.array([each_bin.running for each_bin in bins])
    plain = np.array([each_bin.share for each_bin in bins]) * (1 + running / 15)
    return float(
        (plain / speedup(k_before, running)).sum() / (plain / speedup(k, running)).sum()
    )


def four(seed: int, replicas: int = 3, days: float = 14, **more: object) -> World:
    """Return a past of some replicas: no speculation, then K of 1, 3 and 5."""
    each = days / 4
    lives = [
        Life(f"r{n}:8000", each * i, each * (i + 1), k)
        for (i, k), n in product(enumerate((0, 1, 3, 5)), range(replicas))
    ]
    return World(lives, seed, **more)


_VLLM = {
    "generation_tokens": "vllm:generation_tokens_total",
    "requests": "vllm:time_to_first_token_seconds_count",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "tpot_sum": "vllm:request_time_per_output_token_seconds_sum",
    "tpot_count": "vllm:request_time_per_output_token_seconds_count",
    "drafts": "vllm:spec_decode_num_drafts_total",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
}
_SGLANG = {
    "generation_tokens": "sglang:generation_tokens_total",
    "requests": "sglang:num_requests_total",
    "prompt_tokens": "sglang:prompt_tokens_total",
    "tpot_sum": "sglang:request_time_per_output_token_seconds_sum",
    "tpot_count": "sglang:request_time_per_output_token_seconds_count",
    "drafts": "sglang:spec_verify_calls_total",
}


def stored(world: World) -> dict[tuple[str, tuple[tuple[str, str], ...]], Numbers]:
    """Return the series of a world as its servers print them, as they are scraped, NaN
    where they are not.
    """
    series = {}

    def put(name: str, here: slice, values: Numbers, **more: str) -> None:
        labels = {
            "instance": life.replica,
            "job": "server",
            "model_name": world.model,
            **more,
        }
        if not world.sglang:
            labels["engine"] = "0"
        labels |= (
            {"instance": "node:8080", "ReplicaId": life.replica} if world.ray else {}
        )
        labels |= (
            {"instance": "node:9090", "exported_instance": life.replica}
            if world.federated
            else {}
        )
        name = f"{'ray_' * world.ray}{name}"
        # The second replica is scraped by both Prometheus servers of a pair.
        for pair in ("a", "b") if life.replica.startswith("r1") else ("a",):
            key = (name, tuple(sorted((labels | {"host": pair}).items())))
            series.setdefault(key, np.full(world.number + 1, np.nan))[here] = values

    for life in world.lives:
        # The last sample of a life is before the first of the next one, which starts at
        # 0.
        here = slice(
            round(life.begin * DAY / world.step), round(life.end * DAY / world.step)
        )
        counts = {
            name: values[: here.stop - here.start]
            for name, values in world.counts[life].items()
        }
        running = counts["requests_running"].round(1)
        for name, exposed in (_SGLANG if world.sglang else _VLLM).items():
            if name in counts:
                put(exposed, here, counts[name].cumsum())
        if world.sglang:
            verified = np.full(running.shape, life.k + 1.0 if life.k else 0.0)
            # a defect, which must cost no more than these samples
            verified[100:120] = np.inf
            for rank in "01":
                put("sglang:num_running_reqs", here, running, tp_rank=rank)
                put("sglang:spec_num_draft_tokens", here, verified, tp_rank=rank)
            continue
        put("vllm:num_requests_running", here, running)
        cache = {"cache_dtype": "fp8" if life.k == 5 else "auto", "block_size": "16"}
        ones = np.ones(here.stop - here.start)
        put("vllm:cache_config_info", here, ones, model_name="", **cache)
        info = {"method": "eagle3" if life.k else "", "upstream_version": "0.32.0"}
        info |= {
            "job": "exporter",
            "instance": "central:9876",
            "target": f"http://{life.replica}",
        }
        put("vllm_specdec_info", here, np.ones(here.stop - here.start), **info)
        buckets = ((0.005, 0.1), (0.01, 0.5), (0.025, 0.9), (math.inf, 1.0))
        for bound, share in () if world.federated else buckets:
            finished = share * counts["tpot_count"].cumsum()
            # Prometheus 3 writes bounds in another form than 2, which scraped the first
            # replica.
            le = f"{bound:g}" if life.replica.startswith("r0") else f"{bound:.4e}"
            put(
                "vllm:request_time_per_output_token_seconds_bucket",
                here,
                finished,
                le=le,
            )
        for position in range(0 if world.ray else life.k):
            accepted = ACCEPTED[position] * counts["drafts"].cumsum()
            name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            put(name, here, accepted, position=str(position))
    return series


def openmetrics(worlds: Sequence[World], file: TextIO) -> None:
    """Write the series of worlds as OpenMetrics text with times."""
    for world in worlds:
        for (name, labels), values in sorted(stored(world).items()):
            pairs_of_labels = (f"{key}={json.dumps(value)}" for key, value in labels)
            head = f"{name}{{{','.join(pairs_of_labels)}}}"
            there = ~np.isnan(values)
            pairs = zip(
                world.times[there].tolist(), values[there].tolist(), strict=True
            )
            file.writelines(f"{head} {value!r} {time:.0f}\n" for time, value in pairs)
    file.write("# EOF\n")
