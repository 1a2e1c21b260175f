"""Small dashboards in a folder."""

import json
from pathlib import Path
from typing import Any

OVERVIEW = "vllm-specdec-overview"
DEEP_DIVE = "vllm-specdec-deep-dive"
REQUESTS = "vllm-specdec-requests"
ALL = (OVERVIEW, DEEP_DIVE, REQUESTS)
TITLE = "vLLM speculative decoding"


def dashboard(uid: str, title: str = "", **more: Any) -> dict[str, Any]:
    """A dashboard with the variable that picks the data source."""
    return {
        "uid": uid,
        "title": title or f"Title of {uid}",
        "description": "Does it pay? And since when.",
        "schemaVersion": 39,
        "version": 1,
        "panels": [
            {
                "id": 1,
                "type": "text",
                "title": "Größe",
                "options": {"content": "$datasource: 1"},
            }
        ],
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "type": "datasource",
                    "query": "prometheus",
                    "current": {},
                },
                {"name": "window", "type": "query", "current": {"value": "5m"}},
            ]
        },
        **more,
    }


def write_dashboards(folder: Path, *dashboards: dict[str, Any]) -> Path:
    """Write dashboards to a folder as `make generate` does; by default the usual
    three.
    """
    folder.mkdir(exist_ok=True)
    for document in dashboards or tuple(
        map(dashboard, (REQUESTS, DEEP_DIVE, OVERVIEW))
    ):
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        (folder / f"{document['uid']}.json").write_text(text, encoding="utf-8")
    return folder
