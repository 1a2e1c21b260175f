"""An operator's questions are answered by a panel on the first screen or one click away."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dashboards.operator_questions import QUESTIONS, look
from dashboards.worlds import open_world, shared_folder

if TYPE_CHECKING:
    from dashboards.operator_questions import Asked

PAGE = Path(__file__).parents[2] / "docs" / "dashboards.md"


@pytest.mark.full
@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked.question)
def test_the_panel_answers_the_question(asked: Asked, tmp_path_factory: pytest.TempPathFactory) -> None:
    with open_world(asked.world, shared_folder(tmp_path_factory)) as world:
        assert asked.answer(look(asked, world)) == asked.expected


def test_the_page_has_every_question_with_the_panel_that_answers_it() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert [(question, panel) for _, question, panel in rows] == [
        (asked.question, f"*{asked.panel}*") for asked in QUESTIONS
    ]
