"""Single requests in a running exporter: what is known of them, what a reload changes,
and their options.
"""

import json
import logging
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from economics.servers import judged, settings_for
from per_request.exact import record, request
from support.builders import count, lines, refusal, vllm_lines
from support.faulty_server import FaultyServer, answer
from tap import streams
from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.config.values import Target, parse_target
from vllm_specdec_exporter.economics.profiles import for_method
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.observe.result import TargetResult
from vllm_specdec_exporter.observe.settings import Settings
from vllm_specdec_exporter.per_request.grouping import RequestSettings, TypeRule
from vllm_specdec_exporter.per_request.observation import RecordState, Source
from vllm_specdec_exporter.per_request.openai_api import RequestFields
from vllm_specdec_exporter.per_request.records import read_record
from vllm_specdec_exporter.per_request.summary import ModelRequests, RequestsResult
from vllm_specdec_exporter.serve.exporter import Exporter
from vllm_specdec_exporter.serve.request_intake import RequestIntake, batch_costs
from vllm_specdec_exporter.serve.tap.observer import Observer
from vllm_specdec_exporter.serve.tap.tap import Tap
from vllm_specdec_exporter.settings import configuration as config
from vllm_specdec_exporter.settings.configuration import ServeConfig
from vllm_specdec_exporter.settings.option_table import OPTIONS, parse_upstream
from vllm_specdec_exporter.settings.request_options import MAX_TENANTS

REFUSING = "http://127.0.0.1:1"
TAP = {"tap.listen-address": "127.0.0.1:0"}


@pytest.fixture
def token(tmp_path: Path) -> str:
    """A file with the token for pushes."""
    path = tmp_path / "token"
    path.write_text("secret\n")
    return str(path)


@dataclass
class Running:
    """An exporter whose clock and configuration the test sets; it polls on demand."""

    flags: dict[str, Any]
    clock: float = 1_000.0

    def __post_init__(self) -> None:
        self.flags = {"vllm.url": [REFUSING], **self.flags}
        self.exporter = Exporter(
            lambda: config.load(self.flags, {}),
            clock=lambda: self.clock,
            wall=lambda: 0.0,
        )

    @property
    def known(self) -> RequestsResult:
        return self.exporter.latest().requests

    @property
    def model(self) -> ModelRequests:
        (model,) = self.known.models
        return model

    def begin_tap(self) -> Tap:
        """Let the tap, which listens nowhere yet, tell of what passes it."""
        tap = Tap(self.exporter.config.tap)
        self.exporter.requests.attach_tap(tap)
        return tap

    def observe(self, *accepted: int, **more: Any) -> None:
        for each in accepted:
            self.exporter.requests.observe(Source.PUSH, request(each, **more))

    async def reload(self, **changes: Any) -> None:
        self.flags |= {
            name.replace("__", ".").replace("_", "-"): value
            for name, value in changes.items()
        }
        try:
            await self.exporter.reload()
        finally:
            await self.exporter.stop()


def passes(tap: Tap, **headers: str) -> None:
    """Let a chat pass the tap."""
    observer = Observer(tap._context)
    observer.from_client(streams.request(streams.chat_request(), **headers))
    observer.from_server(streams.answer(streams.chat_answer()))


class TestSources:
    @pytest.mark.parametrize("sources", [["tap"], ["push"], ["push", "tap"]], ids=str)
    def test_each_source_begins_with_zeros(
        self, token: str, sources: list[str]
    ) -> None:
        """Every configured source is published from the beginning, with zeros."""
        flags = {}
        if "tap" in sources:
            flags |= TAP
        if "push" in sources:
            flags |= {"push.bearer-token-file": token}
        requests = Running(flags).known
        counts = [(o.source, o.record, o.requests) for o in requests.observations]
        assert counts == [*product(sources, sorted(RecordState), [0])]
        assert requests.groups == ()
        assert requests.models == ()
        assert requests.tap is None

    def test_the_tap(self) -> None:
        """Its own numbers are published once it is there, and what passes it is counted
        as its.
        """
        running = Running(TAP)
        tap = running.begin_tap()
        passes(tap)

        assert running.known.tap == tap.result()
        [counted] = [o for o in running.known.observations if o.requests]
        assert counted.source == "tap"
        assert counted.record == "detailed"


