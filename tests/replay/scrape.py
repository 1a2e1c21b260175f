"""From what servers count to what Prometheus has of it, through the exporter's own
pipeline and table.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from alerts.promtool import RULES, series_names
from replay.traffic import Conditions, Engine
from support.builders import process_reading
from vllm_specdec_exporter.economics.cost import Basis, thresholds_for
from vllm_specdec_exporter.economics.profiles import CostSettings, Hardware, for_method
from vllm_specdec_exporter.economics.speculative_config import Speculation
from vllm_specdec_exporter.engines.reading import EngineKey, Reading
from vllm_specdec_exporter.measures.history import Window
from vllm_specdec_exporter.observe import pipeline
from vllm_specdec_exporter.observe.settings import Settings
from vllm_specdec_exporter.observe.state import EngineState
from vllm_specdec_exporter.publish.metrics import METRICS, MetricScope

JOB = "vllm-specdec-exporter"
START = 1_800_000_000.0
WINDOW = Window(300.0)

#: What the rules read of an engine; the rest would only fill the memory.
_READ = series_names("".join(path.read_text() for path in RULES.glob("*.yml")))
ROWS = tuple(row for row in METRICS if row.full_name in _READ)

Labels = tuple[tuple[str, str], ...]


def settings(
    method: str = "eagle3",
    k: int = 3,
    error: float = 0.15,
    hardware: Hardware | None = None,
) -> Settings:
    """Return the settings of an exporter with `--spec.config`, with one window of 5
    minutes.

    It is calibrated, unless it is told the hardware.
    """
    # What is measured, is so with one draft model.
    profile = for_method(method, for_method(method).typical_size_ratio or None)
    if hardware is None:
        profile = replace(profile, basis=Basis.CALIBRATED, uncertainty=error)
    return Settings(
        windows=(WINDOW,),
        judged=WINDOW,
        slack=30.0,
        thresholds=thresholds_for(profile, k, method),
        speculation=Speculation(
            configured=True,
            method=method,
            num_speculative_tokens=k,
        ),
        costs=CostSettings(profile, hardware=hardware),
    )


@dataclass
class Storage:
    """What Prometheus has stored: by series, a sample every `step` minutes, NaN where
    there is none.
    """

    step: int = 1
    series: dict[tuple[str, Labels], list[float]] = field(default_factory=dict)

    def put(
        self, name: str, labels: Mapping[str, str], minute: int, value: float
    ) -> None:
        """Store a sample. Labels of a series come in the same order every time."""
        key = (name, tuple(label for label in labels.items() if label[1]))
        samples = self.series.setdefault(key, [])
        at = minute // self.step
        if len(samples) < at:
            samples.extend([math.nan] * (at - len(samples)))
        samples.append(value)


@dataclass
class Replica:
    """A pod: a server with one engine, and the exporter beside it."""

    model: str  # what it serves
    namespace: str  # where
    pod: str  # its name, which becomes the instance too
    settings: Settings  # of the exporter
    seed: int = 0  # of its randomness

    @cached_property
    def _thresholds(self) -> tuple[tuple[str, float], ...]:
        return tuple(self.settings.thresholds.items())

    def play(
        self,
        storage: Storage,
        story: Callable[[int], Conditions | None],
        minutes: Iterable[int],
    ) -> None:
        """Let the story run, and store what Prometheus scrapes; nothing while it says
        None (no such pod).
        """
        random = np.random.default_rng(self.seed)
        target = {
            "job": JOB,
            "instance": f"{self.pod}:9850",
            "namespace": self.namespace,
            "pod": self.pod,
        }
        beside = {
            **target,
            "job": "vllm",
            "instance": f"{self.pod}:8000",
            "model_name": self.model,
        }
        engine = Engine(EngineKey(self.model, "0"), random)
        states: dict[EngineKey, EngineState] = {}
        errors: dict[str, float] = {}
        succeeded = START
        for minute in minutes:
            if minute % storage.step:
                continue
            conditions = story(minute)
            if conditions is None:
                states = pipeline.interrupt(states)
                continue
            reading = Reading("vllm-v1", (engine.advance(conditions, storage.step),))
            if not conditions.serving:
                for position, value in enumerate(engine.positions):
                    labels = {
                        **beside,
                        "position": str(position),
                        "engine": engine.key.engine,
                    }
                    storage.put(
                        "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                        labels,
                        minute,
                        value,
                    )
            time = START + 60.0 * minute
            results: tuple[pipeline.EngineResult, ...] = ()
            if conditions.serving:
                states = pipeline.interrupt(states)
                errors[conditions.serving] = (
                    errors.get(conditions.serving, 0.0) + 12.0 * storage.step
                )
            elif conditions.current:
                states, results = process_reading(
                    states,
                    reading,
                    time=time,
                    settings=self.settings,
                    upstream_version=conditions.version,
                )
                succeeded = time
            if not conditions.target:
                continue
            storage.put("up", target, minute, float(conditions.scraped))
            if not conditions.scraped:
                continue
            self._exporter(
                storage,
                conditions,
                target=target,
                minute=minute,
                errors=errors,
                succeeded=succeeded,
            )
            for result in results:
                self._engine(storage, result, target, minute)

    def _exporter(
        self,
        storage: Storage,
        conditions: Conditions,
        target: dict[str, str],
        minute: int,
        errors: dict[str, float],
        succeeded: float,
    ) -> None:
        storage.put("vllm_specdec_up", target, minute, float(not conditions.serving))
        storage.put(
            "vllm_specdec_last_success_timestamp_seconds",
            target,
            minute,
            succeeded - START,
        )
        storage.put(
            "vllm_specdec_config_last_reload_successful",
            target,
            minute,
            float(conditions.configured),
        )
        for reason in ("refused", "timeout", "unrecognized"):
            labels = {**target, "reason": reason}
            storage.put(
                "vllm_specdec_poll_errors_total",
                labels,
                minute,
                errors.get(reason, 0.0),
            )
        if conditions.thresholds:
            for name, value in self._thresholds:
                storage.put(
                    "vllm_specdec_threshold",
                    {**target, "threshold": name},
                    minute,
                    value,
                )

    def _engine(
        self,
        storage: Storage,
        result: pipeline.EngineResult,
        target: dict[str, str],
        minute: int,
    ) -> None:
        labels_of_engine = {
            **target,
            "model_name": result.model_name,
            "engine": result.engine,
        }
        carriers = {MetricScope.ENGINE: [(labels_of_engine, result)]}
        carriers[MetricScope.WINDOW] = [
            ({**labels_of_engine, "window": window.window}, window)
            for window in result.windows
        ]
        for row in ROWS:
            for of, carrier in carriers.get(row.scope, ()):
                for values, value in row.samples(carrier):
                    labels = {**of, **dict(zip(row.labels, values, strict=True))}
                    storage.put(f"vllm_specdec_{row.name}", labels, minute, value)
