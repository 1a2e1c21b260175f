"""Single requests in a running exporter: what is known of them, what a reload changes, and their options."""

import json
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from economics.servers import judged, settings_for
from per_request.exact import record, request
from support.builders import count, lines, refusal, vllm_lines
from support.certificates import Authority
from support.faulty_server import FaultyServer, answer
from tap import streams
from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.config.values import Target
from vllm_specdec_exporter.economics import for_method
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.observe.result import TargetResult
from vllm_specdec_exporter.per_request.engine_records import read_record
from vllm_specdec_exporter.per_request.grouping import RequestSettings, TypeRule
from vllm_specdec_exporter.per_request.observation import RecordState, Source
from vllm_specdec_exporter.per_request.summary import ModelRequests, RequestsResult
from vllm_specdec_exporter.serve import configuration as config
from vllm_specdec_exporter.serve.configuration import ServeConfig
from vllm_specdec_exporter.serve.exporter import Exporter
from vllm_specdec_exporter.serve.request_intake import batch_costs
from vllm_specdec_exporter.serve.request_options import MAX_TENANTS, REQUEST_OPTIONS
from vllm_specdec_exporter.serve.tap.observer import Observer
from vllm_specdec_exporter.serve.tap.tap import Tap

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
    """An exporter whose clock and configuration the test turns; it polls when told to."""

    flags: dict[str, Any]
    now: float = 1_000.0

    def __post_init__(self) -> None:
        self.flags = {"vllm.url": [REFUSING], **self.flags}
        self.exporter = Exporter(
            lambda: config.load(self.flags, {}), clock=lambda: self.now, wall=lambda: 0.0
        )

    @property
    def known(self) -> RequestsResult:
        found = self.exporter.latest().requests
        assert found is not None
        return found

    @property
    def model(self) -> ModelRequests:
        (model,) = self.known.models
        return model

    def begin_tap(self) -> Tap:
        """Let the tap, which listens nowhere yet, tell of what passes it."""
        assert self.exporter.config.tap is not None
        tap = Tap(self.exporter.config.tap)
        self.exporter.requests.attach_tap(tap)
        return tap

    def observe(self, *accepted: int, **more: Any) -> None:
        for each in accepted:
            self.exporter.requests.observe(Source.PUSH, request(each, **more))

    async def reload(self, **changes: Any) -> None:
        self.flags |= {name.replace("__", ".").replace("_", "-"): value for name, value in changes.items()}
        try:
            await self.exporter.reload()
        finally:
            await self.exporter.stop()


def passes(tap: Tap, **headers: str) -> None:
    """Let a chat pass the tap."""
    observer = Observer(tap._context)
    observer.from_client(streams.request(streams.chat_request(), **headers))
    observer.from_server(streams.answer(streams.chat_answer()))


class TestWhoTells:
    def test_somebody(self, token: str) -> None:
        """Whoever may tell is there from the beginning, with zeros."""
        push = {"push.bearer-token-file": token}
        for flags, sources in ((TAP, ["tap"]), (push, ["push"]), ({**TAP, **push}, ["push", "tap"])):
            known = Running(flags).known
            assert [(o.source, o.record, o.requests) for o in known.observations] == [
                (source, state, 0) for source in sources for state in sorted(RecordState)
            ]
            assert (known.groups, known.models, known.tap) == ((), (), None)

    def test_the_tap(self) -> None:
        """Its own numbers are published once it is there, and what passes it is counted as its."""
        running = Running(TAP)
        tap = running.begin_tap()
        passes(tap)

        assert running.known.tap == tap.result()
        assert [(o.source, o.record) for o in running.known.observations if o.requests] == [
            ("tap", "detailed")
        ]


class TestReload:
    async def test_other_buckets_of_temperature_zones_and_tenants(self, token: str) -> None:
        """Requests are grouped and judged by them; the counts of groups and tenants start anew."""
        running = Running({"push.bearer-token-file": token, "requests.tenant": ["acme"]})
        running.observe(38, temperature=0.6, tenant="acme")
        changes: dict[str, Any] = {"threshold": ["disable_acceptance_ratio=0.3"]}
        changes |= {"requests__temperature_bound": ["0.65"], "requests__tenant": ["globex"]}
        await running.reload(**changes)
        running.observe(38, 38, temperature=0.6, tenant="acme")

        assert {group.temperature: group.outcomes for group in running.known.groups} == {
            "0-0.65": {"loses": 0, "break_even": 2, "gains": 0},
        }
        assert [group.temperature for group in running.model.groups] == ["0-0.65"]
        assert {t.tenant: sum(t.outcomes.values()) for t in running.known.tenants} == {"other": 2}

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
        """A token that comes with a reload is not taken, and nothing is said of pushes that cannot be."""
        running = Running({})
        await running.reload(push__bearer_token_file=token)
        assert running.exporter.latest().requests is None

        running = Running(TAP)
        await running.reload(push__bearer_token_file=token)
        assert {o.source for o in running.known.observations} == {"tap"}


