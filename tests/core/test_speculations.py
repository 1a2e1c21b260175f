"""`--spec.config` of several models or servers, and one that does not fit."""

import re

import pytest
from msgspec.structs import replace

from core.test_pipeline import EASY
from golden.cases import drafted
from support.builders import process_reading
from vllm_specdec_exporter.economics.speculative_config import (
    Speculation,
    parse_speculation,
    parse_speculations,
)
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.observe.pipeline import (
    explained,
    judge_reading,
)
from vllm_specdec_exporter.observe.result import EngineResult, TargetResult
from vllm_specdec_exporter.observe.settings import Settings
from vllm_specdec_exporter.publish.events import changes

NGRAM = '{"method": "ngram", "num_speculative_tokens": 3}'
EAGLE = '{"method": "eagle3", "model": "a/draft", "num_speculative_tokens": 3}'


def test_a_map_is_by_model_or_target() -> None:
    """`*` is what is not named, and null is without speculation."""
    single = parse_speculations(NGRAM)
    assert (single.common, single.by_name) == (parse_speculation(NGRAM), {})
    several = parse_speculations(
        f'{{"a": {EAGLE}, "http://b:8000": null, "*": {NGRAM}}}'
    )
    assert several.common == parse_speculation(NGRAM)
    assert several.by_name == {
        "a": parse_speculation(EAGLE),
        "http://b:8000": Speculation(),
    }
    assert not parse_speculations(f'{{"a": {EAGLE}}}').common.configured


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"foo": 1}', "neither vLLM's configuration, with keys such as method"),
        ('{"a": {"method": "ngrm"}}', '"a": "ngrm" is not known to vLLM'),
        ('{"metod": "ngram"}', "did you mean method"),
        ("[]", "a JSON object is expected"),
    ],
)
def test_what_is_neither_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        parse_speculations(text)


def two_models(first: bytes, last: bytes) -> list[bytes]:
    """Texts of a server with two models that draft alike."""
    texts = []
    for body in (first, last):
        renamed = body.replace(b"Llama-3.3-70B", b"Other-70B")
        texts.append(
            body
            + b"".join(
                line + b"\n"
                for line in renamed.splitlines()
                if not line.startswith(b"#")
            )
        )
    return texts


def judged(
    settings: Settings, bodies: list[bytes], **beside: object
) -> tuple[EngineResult, ...]:
    states = {}
    results = ()
    for moment, body in enumerate(bodies):
        states, results = process_reading(
            states, read(body), 300.0 * moment, settings, **beside
        )
    return results


def names(engine: EngineResult) -> set[str]:
    return {finding.text.name.split(".")[1] for finding in engine.findings}


SHARES = (0.9, 0.7, 0.4)
TEXTS = two_models(drafted(1e3, 8, SHARES, 75.0), drafted(2e4, 8, SHARES, 1500.0))
COMMON = replace(
    EASY,
    slack=300.0,
    speculation=parse_speculation(EAGLE),
    unspecified=replace(EASY, slack=300.0),
)


def test_one_configuration_for_two_models_is_of_neither() -> None:
    """They are named, in the report and once in the log; the other models may be those
    of another server.
    """
    first, second = judged(COMMON, TEXTS)
    assert {first.deployment.method, second.deployment.method} == {""}
    for engine in (first, second):
        assert "one_for_several" in names(engine)
    unpolled = TargetResult(target="t", up=True)
    polled = replace(unpolled, engines=(first, second))
    messages = [event.message for event in changes(unpolled, polled, lambda e: e)]
    assert messages.count("configuration does not fit") == 1
    assert "configuration does not fit" not in [
        event.message for event in changes(polled, polled, lambda e: e)
    ]

    single = [drafted(1e3, 8, SHARES, 75.0), drafted(2e4, 8, SHARES, 1500.0)]
    (alone,) = judged(COMMON, single)
    (beside,) = judged(COMMON, single, models=("another",))
    assert (alone.deployment.method, beside.deployment.method) == ("eagle3", "")


def test_changes_are_seen_without_words() -> None:
    """Only engines that changed get words, and their lines are those of polls that all
    have them.
    """
    states = {}
    bare = full = TargetResult(target="t")
    logged = []
    for moment, body in enumerate((*TEXTS, TEXTS[1])):
        states, engines = judge_reading(states, read(body), 300.0 * moment, COMMON)
        results = tuple(engine.result for engine in engines)
        polled = replace(bare, up=True, engines=results)
        with_words = explained(polled, engines)
        words = dict(zip(results, with_words.engines, strict=True))
        events = list(changes(full, with_words, lambda engine: engine))
        assert list(changes(bare, polled, words.__getitem__)) == events
        logged.append([event.message for event in events])
        bare = polled
        full = with_words
    # The configuration does not fit from the first poll on, and verdicts follow.
    assert "configuration does not fit" in logged[0]
    assert "payoff" in logged[1]


def test_each_model_has_its_own_configuration() -> None:
    """By its served name; the costs follow the method."""
    (first,) = {engine.model_name for engine in judged(EASY, TEXTS[:1])} - {
        "meta-llama/Other-70B-Instruct"
    }
    named = replace(EASY, slack=300.0, speculation=parse_speculation(EAGLE))
    settings = replace(EASY, slack=300.0, by_name={first: named})
    methods = {
        engine.model_name: engine.deployment.method
        for engine in judged(settings, TEXTS)
    }
    assert methods.pop(first) == "eagle3"
    assert set(methods.values()) == {""}


def test_a_method_that_the_counters_contradict_is_a_finding() -> None:
    """A model drafts K tokens in each step, and what is looked up does not."""
    always = [drafted(1e3, 8, SHARES, 75.0), drafted(2e4, 8, SHARES, 1500.0)]
    for config, contradicted in ((NGRAM, True), (EAGLE, False)):
        settings = replace(EASY, slack=300.0, speculation=parse_speculation(config))
        (engine,) = judged(settings, always)
        assert ("not_looked_up" in names(engine)) is contradicted
