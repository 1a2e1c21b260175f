"""What Prometheus has scraped, written down as phases: the input of rule tests, one
sample a minute.

    world = World()
    world.engine(Phase(60), Phase(30, acceptance=(0.02, 0.0, 0.0), speedup=0.7))
    world.samples()  # {'vllm_specdec_drafts_total{...}': ('0', '600', ...)}

An engine's counters go on from phase to phase; gauges jump. What a phase sets to None
is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.judgement.activity import Activity, ActivityState
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.judgement.payoff import (
    GUESSES,
    Payoff,
    PayoffVerdict,
    leans,
    probable_loss,
)
from vllm_specdec_exporter.judgement.state import state_code
from vllm_specdec_exporter.observe.result import REASONS

JOB = "vllm-specdec-exporter"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
#: promtool's clock begins at 0, and so do the exporter's timestamps.
START = 0.0

#: A sample that is not there.
MISSING = "_"

Labels = dict[str, str]


@dataclass(frozen=True)
class Phase:
    """Some minutes of one engine, the same all through."""

    minutes: int  # how long; one sample each
    drafts: float = 600  # drafts per minute
    #: The share of drafts accepted at each position; its length is K.
    acceptance: tuple[float, ...] = (0.9, 0.7, 0.5)
    draft_length: float | None = None  # draft tokens per draft; K unless given
    plain_tokens: float = 0  # generated tokens per minute outside of drafts
    speedup: float | None = 1.6  # of all output; None where it is unknown
    basis: str = "modelled"  # where it comes from
    #: The speedup whose interval includes 1, so that `speedup` is not known.
    guess: float | None = None
    loss: float | None = None  # the probability that the speedup is below 1
    #: Low and high end of the interval of the speedup.
    interval: tuple[float, float] | None = None
    activity: str = "active"  # the engine's state
    action: str = "keep"  # what the exporter advises
    recommended_k: int | None = 3  # the K that it advises
    gain: float = 0.1  # how much faster that K would be
    scheduled_k: int | None = None  # the K of the schedule at the present load
    running: float = 8  # requests in the batch
    waiting: float = 0  # requests in the queue
    kv_cache: float = 0.4  # used share of the KV cache
    step_seconds: float | None = None  # mean time of an engine step
    #: Its learned line: fixed, and for each request.
    step_fit: tuple[float, float] | None = None
    step_fit_error: float = 0.05  # the relative error of that line
    #: The share of the acceptance length that the engine lost with uptime.
    uptime_decay: float | None = None
    restart: bool = False  # whether the counters begin anew
    #: Whether the server has no counters of speculation, as one that was started
    #: without it.
    uncounted: bool = False
    gone: bool = False  # whether neither exporter nor engine can be scraped
    #: Whether the exporter is there and cannot read the server.
    unreachable: bool = False
    #: Failed polls per minute by reason; unless given, refused ones while unreachable.
    errors: Mapping[str, float] | None = None
    #: Whether the time of the last successful poll stands still though the server is
    #: up.
    stale: bool = False
    polled_every: int = 1  # minutes between two polls, one at the least
    #: Whether the exporter could not read its newest configuration.
    reload_failed: bool = False
    #: Further labels of info, such as a version.
    info: Mapping[str, str] = field(default_factory=dict)

    @property
    def accepted(self) -> float:
        """Accepted tokens per minute."""
        return self.drafts * sum(self.acceptance)

    @property
    def generated(self) -> float:
        """Generated tokens per minute."""
        return self.accepted + self.drafts + self.plain_tokens

    @property
    def coverage(self) -> float:
        """Share of the output that came out of drafts."""
        return (self.accepted + self.drafts) / self.generated

    @property
    def drafted(self) -> float:
        """Draft tokens per minute."""
        if self.draft_length is None:
            length = len(self.acceptance)
        else:
            length = self.draft_length
        return self.drafts * length


def idle(minutes: int, **changes: object) -> Phase:
    """Return a phase in which nothing is asked of the engine."""
    values = {
        "drafts": 0,
        "speedup": None,
        "activity": "idle",
        "action": "insufficient_data",
    }
    return Phase(minutes, **{**values, "recommended_k": None, "running": 0, **changes})


@dataclass
class World:
    """Series by name and labels, each a list of samples, one a minute."""

    #: What the exporters publish.
    thresholds: Thresholds = field(default_factory=Thresholds)
    #: Metrics that Prometheus does not have, by name.
    without: frozenset[str] = frozenset()
    _samples: dict[str, list[str]] = field(default_factory=dict)

    def put(
        self,
        name: str,
        labels: Mapping[str, str],
        minute: int,
        values: Iterable[float | str],
    ) -> None:
        """Append samples from a minute on."""
        if name in self.without:
            return
        inner = ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()) if v)
        samples = self._samples.setdefault(f"{name}{{{inner}}}", [])
        samples.extend([MISSING] * (minute - len(samples)))
        samples.extend(
            value if isinstance(value, str) else _number(value) for value in values
        )

    def add(self, cluster: str, other: World) -> None:
        """Add another world as a cluster; one that it has itself, such as `a`, is then
        `cluster/a`.
        """
        for series, samples in other._samples.items():
            if own := re.search(r'(?<=cluster=)"(\w+)"', series):
                named = series.replace(own[0], f'"{cluster}/{own[1]}"')
            else:
                named = series.replace("{", f'{{cluster="{cluster}",', 1)
            self._samples[named] = samples

    def repeat(self, series: str, samples: Iterable[str]) -> None:
        """Add a series as `samples` has it."""
        self._samples[series] = list(samples)

    def samples(self) -> dict[str, tuple[str, ...]]:
        """Return every series with its samples, one a minute; `MISSING` where there is
        none.
        """
        return {name: tuple(samples) for name, samples in self._samples.items()}

    def engine(
        self,
        *phases: Phase,
        model: str = MODEL,
        namespace: str = "chat",
        instance: str = "10.0.0.1:9850",
        engine: str = "0",
        labels: Mapping[str, str] | None = None,
        exporter: bool = True,
        start: int = 0,
    ) -> None:
        """Add an engine, from a minute on, and the exporter at `instance` unless it is
        there already.
        """
        target = {
            "job": JOB,
            "instance": instance,
            "namespace": namespace,
            **(labels or {}),
        }
        own = {**target, "model_name": model, "engine": engine}
        totals: dict[tuple[str, str], float] = {}
        minute = start
        for phase in phases:
            self._phase(
                phase, minute, target=target, own=own, totals=totals, exporter=exporter
            )
            minute += phase.minutes

    def server(
        self,
        minutes: int,
        model: str = MODEL,
        namespace: str = "chat",
        instance: str = "10.0.0.1:8000",
        labels: Mapping[str, str] | None = None,
        start: int = 0,
        prefix: str = "vllm:",
    ) -> None:
        """Add what the rules use of vLLM's own series, where Prometheus scrapes vLLM as
        well.
        """
        target = {
            "job": "vllm",
            "instance": instance,
            "namespace": namespace,
            **(labels or {}),
        }
        self.put("up", target, start, [1.0] * minutes)
        for position, step in enumerate((540, 420, 300)):
            own = {
                **target,
                "model_name": model,
                "engine": "0",
                "position": str(position),
            }
            name = f"{prefix}spec_decode_num_accepted_tokens_per_pos_total"
            self.put(name, own, start, [step * minute for minute in range(minutes)])

    def _phase(
        self,
        phase: Phase,
        minute: int,
        *,
        target: Labels,
        own: Labels,
        totals: dict[tuple[str, str], float],
        exporter: bool,
    ) -> None:
        n = phase.minutes
        if exporter:
            self.put("up", target, minute, [float(not phase.gone)] * n)
        if phase.gone:
            return
        if exporter:
            self._exporter(phase, minute, target, totals)
        if phase.unreachable:
            return
        if phase.restart:
            for name, label in list(totals):
                if name != "poll_errors_total":
                    del totals[name, label]
        counters = {
            ("drafts_total", ""): phase.drafts,
            ("draft_tokens_total", ""): phase.drafted,
            ("accepted_tokens_total", ""): phase.accepted,
            ("generation_tokens_total", ""): phase.generated,
        }
        for index, ratio in enumerate(phase.acceptance):
            counters["accepted_tokens_per_position_total", str(index)] = (
                phase.drafts * ratio
            )
        for (name, position), step in counters.items():
            if phase.uncounted and ("draft" in name or "accepted" in name):
                continue
            start = totals.get((name, position), 0.0)
            labels = {**own, "position": position}
            self.put(
                f"vllm_specdec_{name}",
                labels,
                minute,
                [start + step * i for i in range(n)],
            )
            totals[name, position] = start + step * n
        self._gauges(phase, minute, own)

    def _exporter(
        self,
        phase: Phase,
        minute: int,
        target: Labels,
        totals: dict[tuple[str, str], float],
    ) -> None:
        n = phase.minutes
        up = not phase.unreachable
        self.put("vllm_specdec_up", target, minute, [float(up)] * n)
        step = 60.0 if up and not phase.stale else 0.0
        every = phase.polled_every
        times = [START + 60.0 * minute + step * (i // every * every) for i in range(n)]
        self.put("vllm_specdec_last_success_timestamp_seconds", target, minute, times)
        reloaded = float(not phase.reload_failed)
        self.put(
            "vllm_specdec_config_last_reload_successful", target, minute, [reloaded] * n
        )
        if phase.errors is not None:
            errors = phase.errors
        elif up:
            errors = {}
        else:
            errors = {"refused": 12.0}
        for reason in REASONS:
            start = totals.get(("poll_errors_total", reason), 0.0)
            step = errors.get(reason, 0.0)
            own = {**target, "reason": reason}
            self.put(
                "vllm_specdec_poll_errors_total",
                own,
                minute,
                [start + step * i for i in range(n)],
            )
            totals["poll_errors_total", reason] = start + step * n
        for name, value in self.thresholds.items():
            self.put(
                "vllm_specdec_threshold",
                {**target, "threshold": name},
                minute,
                [value] * n,
            )

    def _gauges(self, phase: Phase, minute: int, own: Labels) -> None:
        def gauge(name: str, value: float | None, **more: str) -> None:
            if value is not None:
                self.put(
                    f"vllm_specdec_{name}",
                    {**own, **more},
                    minute,
                    [value] * phase.minutes,
                )

        gauge("info", 1, **{"method": "eagle3", "dialect": "vllm-v1", **phase.info})
        if phase.basis == "measured":
            gauge("measured_speedup", phase.guess, window="5m")
        else:
            gauge("estimated_speedup", phase.guess, basis=phase.basis, window="5m")
        gauge("loss_probability", phase.loss)
        for bound, value in zip(("low", "high"), phase.interval or (), strict=False):
            gauge("speedup_interval", value, bound=bound)
        gauge(
            "num_speculative_tokens",
            None if phase.activity == "off" else len(phase.acceptance),
        )
        gauge("scheduled_num_speculative_tokens", phase.scheduled_k)
        gauge("requests_running", phase.running)
        gauge("requests_waiting", phase.waiting)
        gauge("kv_cache_usage_ratio", phase.kv_cache)
        gauge("speedup", phase.speedup, basis=phase.basis)
        if phase.step_seconds is not None:
            gauge("step_seconds", phase.step_seconds, window="5m")
            gauge("mean_batch_size", phase.running, window="5m")
            gauge("mean_acceptance_length", 1 + sum(phase.acceptance), window="5m")
            gauge("coverage_ratio", phase.coverage, window="5m")
        for term, seconds in zip(
            ("fixed", "per_request"), phase.step_fit or (), strict=False
        ):
            gauge("step_fit_seconds", seconds, term=term)
        gauge("step_fit_error_ratio", phase.step_fit_error if phase.step_fit else None)
        gauge("uptime_decay_ratio", phase.uptime_decay)
        gauge("recommended_num_speculative_tokens", phase.recommended_k)
        if phase.recommended_k is not None:
            advised = {
                phase.recommended_k: 1.5 * (1 + phase.gain),
                len(phase.acceptance): 1.5,
            }
            for k, speedup in advised.items():
                gauge("estimated_speedup_at", speedup, num_speculative_tokens=str(k))
            ratio = advised[phase.recommended_k] / advised[len(phase.acceptance)]
            gauge("advised_speedup_ratio", ratio)
        for state in ActivityState:
            gauge("activity", float(state.value == phase.activity), state=state.value)
        for action in Action:
            gauge(
                "recommendation",
                float(action.value == phase.action),
                action=action.value,
            )
        payoff = _payoff(phase, self.thresholds)
        for verdict in PayoffVerdict:
            gauge("payoff", float(verdict is payoff.verdict), verdict=verdict.value)
        gauge("judged_speedup", payoff.judged_speedup)
        gauge("guessed_speedup", payoff.guessed_speedup)
        # Without a state, as of vLLM V0, no state has the value 1.
        activity = Activity(ActivityState(phase.activity) if phase.activity else None)
        gauge("state_code", state_code(activity, payoff, phase.scheduled_k))


def _payoff(phase: Phase, thresholds: Thresholds) -> Payoff:
    """Return what the exporter says of the speedup of a phase."""
    if not phase.guess:
        return Payoff(
            verdict=_verdict(phase.speedup, thresholds),
            judged_speedup=phase.speedup,
            guessed_speedup=phase.speedup if phase.basis in GUESSES else None,
        )
    judged = None
    likely = None
    if phase.loss is not None:
        likely = leans(phase.loss, phase.interval or (1.0, 1.0))
    if phase.interval and likely is PayoffVerdict.HARMFUL:
        judged = probable_loss(*phase.interval, phase.loss, thresholds)
    return Payoff(
        verdict=PayoffVerdict.UNKNOWN,
        likely=likely,
        judged_speedup=judged,
        guessed_speedup=phase.guess,
    )


def _verdict(speedup: float | None, thresholds: Thresholds) -> PayoffVerdict | None:
    if speedup is None:
        return None
    if speedup < thresholds.harmful_speedup:
        return PayoffVerdict.HARMFUL
    if speedup > thresholds.beneficial_speedup:
        return PayoffVerdict.BENEFICIAL
    return PayoffVerdict.MARGINAL


def _number(value: float) -> str:
    return repr(round(value, 6)).removesuffix(".0")
