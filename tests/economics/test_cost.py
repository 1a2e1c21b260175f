"""Cost profiles: what a step costs, and the files they come from."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vllm_specdec_exporter.economics import BUILTIN, CostProfile, ProfileError, for_method, parse_profiles
from vllm_specdec_exporter.economics.cost import DraftCost, TargetCost
from vllm_specdec_exporter.economics.profiles import deployed, fit, guess_method, meant_for, size_in_name

every_profile = pytest.mark.parametrize("name", BUILTIN)

_AMOUNT = st.floats(0, 10)
_SMALL = st.floats(0, 0.1)

#: Any profile that could be: whatever it is in, a step takes some time.
profiles = st.builds(
    CostProfile,
    name=st.just("any"),
    target=st.builds(
        TargetCost, fixed=st.floats(0.01, 10), per_token=_SMALL, per_context_token=st.floats(0, 1e-4)
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
    @every_profile
    def test_no_drafts_cost_a_plain_step(self, name: str) -> None:
        """K = 0 is a plain step, at every batch size."""
        assert {BUILTIN[name].step_cost(0, batch) for batch in (1, 7.5, 1000)} == {1.0}

    @given(profiles, st.integers(1, 16), st.floats(1, 2000))
    def test_it_never_falls_with_k(self, profile: CostProfile, k: int, batch: float) -> None:
        """A further token costs something or nothing, and a step with drafts at least a plain one."""
        here, further = profile.step_cost(k, batch), profile.step_cost(k + 1, batch)

        assert here + 1e-12 >= 1
        assert here <= further + 1e-12

    @every_profile
    @pytest.mark.parametrize("k", [1, 3, 8])
    def test_verification_is_dearer_in_larger_batches(self, name: str, k: int) -> None:
        """What a step costs with verification never falls with the batch, beyond what drafting saves.

        Drafting has a part that does not grow with the batch, so where drafting is dear the whole may fall;
        without drafting it never does.
        """
        profile = BUILTIN[name]
        alone = CostProfile("verification", profile.target, context_tokens=profile.context_tokens)
        costs = [alone.step_cost(k, batch) for batch in (1, 2, 8, 64, 256, 1024)]

        assert costs == sorted(costs)

    @pytest.mark.parametrize("name", ["ngram", "suffix", "mtp", "llama-3.1-8b-h100-eagle"])
    @pytest.mark.parametrize("k", [1, 3, 8])
    def test_a_cheap_drafter_is_dearer_in_larger_batches(self, name: str, k: int) -> None:
        """Where drafting is cheap, break-even rises with the load."""
        costs = [BUILTIN[name].step_cost(k, batch) for batch in (1, 2, 8, 64, 256, 1024)]

        assert costs == sorted(costs)
        assert costs[0] < costs[-1]

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

        assert profile.step_cost(3, 4) == pytest.approx((verify + draft) / plain, rel=1e-12)

    @every_profile
    def test_break_even_is_the_cost_of_a_step(self, name: str) -> None:
        """At the break-even length or ratio, tokens come exactly as fast as without speculation."""
        profile = BUILTIN[name]
        length, ratio = profile.break_even_length(4, 32), profile.break_even_ratio(4, 32)

        assert length / profile.step_cost(4, 32) == 1
        assert 1 + 4 * ratio == pytest.approx(length)

    @pytest.mark.parametrize(("k", "batch"), [(-1, 1), (1, 0), (1, 0.5), (0, 0)])
    def test_what_cannot_be(self, k: float, batch: float) -> None:
        """A negative K, or a batch without a request, is refused in one line."""
        with pytest.raises(ValueError, match=r"^k lies from 0 up and the batch from 1 up, not \S+ and \S+$"):
            BUILTIN["unknown"].step_cost(k, batch)


class TestSized:
    def test_a_larger_draft_model_costs_more(self) -> None:
        """Cost rises with the size of the draft model, and the name says which size."""
        costs = [BUILTIN["draft_model"].sized(ratio).step_cost(3, 1) for ratio in (0.01, 0.1111, 0.5, 1)]

        assert costs == sorted(set(costs))
        assert BUILTIN["draft_model"].sized(1 / 9).name == "draft_model 1:9"
        assert BUILTIN["draft_model"].sized(0.5).size_ratio == 0.5

    def test_sizing_counts_once(self) -> None:
        """A size replaces another one, in the costs as in the name; unsized, the usual size counts."""
        profile = BUILTIN["draft_model"]

        assert profile.sized(0.5).sized(0.2) == profile.sized(0.2)
        assert profile.step_cost(3, 1) == profile.sized(0.1111).step_cost(3, 1)
        assert profile.sized(0.2).step_cost(1, 1) == pytest.approx(
            1 + 0.087 + 0.0104 + 1.37 * 0.2 + 0.0084 * 0.2 + 0.0029373
        )

    @pytest.mark.parametrize("ratio", [0, -1, 1.01, float("nan")])
    def test_a_size_that_cannot_be(self, ratio: float) -> None:
        """A draft model is no larger than its target."""
        with pytest.raises(ValueError, match=r"lies above 0 and at most at 1, not "):
            BUILTIN["draft_model"].sized(ratio)

    def test_the_published_drafts_of_t5(self) -> None:
        """Leviathan et al. 2023: drafts of 0.7, 2.3 and 7.3 % of T5-XXL take .02, .04 and .11 of its step."""
        for size, coefficient in ((0.007, 0.02), (0.023, 0.04), (0.073, 0.11)):
            profile = BUILTIN["draft_model"].sized(size)
            position = profile.step_cost(2, 1) - profile.step_cost(1, 1)
            verified = profile.target.per_token
            assert position - verified == pytest.approx(coefficient, abs=0.004)


class TestBuiltin:
    @every_profile
    def test_each_says_where_it_comes_from(self, name: str) -> None:
        """Name, provenance and sane numbers."""
        profile = BUILTIN[name]

        assert profile.name == name
        assert profile.provenance.endswith(".")
        assert 0 < profile.uncertainty < 1
        assert profile.step_cost(profile.typical_k, 1) < 3

    def test_no_method_has_two(self) -> None:
        """A method leads to one profile."""
        methods = [method for profile in BUILTIN.values() for method in profile.methods]

        assert sorted(set(methods)) == sorted(methods)

    @pytest.mark.parametrize(
        ("method", "name"),
        [
            ("eagle", "eagle"),
            ("eagle3", "eagle3"),
            ("ngram", "ngram"),
            ("ngram_gpu", "ngram"),
            ("suffix", "suffix"),
            ("medusa", "medusa"),
            ("mlp_speculator", "mlp_speculator"),
            ("mtp", "mtp"),
            ("deepseek_mtp", "mtp"),
            ("qwen3_next_mtp", "mtp"),
            ("dflash", "parallel"),
            ("draft_model", "draft_model 1:9"),
            ("", "unknown"),
            ("something new", "unknown"),
        ],
    )
    def test_by_method(self, method: str, name: str) -> None:
        """Every method of vLLM has its profile; what is not known has the dearest usual one."""
        assert for_method(method).name == name

    def test_the_operators_profiles_come_first(self) -> None:
        """An own profile that names the method beats the shipped one."""
        own = parse_profiles({"profiles": {"mine": {"methods": ["eagle"], "target": {"fixed": 1}}}})

        assert meant_for("eagle", own).name == "mine"
        assert meant_for("ngram", own).name == "ngram"
        assert meant_for("", own).name == "unknown"


class TestNames:
    @pytest.mark.parametrize(
        ("name", "size"),
        [
            ("meta-llama/Llama-3.1-70B-Instruct", 70e9),
            ("Qwen2.5-0.5B", 0.5e9),
            ("HuggingFaceTB/SmolLM2-135M", 135e6),
            ("Qwen3-30B-A3B", 30e9),
            ("Mixtral-8x7B", None),
            ("tiny-llama", None),
            ("70B/llama", None),
            ("", None),
        ],
    )
    def test_the_size_in_a_name(self, name: str, size: float | None) -> None:
        """Billions and millions are read from a model's name, and nothing from its version or folder."""
        assert size_in_name(name) == size

    def test_deployed_by_name(self) -> None:
        """The sizes that both names tell decide what drafting costs; what the operator says beats them."""
        profile = BUILTIN["draft_model"]

        assert deployed(profile, None, "x/Llama-3.2-1B", "x/Llama-3.1-8B").size_ratio == pytest.approx(1 / 8)
        assert deployed(profile, 0.5, "x/Llama-3.2-1B", "x/Llama-3.1-8B").size_ratio == 0.5
        assert deployed(profile, None, "x/draft", "x/Llama-3.1-8B").size_ratio == pytest.approx(0.1111)
        assert deployed(profile, None, "x/Llama-3.1-8B", "x/Llama-3.2-1B").size_ratio == pytest.approx(0.1111)
        assert deployed(BUILTIN["eagle"], None, "x/E-1B", "x/L-8B") is BUILTIN["eagle"]

    @pytest.mark.parametrize(
        ("method", "draft_model", "guess"),
        [
            ("ngram", "x/EAGLE3-y", "ngram"),
            ("", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "eagle3"),
            ("", "yuhuili/EAGLE-LLaMA3-Instruct-8B", "eagle"),
            ("", "[ngram]", "ngram"),
            ("", "meta-llama/Llama-3.2-1B", ""),
            ("", "", ""),
        ],
    )
    def test_the_method_by_the_drafters_name(self, method: str, draft_model: str, guess: str) -> None:
        """Where the method is left out vLLM goes by the name of the drafter, and so does the exporter."""
        assert guess_method(method, draft_model) == guess


