from collections.abc import Callable

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_classic

from vllm_specdec_exporter.simulator import DIALECTS, Simulation, SimulationConfig

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]

CLASSIC = ("vllm", "vllm-multiproc", "vllm-v0", "lmdeploy", "llamacpp")
DRAFTS = "spec_decode_num_drafts_total"


def simulate(seconds: float = 20, **settings: object) -> Simulation:
    simulation = Simulation(SimulationConfig(**settings), seed=3)  # type: ignore[arg-type]
    simulation.advance(seconds)
    return simulation


@pytest.mark.parametrize("dialect", CLASSIC)
@pytest.mark.parametrize("k", [0, 3])
def test_classic_parser_accepts(dialect: str, k: int) -> None:
    body = simulate(num_speculative_tokens=k, engines=2).render(dialect).decode()
    families = list(parse_classic(body))
    assert {family.type for family in families} <= {"counter", "gauge", "histogram", "summary"}
    assert not body.endswith("# EOF\n")


@pytest.mark.parametrize("k", [0, 3])
def test_openmetrics_parser_accepts_the_rust_front_end(k: int) -> None:
    body = simulate(num_speculative_tokens=k, engines=2).render("vllm-rust").decode()
    families = {family.name: family for family in parse_openmetrics(body)}  # type: ignore[no-untyped-call]
    drafts = families["vllm:spec_decode_num_drafts"]
    assert drafts.type == "counter"
    assert [sample.name for sample in drafts.samples] == [f"vllm:{DRAFTS}"] * 2
    assert DIALECTS["vllm-rust"].content_type.startswith("application/openmetrics-text;")


def test_underscore_answers_break_the_openmetrics_parser_as_real_ones_do(
    read_data: Callable[[str], str],
) -> None:
    """Their samples do not belong to their families any more: no parser can know the types."""
    real = read_data("captures/rendered/vllm-0.32.0-1engine-k3.classic.txt.om-underscores.gz")
    for text in (real, simulate().render("vllm-underscore").decode()):
        with pytest.raises(ValueError, match="Clashing name: vllm_spec_decode_num_accepted"):
            list(parse_openmetrics(text))  # type: ignore[no-untyped-call]
        names = {sample.name for family in parse_classic(text) for sample in family.samples}
        assert f"vllm_{DRAFTS}" in names
        assert "# TYPE vllm:spec_decode_num_drafts counter" in text


def test_rust_front_end_peculiarities() -> None:
    lines = simulate().render("vllm-rust").decode().splitlines()
    label = 'model_name="meta-llama/Llama-3.1-8B-Instruct",engine="0"'
    assert "# HELP vllm:spec_decode_num_drafts Number of spec decoding drafts.." in lines
    value = next(line for line in lines if line.startswith(f"vllm:{DRAFTS}{{{label}}} "))
    assert value.split()[-1].isdigit()
    assert any(line.startswith(f'vllm:iteration_tokens_total_bucket{{le="1.0",{label}}}') for line in lines)
    assert lines[-1] == "# EOF"
    assert not any("_created" in line or line.startswith("process_") for line in lines)
    assert not any("cache_config_info" in line for line in lines)


def test_rust_front_end_has_zeros_without_speculation_and_positions_with_the_first_draft() -> None:
    for simulation in (simulate(num_speculative_tokens=0), simulate(seconds=0)):
        lines = simulation.render("vllm-rust").decode().splitlines()
        counters = [line for line in lines if line.startswith("vllm:spec_decode") and "_per_pos" not in line]
        assert len(counters) == 3
        assert all(line.endswith(" 0") for line in counters)
        assert not any(line.startswith("vllm:spec_decode") and "_per_pos" in line for line in lines)


@pytest.mark.parametrize(
    ("dialect", "fixture", "k"),
    [
        ("vllm-rust", "vllm-rust-k3.openmetrics.txt", 3),
        ("vllm-rust", "vllm-rust-nospec.openmetrics.txt", 0),
        ("vllm-v0", "vllm-v0-k5.txt", 5),
        ("lmdeploy", "lmdeploy-k3.txt", 3),
        ("lmdeploy", "lmdeploy-nospec.txt", 0),
        ("llamacpp", "llamacpp-k4.txt", 4),
        ("llamacpp", "llamacpp-nospec.txt", 0),
    ],
)
def test_families_are_those_of_the_server(
    dialect: str, fixture: str, k: int, read_data: Callable[[str], str]
) -> None:
    """What a server has for features that are off may be missing; nothing may be invented."""
    real = read_data(f"upstream/{fixture}").splitlines()
    text = simulate(num_speculative_tokens=k).render(dialect).decode()
    real_headers = [line for line in real if line.startswith(("# HELP", "# TYPE"))]
    headers = [line for line in text.splitlines() if line.startswith(("# HELP", "# TYPE"))]
    positions = [real_headers.index(header) for header in headers]
    assert positions == sorted(positions)
    spec = [line for line in real_headers if "spec_decode" in line]
    assert [line for line in headers if "spec_decode" in line] == spec

    def series(lines: list[str]) -> set[str]:
        names = {line.partition("{")[0].partition(" ")[0] for line in lines}
        return {name for name in names if "spec_decode" in name}

    assert series(text.splitlines()) == series(real)


