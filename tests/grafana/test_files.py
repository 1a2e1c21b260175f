"""`dashboards`: the list, JSON files, a provider, ConfigMaps, and bad usage."""

import os
import re
from pathlib import Path

import pytest

from grafana.documents import (
    ALL,
    DEEP_DIVE,
    OVERVIEW,
    REQUESTS,
    TITLE,
    dashboard,
    write_dashboards,
)
from support.commands import Outcome, run_here
from support.repository import ROOT, data_of, text_of
from vllm_specdec_exporter.commands.dashboards import files

JSON = ROOT / "dashboards/json"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three dashboards in a folder."""
    return write_dashboards(tmp_path / "mine")


def dashboards(
    source: Path | None, out: Path | None = None, *more: str | Path
) -> Outcome:
    """Run the command with the dashboards of a folder, or else with its own."""
    arguments = [*more]
    if out is not None:
        arguments += ["--out", out]
    with pytest.MonkeyPatch.context() as patch:
        if source is not None:
            patch.setattr(files, "_FOLDERS", (source,))
        return run_here("dashboards", *map(str, arguments))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "new/out"


def bodies(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_alerts_link_to_their_rules_or_to_the_runbooks_of_the_operator(
    out: Path,
) -> None:
    """By default no alert's link leads outside of Grafana; with an address, all do;
    nothing else changes.
    """
    mine = "https://wiki.example.org/specdec"
    assert dashboards(None, out, "--runbooks", f"{mine}/").code == 0
    changed = {}
    for path in JSON.iterdir():
        text = text_of(path)
        # The status page is that of the instance in the table.
        links = text.replace("http://${__data.fields.Instance}/", "")
        outside = re.findall("http[^)]+", links)
        assert all("/blob/main/docs/" in link for link in outside), path
        text = text.replace(files.RUNBOOK_LINK, f"{mine}/${{__value.raw}}.md")
        changed[path.name] = text.encode()
    assert bodies(out) == changed
    assert mine.encode() in changed[f"{OVERVIEW}.json"]


def test_without_flags_the_dashboards_are_listed_with_their_questions(
    source: Path,
) -> None:
    """The one to begin with is first; it says how to install them."""
    outcome = dashboards(source)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[:6:2] == [f"{uid}  Title of {uid}" for uid in ALL]
    assert lines[1:6:2] == ["    Does it pay?"] * 3
    for way in ("--provisioning", "--configmaps", "Import"):
        assert way in outcome.out, way


def test_the_bundle_is_what_was_generated() -> None:
    """Every file is in it, each with a question, a variable for the data source, and a
    ConfigMap's size.
    """
    boards = files.load()
    assert {board.file: board.body for board in boards} == bodies(JSON)
    for board in boards:
        assert board.question.endswith("?"), board.uid
        assert files.with_datasource(board, "mine").body != board.body, board.uid
        assert len(board.body) < 1_000_000, board.uid  # a ConfigMap holds 1 MiB
    assert len(files.config_maps(boards, Path(), "monitoring")) == len(boards)
    assert boards[0].uid == OVERVIEW


# --- JSON files


def test_files_are_written_once_and_replace_older_versions(
    source: Path, out: Path
) -> None:
    """The folder is made. The same again touches nothing: Grafana would load a touched
    file anew.

    Ours is known by its uid; other files stay.
    """
    outcome = dashboards(source, out)
    assert (outcome.code, outcome.err) == (0, "")
    assert bodies(out) == bodies(source)
    assert outcome.out.splitlines() == [f"written    {out / uid}.json" for uid in ALL]
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o644}
    # A time that no file that is written now can have.
    for path in out.iterdir():
        os.utime(path, (1, 1))
    assert states(dashboards(source, out)) == {"unchanged"}
    assert {path.stat().st_mtime for path in out.iterdir()} == {1}
    write_dashboards(out, dashboard(DEEP_DIVE, title="old"), dashboard("theirs"))
    theirs = (out / "theirs.json").read_bytes()
    outcome = dashboards(source, out)
    assert f"replaced   {out / DEEP_DIVE}.json" in outcome.out
    assert bodies(out) == {**bodies(source), "theirs.json": theirs}


def states(outcome: Outcome) -> set[str]:
    """What was done with the files."""
    return {line.split()[0] for line in outcome.out.splitlines()}


@pytest.mark.parametrize(
    "content", ['{"uid": "theirs", "title": "x"}', "[1]", "not JSON", ""]
)
def test_a_file_that_is_not_ours_stops_it_before_anything_is_written(
    source: Path, tmp_path: Path, content: str
) -> None:
    """With --force it goes on."""
    file = tmp_path / f"out/{REQUESTS}.json"
    file.parent.mkdir()
    file.write_text(content)
    outcome = dashboards(source, file.parent)
    assert (outcome.code, outcome.out) == (2, "")
    why = f"{file.name} exists and is another file; move it, or give --force"
    assert why in outcome.err
    assert bodies(file.parent) == {file.name: content.encode()}
    assert dashboards(source, file.parent, "--force").code == 0
    assert bodies(file.parent) == bodies(source)


def test_a_folder_that_cannot_be_made_is_bad_usage(source: Path) -> None:
    """Such as one below a file."""
    outcome = dashboards(source, source / f"{OVERVIEW}.json/below")
    assert outcome.code == 2
    assert "cannot be written: " in outcome.err


def test_the_data_source_can_be_chosen(source: Path, out: Path) -> None:
    """Nothing else changes."""
    outcome = dashboards(source, out, "--datasource", "thanos")
    expected = dashboard(DEEP_DIVE)
    expected["templating"]["list"][0]["current"] = {"text": "thanos", "value": "thanos"}
    assert outcome.code == 0
    assert data_of(out / f"{DEEP_DIVE}.json") == expected


# --- a provider


@pytest.mark.parametrize("mounted", ["", "/srv/a$b"])
def test_the_provider_names_where_grafana_sees_the_files(
    source: Path, out: Path, mounted: str
) -> None:
    """By default the folder itself; with --path, where it is mounted.

    The folder's uid is the usual one.
    """
    file = out.parent / "provisioning/specdec.yaml"
    arguments = [out, "--provisioning", file]
    if mounted:
        arguments += ["--path", mounted]
    outcome = dashboards(source, *arguments)
    assert outcome.code == 0
    assert outcome.err.startswith("next: restart Grafana,")
    (provider,) = data_of(file)["providers"]
    # Grafana expands variables.
    expected = (mounted or str(out)).replace("$", "$$")
    assert provider["options"]["path"] == expected
    assert provider["folder"] == TITLE
    assert provider["folderUid"] == "vllm-specdec"
    assert provider["type"] == "file"
    again = dashboards(source, *arguments, "--datasource", "x")
    assert states(again) == {"replaced", "unchanged"}


@pytest.mark.parametrize(
    "text",
    [
        "providers: [{name: theirs}]",
        "providers: [{name: vllm-specdec}, {name: theirs}]",
        "{",
    ],
)
def test_a_provider_of_others_is_not_overwritten(
    source: Path, tmp_path: Path, out: Path, text: str
) -> None:
    """Nor is anything else written then."""
    file = tmp_path / "default.yaml"
    file.write_text(text)
    outcome = dashboards(source, out, "--provisioning", file)
    assert (outcome.code, out.exists(), file.read_text()) == (2, False, text)
    assert f"{file} exists and is another file" in outcome.err


# --- ConfigMaps


def test_configmaps_hold_the_very_dashboards(source: Path, out: Path) -> None:
    """One each, with what the sidecar of Grafana's Helm chart looks for.

    There is nothing in the folder that kubectl apply -f would stumble over.
    """
    arguments = (out, "--configmaps", "monitoring")
    outcome = dashboards(source, *arguments)
    assert outcome.code == 0
    assert outcome.err.startswith("next: kubectl apply --server-side")
    written = {path.name: data_of(path) for path in out.iterdir()}
    labels = {name: each["metadata"].pop("labels") for name, each in written.items()}
    assert {each["grafana_dashboard"] for each in labels.values()} == {"1"}
    assert written == {
        f"{uid}.yaml": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": uid,
                "namespace": "monitoring",
                "annotations": {"grafana_folder": TITLE},
            },
            "data": {f"{uid}.json": text_of(source / f"{uid}.json")},
        }
        for uid in ALL
    }
    for path in out.iterdir():
        path.write_text(f"{text_of(path)}# older\n", "utf-8")
    assert states(dashboards(source, *arguments)) == {"replaced"}
