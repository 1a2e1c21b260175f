"""Runs `dashboards --push`, for tests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import web

from grafana.fake_grafana import EDITOR
from grafana.folder_of_dashboards import COST, PAYOFF, REQUESTS, write_dashboards
from support.commands import Outcome, run_here

if TYPE_CHECKING:
    from pathlib import Path

ALL = (PAYOFF, COST, REQUESTS)
FOLDER = "vllm-specdec"
TITLE = "vLLM speculative decoding"
FROM_FILE = (
    "Grafana has it from a file (provisioning) and does not save it: change the file, or take it out of there"
)


class Pusher:
    """Runs the command with a token, and sees to it that no output has it."""

    def __init__(self, folder: Path) -> None:
        self.source = write_dashboards(folder / "mine")
        self._folder = folder

    def token_file(self, token: str) -> str:
        path = self._folder / "token"
        path.write_text(f"{token}\n", encoding="ascii")
        return str(path)

    def words(self, url: str, *more: str, token: str = EDITOR, source: Path | None = None) -> tuple[str, ...]:
        """The words behind the program's name."""
        with_token = ("--grafana.token-file", self.token_file(token)) if token else ()
        return ("dashboards", "--from", str(source or self.source), "--push", url, *with_token, *more)

    async def __call__(
        self, url: str, *words: str, token: str = EDITOR, source: Path | None = None, **environment: str
    ) -> Outcome:
        command = self.words(url, *words, token=token, source=source)
        outcome = await asyncio.to_thread(run_here, *command, **environment)
        assert not token or token not in outcome.out + outcome.err
        assert "Traceback" not in outcome.err
        return outcome


def answering(status: int, path: str, **answer: Any) -> Any:
    """What answers requests whose path ends so, and leaves others alone."""

    async def instead(request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=status, **answer) if request.path.endswith(path) else None

    return instead
