"""`dashboards --push` where Grafana refuses, is not there, or fails half-way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from grafana.fake_grafana import ADMIN, EDITOR, VIEWER, FakeGrafana
from grafana.pusher import ALL, DEEP_DIVE, FOLDER, OVERVIEW, REQUESTS, TITLE, Pusher, answering, dashboard
from support.certificates import Authority, server_side
from support.programs import COMMAND, clean_environment

if TYPE_CHECKING:
    from pathlib import Path


# --- what Grafana refuses


async def test_a_viewer_may_not_push(grafana: FakeGrafana, push: Pusher) -> None:
    """Neither without the folder nor into it; the error says which role is needed."""
    for folders in ({}, {FOLDER: TITLE}):
        grafana.folders = folders
        outcome = await push(grafana.url, token=VIEWER)
        assert (outcome.code, grafana.dashboards) == (1, {})
        assert "role Editor" in outcome.err
        assert f"not pushed: {', '.join(ALL)}" in outcome.err


async def test_one_refusal_does_not_keep_back_the_others(grafana: FakeGrafana, push: Pusher) -> None:
    """A provisioned dashboard cannot be saved; it is named with the reason, unless it is current."""
    grafana.folders[FOLDER] = TITLE
    grafana.keep(dashboard(DEEP_DIVE, title="old"), FOLDER, provisioned=True)
    grafana.keep(dashboard(REQUESTS), FOLDER, provisioned=True)
    outcome = await push(grafana.url)
    assert outcome.code == 1
    assert set(grafana.dashboards) == set(ALL)
    assert grafana.dashboards[DEEP_DIVE].document["title"] == "old"
    assert f"  refused    {DEEP_DIVE}: Grafana loads it from a file (provisioning)" in outcome.out
    assert outcome.err == "1 new; 1 unchanged; 1 refused\n"


async def test_what_cannot_be_read_is_pushed_all_the_same(grafana: FakeGrafana, push: Pusher) -> None:
    """Dashboards of the newer form cannot be read here; Grafana's word is taken for those that it refuses."""
    grafana.folders[FOLDER] = TITLE
    grafana.keep(dashboard(OVERVIEW, title="old"), FOLDER)
    grafana.keep(dashboard(DEEP_DIVE), FOLDER, provisioned=True)
    grafana.new_form = {OVERVIEW, DEEP_DIVE}
    outcome = await push(grafana.url)
    assert outcome.code == 1
    assert grafana.dashboards[OVERVIEW].document["title"] == f"Title of {OVERVIEW}"
    assert f"  changed    {OVERVIEW}: " in outcome.out
    assert (
        f"  refused    {DEEP_DIVE}: HTTP 400 Cannot save provisioned dashboard; Grafana loads it from"
        in outcome.out
    )


async def test_a_dashboard_of_the_same_title_is_not_overwritten(grafana: FakeGrafana, push: Pusher) -> None:
    """Before 11.2 Grafana would, if it may: somebody's dashboard would be gone under another uid."""
    grafana.unique_titles = True
    grafana.folders[FOLDER] = TITLE
    theirs = dashboard("theirs", title=f"Title of {DEEP_DIVE}", panels=[])
    grafana.keep(theirs, FOLDER)
    outcome = await push(grafana.url)
    assert outcome.code == 1
    assert grafana.dashboards["theirs"].document["panels"] == []
    assert set(grafana.dashboards) == {"theirs", OVERVIEW, REQUESTS}
    assert (
        f"  refused    {DEEP_DIVE}: HTTP 412 A dashboard with the same name in the folder already exists"
        in outcome.out
    )
    assert "rename or delete the other dashboard" in outcome.out