GOOD: dict[str, Any] = {"target": {"fixed": 1.0}}


class TestFile:
    def test_all_that_can_be_said(self) -> None:
        """Every key of a profile is read."""
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
            target: {fixed: 10, per_token: 0.1, per_context_token: 1.0e-6}
            draft: {fixed: 1, per_position: 2, per_position_of_size: 4, per_token_of_size: 0.5}
        """
        (mine,) = parse_profiles(yaml.safe_load(text)).values()

        assert mine == CostProfile(
            name="mine",
            target=TargetCost(10, 0.1, 1e-6),
            draft=DraftCost(fixed=1, per_position=2, per_position_of_size=4, per_token_of_size=0.5),
            methods=("eagle", "medusa"),
            context_tokens=2000,
            size_ratio=0.5,
            typical_k=4,
            uncertainty=0.1,
            cheap=True,
            provenance="measured on the 3rd of May",
        )
        plain = 10 + 0.1 + 1e-6 * 2000
        for sized, per_position, per_token in ((fit(mine, None), 4.0, 0.25), (fit(mine, 0.25), 3.0, 0.125)):
            extra = 0.1 + 1 + per_position + per_token
            assert sized.step_cost(1, 1) == pytest.approx(1 + extra / plain)

    def test_an_exponent_without_a_point(self) -> None:
        """YAML takes 5e-6 for a text; it is a number all the same."""
        document = yaml.safe_load("profiles: {a: {target: {fixed: 1, per_context_token: 5e-6}}}")

        assert parse_profiles(document)["a"].target.per_context_token == 5e-6

    @pytest.mark.parametrize(
        "document",
        [None, [], "x", 5, {}, {"profiles": {}}, {"profiles": []}, {"profile": {}}, {"profiles": None}],
    )
    def test_no_mapping(self, document: object) -> None:
        """A file without profiles is refused with what is expected."""
        with pytest.raises(
            ProfileError, match=r"^a mapping with the one key profiles is expected, from names to profiles$"
        ):
            parse_profiles(document)

    def test_a_further_key_beside_profiles(self) -> None:
        """A misplaced key is no profile."""
        with pytest.raises(ProfileError, match=r"^a mapping with the one key profiles is expected"):
            parse_profiles({"profiles": {"a": GOOD}, "b": GOOD})

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            (None, "profile x: a mapping is expected; known keys: cheap, context_tokens, draft, "),
            ([], "profile x: a mapping is expected; known keys: "),
            ({}, "profile x: target is missing; its key fixed is the time of a step"),
            ({"target": {}}, "profile x: target.fixed is missing: the time of a step, whatever its batch"),
            ({"target": {"fixed": 0}}, "profile x: target.fixed is 0; allowed: above 0"),
            ({"target": {"fixed": -1}}, "profile x: target.fixed is -1; allowed: a number from 0 up"),
            (
                {"target": {"fixed": "fast"}},
                "profile x: target.fixed is 'fast'; allowed: a number from 0 up",
            ),
            ({"target": {"fixed": True}}, "profile x: target.fixed is True; allowed: a number from 0 up"),
            (
                {"target": {"fixed": float("nan")}},
                "profile x: target.fixed is nan; allowed: a number from 0 up",
            ),
            (
                {"target": {"fixed": float("inf")}},
                "profile x: target.fixed is inf; allowed: a number from 0 up",
            ),
            ({"target": {"fixd": 1}}, "profile x, target: no such key 'fixd'; did you mean fixed?"),
            ({"target": 5}, "profile x, target: a mapping is expected; known keys: fixed, "),
            (
                {**GOOD, "draft": {"per_positon": 1}},
                "profile x, draft: no such key 'per_positon'; did you mean per_position?",
            ),
            (
                {**GOOD, "draft": {"per_position": None}},
                "profile x: draft.per_position is None; allowed: a number from 0 up",
            ),
            ({**GOOD, "metods": []}, "profile x: no such key 'metods'; did you mean methods?"),
            ({**GOOD, "zzz": 1}, "profile x: no such key 'zzz'; known: cheap, context_tokens, "),
            ({**GOOD, "methods": "eagle"}, "profile x: methods is 'eagle'; allowed: a list of methods"),
            ({**GOOD, "methods": [5]}, "profile x: methods is [5]; allowed: a list of methods"),
            ({**GOOD, "cheap": "yes"}, "profile x: cheap is 'yes'; allowed: true or false"),
            ({**GOOD, "typical_k": 0}, "profile x: typical_k is 0; allowed: a whole number from 1 up"),
            ({**GOOD, "typical_k": 1.5}, "profile x: typical_k is 1.5; allowed: a whole number from 1 up"),
            ({**GOOD, "typical_k": True}, "profile x: typical_k is True; allowed: a whole number from 1 up"),
            ({**GOOD, "uncertainty": -0.1}, "profile x: uncertainty is -0.1; allowed: a number from 0 up"),
            ({**GOOD, "context_tokens": "many"}, "profile x: context_tokens is 'many'; allowed: a number "),
            ({**GOOD, "size_ratio": 1.5}, "profile x: size_ratio: a draft model's size over the target's "),
            ({**GOOD, "size_ratio": 0}, "profile x: size_ratio: a draft model's size over the target's "),
            ({**GOOD, "name": "y"}, "profile x: no such key 'name'; "),
        ],
        ids=str,
    )
    def test_what_cannot_be(self, entry: object, message: str) -> None:
        """Each mistake is one line that names profile, key and value, and says what is allowed."""
        with pytest.raises(ProfileError) as raised:
            parse_profiles({"profiles": {"x": entry}})

        assert str(raised.value).startswith(message)
        assert "\n" not in str(raised.value)

    def test_every_part_is_known(self) -> None:
        """No field of the model lacks its key in the file."""
        for part, model in (("target", TargetCost), ("draft", DraftCost)):
            entry: dict[str, Any] = {"target": {"fixed": 1.0}}
            entry[part] = {**entry.get(part, {}), **{f.name: 0.5 for f in fields(model)}}
            (found,) = parse_profiles({"profiles": {"x": entry}}).values()
            assert getattr(found, part) == model(**{f.name: 0.5 for f in fields(model)})
