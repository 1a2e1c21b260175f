"""Cost profiles: what a step costs, and the files they come from."""

from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from support.builders import refusal
from vllm_specdec_exporter.economics.cost import (
    Basis,
    CostProfile,
    DraftCost,
    TargetCost,
)
from vllm_specdec_exporter.economics.profiles import (
    BUILTIN,
    CostSettings,
    ProfileError,
    deployed,
    fit,
    for_method,
    guess_method,
    parse_profiles,
)
from vllm_specdec_exporter.economics.speculative_config import Speculation

_AMOUNT = st.floats(0, 10)
_SMALL = st.floats(0, 0.1)

#: Any profile that could be: whatever it is in, a step takes some time.
profiles = st.builds(
    CostProfile,
    name=st.just("any"),
    target=st.builds(
        TargetCost,
        fixed=st.floats(0.01, 10),
        per_token=_SMALL,
        per_context_token=st.floats(0, 1e-4),
    ),
    draft=st.builds(
        DraftCost,
        fixed=_AMOUNT,
        per_position=_AMOUNT,
        per_request=_SMALL,
        per_token=_SMALL,
        per_context_token=st.floats(0, 1e-5),
        share_of_verification=st.floats(0, 1),
    ),
    context_tokens=st.floats(0, 10_000),
)


class TestStepCost:
    def test_no_drafts_cost_a_plain_step_at_every_batch_size(self) -> None:
        costs = {
            (name, batch): BUILTIN[name].step_cost(0, batch)
            for name, batch in product(BUILTIN, (1, 7.5, 1000))
        }
        assert costs == dict.fromkeys(costs, 1.0)

    @given(profiles, st.integers(1, 16), st.floats(1, 2000))
    def test_it_never_falls_with_k(
        self, profile: CostProfile, k: int, batch: float
    ) -> None:
        """A further token costs something or nothing, and a step with drafts at least a
        plain one.
        """
        here = profile.step_cost(k, batch)
        further = profile.step_cost(k + 1, batch)

        assert here + 1e-12 >= 1
        assert here <= further + 1e-12

    def test_the_formula(self) -> None:
        """Every part counts as the module says."""
        profile = CostProfile(
            "hand",
            TargetCost(fixed=10, per_token=2, per_context_token=0.1),
            DraftCost(
                fixed=1,
                per_position=0.5,
                per_request=0.25,
                per_token=0.125,
                per_context_token=0.01,
                share_of_verification=0.5,
            ),
            context_tokens=20,
        )
        plain = 10 + 2 * 4 + 0.1 * 20 * 4
        verify = 10 + 2 * 4 * (3 + 1) + 0.1 * 20 * 4
        draft = 1 + 0.5 * 3 + 0.25 * 4 + 0.125 * 4 * 3 + 0.01 * 20 * 4 + 0.5 * verify

        assert profile.step_cost(3, 4) == pytest.approx(
            (verify + draft) / plain, rel=1e-12
        )

    @pytest.mark.parametrize(("k", "batch"), [(-1, 1), (1, 0), (1, 0.5), (0, 0)])
    def test_a_negative_k_or_a_batch_without_a_request_is_refused_in_one_line(
        self, k: int, batch: float
    ) -> None:
        message = rf"^k lies from 0 up and the batch from 1 up, not {k} and {batch}$"
        with pytest.raises(ValueError, match=message):
            BUILTIN["unknown"].step_cost(k, batch)


class TestSized:
    def test_sizing_counts_once(self) -> None:
        """A size replaces another one, in the costs as in the name; unsized, the usual
        size counts.
        """
        profile = BUILTIN["draft_model"]

        assert profile.sized(0.5).sized(0.2) == profile.sized(0.2)
        assert profile.step_cost(3, 1) == profile.sized(0.1111).step_cost(3, 1)
        assert profile.sized(0.2).step_cost(1, 1) == pytest.approx(
            1 + 0.087 + 0.0104 + 1.37 * 0.2 + 0.0084 * 0.2 + 0.0029373
        )

    @pytest.mark.parametrize("ratio", [0, -1, 1.01, float("nan")])
    def test_a_draft_model_is_no_larger_than_its_target(self, ratio: float) -> None:
        with pytest.raises(ValueError, match=r"lies above 0 and at most at 1, not "):
            BUILTIN["draft_model"].sized(ratio)

    @pytest.mark.parametrize(
        ("size", "coefficient"), [(0.007, 0.02), (0.023, 0.04), (0.073, 0.11)]
    )
    def test_the_published_drafts_of_t5(self, size: float, coefficient: float) -> None:
        """Leviathan et al. 2023: drafts of 0.7, 2.3 and 7.3 % of T5-XXL take .02, .04
        and .11 of its step.
        """
        profile = BUILTIN["draft_model"].sized(size)
        position = profile.step_cost(2, 1) - profile.step_cost(1, 1)
        verified = profile.target.per_token
        assert position - verified == pytest.approx(coefficient, abs=0.004)


METHODS = {
    "ngram_gpu": "ngram",
    "qwen3_next_mtp": "mtp",
    "dflash": "parallel",
    "new": "unknown",
    "": "unknown",
}


class TestBuiltin:
    def test_every_method_of_vllm_leads_to_one_profile(self) -> None:
        """What is not known has the dearest usual one."""
        methods = [*chain(*(profile.methods for profile in BUILTIN.values()))]

        assert sorted(set(methods)) == sorted(methods)
        assert {method: for_method(method).name for method in METHODS} == METHODS


