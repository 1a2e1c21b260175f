"""Who may ask: basic authentication, and what it costs."""

import asyncio
import base64
from collections.abc import Iterator
from unittest.mock import Mock

import bcrypt
import pytest

from support.exporter import RunningExporter
from vllm_specdec_exporter.listener.web_config.passwords import (
    MAX_CACHED,
    MAX_OF_ONE_PEER,
    Authenticator,
    TooBusyError,
    parse_header,
)
from webconfig.https import ask, basic, guarded
from webconfig.pki import Pki, hashed

ALICE = ("alice", "correct horse")


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningExporter]:
    pki = Pki(tmp_path_factory.mktemp("users"))
    users = {
        "alice": hashed("correct horse"),
        "zoë": hashed("pässword"),
        "long": hashed("x" * 72),
    }
    with guarded(pki, {"basic_auth_users": users}) as running:
        yield running


class TestRequests:
    @pytest.mark.parametrize(
        ("path", "status"),
        [
            ("/", 200),
            ("/metrics", 200),
            ("/config", 200),
            ("/api/v1/snapshot", 200),
            ("/nothing-here", 404),
            ("/-/healthy/", 404),
            ("/-/nothing", 404),
        ],
    )
    def test_a_password_is_needed(
        self, exporter: RunningExporter, path: str, status: int
    ) -> None:
        """Without one, the answer does not even say what exists."""
        answer = ask(exporter, path)
        assert answer.status == 401
        assert answer.text == "user name and password are required\n"
        assert answer.headers["www-authenticate"].startswith("Basic realm=")
        assert ask(exporter, path, user=ALICE).status == status

    @pytest.mark.parametrize("path", ["/-/healthy", "/-/ready"])
    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    def test_probes_need_no_password(
        self, exporter: RunningExporter, path: str, method: str
    ) -> None:
        """They cannot carry one, and a wrong one does not hurt."""
        assert ask(exporter, path, method=method).status == 200
        assert ask(exporter, path, method=method, user=("mallory", "x")).status == 200

    @pytest.mark.parametrize("path", ["/-/reload", "/-/healthy", "/metrics"])
    @pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS"])
    def test_other_methods_need_one(
        self, exporter: RunningExporter, path: str, method: str
    ) -> None:
        assert ask(exporter, path, method=method).status == 401

    def test_a_user_reloads(self, exporter: RunningExporter) -> None:
        assert ask(exporter, "/-/reload", method="POST", user=ALICE).status == 200

    @pytest.mark.parametrize(
        ("user", "password", "status"),
        [
            (*ALICE, 200),
            ("zoë", "pässword", 200),
            ("long", "x" * 72, 200),
            ("alice", "correct horse ", 401),
            ("alice", "", 401),
            ("alice", "correct horse\0", 401),
            ("Alice", "correct horse", 401),
            ("", "", 401),
            # bcrypt itself reads no more than 72 bytes
            ("long", "x" * 71, 401),
            ("mallory", "y" * 5000, 401),
        ],
    )
    def test_credentials(
        self, exporter: RunningExporter, user: str, password: str, status: int
    ) -> None:
        """Name and password must both be right; the second time as the first."""
        answers = [ask(exporter, "/metrics", user=(user, password)) for _ in range(2)]
        assert [answer.status for answer in answers] == [status] * 2

    def test_nothing_secret_is_shown(self, exporter: RunningExporter) -> None:
        """The settings in force name the file, and neither they nor the log have a hash
        or a password.
        """
        shown = ask(exporter, "/config", user=ALICE).text + exporter.log()

        assert "web.yml" in shown
        assert "$2" not in shown
        assert "horse" not in shown


