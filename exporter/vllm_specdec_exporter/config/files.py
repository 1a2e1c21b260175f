"""Files: atomic writing, detection of changes, reading, and the bearer tokens (RFC
6750) in them.
"""

import contextlib
import errno
import hmac
import json
import os
import stat
import tempfile
from pathlib import Path

from .options import ConfigError


def write(path: Path, body: bytes, mode: int = 0o644) -> None:
    """Write a file atomically: a reader sees the old content or the new one, never a
    part.

    Raises OSError if the file cannot be written; it is unchanged then.
    """
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(body)
            stream.flush()
            # Otherwise a crash can leave the new name with an empty file.
            os.fsync(stream.fileno())
        # mkstemp makes a file that only its owner can read.
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def try_to_write(path: Path) -> None:
    """Test whether `write` can write this file, without changing it; OSError if it
    cannot.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(number)
    Path(temporary).unlink()


def stamp(path: str) -> tuple[int, ...]:
    """Return a value that changes when the file is written or replaced; empty for no
    file or no path.
    """
    if not path:
        return ()
    try:
        status = Path(path).stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


MAX_BYTES = 4 << 20  # limit of a file, in bytes: four times what a ConfigMap may have


def read_regular(path: str, limit: int = MAX_BYTES) -> tuple[bytes | None, str]:
    """Return the content of a regular file, or `None` and the error.

    Devices and pipes could block.
    """
    try:
        # Without O_NONBLOCK, opening a pipe waits for its writer.
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None, "not a regular file"
            content = file.read(limit + 1)
    except (OSError, ValueError) as error:
        return None, f"cannot be read: {getattr(error, 'strerror', None) or error}"
    if len(content) > limit:
        return None, f"larger than {limit >> 20} MiB"
    return content, ""


def read_file(file: str, flag: str = "--config.file") -> object:
    """Return the document in a YAML file, `None` for an empty path.

    A ConfigError names `flag`.
    """
    if not file:
        return None
    cause: Exception | None = None
    content, problem = read_regular(file)
    if content is not None:
        # here: most sidecars have no file
        from .yaml_text import YAMLTextError, read_yaml

        try:
            return read_yaml(content.decode())
        except UnicodeDecodeError as error:
            cause = error
            problem = "not YAML: not UTF-8"
        except YAMLTextError as error:
            cause = error
            problem = f"not YAML: {error}"
    raise ConfigError(f"{flag} {json.dumps(file)}: {problem}") from cause


_MAX_TOKEN_BYTES = 64 * 1024  # limit of a file: servers accept no header of that length


class TokenError(ValueError):
    """A file without a token.

    The message is one line with the reason, without the path.
    """


def read_token(path: str | Path) -> str:
    """Return the token in a file, or raise TokenError."""
    try:
        with Path(path).open("rb") as stream:
            body = stream.read(_MAX_TOKEN_BYTES + 1)
    except OSError as error:
        raise TokenError(f"cannot be read: {error.strerror}") from error
    return parse_token(body)


def parse_token(body: bytes) -> str:
    """Return the token that is the content of a file, or raise TokenError."""
    token = body.strip()
    is_printable = all(0x21 <= byte <= 0x7E for byte in token)
    if not token or not is_printable or len(body) > _MAX_TOKEN_BYTES:
        raise TokenError("holds no token: one word of printable ASCII is expected")
    return token.decode("ascii")


def is_authorized(header: str, token: str) -> bool:
    """Return whether an ``Authorization`` header has the token, in a time that tells
    nothing of it.
    """
    scheme, _, credentials = header.strip().partition(" ")
    received = credentials.strip().encode("utf-8", "surrogateescape")
    matches = hmac.compare_digest(received, token.encode())
    return matches and scheme.lower() == "bearer"
