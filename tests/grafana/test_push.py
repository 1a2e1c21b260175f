"""`dashboards --push`: the real command against a Grafana that behaves like the real one."""

from __future__ import annotations

from grafana.fake_grafana import ADMIN, VIEWER, FakeGrafana
from grafana.pusher import (
    ALL,
    DEEP_DIVE,
    FOLDER,
    FROM_FILE,
    OVERVIEW,
    REQUESTS,
    TITLE,
    Pusher,
    dashboard,
    write_dashboards,
)
from vllm_specdec_exporter import __version__

# --- what is pushed


async def test_an_empty_grafana_gets_the_folder_and_all_dashboards(
    grafana: FakeGrafana, push: Pusher
) -> None:
    """Folder and dashboards have the same uids everywhere, and the history says who made them.

    Nothing of a dashboard is lost or added; its number is Grafana's to give.
    """
    outcome = await push(grafana.url)
    assert (outcome.code, outcome.err) == (0, "")
    assert grafana.folders == {FOLDER: TITLE}
    assert {uid: kept.folder for uid, kept in grafana.dashboards.items()} == dict.fromkeys(ALL, FOLDER)
    assert {*grafana.dashboards[DEEP_DIVE].messages} == {f"vllm-specdec-exporter {__version__}"}
    lines = outcome.out.splitlines()
    assert lines[0] == f"Grafana 12.1.0 at {grafana.url}"
    assert lines[1] == f'folder "{TITLE}" ({FOLDER}), created'
    assert lines[2:] == [*(f"  new        {uid}: {grafana.url}/d/{uid}" for uid in ALL), "3 new"]
    kept = grafana.dashboards[OVERVIEW].document
    assert {key: kept[key] for key in kept if key != "id"} == dashboard(OVERVIEW)
    assert [body["dashboard"]["id"] for body in grafana.bodies if "dashboard" in body] == [None] * 3


async def test_of_what_is_there_only_what_differs_is_pushed(grafana: FakeGrafana, push: Pusher) -> None:
    """What is there already makes no new version, whatever number Grafana gave it.

    A changed dashboard is overwritten, also where somebody saved it in Grafana; one elsewhere is moved.
    """
    await push(grafana.url)
    grafana.dashboards[DEEP_DIVE].version = 5
    grafana.requests.clear()
    outcome = await push(grafana.url)
    assert (outcome.code, grafana.writes) == (0, [])
    assert outcome.out.splitlines()[-1] == "3 unchanged"
    assert f'folder "{TITLE}" ({FOLDER})\n' in outcome.out

    grafana.dashboards[DEEP_DIVE].document["panels"] = []
    grafana.folders["elsewhere"] = "Elsewhere"
    grafana.dashboards[OVERVIEW].folder = "elsewhere"
    outcome = await push(grafana.url)
    assert (outcome.code, outcome.out.splitlines()[-1]) == (0, "2 changed; 1 unchanged")
    assert grafana.dashboards[DEEP_DIVE].version == 6
    assert grafana.dashboards[DEEP_DIVE].document["panels"] == dashboard(DEEP_DIVE)["panels"]
    assert grafana.dashboards[OVERVIEW].folder == FOLDER
    assert grafana.dashboards[REQUESTS].version == 1


async def test_some_can_be_selected_and_the_data_source_chosen(grafana: FakeGrafana, push: Pusher) -> None:
    """By the end of the uid or by all of it; the variables but that of the data source keep their values."""
    for words in (("--select", "overview,deep-dive"), ("--select", OVERVIEW, "--select", "deep-dive")):
        grafana.dashboards.clear()
        outcome = await push(grafana.url, *words, "--datasource", "thanos-1")
        assert (outcome.code, set(grafana.dashboards)) == (0, {OVERVIEW, DEEP_DIVE})
    for kept in grafana.dashboards.values():
        datasource, window = kept.document["templating"]["list"]
        assert datasource["current"] == {"text": "thanos-1", "value": "thanos-1"}
        assert window["current"] == {"value": "5m"}


# --- the folder


async def test_a_folder_of_ours_is_known_by_its_uid(grafana: FakeGrafana, push: Pusher) -> None:
    """Also where it was renamed. Another title is that of another folder, which is made once."""
    grafana.folders[FOLDER] = "LLM serving"
    assert (await push(grafana.url)).code == 0
    assert grafana.folders == {FOLDER: "LLM serving"}
    assert grafana.dashboards[OVERVIEW].folder == FOLDER
    for _ in range(2):
        assert (await push(grafana.url, "--folder", "LLM - vLLM")).code == 0
    assert list(grafana.folders.values()) == ["LLM serving", "LLM - vLLM"]
    assert grafana.folders[FOLDER] == "LLM serving"