class TestNames:
    def test_deployed_by_name(self) -> None:
        """The sizes in both names decide what drafting costs; a given ratio takes
        precedence.
        """

        def ratio(
            draft: str,
            target: str,
            given: float | None = None,
            name: str = "draft_model",
        ) -> float | None:
            costs = CostSettings(BUILTIN[name], given)
            return deployed(costs, Speculation(draft_model=draft), target).size_ratio

        assert ratio("x/Llama-3.2-1B", "x/Llama-3.1-8B") == pytest.approx(1 / 8)
        assert ratio("x/Llama-3.2-1B", "x/Llama-3.1-8B", 0.5) == 0.5
        assert ratio("x/draft", "x/Llama-3.1-8B") is None
        assert ratio("x/Llama-3.2-1B", "x/Mixtral-8x7B") is None
        assert ratio("x/Llama-3.1-8B", "x/Llama-3.2-1B") is None
        assert ratio("x/E-1B", "x/L-8B", name="eagle") is None

    def test_the_method_by_the_drafters_name(self) -> None:
        """Where the method is left out vLLM goes by the name of the drafter, and so
        does the exporter.
        """
        guesses = {
            ("ngram", "x/EAGLE3-y"): "ngram",
            ("", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"): "eagle3",
            ("", "yuhuili/EAGLE-LLaMA3-Instruct-8B"): "eagle",
            ("", "[ngram]"): "ngram",
            ("", "meta-llama/Llama-3.2-1B"): "",
            ("", ""): "",
        }
        assert {drafter: guess_method(*drafter) for drafter in guesses} == guesses


GOOD: dict[str, Any] = {"target": {"fixed": 1.0}}
#: A profile that is refused, and how the message begins.
MISTAKES: list[tuple[object, str]] = yaml.safe_load(
    Path(__file__).with_name("mistakes.yml").read_text("utf-8")
)
#: Fields of a profile that only the exporter sets.
MISTAKES += [
    ({**GOOD, name: 1}, f": no such key '{name}'")
    for name in ("errors", "contradiction", "measured_draft", "physical", "name")
]


class TestFile:
    def test_all_that_can_be_said(self) -> None:
        """Every key of a profile is read.

        YAML takes 1e-6 for a text; it is a number all the same.
        """
        text = """
        profiles:
          mine:
            methods: [eagle, medusa]
            provenance: measured on the 3rd of May
            unit: ms
            uncertainty: 0.1
            cheap: true
            typical_k: 4
            context_tokens: 2000
            size_ratio: 0.5
            target: {fixed: 10, per_token: 0.1, per_context_token: 1e-6}
            draft:
              {fixed: 1, per_position: 2, per_position_of_size: 4,
               per_token_of_size: 0.5}
        """
        (mine,) = parse_profiles(yaml.safe_load(text)).values()

        assert mine == CostProfile(
            name="mine",
            target=TargetCost(10, 0.1, 1e-6),
            draft=DraftCost(
                fixed=1, per_position=2, per_position_of_size=4, per_token_of_size=0.5
            ),
            methods=("eagle", "medusa"),
            context_tokens=2000,
            size_ratio=0.5,
            typical_k=4,
            uncertainty=0.1,
            cheap=True,
            provenance="measured on the 3rd of May",
        )
        plain = 10 + 0.1 + 1e-6 * 2000
        assert fit(mine, None).step_cost(1, 1) == pytest.approx(
            1 + (0.1 + 1 + 4.0 + 0.25) / plain
        )
        assert fit(mine, 0.25).step_cost(1, 1) == pytest.approx(
            1 + (0.1 + 1 + 3.0 + 0.125) / plain
        )

    def test_a_file_without_profiles_is_refused_with_what_is_expected(self) -> None:
        """A misplaced key is no profile."""
        documents = (
            None,
            [],
            "x",
            5,
            {},
            {"profiles": {}},
            {"profiles": []},
            {"profile": {}},
        )
        for document in (*documents, {"profiles": {"a": GOOD}, "b": GOOD}):
            assert refusal(ProfileError, parse_profiles, document) == (
                "a mapping with the one key profiles is expected, from names to "
                "profiles"
            ), document

    @pytest.mark.parametrize(("entry", "message"), MISTAKES)
    def test_a_mistake_is_one_line_that_names_profile_key_and_value(
        self, entry: object, message: str
    ) -> None:
        """And says what is allowed."""
        said = refusal(ProfileError, parse_profiles, {"profiles": {"x": entry}})
        assert said.startswith(f"profile x{message}")
        assert "\n" not in said


def test_a_longer_context_costs_what_reading_it_takes() -> None:
    """It is read once a step, with drafts and without, so it dilutes the cost of
    drafts.
    """
    profile = CostProfile(
        "p", TargetCost(10.0, per_context_token=1e-3), DraftCost(per_position=1.0)
    )
    short = profile.at_context(0).step_cost(2, 4)
    long = profile.at_context(5000).step_cost(2, 4)
    assert (short, long) == (pytest.approx(1 + 2 / 10), pytest.approx(1 + 2 / 30))
    assert profile.at_context(None) is profile


def test_a_calibrated_profile_reaches_half_as_far_again() -> None:
    """In batch size and context; contexts below a thousand tokens are all short."""
    profile = CostProfile("p", TargetCost(1.0), batches=(2, 8), contexts=(100, 2000))
    for batch, context, covered in (
        (2, 50, True),
        (12, 3000, True),
        (13, 3000, False),
        (1, 100, False),
        (4, 3001, False),
    ):
        at_context = profile.at_context(context)
        assert at_context.covers(batch) is covered, (batch, context)
        calibrated = replace(at_context, basis=Basis.CALIBRATED, uncertainty=0.1)
        # Beyond, it is worth what a profile from another machine is.
        assert calibrated.cost_range(3, batch)[1] == pytest.approx(
            1.1 if covered else 1.6
        ), (batch, context)
