"""Options: a table of settings, read from flags, environment variables and a YAML file.

The setting ``poll.interval`` is the flag ``--poll.interval``, the environment variable
``VLLM_SPECDEC_EXPORTER_POLL_INTERVAL`` and the YAML key ``interval`` under ``poll``.
Flags take precedence over the environment, and the environment over the file. All use
the same parser. An error names the source of the value, the value, and what is allowed.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from .values import nearest

_PRODUCT = "VLLM_SPECDEC_"
ENVIRONMENT_PREFIX = f"{_PRODUCT}EXPORTER_"

_SERVICE_LINK = re.compile(
    r"_SERVICE_(HOST|PORT\w*)$|_PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?$"
)


class ConfigError(Exception):
    """An invalid setting. The message is one line with its name and what is allowed."""


@dataclass(frozen=True)
class Option:
    """One setting."""

    name: str  # the flag without the dashes
    #: Converts text to a value; raises ValueError with a message that names what is
    #: allowed.
    parse: Callable[[str], Any]
    #: Text of the default value; ``None`` for no value; a tuple if repeatable.
    default: str | tuple[str, ...] | None
    help: str  # one sentence
    metavar: str = "VALUE"  # placeholder of the value in the help
    #: Whether it accepts several values; then its value is a tuple.
    repeatable: bool = False
    separator: str = ","  # separates several values in the environment variable
    #: Removes secrets from a value's text, for errors and `/config`.
    mask: Callable[[str], str] = str
    #: Whether an empty value, or `null` in the file, overrides the default with no
    #: value. Otherwise it is ignored.
    may_be_empty: bool = False

    @property
    def flag(self) -> str:
        """The flag."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return ENVIRONMENT_PREFIX + self.name.upper().replace(".", "_").replace(
            "-", "_"
        )

    @property
    def key(self) -> str:
        """The key in the file, with dots between levels."""
        return self.name.replace("-", "_")