class TestReload:
    async def test_what_the_tap_classifies_by(self) -> None:
        """The tap goes on, with the new rules."""
        running = Running(TAP)
        tap = running.begin_tap()
        passes(tap, X_Kind="rag")
        await running.reload(requests__type_header="X-Kind")
        passes(tap, X_Kind="rag")

        assert [group.request_type for group in running.known.groups] == ["rag"]
        assert [group.request_type for group in running.model.groups] == ["rag"]

    async def test_a_source_takes_a_restart(self, token: str) -> None:
        """A token that comes with a reload is not taken, and nothing is said of pushes
        that cannot be.
        """
        running = Running({})
        await running.reload(push__bearer_token_file=token)
        assert running.exporter.latest().requests is None

        running = Running(TAP)
        await running.reload(push__bearer_token_file=token)
        assert {o.source for o in running.known.observations} == {"tap"}


def test_load_of_each_model() -> None:
    """The mean batch of the judged window, by the first engine that shows one, and the
    profile in force.
    """
    settings = settings_for(for_method("eagle3"), "eagle3", 3)
    quiet, busy, busier = (
        judged(settings, (3_000.0, 2_000.0, 1_000.0), 4_000.0, batch=batch)
        for batch in (None, 8.0, 64.0)
    )
    targets = [
        TargetResult("a", engines=(quiet,)),
        TargetResult("b", engines=(busy, busier)),
    ]

    assert (
        batch_costs(targets[:1], settings)
        == batch_costs([TargetResult("down")], settings)
        == {}
    )
    costs = batch_costs(targets, settings)
    assert {model: load.batch_size for model, load in costs.items()} == {"m": 8.0}
    # vLLM drafts ahead, which its engine says and no flag.
    assert costs["m"].profile == replace(settings.costs.profile, drafts_ahead=True)


def test_one_speculative_config_for_several_models_prices_none() -> None:
    """As for the judgement: of which model it is cannot be known."""
    settings = settings_for(for_method("eagle3"), "eagle3", 3)
    settings = replace(settings, unspecified=Settings())
    busy = judged(settings, (3_000.0, 2_000.0, 1_000.0), 4_000.0, batch=8.0)
    one = TargetResult("a", engines=(busy,))
    other = TargetResult("b", engines=(replace(busy, model_name="other"),))

    specified = batch_costs([one], settings)["m"]
    assert batch_costs([one, other], settings)["m"] != specified
    assert batch_costs([one, other], settings) == batch_costs(
        [one, other], settings.unspecified
    )


#: SGLang's records have the configured number of drafted tokens, whatever was drafted;
#: the poll knows it.
COUNTS = {
    "spec_verify_ct": 10,
    "spec_num_correct_drafts": 20,
    "spec_num_proposed_drafts": 30,
    "spec_correct_drafts_histogram": [1, 1, 5, 3],
}


def sglang(steps: int, tokens: int) -> bytes:
    rank = '{model_name="m",tp_rank="0",pp_rank="0"}'
    # 31 tokens: one of the prefill, 10 of the steps and 20 accepted ones
    counters = """\
sglang:generation_tokens_total{model_name="m"} 31
sglang:num_requests_total{model_name="m"} 1
sglang:spec_verify_calls_total{model_name="m"} 10"""
    return lines(
        f"sglang:spec_num_steps{rank} {steps}",
        f"sglang:spec_num_draft_tokens{rank} {tokens}",
        counters,
    )


@pytest.mark.parametrize(
    ("polls", "believed"),
    [
        pytest.param([(3, 4)], True, id="a chain"),
        pytest.param([(2, 4)], False, id="a tree"),
        pytest.param([(1, 2)], False, id="another K than configured"),
        pytest.param([(1, 2), (3, 4)], False, id="K changes"),
        pytest.param([], False, id="not polled yet"),
    ],
)
async def test_drafted_tokens_of_sglang_are_believed_if_the_poll_agrees(
    polls: list[tuple[int, int]], believed: bool, token: str
) -> None:
    running = Running({"push.bearer-token-file": token})
    with FaultyServer(answer(b"")) as server:
        await running.reload(vllm__url=[server.url])
        (poller,) = running.exporter._pollers
        for poll in polls:
            running.clock += 5
            server.behaviour = answer(sglang(*poll))
            await poller.poll()
        record = read_record(COUNTS)
        for name in ("m", "an adapter"):
            running.observe(0, record=record, model_name=name)
        running.observe(
            0,
            record=replace(record, configured_k=False),
            model_name="of vLLM beside it",
        )
        server.behaviour = answer(b"nothing")
        running.clock += 5
        # What was known while the server answered still holds.
        await poller.poll()
        running.observe(0, record=read_record(COUNTS))
        await poller.close()
    counted = {
        observation.record: observation.requests
        for observation in running.known.observations
        if observation.requests
    }
    assert counted == ({"detailed": 4} if believed else {"none": 3, "detailed": 1})


