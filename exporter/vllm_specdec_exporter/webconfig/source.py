"""The source: the web configuration file and the files that it names, read together."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import files, yamltext
from .context import make_context
from .document import WebConfig, parse
from .fields import WebConfigError

if TYPE_CHECKING:
    import ssl

#: How often files that change while they are read are read again.
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in the files, as digests, by path; in place of those of a file that cannot be read: why."""

    digests: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A web configuration that can be used.

    Attributes:
        config: what the file says.
        context: what speaks TLS; ``None`` for plain HTTP.
        contents: what it was read from.
        empty: whether the file has nothing in it.
    """

    config: WebConfig
    context: ssl.SSLContext | None
    contents: Contents
    empty: bool = False


class Source:
    """The web configuration file at a path.

    Files are compared by what is in them: a Kubernetes Secret changes by one symbolic link far up the path,
    and neither the time nor the size of a file that was written twice in a second tells anything.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._files: tuple[str, tuple[str, ...]] = ("", ())

    def look(self) -> Contents:
        """Return what is in all files now."""
        text, digest = _read(self.path)
        if digest != self._files[0]:  # YAML takes a millisecond, and this is asked every second
            self._files = (digest, self._named(text))
        return Contents(((self.path, digest), *((name, _read(name)[1]) for name in self._files[1])))

    def _named(self, text: bytes | None) -> tuple[str, ...]:
        try:
            config = WebConfig() if text is None else self._parse(text)
        except WebConfigError:
            return ()  # told when it is loaded
        return config.tls.files if config.tls else ()

    def load(self) -> Loaded:
        """Read everything, as it was at one moment.

        Raises:
            WebConfigError: it cannot be used.
        """
        for _ in range(_ATTEMPTS):
            before = self.look()
            try:
                loaded = self._load(before)
            except WebConfigError:
                if self.look() == before:
                    raise
                continue
            if self.look() == before:
                return loaded
        msg = "the files change faster than they can be read"
        raise WebConfigError(msg)

    def _load(self, contents: Contents) -> Loaded:
        text, reason = _read(self.path)
        if text is None:
            raise WebConfigError(reason)
        config = self._parse(text)
        context = make_context(config.tls) if config.tls else None
        return Loaded(config, context, contents, empty=not text.strip())

    def _parse(self, text: bytes) -> WebConfig:
        return parse(yamltext.read(text), str(Path(self.path).parent))


def _read(path: str) -> tuple[bytes | None, str]:
    """Return what is in a file and its digest, or nothing and why."""
    content, reason = files.read(path)
    return content, reason if content is None else hashlib.sha256(content).hexdigest()
