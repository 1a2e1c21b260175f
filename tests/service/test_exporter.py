"""The exporter in this process: reloads of its configuration file, and its health."""

import asyncio
import itertools
from pathlib import Path

import pytest

from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.runtime import logs
from vllm_specdec_exporter.serve.exporter import Exporter
from vllm_specdec_exporter.serve.kept_memory import LEAST
from vllm_specdec_exporter.serve.poll_turns import polled_together
from vllm_specdec_exporter.serve.shared_run import SharedRun
from vllm_specdec_exporter.settings.configuration import load

FIRST = "http://127.0.0.1:1"
SERVERS = "vllm: {url: [http://127.0.0.1:1, http://127.0.0.1:2]}\n"


class Running:
    """An exporter with a configuration file."""

    def __init__(self, folder: Path, text: str, **flags: list[str]) -> None:
        self.file = folder / "config.yml"
        self.file.write_text(text)
        flags = {name.replace("_", "."): value for name, value in flags.items()}
        self.exporter = Exporter(lambda: load(flags, {}, str(self.file)))

    async def reload(self, text: str) -> None:
        self.file.write_text(text)
        await self.exporter.reload()

    @property
    def servers(self) -> list[str]:
        return [target.target for target in self.exporter.latest().targets]


@pytest.mark.parametrize(
    "flags", [{}, {"vllm_url": ["http://127.0.0.1:4"]}], ids=["servers", "others"]
)
async def test_a_file_that_was_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: dict[str, list[str]]
) -> None:
    """Or is half written: it is refused, and the servers stay; a good file is used
    again.
    """
    monkeypatch.setattr("vllm_specdec_exporter.serve.exporter.RELOAD_SECONDS", 0.0)
    text = "poll: {interval: 9s}\n" if flags else SERVERS
    lost = "any setting" if flags else "vllm.url"
    running = Running(tmp_path, text, **flags)
    servers = running.servers
    for emptied in ("", "# nothing\n", "---\n", "null\n", "{}\n", "vllm:\n"):
        with pytest.raises(ConfigError, match=f"config.file: it no longer has {lost}"):
            await running.reload(emptied)
        assert running.servers == servers, emptied
        assert not running.exporter.latest().reload.successful, emptied
    if not flags:
        with pytest.raises(ConfigError):
            await running.reload("poll: {interval: 1s}\n")
        servers = ["http://127.0.0.1:1", "http://127.0.0.1:3"]
        text = SERVERS.replace(":2]", ":3]")
    await running.reload(text)
    assert running.exporter.latest().reload.successful
    assert running.servers == servers
    await running.exporter.stop()


async def test_what_is_kept_of_servers_that_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At a reload that replaces their pollers: their models and their memory; and what
    the new configuration may not mean is logged, once.
    """
    monkeypatch.setattr("vllm_specdec_exporter.serve.exporter.RELOAD_SECONDS", 0.0)
    running = Running(tmp_path, SERVERS)
    exporter = running.exporter
    for name in running.servers:
        exporter._served.note(name, ["m"])
        exporter._memory.keep(name, LEAST // 2)
    monkeypatch.setattr(logs, "set_up", lambda *_: None)  # it would end caplog
    changed = (
        SERVERS.replace(":2]", ":3]") + "poll: {timeout: 1s}\nspec: {config: '{}'}\n"
    )
    for _ in range(2):
        await running.reload(changed)
    await exporter.stop()
    assert list(exporter._served._by_target) == list(exporter._memory._kept) == [FIRST]
    warnings = [each for each in caplog.records if each.levelname == "WARNING"]
    (record,) = warnings
    assert "one --spec.config for several servers" in vars(record)["fields"]["finding"]


async def test_health(tmp_path: Path) -> None:
    """It is healthy before its start and after its stop; between them, while each loop
    runs.
    """
    exporter = Running(tmp_path, SERVERS).exporter
    assert exporter.healthy()
    exporter.start()
    assert exporter.healthy()
    task = next(
        each for each in asyncio.all_tasks() if each.get_name().startswith("poll ")
    )
    task.cancel()
    await asyncio.wait({task})
    assert not exporter.healthy()
    await exporter.stop()
    assert exporter.healthy()


@pytest.mark.parametrize(
    ("servers", "interval", "together"),
    [(1, 5.0, 1), (4, 2.0, 1), (100, 15.0, 2), (100, 5.0, 8), (1000, 5.0, 8)],
)
def test_few_servers_are_polled_one_by_one_and_many_in_groups(
    servers: int, interval: float, together: int
) -> None:
    """A group comes into warm caches, and is too small to keep a scrape waiting."""
    assert polled_together(servers, interval) == together


async def test_who_asks_often_shares_a_reload() -> None:
    """One begins after they asked, and not within the time after the last began."""
    began = list[float]()
    loop = asyncio.get_running_loop()

    async def job(_log: object) -> None:
        began.append(loop.time())
        await asyncio.sleep(0.01)

    shared = SharedRun(job, 0.2, loop.time)
    for number in range(1, 4):
        asked = loop.time()
        await asyncio.gather(*(shared.request(logs.log) for _ in range(20)))
        assert len(began) == number
        assert began[-1] >= asked
    pauses = [after - before for before, after in itertools.pairwise(began)]
    assert min(pauses) >= 0.199
