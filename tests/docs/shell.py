"""Shell blocks as their commands, without running them."""

import re
import shlex
from collections.abc import Iterator

_BETWEEN = {"&&", "||", "|", ";", "&"}
_REDIRECTION = {">", ">>", "<", "2>", ">&"}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def logical_lines(text: str) -> list[str]:
    """Return the lines of a script as a shell takes them: quotes, backslashes and pipes
    go on.
    """
    lines = []
    pending = ""
    for line in text.splitlines():
        pending = f"{pending}\n{line}".lstrip("\n")
        if not _is_whole(pending):
            continue
        if pending.strip() and not pending.lstrip().startswith("#"):
            lines.append(pending)
        pending = ""
    if pending:
        msg = f"it does not end: {pending}"
        raise ValueError(msg)
    return lines


def simple_commands(line: str) -> Iterator[list[str]]:
    """Yield the words of every command of a logical line: pipes, lists and redirections
    taken apart.
    """
    lexer = shlex.shlex(
        line.replace("\\\n", " "), posix=True, punctuation_chars="&|;<>"
    )
    lexer.whitespace_split = True
    command = []
    skip = False
    # The end of the line ends a command too.
    for word in (*lexer, ";"):
        if skip:
            skip = False
        elif word in _BETWEEN:
            if command:
                yield command
            command = []
        elif word in _REDIRECTION:
            skip = True
        elif command or not _ASSIGNMENT.match(word):
            command.append(word)


def _is_whole(text: str) -> bool:
    if text.endswith("\\") or text.rstrip().endswith("|"):
        return False
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True