def test_load_of_each_model() -> None:
    """The mean batch of the judged window, by the first engine that shows one, and the profile in force."""
    settings = settings_for(for_method("eagle3"), "eagle3", 3)
    quiet, busy, busier = (
        judged(settings, (3_000.0, 2_000.0, 1_000.0), 4_000.0, batch=batch)  # type: ignore[arg-type]
        for batch in (None, 8.0, 64.0)
    )
    targets = [TargetResult("a", engines=(quiet,)), TargetResult("b", engines=(busy, busier))]

    assert batch_costs(targets[:1], settings) == batch_costs([TargetResult("down")], settings) == {}
    found = batch_costs(targets, settings)
    assert {model: load.batch_size for model, load in found.items()} == {"m": 8.0}
    assert found["m"].profile == settings.costs.profile


#: SGLang's records have the configured number of drafted tokens, whatever was drafted; the poll knows it.
COUNTS: dict[str, object] = {
    "spec_verify_ct": 10,
    "spec_num_correct_drafts": 20,
    "spec_num_proposed_drafts": 30,
    "spec_correct_drafts_histogram": [1, 1, 5, 3],
}


def sglang(steps: int, tokens: int) -> bytes:
    return lines(
        *(
            f'sglang:{name}{{model_name="m",tp_rank="0",pp_rank="0"}} {value}'
            for name, value in (("spec_num_steps", steps), ("spec_num_draft_tokens", tokens))
        ),
        'sglang:generation_tokens_total{model_name="m"} 31',
        'sglang:num_requests_total{model_name="m"} 1',
        'sglang:spec_verify_calls_total{model_name="m"} 10',
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
            running.now += 5
            server.behaviour = answer(sglang(*poll))
            await poller.poll()
        record = read_record(COUNTS)
        for name in ("m", "an adapter"):
            running.observe(0, record=record, model_name=name)
        running.observe(0, record=replace(record, configured_k=False), model_name="of vLLM beside it")
        server.behaviour = answer(b"nothing")
        running.now += 5
        await poller.poll()  # what was known while the server answered still holds
        running.observe(0, record=read_record(COUNTS))
        await poller.close()
    counted = {found.record: found.requests for found in running.known.observations if found.requests}
    assert counted == ({"detailed": 4} if believed else {"none": 3, "detailed": 1})


#: Half of the drafts hold one token; of the others only two of four are worth anything.
DRAFTS = (*[(1, 1)] * 700, *[(1, 0)] * 300, *[(4, 2)] * 900, *[(4, 0)] * 100)


@pytest.mark.parametrize("observed", [20, 0])
async def test_advice_comes_from_records(observed: int, token: str) -> None:
    """They make advice possible where drafts vary; without them it is said what is missing."""
    running = Running({"push.bearer-token-file": token, "cost.profile": "chinchilla-70b-draft-4b"})
    load = 'vllm:num_requests_running{model_name="m",engine="0"} 8'

    def text(drafts: tuple[tuple[int, int], ...]) -> bytes:
        return lines(*vllm_lines(count(drafts, 4), model_name="m", engine="0"), load)

    with FaultyServer(answer(text(()))) as server:
        await running.reload(vllm__url=[server.url])
        (poller,) = running.exporter._pollers
        await poller.poll()
        for step in range(observed):
            running.observe(0, record=record(DRAFTS[step::observed]))
        running.now += 300
        server.behaviour = answer(text(DRAFTS))
        await poller.poll()
        await poller.close()
    (engine,) = running.exporter.latest().targets[0].engines
    if observed:
        assert (engine.advice.action, engine.advice.num_speculative_tokens) == (Action.DECREASE_K, 2)
    else:
        assert engine.advice.action is Action.INSUFFICIENT_DATA
        assert "detailed records of the requests would (docs/requests.md)" in engine.advice.reason


# --- options. Where values come from: tests/core/test_options.py


def load(flags: dict[str, Any], environment: dict[str, str] | None = None) -> ServeConfig:
    return config.load(flags, environment or {})


#: Every option with a value, where the configuration has it, and as what.
FORMS: list[tuple[str, Any, str, Any]] = [
    ("tap.listen-address", "127.0.0.1:0", "tap.listen", ("127.0.0.1", 0)),
    ("tap.upstream", "https://b:2", "tap.upstream", Target("https://b:2/metrics")),
    ("tap.drain-timeout", "1m", "tap.drain_seconds", 60.0),
    ("requests.window", "1h", "requests.window_seconds", 3600.0),
    ("requests.temperature-bound", ["0", "0.3"], "requests.temperatures.bounds", (0.0, 0.3)),
    ("requests.default-temperature", "0.7", "requests.temperatures.default", 0.7),
    ("requests.type-header", "X-Kind", "requests.classification.type_header", "x-kind"),
    (
        "requests.type",
        ["code=model:*coder*", "a=header.X-Q:b, c"],
        "requests.classification.rules",
        (TypeRule("code", "model", "*coder*"), TypeRule("a", "header.x-q", "b, c")),
    ),
    ("requests.tenant-header", "X-Tenant", "requests.classification.tenant_header", "x-tenant"),
    ("requests.tenant", ["a", " b "], "requests.classification.tenants", frozenset({"a", "b"})),
]
#: Options that are looked at only with another one.
WITH = {"tap.listen-address": ":0", "requests.tenant-header": "X-Tenant", "requests.tenant": ["acme"]}


def test_options_reach_the_configuration(token: str, tmp_path: Path) -> None:
    """Each one, the files included; without any there is no tap and no push, and groups are the package's."""
    nothing = load({})
    assert (nothing.tap, nothing.push_token_file, nothing.requests) == (None, "", RequestSettings())
    for name, given, where, expected in FORMS:
        assert attrgetter(where)(load({**WITH, name: given})) == expected, name
    certificate, key = Authority(tmp_path, "authority").issue("127.0.0.1")
    files = {"tap.cert-file": certificate, "tap.key-file": key, "push.bearer-token-file": token}
    found = load({**TAP, **files})
    assert attrgetter("tap.cert_file", "tap.key_file", "push_token_file")(found) == (*files.values(),)
    assert {option.name for option in REQUEST_OPTIONS} == {*(name for name, *_ in FORMS), *files}


NUMBER = "a number of at least 0 is expected"
BARE = "allowed: http://host:port, https://host:port or unix:/path/to.sock, without path or user"
#: Values that no option of this name takes, and what is said of them.
WRONG: list[tuple[str, list[str], str]] = [
    ("tap.listen-address", ["9852"], "allowed: host:port with a port from 0 to 65535"),
    ("tap.upstream", ["vllm:8000"], "not an address; allowed: http://host:port"),
    ("tap.upstream", ["http://a:1/v1", "http://a:1/metrics", "http://a:1?x=1", "unix:/a.sock:/v1"], BARE),
    ("tap.drain-timeout", ["25", "-1s"], "a duration needs a unit"),
    ("tap.cert-file", ["/none/such"], "cannot be read: No such file or directory"),
    ("requests.window", ["59s"], "at least 1m is needed"),
    ("requests.temperature-bound", ["-0.1", "warm", "inf", "nan"], NUMBER),
    ("requests.default-temperature", ["-1", "inf"], NUMBER),
    ("requests.type-header", ["X Kind", "X-Kind: code"], "the name of a header is expected"),
    ("requests.tenant-header", [""], "the name of a header is expected"),
    ("requests.type", ["code", "code=body:x"], "allowed: NAME=WHERE:PATTERN, where WHERE is model, path,"),
    ("requests.type", ["my code=model:x"], "NAME is a letter or digit, then up to 63"),
    ("requests.tenant", [" ", "a\nb"], "the name of a tenant is expected"),
]

TAKEN = "--web.listen-address uses this port already"
ITSELF = "the tap would relay to itself; --vllm.url and --tap.upstream need vLLM's own port"
PAIR = "--tap.cert-file and --tap.key-file go together"
TENANTS = [f"t{number}" for number in range(MAX_TENANTS)]
BOUNDS = [str(number) for number in range(41)]
#: Values that do not go together, and what is said of them.
TOGETHER: list[tuple[dict[str, Any], str]] = [
    ({"tap.upstream": "http://ada:secret@a:1"}, f'--tap.upstream "http://<secret>@a:1": {BARE}'),
    ({"requests.temperature-bound": ["0.7", "0.5"]}, "--requests.temperature-bound [0.7, 0.5]: at least one"),
    ({"requests.temperature-bound": ["0.5", "0.50"]}, "--requests.temperature-bound [0.5, 0.5]: at least"),
    ({"requests.temperature-bound": BOUNDS}, "--requests.temperature-bound: 41 bounds; allowed: up to 40"),
    ({"requests.tenant": ["acme"]}, "--requests.tenant needs --requests.tenant-header"),
    (
        {"requests.tenant": [*TENANTS, "more"], "requests.tenant-header": "X-Tenant"},
        "--requests.tenant: 101 tenants; allowed: up to 100",
    ),
    ({**TAP, "vllm.url": ["http://a:1", "http://b:1"]}, "--tap.upstream is required if several servers"),
    ({"tap.listen-address": ":9850"}, f'--tap.listen-address ":9850": {TAKEN}'),
    ({"tap.listen-address": "[::1]:1", "web.listen-address": "0.0.0.0:1"}, f'"[::1]:1": {TAKEN}'),
    *(
        ({"tap.listen-address": listen, "vllm.url": [url]}, f'--tap.listen-address "{listen}": {ITSELF}')
        for listen, url in (
            (":8000", "http://127.0.0.1:8000"),
            ("0.0.0.0:8000", "http://localhost:8000"),
            ("[::]:8000", "http://[::1]:8000"),
            ("127.0.0.1:8000", "http://localhost:8000"),
            ("10.0.0.1:80", "http://10.0.0.1"),
        )
    ),
    ({**TAP, "tap.cert-file": "/dev/null"}, PAIR),
    ({**TAP, "tap.key-file": "/dev/null"}, PAIR),
]
#: Free ports, addresses of their own, and other machines: vLLM on loopback keeps its port.
APART: list[dict[str, Any]] = [
    {"tap.listen-address": "127.0.0.1:0", "web.listen-address": "127.0.0.1:0"},
    {"tap.listen-address": "10.0.0.1:9850", "web.listen-address": "127.0.0.1:9850"},
    {"tap.listen-address": "10.0.0.1:8000", "vllm.url": ["http://127.0.0.1:8000"]},
    {"tap.listen-address": ":8000", "vllm.url": ["http://vllm:8000"]},
    {"tap.listen-address": ":8000", "vllm.url": ["unix:/run/vllm.sock"]},
    {"tap.listen-address": ":8000", "tap.upstream": "http://127.0.0.1:8001"},
]


class TestErrors:
    def test_of_one_value(self) -> None:
        """Each names the option, the value, and what is allowed."""
        repeatable = {option.name for option in REQUEST_OPTIONS if option.repeatable}
        for name, text, why in ((name, text, why) for name, texts, why in WRONG for text in texts):
            told = refusal(ConfigError, load, {name: [text] if name in repeatable else text})
            assert told.startswith(f"--{name} {json.dumps(text)}: {why}"), told

    def test_of_values_that_do_not_go_together(self) -> None:
        """Each names the options to change; a password is not repeated, and no list is no list of bounds."""
        for flags, message in TOGETHER:
            assert message in refusal(ConfigError, load, flags)
        none = {"VLLM_SPECDEC_EXPORTER_REQUESTS_TEMPERATURE_BOUND": ","}
        assert "--requests.temperature-bound []: at least one bound" in refusal(ConfigError, load, {}, none)

    def test_what_is_just_allowed(self, token: str) -> None:
        """A hundred tenants, one of them twice; forty bounds; several servers where the tap knows which."""
        for flags in APART:
            assert load(flags).tap is not None, flags
        found = load(
            {
                **TAP,
                "vllm.url": ["http://a:1", "http://b:1"],
                "tap.upstream": "http://b:1",
                "requests.tenant": [*TENANTS, "t0"],
                "push.bearer-token-file": token,
                "requests.temperature-bound": BOUNDS[:40],
            }
        )
        assert found.requests.classification.tenants == frozenset(TENANTS)
        assert found.requests.temperatures.bounds == tuple(map(float, BOUNDS[:40]))