class TestAuthenticator:
    async def test_users_change(self) -> None:
        """Who was removed, or has another password, is let in no more: well known, or
        just being checked.
        """
        authenticator = Authenticator()
        authenticator.use([("alice", hashed("one")), ("bob", hashed("two", 13))])
        assert await authenticator.allows(basic("alice", "one")) is True
        check = asyncio.create_task(authenticator.allows(basic("bob", "two")))
        await asyncio.sleep(0.005)
        assert not check.done()
        authenticator.use([("alice", hashed("other"))])

        assert await check is False
        assert await authenticator.allows(basic("alice", "one")) is False
        assert await authenticator.allows(basic("bob", "two")) is False
        assert await authenticator.allows(basic("alice", "other")) is True

    async def test_many_users_are_remembered_within_bounds(self) -> None:
        """However many users there are, the memory of them has an end; all are still
        let in.
        """
        names = [f"user{n}" for n in range(MAX_CACHED + 20)]
        authenticator = Authenticator()
        password_hash = hashed("x")
        authenticator.use([(name, password_hash) for name in names])
        answers = [await authenticator.allows(basic(name, "x")) for name in names]

        assert set(answers) == {True}
        assert len(authenticator._valid) == MAX_CACHED
        assert await authenticator.allows(basic(names[0], "x"))

    @pytest.fixture
    def checked(self, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
        """The passwords that a hash is computed of."""
        checked = list[bytes]()
        matches = bcrypt.checkpw
        monkeypatch.setattr(
            bcrypt,
            "checkpw",
            lambda word, stored: checked.append(word) or matches(word, stored),
        )
        return checked

    async def test_valid_credentials_are_hashed_once(
        self, checked: list[bytes]
    ) -> None:
        """Valid credentials once, also if they come at the same time; all others each
        time.

        The hash for an unknown user has the cost of the others.
        """
        authenticator = Authenticator()
        authenticator.use([("alice", hashed("x", 5))])
        answers = await asyncio.gather(
            *(authenticator.allows(basic("alice", "x")) for _ in range(10))
        )
        assert answers == [True] * 10
        assert checked == [b"x"]
        assert await authenticator.allows(basic("alice", "x"))
        for who in (("alice", "y"), ("alice", "y"), ("mallory", "z")):
            assert not await authenticator.allows(basic(*who)), who
        assert checked == [b"x", b"y", b"y", b"z"]
        assert authenticator._decoy.startswith(b"$2b$05$")

    async def test_valid_credentials_are_kept_as_keyed_digests(self) -> None:
        """Who reads the memory of one process learns nothing of another's."""
        kept = []
        stored = hashed("correct horse")
        for _ in range(2):
            authenticator = Authenticator()
            authenticator.use([("alice", stored)])
            assert await authenticator.allows(basic(*ALICE))
            (digest,) = authenticator._valid
            kept.append(digest)
            assert "horse" not in repr(vars(authenticator))
        assert {len(digest) for digest in kept} == {32}
        assert kept[0] != kept[1]

    async def test_waiting_checks_are_limited(self) -> None:
        """No more than so many of one client wait; those who do not wait take no
        place.
        """
        authenticator = Authenticator()
        authenticator.use([("alice", hashed("x", 9))])
        guesses = [
            authenticator.allows(basic("alice", f"{n}"), "a")
            for n in range(MAX_OF_ONE_PEER + 1)
        ]
        answers = await asyncio.gather(*guesses, return_exceptions=True)
        assert answers[:-1] == [False] * MAX_OF_ONE_PEER
        assert isinstance(answers[-1], TooBusyError)
        assert await authenticator.allows(basic("alice", "x"), "a")

    async def test_a_right_password_waits_for_two_hashes(
        self, checked: list[bytes]
    ) -> None:
        """However many addresses guess: that under way, and the next of all who have
        guessed wrong.
        """
        authenticator = Authenticator()
        authenticator.use([("alice", hashed("right", 9))])
        guessers = [f"guesser {number}" for number in range(30)]

        def guess(round_: int) -> list[asyncio.Task[bool]]:
            return [
                asyncio.create_task(
                    authenticator.allows(basic("alice", f"{round_}"), peer)
                )
                for peer in guessers
            ]

        for each in guess(1), guess(2):
            assert set(await asyncio.gather(*each)) == {False}
        waiting = guess(3)
        await asyncio.sleep(0.005)  # one is computed, one waits, the others for that
        checked.clear()
        assert await authenticator.allows(basic("alice", "right"), "prometheus")
        assert checked[-1] == b"right"
        assert len(checked) <= 2
        await asyncio.gather(*waiting)

    async def test_clients_that_have_gone(self, checked: list[bytes]) -> None:
        """Nothing is computed for who does not wait any more; who brought the same and
        waits is answered.
        """
        authenticator = Authenticator()
        authenticator.use([("alice", hashed("right", 9))])
        answers = await asyncio.gather(
            authenticator.allows(basic("alice", "first"), "a"),
            authenticator.allows(basic("alice", "left"), "b", lambda: True),
            authenticator.allows(basic("alice", "right"), "c", lambda: True),
            authenticator.allows(basic("alice", "right"), "d"),
            return_exceptions=True,
        )

        assert checked == [b"first", b"right"]
        assert [answers[0], type(answers[1]), *answers[2:]] == [
            False,
            TooBusyError,
            True,
            True,
        ]

    async def test_a_failed_check_does_not_stop_the_next(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A check that fails, also as a panic in Rust does, is told to who asked; the
        next is served.
        """

        class PanicError(BaseException):
            pass

        authenticator = Authenticator()
        authenticator.use([("alice", hashed("x"))])
        for error, raised in (
            (ValueError("no hash"), ValueError),
            (PanicError("oops"), RuntimeError),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(
                    bcrypt, "checkpw", Mock(side_effect=error, __name__="checkpw")
                )
                with pytest.raises(raised, match=str(error)):
                    await authenticator.allows(basic("alice", "y"))
        assert await authenticator.allows(basic("alice", "x")) is True


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (basic("a", "b"), (b"a", b"b")),
        (f"bAsIc   {base64.b64encode(b'a:b').decode()} ", (b"a", b"b")),
        (basic("a", "b:c"), (b"a", b"b:c")),
        (basic("", ""), (b"", b"")),
        ("Basic YWI=", None),
        ("Basic YTpi!", None),
        ("Digest YTpi", None),
        ("Bearer YTpi", None),
        ("Basic \xff", None),
        ("Basic !", None),
        ("Basic ", None),
        ("Basic", None),
        ("", None),
        ("x" * 4000, None),
        (None, None),
    ],
)
def test_parse_header(header: str | None, expected: tuple[bytes, bytes] | None) -> None:
    """The scheme is in any case; the password may have colons, the user may not."""
    assert parse_header(header) == expected
