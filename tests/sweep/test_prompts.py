"""Prompts: the built-in sets, and files."""

from pathlib import Path

import pytest

from vllm_specdec_exporter.commands.sweep import SweepPlan, load_prompts
from vllm_specdec_exporter.commands.sweep.grid import BUILTIN, Message, Prompt
from vllm_specdec_exporter.config.options import ConfigError


def user(text: str) -> Prompt:
    return Prompt((Message("user", text),))


def test_the_built_in_sets_have_as_many_different_prompts_as_a_cell_has_requests() -> None:
    sets = load_prompts(["all"])
    assert [one.name for one in sets] == list(BUILTIN)
    every = [prompt for one in sets for prompt in one.prompts]
    assert all(len(one.prompts) == SweepPlan(sets).requests for one in sets)
    assert len(set(every)) == len(every)
    assert all(len(prompt.messages[0].content) < 250 for prompt in every)


def test_a_text_file_has_one_prompt_a_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("\ufefffirst\n\n  second  \n", encoding="utf-8")
    (found,) = load_prompts([str(file)])
    assert (found.name, found.prompts) == ("mine", (user("first"), user("second")))


def test_json_lines_have_prompts_or_conversations(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text(
        '{"prompt": "one"}\n'
        '{"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "two"}]}\n'
    )
    (found,) = found_sets = load_prompts([str(file)])
    assert found.prompts == (user("one"), Prompt((Message("system", "be brief"), Message("user", "two"))))
    completion = SweepPlan(found_sets, api="completions").request(1, found.prompts[1])
    assert completion.body["prompt"] == "be brief\ntwo"


def test_an_edited_file_has_another_fingerprint(tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_text("a b\n")
    (before,) = load_prompts([str(file)])
    file.write_text("a c\n")
    (after,) = load_prompts([str(file)])
    assert before.digest != after.digest


UNUSABLE = [
    (b"\n \n", "no prompt in it"),
    (b"\xff\xfe\x00", "not UTF-8 text"),
    (b'{"prompt": "a"}\nplain\n', "line 2: not a prompt; allowed: "),
    (b'{"prompt": 3}\n', "line 1: not a prompt"),
    (b'{"messages": []}\n', "line 1: not a prompt"),
    (b'{"messages": [{"role": "boss", "content": "x"}]}\n', "line 1: not a prompt"),
    (b'{"prompt": "a"\n', "line 1: not a prompt"),
    (b"x\n" * 10_001, "10001 prompts; allowed: at most 10000"),
]


def test_files_without_usable_prompts_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "p"
    for content, words in UNUSABLE:
        file.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            load_prompts([str(file)])
        told = str(caught.value)
        assert f'--prompts "{file}"' in told
        assert words in told, content
        assert "\n" not in told
