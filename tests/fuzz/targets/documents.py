"""Documents: any bytes of a file that operators or models bring are read, or refused by
its own error.

The first byte of an input says which file (`_KINDS`): cost profiles, the web
configuration, a baseline, a model's ``config.json``, a scenario of the simulator. The
refusal is one line, and that of the web configuration quotes no hash of a password.
"""

import json
from collections.abc import Iterator

from fuzz.seeds import EXAMPLES, fenced
from vllm_specdec_exporter.commands.simulate.phases import ScenarioError
from vllm_specdec_exporter.commands.simulate.simulation import parse_scenario
from vllm_specdec_exporter.config.yaml_text import YAMLTextError, read_yaml
from vllm_specdec_exporter.economics.architecture import (
    FAMILIES,
    ArchitectureError,
    read_architecture,
)
from vllm_specdec_exporter.economics.baseline import BaselineError, decode, encode
from vllm_specdec_exporter.economics.model import from_architecture
from vllm_specdec_exporter.economics.profiles import ProfileError, parse_profiles
from vllm_specdec_exporter.economics.sizes import PRECISIONS
from vllm_specdec_exporter.listener.web_config import document as web_document
from vllm_specdec_exporter.listener.web_config.fields import WebConfigError
from vllm_specdec_exporter.listener.web_config.fields import parse_yaml as read_texts

#: Part of the bcrypt hash in the examples, which is a secret of a kind.
_MARK = "s3cr3ts3cr3t"


def check(data: bytes) -> None:
    """Raise unless the reader of one kind of file keeps its promises."""
    if data[:1] not in _KINDS:
        return
    read, refusal = _KINDS[data[:1]]
    try:
        read(data[1:])
    except refusal as error:
        message = str(error)
        assert message, "a refusal without a message"
        assert "\n" not in message, f"more than one line: {message!r}"
        assert data[:1] != b"5" or _MARK not in message, f"a hash in {message!r}"


def _hashes(text: bytes) -> None:
    """What stands where a hash belongs, in a file that is broken around it."""
    parts = (text.decode("utf-8", "replace").split("\x1e") + [""] * 3)[:3]
    name, prefix, behind = (part.replace(_MARK, "").replace("\n", "") for part in parts)
    # In quotes that begin in the name, or before a colon, it would be a part of the
    # name, which is shown.
    name = name.replace("'", "").replace('"', "")
    behind = behind.replace(":", "")
    _web(f"basic_auth_users:\n  {name}: {prefix}{_MARK}{behind}\n".encode())


def _profiles(text: bytes) -> None:
    for profile in parse_profiles(read_yaml(text)).values():
        assert profile.step_cost(3, 8.0) >= 0, f"{profile} takes no time"


def _web(text: bytes) -> None:
    document = web_document.parse(read_texts(text), "/etc/exporter")
    for name, hashed in document.users:
        assert ":" not in name
        assert hashed.startswith("$2")


def _baseline(text: bytes) -> None:
    baseline = decode(text)
    assert decode(encode(baseline)) == baseline, (
        "a baseline that is not read as it was written"
    )


def _config(text: bytes) -> None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return
    model = from_architecture(read_architecture(document), PRECISIONS["bf16"])
    assert 0 < model.active_parameters <= model.parameters, (
        f"{model.active_parameters} of {model.parameters}"
    )


def _scenario(text: bytes) -> None:
    for phase in parse_scenario(read_yaml(text), "fuzz").phases:
        assert phase.seconds is None or phase.seconds > 0, phase


_KINDS = {
    b"0": (_profiles, (ProfileError, YAMLTextError)),
    b"1": (_web, WebConfigError),
    b"2": (_baseline, BaselineError),
    b"3": (_config, ArchitectureError),
    b"4": (_scenario, (ScenarioError, YAMLTextError)),
    b"5": (_hashes, WebConfigError),
}


def documented() -> Iterator[bytes]:
    """Yield the examples of the documentation."""
    for name, kind in (
        ("reference/cost-profiles.md", b"0"),
        ("operations.md", b"1"),
        ("reference/simulator.md", b"4"),
    ):
        yield from (kind + example for example in fenced(name, "yaml"))


def seeds() -> Iterator[bytes]:
    """Yield the examples of the documentation, and one of each kind that uses every
    key.
    """
    yield from documented()
    yield from (kind + b"{[" for kind in _KINDS)
    yield b"5alice\x1e$2y$10$\x1e"
    yield b"5a: b\x1e*\x1e]"
    for example in sorted(EXAMPLES.iterdir()):
        yield example.name[:1].encode() + example.read_bytes().strip()
    sizes = json.loads((EXAMPLES / "3-quantized.json").read_text("utf-8"))
    for family in FAMILIES:
        yield b"3" + json.dumps({**sizes, "model_type": family}).encode()
