"""Records of sweeps that never were, for what is made of them."""

from functools import partial
from pathlib import Path

from msgspec.structs import replace

from vllm_specdec_exporter.commands.sweep.record import (
    CellAcceptance,
    CellResult,
    ServerIdentity,
    Status,
    SweepRecord,
    SweepSettings,
)
from vllm_specdec_exporter.economics.statistics import ClusterInterval, TimeSummary

#: Temperature and acceptance of the published sweep.
PUBLISHED = {0.0: 0.81, 0.4: 0.71, 0.8: 0.52, 1.0: 0.38}

#: Of the 16 requests of a cell.
_times = partial(TimeSummary, 16)

SERVER = ServerIdentity(
    target="http://vllm:8000",
    model="org/model",
    version="0.32.0",
    dialect="vllm-v1",
    num_speculative_tokens=3,
)


def result(
    temperature: float,
    ratio: float | None,
    *,
    reach: float = 0.04,
    prompts: str = "code",
    concurrency: int = 1,
    status: Status = Status.OK,
    reasons: tuple[str, ...] = (),
    unit: str = "request",
) -> CellResult:
    length = 1 + 3 * (ratio or 0.0)
    slow = 0.011 / length * concurrency
    cell = CellResult(
        prompts=prompts,
        concurrency=concurrency,
        temperature=temperature,
        status=status,
        reasons=reasons,
        started=1_700_000_000.0,
        seconds=12.5,
        requests=16,
        completion_tokens=2048,
        generated_tokens=2048.0,
        tokens_per_second=163.84,
        ttft=_times(0.12, 0.1, 0.2, 0.3),
        tpot=_times(slow, slow, slow * 1.2, slow * 1.5),
        latency=_times(1.2, 1.1, 2.0, 2.2),
    )
    if ratio is None:
        return cell
    acceptance = CellAcceptance(
        drafts=600,
        draft_tokens=1800,
        accepted_tokens=round(1800 * ratio),
        acceptance_ratio=ratio,
        mean_acceptance_length=length,
        position_acceptance_ratio=(min(1.0, ratio + 0.1), ratio, max(0.0, ratio - 0.1)),
        mean_draft_length=3.0,
    )
    return replace(
        cell,
        acceptance_ratio=ratio,
        acceptance_interval=ClusterInterval(ratio - reach, ratio + reach, unit, 16),
        mean_acceptance_length=length,
        counters=acceptance,
        records=acceptance if unit != "draft" else None,
    )


def record(*cells: CellResult, server: ServerIdentity = SERVER) -> SweepRecord:
    def all_of(name: str) -> tuple[object, ...]:
        return tuple(dict.fromkeys(getattr(cell, name) for cell in cells))

    setup = SweepSettings(
        prompts={str(name): "0123456789abcdef" for name in all_of("prompts")},
        temperatures=all_of("temperature"),
        concurrencies=all_of("concurrency"),
        requests=16,
        max_tokens=128,
        api="chat",
        top_p=None,
        ignore_eos=False,
    )
    return SweepRecord(server, setup, cells, exporter_version="0.1.0")


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def published() -> SweepRecord:
    return record(
        *(result(temperature, ratio) for temperature, ratio in PUBLISHED.items())
    )