def test_v0_counters_are_sums_of_running_totals(parse: Callable[[bytes], Samples]) -> None:
    simulation = simulate(seconds=4.5)
    model = (("model_name", simulation.config.models[0]),)
    names = [f"vllm:spec_decode_num_{kind}_tokens_total" for kind in ("draft", "emitted")]
    published = dict.fromkeys(names, 0.0)
    for _ in range(6):
        before = simulation.truth
        simulation.advance(1)  # the moment of the sample lies within
        after = simulation.truth
        samples = parse(simulation.render("vllm-v0"))
        added = [samples[(name, model)] - published[name] for name in names]
        published = {name: samples[(name, model)] for name in names}
        assert before.draft_tokens <= added[0] <= after.draft_tokens
        assert before.accepted_tokens + before.drafts <= added[1]
        assert added[1] <= after.accepted_tokens + after.drafts
        simulation.advance(4)
    efficiency = samples[("vllm:spec_decode_efficiency", model)]
    truth = simulation.truth
    assert efficiency == pytest.approx((truth.accepted_tokens + truth.drafts) / (5 * truth.drafts), rel=0.02)
    rate = samples[("vllm:spec_decode_draft_acceptance_rate", model)]
    # Tokens after a rejection count here, too.
    assert rate > truth.accepted_tokens / truth.draft_tokens + 0.05


def test_v0_adds_engines_up_and_has_no_engine_label(parse: Callable[[bytes], Samples]) -> None:
    simulation = simulate(engines=3)
    samples = parse(simulation.render("vllm-v0"))
    model = simulation.config.models[0]
    total = samples[("vllm:generation_tokens_total", (("model_name", model),))]
    assert total == simulation.truth.generation_tokens
    assert not any(name == "engine" for _, labels in samples for name, _ in labels)


def test_llamacpp_has_no_labels_and_six_digits(parse: Callable[[bytes], Samples]) -> None:
    simulation = simulate(seconds=400, engines=2, models=("a", "b"))
    body = simulation.render("llamacpp")
    samples = parse(body)
    assert {name for _, labels in samples for name, _ in labels} == {"position"}
    drafted = next(
        line
        for line in body.decode().splitlines()
        if line.startswith("llamacpp:spec_decode_num_draft_tokens_total ")
    )
    assert "e+06" in drafted
    shown = samples[("llamacpp:spec_decode_num_draft_tokens_total", ())]
    assert shown == pytest.approx(simulation.truth.draft_tokens, rel=0.01)


def test_lmdeploy_gauges_are_lifetime_means(parse: Callable[[bytes], Samples]) -> None:
    simulation = simulate(seconds=30)
    simulation.set_phase("collapse")
    simulation.advance(30)
    truth = simulation.truth
    samples = parse(simulation.render("lmdeploy"))
    owner = (("engine", "0"), ("model_name", simulation.config.models[0]))
    assert samples[("lmdeploy:spec_decode_mean_accept_length", owner)] == pytest.approx(
        1 + truth.accepted_tokens / truth.drafts
    )
    assert samples[("lmdeploy:spec_decode_mean_accept_rate", owner)] == pytest.approx(
        truth.accepted_tokens / truth.draft_tokens
    )


# The counters of V0 are sums of running totals, those of llama.cpp are rounded.
@pytest.mark.parametrize("dialect", sorted(set(DIALECTS) - {"vllm-v0", "llamacpp"}))
def test_published_counters_are_the_truth(dialect: str, parse: Callable[[bytes], Samples]) -> None:
    simulation = simulate(engines=2, models=("a", "b"))
    samples = parse(simulation.render(dialect))

    def total(suffix: str, **labels: str) -> float:
        return sum(
            value
            for (name, found), value in samples.items()
            if name.endswith(suffix) and labels.items() <= dict(found).items()
        )

    truth = simulation.truth
    assert total(DRAFTS) == truth.drafts
    assert total("spec_decode_num_draft_tokens_total") == truth.draft_tokens
    assert total("spec_decode_num_accepted_tokens_total") == truth.accepted_tokens
    assert total("generation_tokens_total") == truth.generation_tokens
    for position, accepted in enumerate(truth.accepted_per_position):
        suffix = "spec_decode_num_accepted_tokens_per_pos_total"
        assert total(suffix, position=str(position)) == accepted
    each = [total(DRAFTS, model_name=model, engine=engine) for model in "ab" for engine in "01"]
    assert sum(each) == truth.drafts
    assert min(each) > 0


def test_model_names_are_escaped(parse: Callable[[bytes], Samples]) -> None:
    simulation = simulate(models=('a"b\\c\nd',))
    families = parse_classic(simulation.render().decode())
    labels = {
        sample.labels["model_name"]
        for family in families
        for sample in family.samples
        if "model_name" in sample.labels
    }
    assert labels == {'a"b\\c\nd'}