#: Half of the drafts hold one token; of the others only two of four are worth anything.
DRAFTS = (*[(1, 1)] * 700, *[(1, 0)] * 300, *[(4, 2)] * 900, *[(4, 0)] * 100)


@pytest.mark.parametrize("observed", [20, 0])
async def test_advice_comes_from_records(observed: int, token: str) -> None:
    """They make advice possible where drafts vary; without them it is said what is
    missing.
    """
    running = Running(
        {"push.bearer-token-file": token, "cost.profile": "chinchilla-70b-draft-4b"}
    )
    load = 'vllm:num_requests_running{model_name="m",engine="0"} 8'

    def text(drafts: tuple[tuple[int, int], ...]) -> bytes:
        return lines(*vllm_lines(count(drafts, 4), model_name="m", engine="0"), load)

    with FaultyServer(answer(text(()))) as server:
        await running.reload(vllm__url=[server.url])
        (poller,) = running.exporter._pollers
        await poller.poll()
        for step in range(observed):
            running.observe(0, record=record(DRAFTS[step::observed]))
        running.clock += 300
        server.behaviour = answer(text(DRAFTS))
        await poller.poll()
        await poller.close()
    (engine,) = running.exporter.latest().targets[0].engines
    if observed:
        assert engine.advice.action == Action.DECREASE_K
        assert engine.advice.num_speculative_tokens == 2
    else:
        assert engine.advice.action is Action.INSUFFICIENT_DATA
        assert (
            "detailed records of the requests would (docs/requests.md)"
            in engine.advice.reason
        )


# --- options. Where values come from: tests/core/test_options.py


OURS = [
    option
    for option in OPTIONS
    if option.name.startswith(("tap.", "push.", "requests."))
]
#: Every option with a value, where the configuration has it, and as what.
FORMS = [
    ("tap.listen-address", "127.0.0.1:0", "tap.listen", ("127.0.0.1", 0)),
    ("tap.upstream", "https://b:2", "tap.upstream", Target("https://b:2/metrics")),
    ("tap.drain-timeout", "1m", "tap.drain_seconds", 60.0),
    ("requests.window", "1h", "requests.window_seconds", 3600.0),
    (
        "requests.temperature-bound",
        ["0", "0.3"],
        "requests.temperatures.bounds",
        (0.0, 0.3),
    ),
    ("requests.default-temperature", "0.7", "requests.temperatures.default", 0.7),
    ("requests.type-header", "X-Kind", "requests.classification.type_header", "x-kind"),
    (
        "requests.type",
        ["code=model:*coder*", "a=header.X-Q:b, c"],
        "requests.classification.rules",
        (TypeRule("code", "model", "*coder*"), TypeRule("a", "header.x-q", "b, c")),
    ),
    (
        "requests.tenant-header",
        "X-Tenant",
        "requests.classification.tenant_header",
        "x-tenant",
    ),
    (
        "requests.tenant",
        ["a", " b "],
        "requests.classification.tenants",
        frozenset({"a", "b"}),
    ),
]
#: Options that are looked at only with another one.
WITH = {
    "tap.listen-address": ":0",
    "requests.tenant-header": "X-Tenant",
    "requests.tenant": ["acme"],
}


def test_options_reach_the_configuration(token: str) -> None:
    """Each one, the files included; without any there is no tap and no push, and groups
    are the package's.
    """
    nothing = load({})
    assert nothing.tap is None
    assert nothing.push_token_file == ""
    assert nothing.requests == RequestSettings()
    for name, value, attribute, expected in FORMS:
        assert attrgetter(attribute)(load({**WITH, name: value})) == expected, name
    assert load({"push.bearer-token-file": token}).push_token_file == token
    tested = {name for name, *_ in FORMS} | {"push.bearer-token-file"}
    assert {option.name for option in OURS} == tested


