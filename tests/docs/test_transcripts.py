"""What the pages show of a command's output is what it prints: word for word, but for
numbers.

Where numbers were measured with a real vLLM, rows and columns are compared, and not
what the numbers led to.
"""

import contextlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
import yaml

from docs.checks import Check, blocks_with
from docs.inventory import Block, blocks
from docs.running import Machine
from docs.services import Services
from docs.shell import logical_lines, simple_commands
from docs.transcripts import missing, transcript_of, unlabelled
from support.exporter import running_exporter
from support.programs import eventually, simulator

pytestmark = pytest.mark.full


def readme(text: str) -> list[list[str]]:
    """Return the words of each command in the block of shell commands of README.md that
    has `text`.
    """
    (block,) = (
        block
        for block in blocks()
        if block.path == "README.md" and block.language == "sh" and text in block.text
    )
    lines = logical_lines(block.text)
    return list(chain.from_iterable(map(simple_commands, lines)))


@contextlib.contextmanager
def phase(folder: Path, k: int, *flags: str, **parameters: object) -> Iterator[str]:
    """Run a simulator that stays in one phase; yield its host:port."""
    path = folder / f"phase-{k}.yaml"
    phases = [{"phase": "healthy", "seconds": 86400, **parameters}]
    path.write_text(yaml.safe_dump({"phases": phases}))
    settings = f"--scenario.file {path} --num-speculative-tokens {k}".split()
    with simulator(*settings, *flags) as url:
        yield url.removeprefix("http://")


@contextlib.contextmanager
def simulator_of_readme(folder: Path) -> Iterator[str]:
    """Run the simulator as README.md does, but faster; yield its host:port."""
    (_, scenario), (_, _, *flags) = readme(" simulate ")
    path = folder / flags[-1]
    path.write_text(scenario, encoding="utf-8")
    with simulator(*flags[:-1], str(path), "--speed", "5") as url:
        yield url.removeprefix("http://")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """What the transcripts were made with, simulated."""
    folder = tmp_path_factory.mktemp("transcripts")
    tiny = ("--model", "tiny-llama", "--speed", "20")
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        server = enter(simulator_of_readme(folder))
        ((_, _, _, *flags),) = readme("EAGLE3-head")
        settings = (
            f"--vllm.url http://{server} --poll.interval 500ms --poll.timeout 400ms "
            "--window 10s --window 5m --judgement.window 10s"
        ).split()
        watching = enter(running_exporter(*settings, *flags, fast=False)).address
        plain = enter(phase(folder, 0, *tiny, clients=32, output_tokens=60))
        slower = enter(
            phase(folder, 4, *tiny, clients=32, output_tokens=60, acceptance=0.02)
        )
        addresses = {
            "127.0.0.1:8000": server,
            "VLLM:8000": server,
            "127.0.0.1:9850": watching,
            "127.0.0.1:18200": plain,
            "127.0.0.1:18201": slower,
        }
        yield Machine(
            folder / "machine",
            Services(addresses, [], answering="", alertmanager="", files={}),
        )


@pytest.mark.parametrize(
    "block", blocks_with(Check.TRANSCRIPT), ids=lambda block: block.where
)
def test_a_transcript_is_what_is_printed(block: Block, machine: Machine) -> None:
    """Every part that the page shows, in its order; advice takes some seconds to be
    certain.

    Of a measurement, the names of rows, heads of columns and notes.
    """
    said = transcript_of(block.text)
    differs = unlabelled if block.reason else missing
    last = []

    def as_printed() -> bool:
        done = machine.completed(said.command)  # its exit code may be a finding
        assert done.stdout, done.stderr
        last[:] = [differs(said.output, done.stdout)]
        return not last[0]

    with contextlib.suppress(AssertionError):
        eventually(as_printed, 180)
    assert not last[0]


def test_differences_are_noticed() -> None:
    assert (
        missing("a GAINS 1.2 times\n...\nb 1\n", "a GAINS 7.5 times\nmore\nb 2\n") == ""
    )
    assert missing("a GAINS\n", "a LOSES\n")
    assert missing("b x\n...\na y\n", "a y\nb x\n")
    assert unlabelled("  drafts  5\n", "  drawn  5\n") == ["drafts"]
