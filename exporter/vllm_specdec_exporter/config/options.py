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
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from .spelling import hint, nearest

_PRODUCT = "VLLM_SPECDEC_"
ENVIRONMENT_PREFIX = f"{_PRODUCT}EXPORTER_"

_SERVICE_LINK = re.compile(
    r"_SERVICE_(HOST|PORT\w*)$|_PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?$"
)


class ConfigError(Exception):
    """An invalid setting. The message is one line with its name and what is allowed."""


# Named tuples, not structs: `health` needs options, and msgspec takes half the time of
# its start to import.
class Option(NamedTuple):
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
        name = self.name.upper().replace(".", "_").replace("-", "_")
        return ENVIRONMENT_PREFIX + name

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
        self._first: Collection[str] = ()

    def show_first(self, *flags: str) -> None:
        """Let ``--help`` show these flags only, and ``--help-all`` the others too."""
        self._first = flags
        self.add_argument(
            "--help-all", action=_HelpAllAction, help="Show all flags, and exit."
        )

    def print_help(self, file: Any = None) -> None:
        """Print the help; of a parser with first flags, no others."""
        if not self._first:
            super().print_help(file)
            return
        # The process ends behind it, so that nothing has to be restored.
        shown = {"-h", "--help-all", *self._first}
        for action in self._actions:
            if action.option_strings and shown.isdisjoint(action.option_strings):
                action.help = argparse.SUPPRESS
        names = [str(each.metavar) for each in self._get_positional_actions()]
        self.usage = " ".join(
            ("%(prog)s", *(f"[{each}]" for each in names), "[FLAG ...]")
        )
        super().print_help(file)

    def print_whole_help(self) -> None:
        """Print the help with all flags."""
        super().print_help()

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse `args`. The error for an unknown flag suggests a similar one."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            message = f"unrecognized arguments: {' '.join(unknown)}"
            flag = unknown[0].partition("=")[0]
            if flag.startswith("-"):
                message += hint(flag, self._option_string_actions)
            self.error(message)
        return parsed

    def error(self, message: str) -> NoReturn:
        """Print `message` as one line and exit with 2."""
        self.exit(2, f"{self.prog}: error: {message} (see {self._shown_by} --help)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stderr).write(message)  # argparse ignores an error


class _HelpAllAction(argparse._HelpAction):
    def __call__(self, parser: Any, *_: Any, **__: Any) -> None:
        parser.print_whole_help()
        parser.exit()


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
        target.add_argument(
            option.flag,
            dest=option.name,
            metavar=option.metavar,
            action="append" if option.repeatable else "store",
            default=None,
            help=_help(option, variables=variables).replace("%", "%%"),
        )


def _help(option: Option, *, variables: bool) -> str:
    text = option.help
    default = option.default or ""
    if not isinstance(default, str):
        default = ", ".join(default)
    if default:
        text += f" Default: {default}."
    if variables:
        text += f" [${option.variable}"
        if option.separator == "\n":
            text += ", one value per line"
        text += "]"
    return text


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
    sources = _Sources(flags, environment, from_file, file)
    values: dict[str, Any] = {}
    shown: dict[str, object] = {}
    for option in options:
        source, texts = _texts(option, sources)
        parsed = [_parse(option, source, text) for text in texts]
        masked = [option.mask(text) for text in texts]
        if option.repeatable:
            values[option.name] = tuple(parsed)
            shown[option.key] = masked
        else:
            values[option.name] = next(iter(parsed), None)
            shown[option.key] = next(iter(masked), None)
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
    variables = {option.variable for option in options}
    return sorted(
        name
        for name in environment.keys() - variables
        if _is_ours(name, variables) and not _SERVICE_LINK.search(name)
    )


def _is_ours(name: str, variables: Collection[str]) -> bool:
    # Of the shorter prefix only what is very like ours: others may share it.
    if name.startswith(ENVIRONMENT_PREFIX):
        return True
    return name.startswith(_PRODUCT) and bool(nearest(name, variables, 0.8))


def _parse(option: Option, source: str, text: str) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        raise ConfigError(
            f"{source} {json.dumps(option.mask(text), ensure_ascii=False)}: {error}"
        ) from error


class _Sources(NamedTuple):
    """Where values come from, by the name, variable and key of their options."""

    flags: Mapping[str, Any]
    environment: Mapping[str, str]
    from_file: Mapping[str, object]
    file: str  # the file's path, for errors


def _texts(option: Option, sources: _Sources) -> tuple[str, Sequence[str]]:
    """Return the source of an option's values, for errors, and their texts."""
    from_flag = sources.flags.get(option.name)
    if from_flag is not None:
        return option.flag, from_flag if option.repeatable else [from_flag]
    text = sources.environment.get(option.variable)
    # Deployments unset a variable with an empty value.
    if text or (text is not None and option.may_be_empty):
        return option.variable, _split(option, text)
    value = sources.from_file.get(option.key)
    if value is None and option.may_be_empty and option.key in sources.from_file:
        value = ""
    if value is not None:
        source = f"{option.key} in {sources.file}"
        return source, _from_yaml(option, value, source)
    if option.default is None:
        return option.flag, []
    if isinstance(option.default, str):
        return option.flag, [option.default]
    return option.flag, option.default


def _split(option: Option, text: str) -> list[str]:
    """Return the values in the text of an environment variable."""
    if not option.repeatable:
        return [text.strip()]
    parts = (part.strip() for part in text.split(option.separator))
    return [part for part in parts if part]


def _from_yaml(option: Option, value: object, source: str) -> list[str]:
    if not option.repeatable:
        if isinstance(value, list):
            raise ConfigError(f"{source}: takes one value, not a list")
        return [_scalar(value, source)]
    if isinstance(value, Mapping):
        joint = ": " if option.separator == "\n" else "="
        texts = []
        for name, item in value.items():
            quoted = json.dumps(str(name), ensure_ascii=False)
            texts.append(f"{name}{joint}{_member(item, f'{source}: {quoted}')}")
        return texts
    if not isinstance(value, list):
        value = [value]
    return [_member(item, source) for item in value]


def _member(value: object, source: str) -> str:
    """Return the text of a value within a list or a mapping."""
    # As text they would be taken for values, and sent, such as a header `X: None`.
    if value is None:
        raise ConfigError(f"{source}: null: a value is expected; leave it out for none")
    if isinstance(value, list):
        raise ConfigError(f"{source}: a list: one value is expected")
    return _scalar(value, source)


def _scalar(value: object, source: str) -> str:
    # All sources share the parsers, which take text.
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
    document: object, known: Collection[str], file: str, prefix: str = ""
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
        elif any(option.startswith(f"{key}.") for option in known):
            values.update(flatten(value, known, file, f"{key}."))
        else:
            shown = key if key.isprintable() else json.dumps(key)
            alike = hint(key, known) or f"; known: {', '.join(sorted(known))}"
            raise ConfigError(f"{shown} in {file}: no such setting{alike}")
    return values
