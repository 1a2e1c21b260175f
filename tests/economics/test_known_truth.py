"""Advice against servers whose truth is known: the best K is found, and noise does not
move it.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from economics.servers import (
    Server,
    drawn,
    expected,
    judged,
    settings_for,
    survival_of,
    true_speedups,
)
from vllm_specdec_exporter.economics.choice import choose
from vllm_specdec_exporter.economics.cost import CostProfile
from vllm_specdec_exporter.economics.profiles import BUILTIN, fit
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.judgement.messages import encode_message
from vllm_specdec_exporter.measures.history import Window
from vllm_specdec_exporter.observe.result import EngineResult

PROFILES = {
    name: fit(BUILTIN[name], None)
    for name in (
        "eagle",
        "eagle3",
        "draft_model",
        "ngram",
        "mtp",
        "llama-3.1-8b-h100-eagle",
    )
}
#: How acceptance falls: the chance of each position, given the one before.
SHAPES = {
    "falling": (
        0.9,
        0.85,
        0.8,
        0.75,
        0.7,
        0.65,
        0.6,
        0.55,
        0.5,
        0.45,
        0.4,
        0.35,
        *(0.3,) * 4,
    ),
    "steep": (0.8, 0.6, 0.5, 0.4, *(0.3,) * 12),
    "flat 0.85": (0.85,) * 16,
    "flat 0.7": (0.7,) * 16,
    "flat 0.4": (0.4,) * 16,
    "flat 0.15": (0.15,) * 16,
}
BATCHES = (1, 256)
KS = (2, 8)
DRAFTS = 2_000
SEEDS = 20


class TestTheBestK:
    @pytest.mark.parametrize("name", ["eagle", "draft_model", "ngram"])
    def test_it_is_found(self, name: str) -> None:
        """In 95 % of samples, advice loses less than 2 % of the optimum up to K, and
        nothing beyond it.
        """
        profile = PROFILES[name]
        missed = []
        for (shape, conditional), batch, k in product(SHAPES.items(), BATCHES, KS):
            true = true_speedups(survival_of(conditional), profile, batch)
            best = max(true[: k + 1])
            advised = [
                self.advised(profile, conditional[:k], batch, seed)
                for seed in range(SEEDS)
            ]
            good = [
                true[a] > 0.98 * best and (a <= k or true[a] >= true[k])
                for a in advised
            ]
            if sum(good) < 0.95 * SEEDS:
                missed.append(
                    f"{shape} batch {batch} K={k}: best {true.index(best)} at "
                    f"{best:.3f}, advised "
                    f"{ {a: (advised.count(a), round(true[a], 3)) for a in advised} }"
                )
        assert missed == []

    @staticmethod
    def advised(
        profile: CostProfile, conditional: Sequence[float], batch: float, seed: int
    ) -> int:
        positions = drawn(Random(seed), conditional, DRAFTS)
        return judged(
            settings_for(profile), positions, DRAFTS, batch
        ).advice.num_speculative_tokens


SETTINGS = settings_for(PROFILES["ngram"], "ngram", 5)


def test_too_few_drafts() -> None:
    """Below the minimum of drafts nothing is said of K, and the reason names both
    numbers.
    """
    survival = survival_of((0.7,) * 5)
    few = judged(SETTINGS, expected(survival, 499), 499).advice
    enough = judged(SETTINGS, expected(survival, 500), 500).advice

    assert (few.action, few.num_speculative_tokens) == (Action.INSUFFICIENT_DATA, None)
    assert few.reason == "no advice on K: 499 drafts in the window, 500 are needed"
    assert enough.action is not Action.INSUFFICIENT_DATA


def assert_sound(result: EngineResult) -> None:
    """No NaN and no infinity anywhere in what is published, in words neither."""
    published = json.dumps(
        msgspec.to_builtins(result, enc_hook=encode_message), allow_nan=False
    )
    assert re.search(r"\b(nan|inf)\b", published) is None


class TestExtremes:
    @pytest.mark.parametrize("k", [1, 2, 5, 16])
    def test_all_accepted_at_no_extra_cost_never_lowers_k(self, k: int) -> None:
        """Where every drafted token is accepted and costs next to nothing, no fewer are
        advised.
        """
        advice = judged(
            settings_for(PROFILES["ngram"], "ngram", k), (2_000.0,) * k, 2_000
        ).advice
        assert advice.num_speculative_tokens >= k

    @given(
        conditional=st.lists(
            st.just(0.0) | st.floats(1e-9, 1), min_size=1, max_size=16
        ),
        drafts=st.integers(1, 5_000),
        batch=st.integers(1, 2_000),
        name=st.sampled_from(sorted(BUILTIN)),
        full=st.just(0.0) | st.floats(1e-9, 1),
    )
    def test_any_acceptance_at_all(
        self, conditional: list[float], drafts: int, batch: int, name: str, full: float
    ) -> None:
        """Whatever the counters hold, nothing raises and every number is one."""
        k = len(conditional)
        positions = expected(survival_of(conditional), drafts)
        tokens = max(sum(positions), drafts * k * full)
        settings = settings_for(fit(BUILTIN[name], None), "", k)
        result = judged(settings, positions, drafts, batch, draft_tokens=tokens)

        assert_sound(result)
        assert 0 <= (result.advice.num_speculative_tokens or 0) <= max(2 * k, 3)


def between(better: Callable[[Sequence[float]], float], k: int) -> tuple[float, ...]:
    """Acceptance, the same at all K positions, at which `better` crosses 0; found by
    halving.
    """
    low = 0.01
    high = 0.99
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if better((middle,) * k) > 0 else (middle, high)
    return (low,) * k


def two_k(name: str, k: int, other: int, batch: float) -> tuple[float, ...]:
    """Acceptance at which two K are equally fast."""

    def better(conditional: Sequence[float]) -> float:
        true = true_speedups(survival_of(conditional), PROFILES[name], batch)
        return true[k] - true[other]

    return between(better, k)


def best_is(name: str, k: int, speedup: float, batch: float) -> tuple[float, ...]:
    """Acceptance at which the best K up to `k` has just this speedup."""
    return between(
        lambda c: (
            max(true_speedups(survival_of(c), PROFILES[name], batch)[1:]) - speedup
        ),
        k,
    )


def seems(name: str, k: int, batch: float) -> tuple[float, ...]:
    """Acceptance at which one token more than K promises, as far as it is extrapolated,
    one percent.
    """

    def better(conditional: Sequence[float]) -> float:
        profile = PROFILES[name]
        options = choose(
            survival_of(conditional), OVER_TIME, lambda k: profile.step_cost(k, batch)
        ).options
        return options[k + 1].speedup - 1.01 * options[k].speedup

    return between(better, k)


#: Drafts in every window of a simulation over days.
OVER_TIME = 2_000
#: Drafts accepted alike, as those of one request are (`CLUSTERING`): more noise than
#: independent ones.
ALIKE = 4
#: Situations that sit exactly on a boundary: the method, K, batch size and acceptance
#: by position.
BOUNDARIES: dict[str, tuple[str, int, float, tuple[float, ...]]] = {
    "K=5 as fast as K=4": ("eagle", 5, 16.0, two_k("eagle", 5, 4, 16)),
    "K=5 as fast as K=3": ("eagle", 5, 16.0, two_k("eagle", 5, 3, 16)),
    "nothing gained and nothing lost": ("eagle", 3, 64.0, best_is("eagle", 3, 1.0, 64)),
    "K=5 promises just enough over K=4": ("eagle", 4, 16.0, seems("eagle", 4, 16)),
    "just beneficial": ("eagle", 3, 64.0, best_is("eagle", 3, 1.2, 64)),
}
WINDOW = 300.0


def advised_over_time(
    name: str, conditional: Sequence[float], batch: float, *, drafts: int, polls: int
) -> list[tuple[str, int | None]]:
    """Every advice that was published, without repetitions, polled once a window."""
    rng = Random(1)
    k = len(conditional)
    window = Window(WINDOW)
    settings = settings_for(PROFILES[name], name, k, windows=(window,), judged=window)
    server = Server(settings, k, batch)
    server.poll()
    published = []
    for _ in range(polls):
        positions = drawn(rng, conditional, drafts // ALIKE)
        server.add(drafts, [ALIKE * count for count in positions])
        advice = server.poll(after=WINDOW).advice
        if published[-1:] != [(advice.action, advice.num_speculative_tokens)]:
            published.append((advice.action, advice.num_speculative_tokens))
    return published


class TestOverTime:
    @pytest.mark.parametrize("days", [1, pytest.param(7, marks=pytest.mark.full)])
    @pytest.mark.parametrize(
        ("boundary", "drafts"),
        [
            *((boundary, OVER_TIME) for boundary in BOUNDARIES),
            # What an undrafted position promises hangs on the sample, and must not go
            # to and fro with it.
            ("K=5 promises just enough over K=4", 600),
        ],
    )
    def test_stationary_traffic_does_not_make_it_flap(
        self, boundary: str, drafts: int, days: int
    ) -> None:
        """Over days of the same traffic advice changes at most once, even between equal
        K.
        """
        name, _, batch, conditional = BOUNDARIES[boundary]
        polls = int(days * 86_400 / WINDOW)
        published = advised_over_time(
            name, conditional, batch, drafts=drafts, polls=polls
        )

        assert len(published) <= 2, f"{len(published)} changes, such as {published[:6]}"

    def test_a_restart_begins_anew(self) -> None:
        """Nothing of the old advice is left, so that 300 drafts, enough to keep it, are
        too few.
        """
        server = Server(settings_for(PROFILES["eagle"], "eagle", 4), 4, 8)
        server.poll()
        acceptance = expected(survival_of((0.9, 0.9, 0.1, 0.1)), 300)
        actions = []
        for restarts in (False, False, True, False):
            if restarts:
                server = replace(server, drafts=0.0, draft_tokens=0.0)
                server.poll(after=30)
            server.add(300, acceptance)
            actions.append(server.poll(after=30).advice.action)

        assert actions == [Action.INSUFFICIENT_DATA, Action.DECREASE_K] * 2
