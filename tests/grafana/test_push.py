"""`dashboards --push`: the real command against a server that behaves, refuses and fails like Grafana."""

import asyncio
import json
import os
import signal
from pathlib import Path

from aiohttp import web

from grafana.fake_grafana import ADMIN, EDITOR, VIEWER, FakeGrafana
from grafana.pusher import (
    ALL,
    DEEP_DIVE,
    FOLDER,
    FROM_FILE,
    OVERVIEW,
    REQUESTS,
    TITLE,
    Pusher,
    answering,
    dashboard,
    write_dashboards,
)
from support.certificates import Authority, server_side
from support.programs import COMMAND, clean_environment
from vllm_specdec_exporter import __version__

NOT_PUSHED = f"not pushed: {', '.join(ALL)}"


# --- what is pushed


async def test_an_empty_grafana_gets_the_folder_and_all_dashboards(
    grafana: FakeGrafana, push: Pusher
) -> None:
    """With the same uids everywhere; the history has the version; the number is Grafana's to give."""
    outcome = await push(grafana.url)
    assert (outcome.code, outcome.err) == (0, "")
    assert grafana.folders == {FOLDER: TITLE}
    assert {uid: kept.folder for uid, kept in grafana.dashboards.items()} == dict.fromkeys(ALL, FOLDER)
    assert {*grafana.dashboards[DEEP_DIVE].messages} == {f"vllm-specdec-exporter {__version__}"}
    lines = outcome.out.splitlines()
    assert lines[:2] == [f"Grafana 12.1.0 at {grafana.url}", f'folder "{TITLE}" ({FOLDER}), created']
    assert lines[2:] == [*(f"  new        {uid}: {grafana.url}/d/{uid}" for uid in ALL), "3 new"]
    kept = grafana.dashboards[OVERVIEW].document
    assert {key: kept[key] for key in kept if key != "id"} == dashboard(OVERVIEW)
    assert [body["dashboard"]["id"] for body in grafana.bodies if "dashboard" in body] == [None] * 3


async def test_of_what_is_there_only_what_differs_is_pushed(grafana: FakeGrafana, push: Pusher) -> None:
    """A changed dashboard is overwritten, also where somebody saved it in Grafana; one elsewhere is moved."""
    await push(grafana.url)
    grafana.dashboards[DEEP_DIVE].version = 5
    grafana.requests.clear()
    outcome = await push(grafana.url)
    assert (outcome.code, grafana.writes) == (0, [])
    assert outcome.out.splitlines()[-1] == "3 unchanged"

    grafana.dashboards[DEEP_DIVE].document["panels"] = []
    grafana.folders["elsewhere"] = "Elsewhere"
    grafana.dashboards[OVERVIEW].folder = "elsewhere"
    outcome = await push(grafana.url)
    assert (outcome.code, outcome.out.splitlines()[-1]) == (0, "2 changed; 1 unchanged")
    assert grafana.dashboards[DEEP_DIVE].version == 6
    assert grafana.dashboards[DEEP_DIVE].document["panels"] == dashboard(DEEP_DIVE)["panels"]
    assert grafana.dashboards[OVERVIEW].folder == FOLDER


async def test_a_folder_is_found_by_its_uid_or_by_its_title(grafana: FakeGrafana, push: Pusher) -> None:
    """Also a renamed one, and one behind the first page of the list; another title is another folder."""
    grafana.folders = {FOLDER: "LLM serving"}
    assert (await push(grafana.url)).code == 0
    for _ in range(2):
        assert (await push(grafana.url, "--folder", "LLM - vLLM")).code == 0
    assert list(grafana.folders.values()) == ["LLM serving", "LLM - vLLM"]
    grafana.folders = {f"other{number}": f"Other {number}" for number in range(1001)}
    grafana.folders["theirs"] = "LLM"
    assert (await push(grafana.url, "--folder", "LLM")).code == 0
    assert {kept.folder for kept in grafana.dashboards.values()} == {"theirs"}


async def test_a_folder_that_cannot_be_used_is_named(grafana: FakeGrafana, push: Pusher) -> None:
    """Newer versions allow two folders of one title; one that the token may not see cannot be made."""
    grafana.folders = {"one": "LLM", "two": "LLM"}
    outcome = await push(grafana.url, "--folder", "LLM")
    assert (outcome.code, grafana.writes) == (1, [])
    assert 'several folders have the title "LLM" (one, two)' in outcome.err
    grafana.folders = {FOLDER: TITLE}
    grafana.hidden.add(FOLDER)
    outcome = await push(grafana.url)
    assert (outcome.code, grafana.dashboards) == (1, {})
    assert "HTTP 409 a folder with the same uid already exists" in outcome.err
    assert NOT_PUSHED in outcome.err


