"""One engine is one engine: what separates the servers in one text, whoever merged
them.
"""

import re
from itertools import chain, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.builders import (
    DATA,
    counters,
    lines,
    processed,
    refusal,
    upstream,
    vllm_lines,
)
from support.copies import replace
from support.messages import name_of
from vllm_specdec_exporter.economics.speculative_config import Speculation
from vllm_specdec_exporter.engines import DIALECTS, ENGINE_OF, Unrecognized, read
from vllm_specdec_exporter.engines.reading import (
    Counters,
    EngineKey,
    EngineReading,
    Load,
)
from vllm_specdec_exporter.judgement.activity import ActivityState
from vllm_specdec_exporter.observe.settings import Settings

#: Whole answers, by name.
RECORDED = {
    path.name: path.read_bytes() for path in sorted((DATA / "upstream").glob("*.txt"))
}


def engine_name(answer: str) -> str:
    return ENGINE_OF[read(RECORDED[answer]).dialect].name


#: Answers of the same engine, which are harder to tell apart than any two.
PAIRS = [
    pair
    for pair in product(RECORDED, repeat=2)
    if engine_name(pair[0]) == engine_name(pair[1])
]
#: Labels that name parts of one engine in some dialect. Under these, engines cannot be
#: told apart.
PARTS = {"pid"}.union(*(dialect.parts.union(dialect.ranks) for dialect in DIALECTS))


def labelled(text: bytes, label: str, value: str) -> bytes:
    """A text whose samples all have one more label, as a gateway or Prometheus'
    /federate adds it.
    """
    pair = f'{label}="{value}"'.encode() if value else b""
    joined = []
    samples = re.findall(rb"(?m)^([^#\s{]+)(?:\{(.*)\})?( [^\n]*)$", text)
    for name, labels, end in samples:
        block = b",".join(filter(None, [labels, pair]))
        joined.append(b"%b{%b}%b\n" % (name, block, end))
    return b"".join(joined)


def values(*texts: bytes) -> list[EngineReading]:
    """Return the engines of these texts, by their values alone."""
    engines = []
    for text in texts:
        for engine in read(text, latencies=True).engines:
            engines.append(replace(engine, key=EngineKey()))  # noqa: PERF401
    return sorted(engines, key=repr)


