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
from support.repository import ROOT, data_of
from vllm_specdec_exporter.commands.dashboards import files

JSON = ROOT / "dashboards/json"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three dashboards in a folder."""
    return write_dashboards(tmp_path / "mine")


def dashboards(source: Path | None, *arguments: str) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        if source is not None:
            patch.setattr(files, "_FOLDERS", (source,))
        return run_here("dashboards", *arguments)


def bodies(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_alerts_link_to_their_rules_or_to_the_runbooks_of_the_operator(
    tmp_path: Path,
) -> None:
    """By default no alert's link leads outside of Grafana; with an address, all do;
    nothing else changes.
    """
    mine = "https://wiki.example.org/specdec"
    assert dashboards(None, "--out", str(tmp_path), "--runbooks", f"{mine}/").code == 0
    for name, body in bodies(tmp_path).items():
        committed = (JSON / name).read_text("utf-8")
        # The status page is that of the instance in the table.
        outside = re.findall(
            "http[^)]+", committed.replace("http://${__data.fields.Instance}/", "")
        )
        assert all("/blob/main/docs/" in link for link in outside), name
        changed = committed.replace(files.RUNBOOK_LINK, f"{mine}/${{__value.raw}}.md")
        assert body.decode() == changed, name
    assert mine in (tmp_path / f"{OVERVIEW}.json").read_text("utf-8")


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
    source: Path, tmp_path: Path
) -> None:
    """The folder is made. The same again touches nothing: Grafana would load a touched
    file anew.

    Ours is known by its uid; other files stay.
    """
    out = tmp_path / "new/folder"
    outcome = dashboards(source, "--out", str(out))
    assert (outcome.code, outcome.err) == (0, "")
    assert bodies(out) == bodies(source)
    assert outcome.out.splitlines() == [f"written    {out / uid}.json" for uid in ALL]
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o644}
    # A time that no file that is written now can have.
    for path in out.iterdir():
        os.utime(path, (1, 1))
    outcome = dashboards(source, "--out", str(out))
    assert {line.split()[0] for line in outcome.out.splitlines()} == {"unchanged"}
    assert {path.stat().st_mtime for path in out.iterdir()} == {1}
    write_dashboards(out, dashboard(DEEP_DIVE, title="old"), dashboard("theirs"))
    outcome = dashboards(source, "--out", str(out))
    assert f"replaced   {out / DEEP_DIVE}.json" in outcome.out
    assert bodies(out) == {**bodies(source), "theirs.json": bodies(out)["theirs.json"]}


@pytest.mark.parametrize(
    "content", ['{"uid": "theirs", "title": "x"}', "[1]", "not JSON", ""]
)
def test_a_file_that_is_not_ours_stops_it_before_anything_is_written(
    source: Path, tmp_path: Path, content: str
) -> None:
    """With --force it goes on."""
    out = tmp_path / "out"
    out.mkdir()
    (out / f"{REQUESTS}.json").write_text(content)
    outcome = dashboards(source, "--out", str(out))
    assert (outcome.code, outcome.out) == (2, "")
    assert (
        f"{REQUESTS}.json exists and is another file; move it, or give --force"
        in outcome.err
    )
    assert bodies(out) == {f"{REQUESTS}.json": content.encode()}
    assert dashboards(source, "--out", str(out), "--force").code == 0
    assert bodies(out) == bodies(source)


def test_a_folder_that_cannot_be_made_is_bad_usage(
    source: Path, tmp_path: Path
) -> None:
    """Such as one below a file."""
    (tmp_path / "file").write_text("")
    outcome = dashboards(source, "--out", str(tmp_path / "file/below"))
    assert outcome.code == 2
    assert "cannot be written: " in outcome.err


def test_the_data_source_can_be_chosen(source: Path, tmp_path: Path) -> None:
    """Nothing else changes."""
    out = tmp_path / "out"
    assert dashboards(source, "--out", str(out), "--datasource", "thanos").code == 0
    written = data_of(out / f"{DEEP_DIVE}.json")
    expected = dashboard(DEEP_DIVE)
    expected["templating"]["list"][0]["current"] = {"text": "thanos", "value": "thanos"}
    assert written == expected


# --- a provider


def test_the_provider_names_where_grafana_sees_the_files(
    source: Path, tmp_path: Path
) -> None:
    """By default the folder itself; with --path, where it is mounted.

    The folder's uid is the usual one.
    """
    out = tmp_path / "out"
    file = tmp_path / "provisioning/specdec.yaml"
    arguments = ("--out", str(out), "--provisioning", str(file))
    for more, path in ((), str(out)), (("--path", "/srv/a$b"), "/srv/a$$b"):
        outcome = dashboards(source, *arguments, *more)
        assert outcome.code == 0, path
        assert outcome.err.startswith("next: restart Grafana,"), path
        (provider,) = data_of(file)["providers"]
        assert provider["options"]["path"] == path
        assert provider["folder"] == TITLE, path
        assert provider["folderUid"] == "vllm-specdec", path
        assert provider["type"] == "file", path
    assert outcome.out.splitlines()[-1] == f"replaced   {file}"


def test_a_provider_of_others_is_not_overwritten(source: Path, tmp_path: Path) -> None:
    """Nor is anything else written then."""
    out = tmp_path / "out"
    file = tmp_path / "default.yaml"
    arguments = ("--out", str(out), "--provisioning", str(file))
    for text in (
        "providers: [{name: theirs}]",
        "providers: [{name: vllm-specdec}, {name: theirs}]",
        "{",
    ):
        file.write_text(text)
        outcome = dashboards(source, *arguments)
        assert (outcome.code, out.exists(), file.read_text()) == (2, False, text)
        assert f"{file} exists and is another file" in outcome.err, text


# --- ConfigMaps


def test_configmaps_hold_the_very_dashboards(source: Path, tmp_path: Path) -> None:
    """One each, with what the sidecar of Grafana's Helm chart looks for.

    There is nothing in the folder that kubectl apply -f would stumble over.
    """
    out = tmp_path / "out"
    outcome = dashboards(source, "--out", str(out), "--configmaps", "monitoring")
    assert outcome.code == 0
    assert outcome.err.startswith("next: kubectl apply --server-side")
    assert {path.name for path in out.iterdir()} == {f"{uid}.yaml" for uid in ALL}
    for uid in ALL:
        written = data_of(out / f"{uid}.yaml")
        labels = written["metadata"].pop("labels")
        assert labels["grafana_dashboard"] == "1", uid
        assert written == {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": uid,
                "namespace": "monitoring",
                "annotations": {"grafana_folder": TITLE},
            },
            "data": {f"{uid}.json": (source / f"{uid}.json").read_text("utf-8")},
        }
    for path in out.iterdir():
        path.write_text(f"{path.read_text('utf-8')}# older\n", "utf-8")
    again = dashboards(source, "--out", str(out), "--configmaps", "monitoring")
    assert {line.split()[0] for line in again.out.splitlines()} == {"replaced"}
