"""Every block of shell commands and of Python does what its page says when it is run,
runbooks included.

What a block prints is not compared, but that each command ends well, and that nothing
has to be put in its place but addresses, folders, placeholders such as VLLM and
EXPORTER, and times of minutes.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from docs.checks import Check, blocks_with
from docs.inventory import Block
from docs.offline_commands import CheckError
from docs.running import Machine
from docs.services import running_services

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

#: Most of their time blocks wait.
_AT_ONCE = 8


def test_every_block_does_what_it_says(tmp_path: Path) -> None:
    """Its commands end well; of what cannot be run here, its own tool takes what it
    can.
    """
    # What stands on several pages runs once.
    by_text = {block.text: block for block in blocks_with(Check.SHELL, Check.PYTHON)}
    # The longest first, so that all end together.
    blocks = sorted(by_text.values(), key=lambda block: "sweep" not in block.text)
    assert len(blocks) > 100
    sweeps = [block.where for block in blocks if "sweep" in block.text]
    with running_services(tmp_path, len(sweeps)) as running:
        openai = dict(zip(sweeps, running.openai, strict=True))

        def failure(number: int, block: Block) -> str:
            machine = Machine(
                tmp_path / f"block-{number}", running, openai.get(block.where, "")
            )
            run = machine.run
            if block.language == "python":
                run = machine.python
            try:
                run(block.text)
            except CheckError as error:
                return f"{block.where}\n{error}"
            return ""

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            failures = list(pool.map(failure, range(len(blocks)), blocks))
        assert list(filter(None, failures)) == []
