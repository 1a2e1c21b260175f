"""Settings: any file, environment or flag becomes values, or a `ConfigError` that names
the place.

The first byte of an input says what the rest is (`_KINDS`). What is promised:

- Values and a configuration, or `ConfigError` (of the text itself `YAMLTextError`);
  nothing else, no hang.
- The message is one line that names where the value came from.
- What was accepted can be reckoned with.
- What stands where a secret belongs is in no message, and in nothing that is shown.
"""

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from fuzz.seeds import VALUES
from vllm_specdec_exporter.config.options import ConfigError, Option, gather
from vllm_specdec_exporter.config.values import (
    file,
    format_duration,
    parse_duration,
    parse_target,
)
from vllm_specdec_exporter.config.yaml_text import YAMLTextError, read_yaml
from vllm_specdec_exporter.settings.configuration import build
from vllm_specdec_exporter.settings.option_table import OPTIONS

SECRET = "s3cr3t"
_FILE = "settings.yml"


def _no_file(_text: str) -> str:
    msg = "cannot be read: no file is opened here"
    raise ValueError(msg)


def _without_files(option: Option) -> Option:
    """Names that a fuzzer makes up must open nothing."""
    if option.parse is file:
        return option._replace(parse=_no_file)
    return option


_TABLE = tuple(map(_without_files, OPTIONS))
#: What a message may name as the place of a fault.
_PLACES = {_FILE, *(option.flag for option in _TABLE)}
_PLACES.update(option.variable for option in _TABLE)
_VARIABLES = {option.name: option.variable for option in _TABLE}


def check(data: bytes) -> None:
    """Raise unless settings keep their promises for one input."""
    kind = data[:1]
    text = data[1:]
    if kind in _KINDS:
        _KINDS[kind](text)


def _check_file(text: bytes) -> None:
    document, refusal = _read(text)
    if not refusal:
        _configure({}, document)


def _check_environment(text: bytes) -> None:
    """Names of settings and their texts, with a unit separator between, and record
    separators around.
    """
    environment = {}
    for record in text.split(b"\x1e")[:4]:
        name, _, value = record.partition(b"\x1f")
        variable = _VARIABLES.get(name.decode("latin-1"))
        variable = variable or list(_VARIABLES.values())[sum(name) % len(_VARIABLES)]
        environment[variable] = value.decode("utf-8", "surrogateescape").replace(
            "\0", ""
        )
    _configure(environment, None)


def _check_secrets(text: bytes) -> None:
    parts = (
        text.decode("utf-8", "replace").replace("\0", "").split("\x1e") + [""] * 4
    )[:4]
    prefix, left, right, behind = (part.replace(SECRET, "") for part in parts)
    for url in (
        f"http://{prefix}:{left}{SECRET}{right}@{behind.replace('@', '')}",
        f"{prefix}?api_key={left.replace('&', '')}{SECRET}",
    ):
        _hidden({"VLLM_SPECDEC_EXPORTER_VLLM_URL": url.replace(",", "")})
        with contextlib.suppress(ValueError):
            assert SECRET not in parse_target(url).name, (
                f"{url} is called {parse_target(url).name}"
            )
    header = f"{prefix.replace(':', '')}:{left}{SECRET}{right}".replace("\n", "")
    _hidden({"VLLM_SPECDEC_EXPORTER_VLLM_HEADER": header})
    # A file that is broken around a secret: its line is not quoted, nor a secret that
    # begins like an alias.
    for value in (
        f'{prefix}"Authorization: Bearer {left}{SECRET}{right}{behind}',
        f"{left}{SECRET}{right}",
    ):
        _, refusal = _read(
            f"vllm:\n  header: {value}\n".encode("utf-8", "surrogateescape")
        )
        assert SECRET not in refusal, f"a secret in {refusal}"


def _check_texts(text: bytes) -> None:
    decoded = text.decode("utf-8", "replace")
    try:
        seconds = parse_duration(decoded)
    except ValueError:
        pass
    else:
        if seconds < 1e11:  # ten thousand years: more is not exact to the millisecond
            assert math.isclose(
                parse_duration(format_duration(seconds)), seconds, abs_tol=1e-3
            ), decoded
    try:
        target = parse_target(decoded)
    except ValueError:
        return
    assert parse_target(target.name).name == target.name, (
        f"{decoded!r} is shown as {target.name!r}"
    )


def _configure(
    environment: Mapping[str, str], document: object
) -> Mapping[str, object]:
    """Return what is shown of the settings, none where they are refused; check the
    refusal.
    """
    try:
        values, shown = gather(
            _TABLE, {}, environment=environment, document=document, file=_FILE
        )
        _finite(values)
        settings = build(values, shown).settings
    except ConfigError as error:
        message = str(error)
        assert message, "a refusal without a message"
        assert "\n" not in message, f"more than one line: {message!r}"
        assert "\x1b" not in message, f"a message that steers a terminal: {message!r}"
        assert any(name in message for name in _PLACES), f"no place in {message!r}"
        return {"refused": message}
    json.dumps(shown)
    k = settings.speculation.num_speculative_tokens or 1
    assert math.isfinite(settings.costs.profile.step_cost(k, 8.0)), (
        f"a step of K={k} takes no time that can be told"
    )
    return shown


def _finite(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        numbers = (value,)
        if isinstance(value, tuple):
            numbers = value
        for number in numbers:
            assert not isinstance(number, float) or math.isfinite(number), name


def _hidden(environment: Mapping[str, str]) -> None:
    shown = _configure(environment, None)
    assert SECRET not in json.dumps(shown, ensure_ascii=False), (
        f"{environment} shows as {shown}"
    )


def _read(text: bytes) -> tuple[object, str]:
    """Return the document, and why there is none."""
    try:
        return read_yaml(text), ""
    except YAMLTextError as error:
        refusal = str(error)
    assert refusal, "a refusal without a message"
    assert "\n" not in refusal, f"more than one line: {refusal!r}"
    return None, refusal


_KINDS = {
    b"0": _check_file,
    b"1": _check_environment,
    b"2": _check_secrets,
    b"3": _check_texts,
}


def seeds() -> Iterator[bytes]:
    """Yield every setting in a file and in the environment, and what is usual of each
    kind.
    """
    examples = yaml.safe_load(VALUES.read_text("utf-8"))
    for option in _TABLE:
        if isinstance(option.default, str):
            default = option.default
        else:
            default = ",".join(option.default or ())
        text = examples.get(option.name, default)
        yield f"1{option.name}\x1f{text}".encode()
        nested = ""
        for depth, part in enumerate(option.key.split(".")):
            nested += f"\n{'  ' * depth}{part}:"
        yield f"0{nested} {json.dumps(text)}\n".encode()
        yield f"0{nested} [{text}]\n".encode()
    yield (
        b"0vllm: {url: [http://a:1, 'unix:/run/a.sock']}\npoll: {interval: 5s}\n"
        b"window: [30s, 5m]\n"
    )
    yield b"0a: &a [1, *b]\nb: &b {x: !!timestamp 2020-01-01, <<: *a}\n"
    yield b"2user\x1ep@ss\x1e/%\x1ehost:8000/metrics"
    yield b"2X-Key\x1e\x1e\x1e"
    yield b"31h30m"
    yield b"3500ms"
    yield b"3unix:/a.sock:/metrics?x=1"
    yield b"3https://[::1]:1/a/"
