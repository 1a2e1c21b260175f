"""HTML pages and reports for terminals, from the templates in `templates/`.

Only what shows one imports this: Jinja2 takes time and memory that a plain sidecar does
not have to spend.
"""

import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..economics.sizes import format_gigabytes, format_parameters
from . import numbers, terminal, wording

_FOLDER = Path(__file__).with_name("templates")
#: Control characters and lone surrogates, which HTML does not allow.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(_FOLDER),
    # The templates of a release do not change.
    auto_reload=False,
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    # A misspelt name is an error, not an empty text.
    undefined=StrictUndefined,
)
_ENVIRONMENT.globals.update(
    count=numbers.count,
    counts=numbers.counts,
    duration=numbers.duration,
    factor=numbers.factor,
    length=numbers.length,
    percent=numbers.percent,
    rate=numbers.rate,
    utc=numbers.utc,
    wording=wording,
    zip=zip,
)


def _wrap(text: str, indent: str, hang: int) -> str:
    return "\n".join(terminal.wrap(text, indent, hang))


def _gigabytes(size: float | None) -> str:
    if size is None:
        return terminal.DASH
    return format_gigabytes(size)


_ENVIRONMENT.filters.update(
    gigabytes=_gigabytes,
    parameters=format_parameters,
    shown=terminal.shown,
    wrap=_wrap,
)
#: For reports in a terminal.
_PLAIN = _ENVIRONMENT.overlay(autoescape=False)


def render(template: str, **values: Any) -> str:
    """Return the page of a template; all text in `values` is escaped."""
    page = _ENVIRONMENT.get_template(template).render(values)
    # Once, at the end, so that no value can slip through.
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", page)


def read(name: str) -> Markup:
    """Return a style sheet or a script to put into a page as it is."""
    text = (_FOLDER / name).read_text("utf-8")
    return Markup(text.strip())  # noqa: S704, data of the package


def report(template: str, **values: Any) -> str:
    """Return a report for a file, which has its style sheet within."""
    return render(template, style=read("report.css"), **values)


def text(template: str, **values: Any) -> str:
    """Return a report for a terminal; texts from outside have to be printable."""
    return _PLAIN.get_template(template).render(values)