async def test_a_dry_run_tells_and_changes_nothing(grafana: FakeGrafana, push: Pusher) -> None:
    """New, changed, unchanged and refused are told apart; a token that could not push is found out."""
    outcome = await push(grafana.url, "--dry-run", "--home", token=ADMIN)
    assert (outcome.code, grafana.writes, grafana.folders) == (0, [], {})
    assert f'folder "{TITLE}" would be created\n' in outcome.out
    assert f"  home       would be {OVERVIEW}\n" in outcome.out
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
    assert (await push(grafana.url, "--dry-run", token=VIEWER)).code == 1
    assert (await push(grafana.url, "--dry-run", token="glsa_unknown")).code == 4


async def test_the_home_needs_an_admin_and_its_dashboard(grafana: FakeGrafana, push: Pusher) -> None:
    """Other preferences stay. Where it cannot be set, the dashboards are there all the same."""
    outcome = await push(grafana.url, "--home", token=ADMIN)
    assert (outcome.code, f"  home       {OVERVIEW}\n" in outcome.out) == (0, True)
    assert grafana.preferences == {"theme": "dark", "timezone": "utc", "homeDashboardUID": OVERVIEW}
    outcome = await push(grafana.url, "--home")
    assert (outcome.code, len(grafana.dashboards)) == (1, 3)
    assert "  home       not set: HTTP 403 You'll need additional permissions" in outcome.out
    grafana.keep(dashboard(OVERVIEW, title="old"), FOLDER, provisioned=True)
    outcome = await push(grafana.url, "--home", token=ADMIN)
    assert outcome.code == 1
    assert f"  home       not set, because {OVERVIEW} was refused\n" in outcome.out
    grafana.dashboards.clear()
    grafana.instead = answering(503, "/api/org/preferences", text="busy")
    outcome = await push(grafana.url, "--home", token=ADMIN)
    assert (outcome.code, len(grafana.dashboards)) == (4, 3)
    assert "  home       not set: HTTP 503 Service Unavailable\n" in outcome.out


# --- what Grafana refuses


async def test_a_viewer_may_not_push(grafana: FakeGrafana, push: Pusher) -> None:
    """Neither without the folder nor into it; the error says which role is needed."""
    for grafana.folders in ({}, {FOLDER: TITLE}):
        outcome = await push(grafana.url, token=VIEWER)
        assert (outcome.code, grafana.dashboards) == (1, {})
        assert "role Editor" in outcome.err
        assert NOT_PUSHED in outcome.err


async def test_one_refusal_does_not_keep_back_the_others(grafana: FakeGrafana, push: Pusher) -> None:
    """A provisioned dashboard cannot be saved, unless it is current. One of the newer form cannot be read."""
    grafana.folders[FOLDER] = TITLE
    grafana.keep(dashboard(DEEP_DIVE, title="old"), FOLDER, provisioned=True)
    grafana.keep(dashboard(REQUESTS), FOLDER, provisioned=True)
    outcome = await push(grafana.url)
    assert (outcome.code, set(grafana.dashboards)) == (1, set(ALL))
    assert grafana.dashboards[DEEP_DIVE].document["title"] == "old"
    assert f"  refused    {DEEP_DIVE}: {FROM_FILE}" in outcome.out
    assert outcome.err == "1 new; 1 unchanged; 1 refused\n"
    grafana.new_form = {OVERVIEW, DEEP_DIVE}
    outcome = await push(grafana.url)
    assert f"  changed    {OVERVIEW}: " in outcome.out
    assert f"  refused    {DEEP_DIVE}: HTTP 400 Cannot save provisioned dashboard; Grafana " in outcome.out


