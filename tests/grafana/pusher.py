"""Small dashboards in a folder, and what pushes them."""

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from grafana.fake_grafana import EDITOR
from support.commands import Outcome, run_here

OVERVIEW, DEEP_DIVE, REQUESTS = "vllm-specdec-overview", "vllm-specdec-deep-dive", "vllm-specdec-requests"
ALL = (OVERVIEW, DEEP_DIVE, REQUESTS)
FOLDER = "vllm-specdec"
TITLE = "vLLM speculative decoding"
FROM_FILE = "Grafana loads it from a file (provisioning) and cannot save it: change or remove the file"


def dashboard(uid: str, title: str = "", **more: Any) -> dict[str, Any]:
    """A dashboard with the variable that picks the data source."""
    return {
        "uid": uid,
        "title": title or f"Title of {uid}",
        "description": "Does it pay? And since when.",
        "schemaVersion": 39,
        "version": 1,
        "panels": [{"id": 1, "type": "text", "title": "Größe", "options": {"content": "$datasource: 1"}}],
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}},
                {"name": "window", "type": "query", "current": {"value": "5m"}},
            ]
        },
        **more,
    }


def write_dashboards(folder: Path, *dashboards: dict[str, Any]) -> Path:
    """Write dashboards to a folder as `make generate` does; by default the usual three."""
    folder.mkdir(exist_ok=True)
    for document in dashboards or tuple(map(dashboard, (REQUESTS, DEEP_DIVE, OVERVIEW))):
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        (folder / f"{document['uid']}.json").write_text(text, encoding="utf-8")
    return folder


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
