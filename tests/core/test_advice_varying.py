"""Advice on K for drafts of varying length: what records of single requests add, and
when they do not.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pytest

from economics.servers import KEY, Server, settings_for
from support.builders import Draft, count
from support.copies import replace
from support.messages import name_of, values_of
from vllm_specdec_exporter.economics.cost import CostProfile
from vllm_specdec_exporter.economics.profiles import for_method
from vllm_specdec_exporter.judgement.advice import Action, Advice
from vllm_specdec_exporter.measures.measures import DraftShape
from vllm_specdec_exporter.observe.result import EngineResult
from vllm_specdec_exporter.observe.settings import Settings
from vllm_specdec_exporter.per_request.recent_window import StepCounts

NGRAM = for_method("ngram")
DRAFT_MODEL = for_method("draft_model")
EAGLE = for_method("eagle3")
BATCH = 8.0


def alike(
    lengths: Sequence[int], chances: Sequence[float]
) -> Callable[[Random], Draft]:
    """Drafts of these lengths, whose token at i is accepted with a chance given those
    before it.
    """

    def draw(rng: Random) -> Draft:
        drafted = rng.choice(lengths)
        return drafted, next(
            (n for n in range(drafted) if rng.random() >= chances[n]), drafted
        )

    return draw


def repeating(rng: Random) -> Draft:
    """Drafts as of n-grams: long just where the text repeats itself, and then most of
    it is accepted.
    """
    if rng.random() < 0.2:
        return 4, 4 if rng.random() < 0.95 else 2
    return 1, int(rng.random() < 0.5)


def struck_out(rng: Random) -> Draft:
    """Drafts of which a grammar strikes out the end, or all."""
    drafted = rng.choice((0, 1, 4, 4))
    return drafted, next((n for n in range(drafted) if rng.random() >= 0.6), drafted)


#: Drafts of K = 4 that vary in length, by what they are like.
DRAFTERS: dict[str, Callable[[Random], Draft]] = {
    "short where unsure": repeating,
    "any length": alike((1, 2, 3, 4), (0.9, 0.8, 0.7, 0.6)),
    "worthless deep down": alike((1, 4, 4, 4), (0.9, 0.8, 0.05, 0.05)),
    "poor": alike((1, 2, 4), (0.3, 0.2, 0.1, 0.1)),
    "by a grammar": struck_out,
    "never longer than two": alike((1, 2, 2), (0.9, 0.8)),
}


def drawn(
    draw: Callable[[Random], Draft], drafts: int = 10_000, seed: int = 7
) -> list[Draft]:
    rng = Random(seed)
    return [draw(rng) for _ in range(drafts)]


def shape_of(drafts: Sequence[Draft]) -> DraftShape:
    """What detailed records of requests with these drafts tell."""
    counts = StepCounts()
    counts.change(Counter(drafts))
    return counts.shape


def exact_speedup(drafts: Sequence[Draft], k: int, profile: CostProfile) -> float:
    """The speedup with this K, counted draft by draft: each would have been cut off
    behind it.
    """
    emitted = sum(1 + min(accepted, k) for _, accepted in drafts) / len(drafts)
    held = sum(min(drafted, k) for drafted, _ in drafts) / len(drafts)
    return emitted / profile.step_cost(held, BATCH)


def watched(settings: Settings) -> Server:
    """An engine that has drafted nothing so far."""
    server = Server(settings, 4, BATCH)
    server.poll()
    return server


def publish(
    server: Server,
    drafts: Sequence[Draft],
    shape: DraftShape | None = None,
    model: str = KEY.model_name,
) -> EngineResult:
    """What is published after a window of these drafts, with what records tell of their
    lengths.
    """
    counted = count(drafts, server.k)
    server.add(len(drafts), counted.accepted_tokens_per_position, counted.draft_tokens)
    return server.poll(
        server.settings.judged.seconds, {} if shape is None else {model: shape}
    )


def advice(
    drafts: Sequence[Draft],
    shape: DraftShape | None = None,
    profile: CostProfile = DRAFT_MODEL,
    method: str = "",
) -> Advice:
    """What is advised after one window of these drafts."""
    return publish(watched(settings_for(profile, method, 4)), drafts, shape).advice


class TestAgainstEveryDraft:
    @pytest.mark.parametrize(
        "profile", [NGRAM, DRAFT_MODEL, EAGLE], ids=lambda profile: profile.name
    )
    @pytest.mark.parametrize("kind", DRAFTERS)
    def test_what_every_k_gives_and_which_is_best(
        self, kind: str, profile: CostProfile
    ) -> None:
        """The speedup of every K is that of the very same drafts, cut off; the best is
        advised.
        """
        drafts = drawn(DRAFTERS[kind])
        advised = advice(drafts, shape_of(drafts), profile)
        exact = [1.0, *(exact_speedup(drafts, k, profile) for k in (1, 2, 3, 4))]

        assert [option.num_speculative_tokens for option in advised.options] == [
            *range(9)
        ]
        assert [option.speedup for option in advised.options[1:5]] == pytest.approx(
            exact[1:]
        )
        assert [option.extrapolated for option in advised.options] == [
            k > 4 for k in range(9)
        ]
        if kind in (
            "short where unsure",
            "worthless deep down",
            "poor",
            "by a grammar",
        ):
            best = exact.index(max(exact))
            assert advised.action is not Action.INSUFFICIENT_DATA
            assert advised.num_speculative_tokens == best or (
                best == 4 and advised.action is Action.INCREASE_K
            )

    def test_a_larger_k_is_tried_with_care(self) -> None:
        """Beyond the present K only drafts that it cut off go on, and that is said to
        be extrapolated.
        """
        drafts = drawn(alike((1, 4, 4, 4, 4, 4), (0.97,) * 4))
        advised = advice(drafts, shape_of(drafts), EAGLE, method="eagle3")

        assert advised.action is Action.INCREASE_K
        because = values_of(advised.reason)["because"]
        assert name_of(because) == "advice.extrapolated"
        assert name_of(advised.schedule_note) == "no_schedule.drafts_vary"
        assert advised.speculative_config == (
            f'{{"method": "eagle3", "num_speculative_tokens": '
            f"{advised.num_speculative_tokens}}}"
        )


class TestWithoutUsableRecords:
    DRAFTS = drawn(DRAFTERS["worthless deep down"])

    def refused(
        self, shape: DraftShape | None, drafts: Sequence[Draft] = DRAFTS
    ) -> str:
        advised = advice(drafts, shape)
        assert advised.action == Action.INSUFFICIENT_DATA
        assert advised.num_speculative_tokens is None
        assert advised.options == ()
        assert (advised.speculative_config, advised.schedule) == ("", ())
        assert advised.rules
        values = values_of(advised.reason)
        assert values == {"drafted": pytest.approx(13 / 4, abs=0.05), "k": 4}
        return name_of(advised.reason)

    def test_no_records(self) -> None:
        """Counters alone do not tell, and it is said what would."""
        assert self.refused(None) == "no_advice.drafts_vary"
        assert self.refused(DraftShape(0, ())) == "no_advice.drafts_vary"

    @pytest.mark.parametrize(
        "shape",
        [
            shape_of(DRAFTS[:499]),
            shape_of(drawn(alike((4,), (0.9,) * 4))),
            shape_of(drawn(alike((1, 2), (0.9,) * 2))),
            shape_of(drawn(alike((3, 8), (0.9,) * 8))),
            shape_of(drawn(alike((1, 2, 3, 6), (0.9,) * 6))),
        ],
        ids=["too few", "longer drafts", "shorter drafts", "other drafts", "another K"],
    )
    def test_records_that_do_not_fit(self, shape: DraftShape) -> None:
        """Too few of them, or of traffic whose drafts are of another length: they speak
        for nothing here.
        """
        assert self.refused(shape) == "no_advice.few_records"

    @pytest.mark.parametrize(
        ("factor", "fits"), [(0.91, True), (1.09, True), (0.89, False), (1.11, False)]
    )
    def test_how_alike_traffic_must_be(self, factor: float, fits: bool) -> None:
        """A tenth of difference in the mean draft length is borne, more is not."""
        shape = shape_of(self.DRAFTS)
        stretched = replace(
            shape, mean_lengths=tuple(factor * length for length in shape.mean_lengths)
        )

        assert (
            advice(self.DRAFTS, stretched).action is not Action.INSUFFICIENT_DATA
        ) is fits

    def test_other_models(self) -> None:
        """Records of another model's requests say nothing of this one's."""
        server = watched(settings_for(DRAFT_MODEL, "", 4))
        advised = publish(
            server, self.DRAFTS, shape_of(self.DRAFTS), model="another"
        ).advice

        assert advised.action is Action.INSUFFICIENT_DATA

    def test_full_drafts_need_no_records(self) -> None:
        """Where drafts hold K tokens the counters tell all, and records of other
        lengths change nothing.
        """
        drafts = drawn(alike((4,), (0.9, 0.8, 0.05, 0.05)))
        for lengths in ((1, 2), (3, 4, 4, 4, 4, 4)):
            assert advice(drafts) == advice(
                drafts, shape_of(drawn(alike(lengths, (0.9,) * 4)))
            ), lengths
        assert advice(drafts).num_speculative_tokens == 2

    def test_a_loss_is_seen_without_records(self) -> None:
        """That no speculation would be faster needs no other K to be known."""
        drafts = drawn(alike((1, 2, 4), (0.05,) * 4))

        assert (
            advice(drafts).action
            is advice(drafts, shape_of(drafts)).action
            is Action.DISABLE
        )


class TestInTheCourseOfTime:
    def test_advice_comes_and_goes_with_the_records(self) -> None:
        """No advice outlives the records, and while there are none nothing is
        unlearned.
        """
        server = watched(settings_for(DRAFT_MODEL, "", 4))
        course = []
        for seed, there in enumerate(
            (True, True, False, False, False, False, True, False, True)
        ):
            drafts = drawn(DRAFTERS["by a grammar"], 3_000, seed)
            course.append(
                publish(server, drafts, shape_of(drafts) if there else None).advice
            )
        ks = [each.num_speculative_tokens for each in course]

        assert [k is None for k in ks] == [
            False,
            False,
            True,
            True,
            True,
            True,
            False,
            True,
            False,
        ]
        assert len(set(ks) - {None}) == 1
        assert not any(each.doubted for each in course)

    def test_advice_without_records_is_replaced_once_that_is_certain(self) -> None:
        """Where the records come later than the drafts, it takes a window more to be
        sure.
        """
        server = watched(settings_for(DRAFT_MODEL, "", 4))
        drafts = drawn(DRAFTERS["worthless deep down"], 3_000)
        course = [
            publish(server, drafts, shape).advice
            for shape in (None, *[shape_of(drafts)] * 2)
        ]

        assert [(each.num_speculative_tokens, each.doubted) for each in course] == [
            (None, False),
            (4, True),
            (2, False),
        ]