#: What is refused, and what may stand beside each other.
TABLES = yaml.safe_load(Path(__file__).with_name("options.yml").read_text("utf-8"))
TENANTS = [f"t{number}" for number in range(MAX_TENANTS)]
BOUNDS = [str(number) for number in range(41)]
#: One more than there may be of a list.
TOO_MANY = [
    (
        {"requests.temperature-bound": BOUNDS},
        "--requests.temperature-bound: 41 bounds; allowed: up to 40",
    ),
    (
        {"requests.tenant": [*TENANTS, "more"], "requests.tenant-header": "X-Tenant"},
        "--requests.tenant: 101 tenants; allowed: up to 100",
    ),
]


class TestErrors:
    @pytest.mark.parametrize(("name", "texts", "why"), TABLES["wrong"])
    def test_of_one_value(self, name: str, texts: list[str], why: str) -> None:
        """Each names the option, the value, and what is allowed."""
        [option] = [option for option in OURS if option.name == name]
        wrong = {}
        for text in texts:
            value = [text] if option.repeatable else text
            message = refusal(ConfigError, load, {name: value})
            if not message.startswith(f"--{name} {json.dumps(text)}: {why}"):
                wrong[text] = message
        assert wrong == {}

    def test_of_values_that_do_not_go_together(self) -> None:
        """Each names the options to change; a password is not repeated, and no list is
        no list of bounds.
        """
        for flags, message in (*TABLES["together"], *TOO_MANY):
            assert message in refusal(ConfigError, load, flags), flags
        none = {"VLLM_SPECDEC_EXPORTER_REQUESTS_TEMPERATURE_BOUND": ","}
        assert "--requests.temperature-bound []: at least one bound" in refusal(
            ConfigError, load, {}, none
        )

    def test_what_is_just_allowed(self, token: str) -> None:
        """A hundred tenants, one of them twice; forty bounds; several servers where the
        tap knows which. The only one is that of the tap.
        """
        for flags in TABLES["apart"]:
            assert load(flags).tap is not None, flags
        (polled,) = load({**TAP, "vllm.url": ["http://a:1"]}).upstream.targets
        assert load({**TAP, "vllm.url": ["http://a:1"]}).tap.upstream == polled
        loaded = load(
            {
                **TAP,
                "vllm.url": ["http://a:1", "http://b:1"],
                "tap.upstream": "http://b:1",
                "requests.tenant": [*TENANTS, "t0"],
                "push.bearer-token-file": token,
                "requests.temperature-bound": BOUNDS[:40],
            }
        )
        assert loaded.requests.classification.tenants == frozenset(TENANTS)
        assert loaded.requests.temperatures.bounds == tuple(map(float, BOUNDS[:40]))


@pytest.mark.parametrize(
    "address",
    ["http://metrics:8000", "http://metrics.llm.svc:8000", "unix:/run/metrics/a.sock"],
)
def test_metrics_in_the_name_of_the_server_is_no_path(address: str) -> None:
    assert parse_upstream(address) == parse_target(address)


@pytest.mark.parametrize(
    "address",
    [
        "http://metrics:8000/metrics",
        "http://a:1?x=/metrics",
        "unix:/metrics.sock:/metrics",
        "unix:/a.sock:?x=/metrics",
    ],
)
def test_the_default_path_is_a_path_if_it_is_given(address: str) -> None:
    assert "without path" in refusal(ValueError, parse_upstream, address)


# --- options that follow others, and empty ones


VARIABLE = "VLLM_SPECDEC_EXPORTER_REQUESTS_TYPE_HEADER"
CHATS = "/v1/chat/completions"


def load(
    flags: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    file: str = "",
) -> ServeConfig:
    return config.load(flags or {}, environment or {}, file)


def written(path: Path, document: object) -> str:
    file = path / "config.yml"
    file.write_text(yaml.safe_dump(document))
    return str(file)