async def test_another_uid_than_ours_is_no_success(grafana: FakeGrafana, push: Pusher) -> None:
    """Where ours is there, and now has the title of another: Grafana answers 200 with the other's uid."""
    grafana.unique_titles = True
    grafana.folders[FOLDER] = TITLE
    grafana.keep(dashboard(DEEP_DIVE, title="old"), FOLDER)
    grafana.keep(dashboard("theirs", title=f"Title of {DEEP_DIVE}"), FOLDER)
    outcome = await push(grafana.url)
    assert outcome.code == 1
    assert f"  refused    {DEEP_DIVE}: Grafana overwrote another dashboard" in outcome.out
    assert "'theirs'" in outcome.out
    assert outcome.err == "2 new; 1 refused\n"


async def test_saved_for_later_is_not_saved(grafana: FakeGrafana, push: Pusher) -> None:
    """A Grafana under version control answers 202, and has not saved anything."""
    text = json.dumps({"status": "pending", "message": "changes were broadcast to the gitops listener"})
    grafana.instead = answering(202, "/api/dashboards/db", text=text, content_type="application/json")
    outcome = await push(grafana.url)
    assert outcome.code == 1
    assert "HTTP 202 changes were broadcast to the gitops listener" in outcome.out
    assert outcome.err == "3 refused\n"


# --- tokens and addresses


async def test_a_token_that_is_not_accepted_ends_it(grafana: FakeGrafana, push: Pusher) -> None:
    """Exit code 4, as for a server that cannot be asked."""
    unknown = "HTTP 401 Invalid API key (--grafana.token-file: "
    for token, words, said in (
        ("", (), "give a service account's token with --grafana.token-file"),
        ("glsa_of-another-grafana", (), unknown),
        (EDITOR, ("--grafana.org-id", "2"), "API key does not belong to the requested organization"),
    ):
        outcome = await push(grafana.url, *words, token=token)
        assert (outcome.code, grafana.writes) == (4, [])
        assert said in outcome.err
        assert f"not pushed: {', '.join(ALL)}" in outcome.err


async def test_other_ways_to_be_let_in(grafana: FakeGrafana, push: Pusher) -> None:
    """The token's own organization, a token file from the environment, and none where nobody logs in."""
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
    for url in (grafana.url, f"{grafana.url}/"):
        grafana.dashboards.clear()
        outcome = await push(url)
        assert (outcome.code, len(grafana.dashboards)) == (0, 3)
        assert f"http://127.0.0.1:{grafana.port}/grafana/d/{OVERVIEW}\n" in outcome.out
    grafana.requests.clear()
    outcome = await push(grafana.url.removesuffix("/grafana"))
    assert outcome.code == 4
    assert "redirected to /grafana/api/health; redirects are not followed" in outcome.err
    assert len(grafana.requests) == 1


async def test_what_is_no_grafana_is_told_apart(grafana: FakeGrafana, push: Pusher) -> None:
    """Before anything is sent but the question for the version."""
    html, text, json_ = "text/html", "text/plain", "application/json"
    login = "<title>Sign in</title>"
    for status, kind, body, said in (
        (200, html, login, "HTTP 200 OK with text/html instead of JSON for "),
        (401, html, login, "HTTP 401 Unauthorized with text/html instead of JSON"),
        (404, text, "404 page not found", "HTTP 404 Not Found with text/plain instead of JSON"),
        (200, json_, '{"status": "success"}', "the server is not Grafana"),
        (200, json_, "[]", "unexpected JSON in the response to GET /api/health"),
        (502, html, "<title>Bad gateway</title>", "HTTP 502 Bad Gateway\n"),
    ):
        grafana.instead = answering(status, "", text=body, content_type=kind)
        grafana.requests.clear()
        outcome = await push(grafana.url)
        assert (outcome.code, grafana.requests) == (4, [("GET", "/api/health")])
        assert said in outcome.err
    outcome = await push("http://127.0.0.1:1")
    assert outcome.code == 4
    assert "http://127.0.0.1:1: nothing listens at the address" in outcome.err