class Parser(argparse.ArgumentParser):
    """An argument parser with errors of one line; the ``--help`` of `shown_by` lists
    the flags.
    """

    def __init__(self, prog: str, description: str, shown_by: str = "") -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)
        self._shown_by = shown_by or prog

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse `args`. The error for an unknown flag suggests a similar one."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            flag = unknown[0].partition("=")[0]
            if flag[:1] == "-":
                near = nearest(flag, self._option_string_actions)
            else:
                near = ""
            self.error(
                "unrecognized arguments: "
                f"{' '.join(unknown)}{f'; did you mean {near}?' if near else ''}"
            )
        return parsed

    def error(self, message: str) -> NoReturn:
        """Print `message` as one line and exit with 2."""
        self.exit(2, f"{self.prog}: error: {message} (see {self._shown_by} --help)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stderr).write(message)  # argparse ignores an error


def add_flags(
    parser: argparse.ArgumentParser,
    options: Sequence[Option],
    subjects: Mapping[str, str] | None = None,
    first: Sequence[str] = (),
    *,
    variables: bool = True,
) -> None:
    """Add a flag for every option to `parser`; `gather` applies the defaults, not
    argparse.

    `subjects` are titles of the groups in the help, by the first part of the options'
    names; `first` names the options before all groups; `variables` is whether
    environment variables apply.
    """
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in sorted(options, key=lambda option: option.name not in first):
        target: argparse._ActionsContainer = parser
        if subjects is not None and option.name not in first:
            title = subjects[option.name.partition(".")[0]]
            if title not in groups:
                groups[title] = parser.add_argument_group(title)
            target = groups[title]
        if isinstance(option.default, str):
            shown = option.default
        else:
            shown = ", ".join(option.default or ())
        lines = ", one value per line" if option.separator == "\n" else ""
        variable = f" [${option.variable}{lines}]" if variables else ""
        target.add_argument(
            option.flag,
            dest=option.name,
            metavar=option.metavar,
            action="append" if option.repeatable else "store",
            default=None,
            help=f"{option.help}{f' Default: {shown}.' if shown else ''}{variable}".replace(
                "%", "%%"
            ),
        )


def gather(
    options: Sequence[Option],
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    document: object,
    file: str = "",
) -> tuple[dict[str, Any], dict[str, object]]:
    """Return the value of every option by name, and the masked texts by key of the
    file.

    `flags` has the values from argparse by option name, ``None`` for a flag that was
    not given; `document` is the parsed YAML file called `file`. Raises ConfigError for
    an invalid value, and for an unknown key in the file.
    """
    from_file = flatten(document, {option.key for option in options}, file)
    values: dict[str, Any] = {}
    shown: dict[str, object] = {}
    for option in options:
        source, texts = _texts(option, flags, environment, from_file, file)
        parsed = [_parse(option, source, text) for text in texts]
        masked = [option.mask(text) for text in texts]
        values[option.name] = (
            tuple(parsed) if option.repeatable else (parsed[0] if parsed else None)
        )
        shown[option.key] = (
            masked if option.repeatable else (masked[0] if masked else None)
        )
    return values, shown


def check_both_or_neither(values: Mapping[str, Any], first: str, second: str) -> None:
    """Raise ConfigError unless two settings are both set or both unset."""
    if (values[first] in (None, "")) != (values[second] in (None, "")):
        raise ConfigError(f"--{first} and --{second} go together")


def unknown_variables(
    options: Sequence[Option], environment: Mapping[str, str]
) -> list[str]:
    """Return the variables with the prefix, or its beginning, that belong to no option,
    probably misspelt.

    Ignores ``..._SERVICE_*`` and ``..._PORT*``, which Kubernetes sets for Services with
    such a name.
    """
    known = {option.variable for option in options}
    return sorted(
        name
        for name in environment
        if (
            name.startswith(ENVIRONMENT_PREFIX)
            or (name.startswith(_PRODUCT) and nearest(name, known, 0.8))
        )
        and name not in known
        and not _SERVICE_LINK.search(name)
    )


def _parse(option: Option, source: str, text: str) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        raise ConfigError(
            f"{source} {json.dumps(option.mask(text), ensure_ascii=False)}: {error}"
        ) from error


def _texts(
    option: Option,
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    from_file: Mapping[str, object],
    file: str,
) -> tuple[str, Sequence[str]]:
    given = flags.get(option.name)
    if given is not None:
        return option.flag, given if option.repeatable else [given]
    text = environment.get(option.variable)
    # deployments unset a variable with an empty value
    if text or (text is not None and option.may_be_empty):
        parts = text.split(option.separator) if option.repeatable else [text]
        return option.variable, [
            part.strip() for part in parts if part.strip() or not option.repeatable
        ]
    value = from_file.get(option.key)
    if value is None and option.may_be_empty and option.key in from_file:
        value = ""
    if value is not None:
        source = f"{option.key} in {file}"
        return source, _from_yaml(option, value, source)
    if option.default is None:
        return option.flag, []
    return option.flag, [option.default] if isinstance(
        option.default, str
    ) else option.default


def _from_yaml(option: Option, value: object, source: str) -> list[str]:
    if not option.repeatable:
        if isinstance(value, list):
            raise ConfigError(f"{source}: takes one value, not a list")
        return [_scalar(value, source)]
    if isinstance(value, Mapping):
        joint = ": " if option.separator == "\n" else "="
        return [f"{name}{joint}{_scalar(item, source)}" for name, item in value.items()]
    return [
        _scalar(item, source)
        for item in (value if isinstance(value, list) else [value])
    ]


def _scalar(value: object, source: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, Mapping):
        return str(value)
    try:
        return json.dumps(value)
    except TypeError as error:  # a date, in YAML, without quotes
        raise ConfigError(
            f"{source}: contains a value that JSON does not have, such as a date: "
            "put it into quotes"
        ) from error


def flatten(
    document: object, known: set[str], file: str, prefix: str = ""
) -> dict[str, object]:
    """Return the values of the nested document in `file` by the `known` keys;
    ConfigError for others.
    """
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        where = f"{prefix.rstrip('.')} in {file}" if prefix else file
        raise ConfigError(f"{where}: a mapping of settings is expected")
    values: dict[str, object] = {}
    for name, value in document.items():
        key = prefix + str(name).replace("-", "_")
        if key in known:
            values[key] = value
        elif any(option.startswith(key + ".") for option in known):
            values.update(flatten(value, known, file, key + "."))
        else:
            near = nearest(key, known)
            if near:
                hint = f"; did you mean {near}?"
            else:
                hint = f"; known: {', '.join(sorted(known))}"
            shown = key if key.isprintable() else json.dumps(key)
            raise ConfigError(f"{shown} in {file}: no such setting{hint}")
    return values
