"""Helpers for tests of the simulator."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest

DATA = Path(__file__).parent.parent / "data"
SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def read_data() -> Callable[[str], str]:
    """Return a function that reads a file below tests/data, decompressed if need be."""

    def read(name: str) -> str:
        path = DATA / name
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()

    return read


@pytest.fixture
def parse() -> Callable[[bytes | str], Samples]:
    """Return a function that reads samples by name and sorted labels."""

    def parse_samples(body: bytes | str) -> Samples:
        text = body.decode() if isinstance(body, bytes) else body
        samples: Samples = {}
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            match = SAMPLE.match(line)
            assert match, line
            key = (match["name"], tuple(sorted(LABEL.findall(match["labels"] or ""))))
            assert key not in samples, f"duplicate sample {key}"
            samples[key] = float(match["value"])
        return samples

    return parse_samples
