"""A finding: one thing that is wrong or worth knowing, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters."""

    PROBLEM = "problem"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong or worth knowing (`text`), and what to do about it (`action`)."""

    severity: Severity
    text: str
    action: str