async def test_a_folder_of_that_title_is_used(grafana: FakeGrafana, push: Pusher) -> None:
    """Also one that came from elsewhere with another uid, and one behind the first page of the list."""
    for title, words in ((TITLE, ()), ("LLM", ("--folder", "LLM"))):
        grafana.folders = {f"other{number}": f"Other {number}" for number in range(1001)}
        grafana.folders["theirs"] = title
        assert (await push(grafana.url, *words)).code == 0
        assert {kept.folder for kept in grafana.dashboards.values()} == {"theirs"}
        assert len(grafana.folders) == 1002


async def test_an_ambiguous_folder_is_not_guessed(grafana: FakeGrafana, push: Pusher) -> None:
    """Newer versions allow two folders of one title."""
    grafana.folders = {"one": "LLM", "two": "LLM"}
    outcome = await push(grafana.url, "--folder", "LLM")
    assert (outcome.code, grafana.writes) == (1, [])
    assert 'several folders have the title "LLM" (one, two)' in outcome.err


async def test_a_folder_that_the_token_may_not_see_is_named(grafana: FakeGrafana, push: Pusher) -> None:
    """Grafana says that it exists only when it is to be made."""
    grafana.folders[FOLDER] = TITLE
    grafana.hidden.add(FOLDER)
    outcome = await push(grafana.url)
    assert (outcome.code, grafana.dashboards) == (1, {})
    assert "HTTP 409 a folder with the same uid already exists" in outcome.err
    assert "cannot see" in outcome.err
    assert f"not pushed: {', '.join(ALL)}" in outcome.err


# --- dry run


async def test_a_dry_run_tells_and_changes_nothing(grafana: FakeGrafana, push: Pusher) -> None:
    """New, changed, unchanged and refused are told apart by what Grafana has."""
    more = write_dashboards(
        push.source.parent / "more", *(dashboard(f"vllm-specdec-{name}") for name in "abcd")
    )
    grafana.folders[FOLDER] = TITLE
    grafana.keep(dashboard("vllm-specdec-a"), FOLDER)
    grafana.keep(dashboard("vllm-specdec-b", title="old"), FOLDER)
    grafana.keep(dashboard("vllm-specdec-c", title="old"), FOLDER, provisioned=True)
    outcome = await push(grafana.url, "--dry-run", source=more)
    assert (outcome.code, grafana.writes) == (1, [])
    assert outcome.out.splitlines()[2:] == [
        "  unchanged  vllm-specdec-a",
        "  changed    vllm-specdec-b",
        f"  refused    vllm-specdec-c: {FROM_FILE}",
        "  new        vllm-specdec-d",
    ]
    assert outcome.err == "dry run, nothing was saved: 1 new; 1 changed; 1 unchanged; 1 refused\n"


async def test_a_dry_run_makes_no_folder_and_checks_the_token(grafana: FakeGrafana, push: Pusher) -> None:
    """It says that it would; a token that could not push is found out."""
    outcome = await push(grafana.url, "--dry-run", "--home", token=ADMIN)
    assert (outcome.code, grafana.writes, grafana.folders) == (0, [], {})
    assert f'folder "{TITLE}" would be created\n' in outcome.out
    assert f"  home       would be {OVERVIEW}\n" in outcome.out
    assert outcome.out.endswith("dry run, nothing was saved: 3 new\n")
    grafana.folders[FOLDER] = TITLE
    assert (await push(grafana.url, "--dry-run", token=VIEWER)).code == 1
    assert (await push(grafana.url, "--dry-run", token="glsa_unknown")).code == 4


# --- the home


async def test_the_home_is_set_and_other_preferences_stay(grafana: FakeGrafana, push: Pusher) -> None:
    """For the whole organization, which needs an admin's token."""
    outcome = await push(grafana.url, "--home", token=ADMIN)
    assert outcome.code == 0
    assert grafana.preferences == {"theme": "dark", "timezone": "utc", "homeDashboardUID": OVERVIEW}
    assert f"  home       {OVERVIEW}\n" in outcome.out


async def test_an_editor_may_push_but_not_set_the_home(grafana: FakeGrafana, push: Pusher) -> None:
    """The dashboards are there; the exit code and a line tell that the home is not."""
    outcome = await push(grafana.url, "--home")
    assert (outcome.code, len(grafana.dashboards)) == (1, 3)
    assert "  home       not set: HTTP 403 You'll need additional permissions" in outcome.out
    assert "role Admin" in outcome.out
    assert grafana.preferences["homeDashboardUID"] == ""


async def test_no_home_without_its_dashboard(grafana: FakeGrafana, push: Pusher) -> None:
    """A refused dashboard does not become the home."""
    grafana.folders[FOLDER] = TITLE
    grafana.keep(dashboard(OVERVIEW, title="old"), FOLDER, provisioned=True)
    outcome = await push(grafana.url, "--home", token=ADMIN)
    assert (outcome.code, grafana.preferences["homeDashboardUID"]) == (1, "")
    assert f"  home       not set, because {OVERVIEW} was refused\n" in outcome.out
