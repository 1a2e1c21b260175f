"""Settings, documents and pushes as people and gateways write them, then damaged: the
promises hold.
"""

import json
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fuzz.targets import documents, push, relay, settings
from tap.streams import RECORD, chat_stream
from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.settings.configuration import load

OPTIONS = [(option.key, option.default) for option in settings._TABLE]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.text(max_size=12)
    | st.binary(max_size=4)
)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3)
    ),
)
damages = st.lists(
    st.tuples(st.integers(0, 500), st.text(max_size=3), st.integers(0, 3)), max_size=3
)


def damaged(text: str, places: list[tuple[int, str, int]]) -> bytes:
    """A text with some characters put in, left out and replaced."""
    for position, new, gone in places:
        at = position % (len(text) + 1)
        text = text[:at] + new + text[at + gone :]
    return text.encode("utf-8", "surrogatepass")


def nested(key: str, value: object) -> object:
    """A document that sets one setting."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


@given(st.sampled_from(OPTIONS), anything, damages)
def test_any_value_of_any_setting(
    option: tuple[str, object], value: object, places: list[tuple[int, str, int]]
) -> None:
    """Values of every YAML type in the place of every setting, whole and damaged."""
    text = yaml.safe_dump(nested(option[0], value), allow_unicode=True)
    settings.check(b"0" + damaged(text, places))


@given(
    st.lists(
        st.tuples(st.sampled_from([key for key, _ in OPTIONS]), st.text(max_size=20)),
        max_size=3,
    )
)
def test_any_text_in_the_environment(variables: list[tuple[str, str]]) -> None:
    """Any text in any variable."""
    records = (f"{key.replace('_', '-')}\x1f{text}" for key, text in variables)
    settings.check(b"1" + "\x1e".join(records).encode("utf-8", "surrogatepass"))


pieces = st.text(st.sampled_from(list("@:/?#&=%[]{}'\",*!-| \tab1")), max_size=8)


@given(pieces, pieces, pieces, pieces)
def test_secrets_and_hashes_are_hidden(
    prefix: str, left: str, right: str, suffix: str
) -> None:
    """In addresses, headers, broken files and a web configuration, with what means
    something around them.
    """
    settings.check("\x1e".join(["2" + prefix, left, right, suffix]).encode())
    documents.check("\x1e".join(["5" + prefix, left, suffix]).encode())


@given(st.sampled_from(list(documents.documented())), damages)
def test_documented_examples_that_are_damaged(
    example: bytes, places: list[tuple[int, str, int]]
) -> None:
    """The examples that people begin with, with mistakes in them."""
    documents.check(example[:1] + damaged(example[1:].decode(), places))


@given(
    st.sampled_from(
        [seed for seed in documents.seeds() if seed[:1] in b"23" and seed[-1:] == b"}"]
    ),
    st.data(),
)
def test_json_with_other_values(seed: bytes, data: st.DataObject) -> None:
    """Baselines and configurations of models, with any JSON in any place."""
    document = json.loads(seed[1:])
    node = document
    while True:
        keys = range(len(node))
        if isinstance(node, dict):
            keys = sorted(node)
        key = data.draw(st.sampled_from(keys))
        is_leaf = not isinstance(node[key], dict | list) or not node[key]
        if is_leaf or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = data.draw(
        st.none()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.just([[]])
        | st.just({})
    )
    documents.check(seed[:1] + json.dumps(document).encode())


requests = st.fixed_dictionaries(
    {},
    optional={
        "model": st.none() | st.text(max_size=5),
        "temperature": st.none() | st.floats() | st.integers() | st.just(push.MARK),
        "completion_tokens": st.integers() | st.floats() | st.just([push.MARK]),
        "stream": st.booleans() | st.just(push.MARK),
        "time_to_first_token_seconds": st.none() | st.floats(),
        "speculative_decoding": st.none()
        | st.just(push.MARK)
        | st.fixed_dictionaries(
            {},
            optional={
                name: st.integers(-1, 20)
                | st.lists(st.integers(-1, 5), max_size=4)
                | st.just(push.MARK)
                for name in RECORD
            },
        ),
        "messages": st.just([{"content": push.MARK}]),
        push.MARK: st.just(push.MARK),
    },
)


@given(
    st.lists(requests, max_size=5),
    st.lists(st.tuples(st.integers(0, 600), st.binary(max_size=2)), max_size=2),
)
def test_pushes(pushed: list[object], damages: list[tuple[int, bytes]]) -> None:
    """Requests of every form, good and bad, whole and damaged: each is counted, and
    none is quoted.
    """
    body = json.dumps({"requests": pushed}).encode()
    for position, new in damages:
        body = body[:position] + new + body[position + 1 :]
    push.check(body)


#: Pieces of requests, responses and events, in any order.
traffic = st.sampled_from(
    [
        b"\r\n",
        b"\n",
        b"\r",
        b"\r\n\r\n",
        b"x",
        b"\x00",
        b"\xff",
        b"\x1e",
        b":",
        b"{}",
        b"id: 1",
        b"POST /v1/completions HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"Content-Length: 15\r\n",
        b"Content-Length: 0\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b'{"stream":false}',
        b'{"stream": true}',
        b"content-type: text/event-stream\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"data: {}\n\n",
        b"data:",
        b"data: ",
        b"data\n",
        b": c\r\r",
        *(chat_stream(end=end) for end in ("\n", "\r\n", "\r")),
    ]
)


@given(
    st.sampled_from(sorted(relay.KINDS)),
    st.integers(0, 255),
    st.lists(traffic, max_size=20).map(b"".join),
)
def test_traffic(kind: bytes, way: int, data: bytes) -> None:
    """Bytes of connections, in any pieces: every part of the tap treats them as it
    treats the whole.
    """
    relay.check(kind + bytes((way,)) + data)


def test_a_file_is_read_like_that(tmp_path: Path) -> None:
    """The targets read texts; the file of settings goes the same way."""
    path = tmp_path / "settings.yml"
    path.write_text(f"vllm: {{header: !!bool {settings.SECRET}}}\n")
    with pytest.raises(
        ConfigError, match=r"invalid for its type in line 1, column 16$"
    ) as caught:
        load({}, {}, str(path))
    assert settings.SECRET not in str(caught.value)


def _chain(value: bytes) -> bytes:
    rows = [
        b"%c: &%c [%b]" % (98 + n, 98 + n, b", ".join([b"*%c" % (97 + n)] * 9))
        for n in range(9)
    ]
    return b"a: &a " + value + b"\n" + b"\n".join(rows) + b"\n"


_MOE = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 4,
    "intermediate_size": 4,
}
_SIZES = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 10_000,
    "vocab_size": 4,
}
_DENSE = {
    "model_type": "qwen3_moe",
    **_SIZES,
    **_MOE,
    "mlp_only_layers": [99_999] * 400_000,
}

BOMBS = {
    "aliases, as a value": (settings, b"0" + _chain(b"[x, x]") + b"window: *j\n"),
    "aliases, as keys and values": (
        settings,
        b"0" + _chain(b"{x: x}") + b"spec: {config: {method: *j}}\n",
    ),
    "a long text, often": (
        settings,
        b"0" + _chain(b"x" * 10_000) + b"vllm: {url: *e}\n",
    ),
    "nested": (settings, b"0window: " + b"[" * 20_000),
    "nested JSON": (settings, b"1spec.config\x1f" + b"[" * 500_000),
    "aliases, of profiles": (documents, b"0" + _chain(b"[x, x]") + b"profiles: *j\n"),
    "aliases, of users": (
        documents,
        b"1" + _chain(b"[x, x]") + b"basic_auth_users: {x: *j}\n",
    ),
    "a long list of layers": (documents, b"3" + json.dumps(_DENSE).encode()),
    "a nested configuration": (documents, b"3" + b'{"model_type":' * 100_000),
}


def test_nothing_hangs() -> None:
    """Small files that mean a great deal are refused, or read, at once."""
    took = {}
    for name, (module, text) in BOMBS.items():
        started = time.process_time()
        module.check(text)
        took[name] = time.process_time() - started
    assert max(took.values()) < 20, took