@given(
    st.sampled_from(PAIRS) | st.tuples(*2 * [st.sampled_from(sorted(RECORDED))]),
    st.sampled_from(
        [
            "instance",
            "job",
            "stage",
            "position",
            "le",
            "category",
            "worker_addr",
            "engine",
        ]
    )
    | st.from_regex(r"\A[a-z_]{1,8}\Z").filter(lambda name: name not in PARTS),
    st.sampled_from(["", "a"]),
)
@example(("vllm-v0-k5.txt", "vllm-diffusion.txt"), "instance", "a")
@example(("sglang-k3.txt", "sglang-k3.txt"), "instance", "")
@example(("trtllm-k3.composed.txt", "trtllm-k3.composed.txt"), "category", "a")
def test_two_servers_in_one_text(pair: tuple[str, str], label: str, value: str) -> None:
    """Under whatever label two answers are merged: the engines of both, each as it is
    alone, or an error.
    """
    first, second = pair
    text = labelled(RECORDED[first], label, value)
    text += labelled(RECORDED[second], label, "b")
    try:
        together = values(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - either is right
        return
    assert together == values(RECORDED[first], RECORDED[second])


def test_what_prometheus_federates_are_as_many_engines_as_servers() -> None:
    """Ten pods of 60 requests are no batch of 600."""
    load = 'vllm:num_requests_running{engine="0"} 60'
    pod = lines(*vllm_lines(counters(100, [60, 40]), engine="0"), load)
    pods = b"".join(labelled(pod, "instance", f"10.0.0.{n}:8000") for n in range(10))
    engines = {
        engine.key: (engine.counters, engine.load) for engine in read(pods).engines
    }

    expected = (counters(100, [60, 40]), Load(60))
    assert engines == {
        EngineKey("", f"0,instance=10.0.0.{n}:8000"): expected for n in range(10)
    }


def test_the_stages_of_a_pipeline_are_engines() -> None:
    """vLLM-Omni has `stage` and `replica` for `engine`; one stage drafts."""
    drafting = lines(
        *vllm_lines(counters(100, [75, 45], generation=250), model_name="o")
    )
    text = labelled(drafting.replace(b'engine="0",', b""), "stage", "thinker") + lines(
        'vllm:generation_tokens_total{model_name="o",stage="talker"} 4000',
        'vllm:num_requests_running{model_name="o",stage="talker"} 16',
    )
    talker, thinker = read(text).engines
    settings = Settings(
        speculation=Speculation(configured=True, method="mtp", num_speculative_tokens=2)
    )
    stages = processed(((5.0 * n, read(text)) for n in range(3)), settings)[-1]
    states = [engine.activity.state for engine in stages]
    assert states == [ActivityState.OFF, ActivityState.IDLE]
    assert talker.key.engine == "stage=talker"
    assert talker.counters == Counters(generation_tokens=4000)
    assert thinker.key.engine == "stage=thinker"
    assert thinker.counters == counters(100, [75, 45], generation=250)


class TestSGLang:
    TEXT = upstream("sglang-k3.txt")

    def test_labels_of_requests_are_no_servers(self) -> None:
        """Clients may choose labels of requests.

        The series of the ranks have none of them.
        """
        names = rb"spec_verify_calls|generation_tokens|num_requests"
        text = re.sub(
            rb"(?m)^(sglang:(?:" + names + rb")_total\{)(.*)$",
            rb'\1tier="a",\2' + b"\n" + rb'\1tier="b",\2',
            self.TEXT,
        )
        (alone,) = read(self.TEXT).engines
        (engine,) = read(text).engines

        assert engine.key == alone.key
        assert engine.counters.drafts == 2 * alone.counters.drafts

    def test_a_type_of_engine_alone_does_not_separate(self) -> None:
        """A gateway of prefill and decode workers needs to say which series are of
        which worker.
        """
        prefill = self.TEXT.replace(b"unified", b"prefill")
        decode = self.TEXT.replace(b"unified", b"decode")

        assert "by engine_type alone" in refusal(Unrecognized, read, prefill + decode)
        apart = labelled(prefill, "worker_addr", "p")
        apart += labelled(decode, "worker_addr", "d")
        decoding, prefilling = read(apart).engines
        assert not decoding.uncounted
        assert "prefill worker" in prefilling.uncounted


@pytest.mark.parametrize(
    ("first", "second"),
    [("vllm-v0-k5.txt", "vllm-diffusion.txt"), ("lmdeploy-k3.txt", "llamacpp-k4.txt")],
)
def test_engines_of_two_kinds_are_refused(first: str, second: str) -> None:
    """Neither is dropped without a word."""
    kinds = sorted(read(upstream(name)).dialect for name in (first, second))
    merged = upstream(first) + upstream(second).replace(b"engine", b"e")
    assert refusal(Unrecognized, read, merged) == (
        f"several servers in one response ({', '.join(kinds)}): poll each of them "
        "itself"
    )


# num_requests_swapped is of a vLLM V0, likewise without a counter.
@pytest.mark.parametrize("more", ["", "vllm:num_requests_swapped"])
def test_without_a_count_of_tokens_nothing_is_said_to_be_off_or_idle(more: str) -> None:
    """production-stack's router has load gauges of its servers and no counter."""
    servers = [f'{{server="http://{name}:8000"}}' for name in "ab"]
    rows = [f"vllm:num_requests_running{server} 7" for server in servers]
    if more:
        rows += [f"{more}{server} 0" for server in servers]
    reading = read(lines(*rows))
    results = processed(((5.0 * n, reading) for n in range(3)), Settings())
    judged = [
        (engine.activity.state, name_of(engine.activity.reason), engine.load)
        for engine in chain.from_iterable(results)
    ]
    assert judged == [(None, "activity.generation_uncounted", Load(7))] * 6


def test_a_server_that_counts_tokens_alone_is_off() -> None:
    text = lines("vllm:generation_tokens_total 5")
    ((result,),) = processed([(5.0, read(text))], Settings())
    assert result.activity.state is ActivityState.OFF