async def test_a_dashboard_of_the_same_title_is_not_overwritten(grafana: FakeGrafana, push: Pusher) -> None:
    """Before 11.2 Grafana would, if it may. It answers 200 with the other's uid where ours is there, too."""
    grafana.unique_titles = True
    grafana.folders[FOLDER] = TITLE
    grafana.keep(dashboard("theirs", title=f"Title of {DEEP_DIVE}", panels=[]), FOLDER)
    outcome = await push(grafana.url)
    assert outcome.code == 1
    assert grafana.dashboards["theirs"].document["panels"] == []
    assert set(grafana.dashboards) == {"theirs", OVERVIEW, REQUESTS}
    assert f"  refused    {DEEP_DIVE}: HTTP 412 A dashboard with the same name in the folder" in outcome.out
    assert "rename or delete the other dashboard" in outcome.out
    grafana.keep(dashboard(DEEP_DIVE, title="old"), FOLDER)
    outcome = await push(grafana.url)
    assert f"  refused    {DEEP_DIVE}: Grafana overwrote another dashboard" in outcome.out
    assert "'theirs'" in outcome.out


async def test_saved_for_later_is_not_saved(grafana: FakeGrafana, push: Pusher) -> None:
    """A Grafana under version control answers 202, and has not saved anything."""
    text = json.dumps({"status": "pending", "message": "changes were broadcast to the gitops listener"})
    grafana.instead = answering(202, "/api/dashboards/db", text=text, content_type="application/json")
    outcome = await push(grafana.url)
    assert (outcome.code, outcome.err) == (1, "3 refused\n")
    assert "HTTP 202 changes were broadcast to the gitops listener" in outcome.out


# --- tokens and addresses


async def test_a_token_is_needed_where_somebody_must_log_in(grafana: FakeGrafana, push: Pusher) -> None:
    """A bad one ends it with exit code 4. It may come from the environment."""
    for token, words, said in (
        ("", (), "give a service account's token with --grafana.token-file"),
        ("glsa_of-another-grafana", (), "HTTP 401 Invalid API key (--grafana.token-file: "),
        (EDITOR, ("--grafana.org-id", "2"), "API key does not belong to the requested organization"),
    ):
        outcome = await push(grafana.url, *words, token=token)
        assert (outcome.code, grafana.writes) == (4, [])
        assert said in outcome.err
        assert NOT_PUSHED in outcome.err
    assert (await push(grafana.url, "--grafana.org-id", "1")).code == 0
    file = {"VLLM_SPECDEC_EXPORTER_GRAFANA_TOKEN_FILE": push.token_file(EDITOR)}
    assert (await push(grafana.url, token="", **file)).code == 0
    grafana.anonymous_role = "Admin"
    assert (await push(grafana.url, token="")).code == 0


async def test_a_token_that_a_server_quotes_is_hidden(grafana: FakeGrafana, push: Pusher) -> None:
    """Some proxies repeat the request in their errors; the pusher looks for the token in all output."""
    text = json.dumps({"message": f"who is Bearer {EDITOR}?\x1b[2J\n"})
    for status, path, code in ((400, "/api/dashboards/db", 1), (401, "/api/folders/vllm-specdec", 4)):
        grafana.instead = answering(status, path, text=text, content_type="application/json")
        outcome = await push(grafana.url)
        assert outcome.code == code
        assert "who is Bearer <secret>? [2J" in outcome.out + outcome.err
        assert "\x1b" not in outcome.out + outcome.err


async def test_a_sub_path_works_and_redirects_are_not_followed(grafana: FakeGrafana, push: Pusher) -> None:
    """A Grafana behind a proxy with other services; the error says where to, the token goes nowhere else."""
    grafana.sub_path = "/grafana"
    outcome = await push(f"{grafana.url}/")
    assert (outcome.code, len(grafana.dashboards)) == (0, 3)
    assert f"http://127.0.0.1:{grafana.port}/grafana/d/{OVERVIEW}\n" in outcome.out
    grafana.requests.clear()
    outcome = await push(grafana.url.removesuffix("/grafana"))
    assert (outcome.code, len(grafana.requests)) == (4, 1)
    assert "redirected to /grafana/api/health; redirects are not followed" in outcome.err


async def test_a_server_that_is_not_grafana_is_recognised(grafana: FakeGrafana, push: Pusher) -> None:
    """Before anything is sent but the request for the version."""
    html, login = "text/html", "<title>Sign in</title>"
    for status, kind, body, said in (
        (200, html, login, "HTTP 200 OK with text/html instead of JSON for "),
        (401, html, login, "HTTP 401 Unauthorized with text/html instead of JSON"),
        (200, "application/json", '{"status": "success"}', "the server is not Grafana"),
        (200, "application/json", "[]", "unexpected JSON in the response to GET /api/health"),
        (502, html, "<title>Bad gateway</title>", "HTTP 502 Bad Gateway\n"),
    ):
        grafana.instead = answering(status, "", text=body, content_type=kind)
        grafana.requests.clear()
        outcome = await push(grafana.url)
        assert (outcome.code, grafana.requests) == (4, [("GET", "/api/health")])
        assert said in outcome.err
    outcome = await push("http://127.0.0.1:1")
    assert (outcome.code, "nothing listens at the address" in outcome.err) == (4, True)