def test_no_type_header(tmp_path: Path) -> None:
    """An empty one, unlike other empty settings, says that clients name no types: the
    route is the type.

    A flag beats the environment, which beats the file. Rules still match, also on that
    header.
    """

    def kind(config: ServeConfig) -> str:
        return config.requests.classification.type_of(
            CHATS, {"x-request-type": "ada"}, RequestFields()
        )

    named = {"requests.type-header": "X-Request-Type"}
    assert kind(load()) == "ada"
    for text in ("", " "):
        assert kind(load({"requests.type-header": text})) == "chat", text
    assert kind(load({}, {VARIABLE: ""})) == "chat"
    assert kind(load(named, {VARIABLE: ""})) == "ada"
    for value in ("", None):
        file = written(tmp_path, {"requests": {"type_header": value, "window": None}})
        assert kind(load({}, {}, file)) == "chat", value
        assert kind(load({}, {VARIABLE: "X-Request-Type"}, file)) == "ada", value
        # an empty window is the default, as with every other option
        loaded = load({}, {"VLLM_SPECDEC_EXPORTER_REQUESTS_WINDOW": ""}, file)
        assert loaded.requests.window_seconds == 1800, value
    loaded = load(
        {"requests.type-header": "", "requests.type": ["mine=header.x-request-type:a*"]}
    )
    assert kind(loaded) == "mine"
    assert loaded.shown["requests.type_header"] == ""


class TestWithoutEffect:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("upstream", "http://127.0.0.1:8001"),
            ("drain-timeout", "10s"),
        ],
    )
    def test_of_a_tap_that_is_not_there(
        self, tmp_path: Path, name: str, value: str
    ) -> None:
        """By flag or in the file, the error names the option that is missing."""
        needed = f"--tap.{name} needs --tap.listen-address"
        file = written(tmp_path, {"tap": {name.replace("-", "_"): value}})
        by_flag = refusal(ConfigError, load, {f"tap.{name}": value})
        assert by_flag.startswith(needed)
        assert refusal(ConfigError, lambda: load(file=file)) == by_flag

    def test_of_a_default_for_a_tap_that_is_not_there(self) -> None:
        assert load({"tap.drain-timeout": "25s"}).tap is None

    def test_a_header_for_no_tenant(self) -> None:
        """All tenants would be one."""
        header = {"requests.tenant-header": "X-Team"}
        message = refusal(ConfigError, load, header)
        assert message.startswith("--requests.tenant-header needs --requests.tenant: ")
        named = load(header | {"requests.tenant": ["a"]})
        assert named.requests.classification.tenants == {"a"}


def test_the_log_tells_once_of_each_kind_of_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However many requests come with names for which there is no room, also after a
    reload.
    """
    intake = RequestIntake(load({"push.bearer-token-file": __file__}), lambda: 0.0)
    with caplog.at_level(logging.WARNING):
        for number in range(50):
            intake.observe(Source.PUSH, request(82, request_type=f"t{number}"))
        intake.use(load({"push.bearer-token-file": __file__}))
        for number in range(50):
            both = request(82, request_type=f"t{number}", model_name=f"m{number}")
            intake.observe(Source.PUSH, both)
    lines = [(line.message, vars(line)["fields"]) for line in caplog.records]

    assert lines == [
        ("label limit reached", {"label": "type"}),
        ("label limit reached", {"label": "model"}),
    ]


class TestZones:
    NGRAM = '{"method": "ngram", "num_speculative_tokens": 4}'

    def limit(self, *thresholds: tuple[str, float], **flags: str) -> float:
        """The limit of P10 in force, which is published."""
        texts = {
            "threshold": [f"{name}={value}" for name, value in thresholds],
            **flags,
        }
        return load(texts).settings.thresholds.poor_request_acceptance_ratio

    def test_it_follows_the_zone_of_losing(self) -> None:
        """The published limit; that of the zone that the operator sets; its own where
        it is set too.
        """
        below = ("disable_acceptance_ratio", 0.3)

        assert self.limit() == 0.5
        assert self.limit(below) == 0.3
        assert self.limit(("break_even_acceptance_ratio", 0.8)) == 0.5
        # 0.5 is the default, which counts as set where it is written
        for value in (0.2, 0.5):
            own_limit = ("poor_request_acceptance_ratio", value)
            assert self.limit(below, own_limit) == value, value
            assert self.limit(own_limit, below) == value, value

    def test_of_a_cheap_drafter(self) -> None:
        """There it comes from the break-even point, as the zone does, and follows that
        of the operator.
        """
        cheap = load({"spec.config": self.NGRAM}).settings.thresholds

        assert (
            cheap.poor_request_acceptance_ratio == cheap.disable_acceptance_ratio < 0.3
        )
        spec = {"spec.config": self.NGRAM}
        assert self.limit(("disable_acceptance_ratio", 0.01), **spec) == 0.01
