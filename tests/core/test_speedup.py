"""The published speedup: the one that payoff is judged by, and where it comes from."""

from __future__ import annotations

from golden.cases import CASES, run
from vllm_specdec_exporter.judgement.payoff import Basis, PayoffVerdict
from vllm_specdec_exporter.metric import by_name
from vllm_specdec_exporter.metrics import METRICS
from vllm_specdec_exporter.thresholds import Thresholds

(ROW,) = (row for row in METRICS if row.name == "speedup")


def test_speedup_and_verdict_agree() -> None:
    """Wherever there is a verdict there is one speedup, on its side of the thresholds; else there is none."""
    thresholds = Thresholds()
    targets = [target for case in CASES for target in run(case).targets]
    for engine in (engine for target in targets for engine in target.engines):
        samples, verdict = list(ROW.samples(engine)), engine.payoff.verdict
        assert len(samples) == (engine.payoff.speedup is not None)
        for (basis,), speedup in samples:
            assert basis in list(Basis)
            assert (speedup < thresholds.harmful_speedup) == (verdict is PayoffVerdict.HARMFUL)
            assert (speedup > thresholds.beneficial_speedup) == (verdict is PayoffVerdict.BENEFICIAL)


def test_thresholds_of_the_alerts_are_published() -> None:
    """Rules compare with series, so every threshold is one."""
    assert {name for (name,), _ in by_name(dict(Thresholds().items()))} >= {"severe_speedup", "drop_ratio"}