async def test_tls_is_checked_unless_told_otherwise(push: Pusher, tmp_path: Path) -> None:
    """By the system's certificates or those given."""
    authority = Authority(tmp_path, "authority")
    server = FakeGrafana()
    server.tls = server_side(authority.issue("127.0.0.1"))
    async with server:
        outcome = await push(server.url)
        assert (outcome.code, server.requests) == (4, [])
        assert "no trusted TLS connection" in outcome.err
        for words in (
            ("--grafana.ca-file", str(authority.file)),
            ("--grafana.insecure-skip-verify", "true"),
        ):
            assert (await push(server.url, *words)).code == 0


# --- failures half-way


async def fail_at(grafana: FakeGrafana, number: int, answer: web.StreamResponse | None) -> None:
    """Let the saving of a dashboard fail: by this answer, or with none by closing the connection."""

    async def instead(request: web.Request) -> web.StreamResponse | None:
        saves = [path for method, path in grafana.requests if method == "POST" and path.endswith("/db")]
        if request.path.endswith("/db") and len(saves) == number:
            if answer is None and request.transport is not None:
                request.transport.close()
            return answer
        return None

    grafana.instead = instead


async def test_a_failure_half_way_says_what_is_done_and_what_is_not(
    grafana: FakeGrafana, push: Pusher
) -> None:
    """It stops there: a server in trouble is not asked again. Of a lost connection nobody can know."""
    await fail_at(grafana, 2, web.json_response({"message": "database is locked"}, status=500))
    outcome = await push(grafana.url)
    assert (outcome.code, set(grafana.dashboards)) == (4, {OVERVIEW})
    assert "HTTP 500 database is locked" in outcome.err
    assert f"1 new; possibly saved: {DEEP_DIVE}; not pushed: {REQUESTS}\n" in outcome.err

    grafana.dashboards.clear()
    grafana.requests.clear()
    await fail_at(grafana, 3, None)
    outcome = await push(grafana.url)
    assert outcome.code == 4
    assert "the connection was closed before the response was complete" in outcome.err
    assert f"2 new; possibly saved: {REQUESTS}\n" in outcome.err


@pytest.mark.full
async def test_a_slow_server_ends_at_the_timeout(grafana: FakeGrafana, push: Pusher) -> None:
    """Of one request, not of all."""

    async def instead(request: web.Request) -> web.StreamResponse | None:
        await asyncio.sleep(60 if request.path.endswith(DEEP_DIVE) else 0.4)
        return None

    grafana.instead = instead
    outcome = await push(grafana.url, "--grafana.timeout", "2s")
    assert outcome.code == 4
    assert "no complete response within 2 s" in outcome.err
    assert f"1 new; not pushed: {DEEP_DIVE}, {REQUESTS}\n" in outcome.err


@pytest.mark.parametrize(
    ("hung", "left"),
    [
        ("/api/dashboards/db", f"possibly saved: {DEEP_DIVE}; not pushed: {REQUESTS}"),
        (f"/api/dashboards/uid/{DEEP_DIVE}", f"not pushed: {DEEP_DIVE}, {REQUESTS}"),
    ],
    ids=["saving", "reading"],
)
async def test_an_interrupted_push_says_how_far_it_came(
    grafana: FakeGrafana, push: Pusher, hung: str, left: str
) -> None:
    """Ctrl-C ends it at once, without a traceback."""
    reached = asyncio.Event()

    async def instead(request: web.Request) -> web.StreamResponse | None:
        if request.path == hung and OVERVIEW in grafana.dashboards:
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
        f"vllm-specdec-exporter dashboards: 1 new; {left}",
    ]


async def test_a_failure_at_the_home_is_told_beside_what_was_pushed(
    grafana: FakeGrafana, push: Pusher
) -> None:
    """The dashboards are there, the home is not."""
    grafana.instead = answering(503, "/api/org/preferences", text="busy")
    outcome = await push(grafana.url, "--home", token=ADMIN)
    assert (outcome.code, len(grafana.dashboards)) == (4, 3)
    assert "  home       not set: HTTP 503 Service Unavailable\n" in outcome.out
    assert outcome.err.splitlines()[-1] == "vllm-specdec-exporter dashboards: 3 new"


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
    assert err.decode().splitlines()[-1].endswith(f"not pushed: {', '.join(ALL)}")
