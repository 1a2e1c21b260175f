"""Commands that no test can run: what each lacks, and what is checked of it all the same.

A page must say of a block with one of them what it lacks, and may say so of no other block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Unavailable:
    """A kind of command.

    Attributes:
        command: what it looks like: its words with single spaces, matched from the start.
        lacks: what a page's reason must name, as a regular expression.
        check: the name of the check in `docs.checking`; empty where nothing can be checked.
    """

    command: re.Pattern[str]
    lacks: str
    check: str = ""


def _kind(command: str, lacks: str, check: str = "") -> Unavailable:
    return Unavailable(re.compile(command), lacks, check)


#: The first that fits holds.
KINDS = (
    _kind(r"docker ", r"Docker engine", "docker"),
    _kind(r"(sudo )?(systemctl|journalctl) ", r"systemd", "unit"),
    _kind(r"vllm serve ", r"\bvLLM\b"),
    _kind(r"kubectl kustomize ", ""),
    _kind(r"kubectl ", r"cluster", "kubectl"),
    _kind(r"helm (install|upgrade)( --install)? \S+ (?!helm/)", r"charts?\b"),
    _kind(r"helm (install|upgrade) ", r"cluster", "helm"),
    _kind(r"helm template \S+ (?!helm/)", r"charts?\b"),
    _kind(r"make (test|test-vllm|check|lint)\b", r"tests? (suite|themselves)", "make"),
    _kind(r"make (bench|pictures|dist)\b", r"minutes", "make"),
    _kind(r"make generate\b", r"writes into the repository", "make"),
    _kind(r"npm run ", r"node_modules", "npm"),
    _kind(r"python tests/dashboards/render/bundle.py", r"node_modules", "script"),
    _kind(r"pytest -m vllm ", r"\bvLLM\b"),
    _kind(r"bash tests/vllm/install.sh", r"\bvLLM\b", "script"),
    _kind(r"vllm-specdec-exporter dashboards .*--push \.\.\.", r"address", "parse"),
)


def kind_of(words: Iterable[str]) -> Unavailable | None:
    """Return what a command lacks, `None` for one that can be run."""
    text = " ".join(words)
    found = next((kind for kind in KINDS if kind.command.match(f"{text} ")), None)
    return found if found and found.lacks else None