async def test_tls_is_checked_unless_told_otherwise(push: Pusher, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    server = FakeGrafana()
    server.tls = server_side(authority.issue("127.0.0.1"))
    async with server:
        outcome = await push(server.url)
        assert (outcome.code, server.requests) == (4, [])
        assert "no trusted TLS connection" in outcome.err
        for flag, value in (("ca-file", str(authority.file)), ("insecure-skip-verify", "true")):
            assert (await push(server.url, f"--grafana.{flag}", value)).code == 0


# --- failures half-way


async def test_a_failure_half_way_says_what_is_done_and_what_is_not(
    grafana: FakeGrafana, push: Pusher
) -> None:
    """It stops there: a server in trouble is not asked again. A lost connection leaves it open."""
    error = web.json_response({"message": "database is locked"}, status=500)
    for number, answer, said, left in (
        (2, error, "HTTP 500 database is locked", f"1 new; possibly saved: {DEEP_DIVE}; not pushed: "),
        (3, None, "the connection was closed before the response", f"2 new; possibly saved: {REQUESTS}\n"),
    ):
        grafana.dashboards.clear()
        grafana.requests.clear()

        async def instead(
            request: web.Request, number: int = number, answer: web.StreamResponse | None = answer
        ) -> web.StreamResponse | None:
            saves = [path for method, path in grafana.requests if method == "POST" and path.endswith("/db")]
            if not request.path.endswith("/db") or len(saves) != number:
                return None
            if answer is None and request.transport is not None:
                request.transport.close()
            return answer

        grafana.instead = instead
        outcome = await push(grafana.url)
        assert outcome.code == 4
        assert said in outcome.err
        assert left in outcome.err


async def test_a_slow_server_ends_at_the_timeout(grafana: FakeGrafana, push: Pusher) -> None:
    """Of one request, not of all. What was only read has certainly not been saved."""

    async def instead(request: web.Request) -> web.StreamResponse | None:
        await asyncio.sleep(60 if request.path.endswith(DEEP_DIVE) else 0.4)
        return None

    grafana.instead = instead
    outcome = await push(grafana.url, "--grafana.timeout", "2s")
    assert outcome.code == 4
    assert "no complete response within 2 s" in outcome.err
    assert f"1 new; not pushed: {DEEP_DIVE}, {REQUESTS}\n" in outcome.err


async def test_an_interrupted_push_says_how_far_it_came(grafana: FakeGrafana, push: Pusher) -> None:
    """Ctrl-C ends it at once, without a traceback."""
    reached = asyncio.Event()

    async def instead(request: web.Request) -> web.StreamResponse | None:
        if request.path == "/api/dashboards/db" and OVERVIEW in grafana.dashboards:
            reached.set()
            await asyncio.sleep(30)
        return None

    grafana.instead = instead
    process = await asyncio.create_subprocess_exec(
        *(COMMAND, *push.words(grafana.url)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=clean_environment(),
    )
    await asyncio.wait_for(reached.wait(), 60)
    process.send_signal(signal.SIGINT)
    out, err = (text.decode() for text in await process.communicate())
    assert process.returncode == 130
    assert f"  new        {OVERVIEW}: " in out
    assert err.splitlines() == [
        "vllm-specdec-exporter dashboards: interrupted",
        f"vllm-specdec-exporter dashboards: 1 new; possibly saved: {DEEP_DIVE}; not pushed: {REQUESTS}",
    ]


async def test_output_that_nobody_reads_is_no_reason_for_silence(grafana: FakeGrafana, push: Pusher) -> None:
    """`dashboards --push ... | head -1` ends the push; standard error says how far it came."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as unread:
        process = await asyncio.create_subprocess_exec(
            *(COMMAND, *push.words(grafana.url)),
            stdout=unread,
            stderr=asyncio.subprocess.PIPE,
            env=clean_environment(),
        )
    _, err = await process.communicate()
    assert process.returncode == 141
    assert err.decode().splitlines()[-1].endswith(NOT_PUSHED)
