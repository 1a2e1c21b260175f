"""The command reference: what every command's parser takes, and what its help says of
it.

The parsers are the only source: metavars, defaults, environment variables and exit
codes are those of `--help`. Settings of `serve` that other commands take as well are
named only: configuration.md has them.
"""

import argparse
import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from vllm_specdec_exporter.commands.table import COMMANDS, PROGRAM
from vllm_specdec_exporter.config.options import ENVIRONMENT_PREFIX, Parser
from vllm_specdec_exporter.settings.option_table import OPTIONS

#: What argparse prints when it is told no title, and what heads the flags here then.
_ARGPARSE_TITLES = {"positional arguments": "", "options": ""}
_VARIABLE = re.compile(rf" ?\[\$({ENVIRONMENT_PREFIX}\w+)(?:, one value per line)?\]$")
_DEFAULT = re.compile(
    r" ?(?:\bDefault: (?P<sentence>.*)\.|\(default: (?P<aside>.*)\))$", re.DOTALL
)
_EXIT_CODES = re.compile(r"(?P<before>.*?) ?\bExit codes: (?P<codes>.*)\.$", re.DOTALL)
_SERVE = "serve"
#: Every command has this exit code, so the page says it once.
_BAD_USAGE = "bad usage"
#: Choices that are longer stand behind the meaning instead of behind the flag: they
#: would leave no width for the other columns.
_LONGEST_VALUE = 60


@dataclass(frozen=True)
class Flag:
    """A flag or an argument, as the help has it.

    Attributes:
        names: its spellings; none for an argument.
        value: what stands for its value; empty where it takes none.
        default: what holds without it; empty where the help says nothing.
        variable: the environment variable; empty where there is none.
        meaning: the rest of its help.
        required: whether a value must be given.
        repeatable: whether it takes several.
    """

    names: tuple[str, ...]
    value: str
    default: str
    variable: str
    meaning: str
    required: bool
    repeatable: bool

    @property
    def shown(self) -> str:
        """As one writes it."""
        if self.names:
            return f"{', '.join(self.names)} {self.value}".strip()
        if self.repeatable:
            return f"{self.value} ..."
        return self.value


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        name: as one types it.
        summary: what it does.
        groups: its own flags and arguments by title; an empty title first.
        shared: flags that are settings of `serve`, which mean the same here.
        remark: what else its help says.
        exit_codes: what each exit code means, as the help says; empty where it does
            not.
    """

    name: str
    summary: str
    groups: dict[str, tuple[Flag, ...]]
    shared: tuple[str, ...]
    remark: str
    exit_codes: dict[int, str]

    @property
    def synopsis(self) -> str:
        """As the first line of the help has it, with all flags as one word."""
        words = [PROGRAM]
        if self.name == _SERVE:
            words.append(f"[{self.name}]")
        else:
            words.append(self.name)
        for flag in chain.from_iterable(self.groups.values()):
            if flag.names:
                continue
            if flag.required:
                words.append(flag.shown)
            else:
                words.append(f"[{flag.shown}]")
        return " ".join((*words, "[FLAG ...]"))


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of a command, as its module fills it."""
    module_name, summary = COMMANDS[name]
    parser = Parser(prog=f"{PROGRAM} {name}", description=summary)
    importlib.import_module(f"vllm_specdec_exporter.{module_name}").add_arguments(
        parser
    )
    return parser


def command_of(name: str) -> Command:
    """Return what the parser of a command says."""
    parser = parser_of(name)
    options = {option.flag for option in OPTIONS}
    groups: dict[str, tuple[Flag, ...]] = {}
    shared: list[str] = []
    # argparse has no public way to its groups and actions.
    for group in parser._action_groups:
        title = _ARGPARSE_TITLES.get(group.title or "", group.title or "")
        for action in group._group_actions:
            if isinstance(action, argparse._HelpAction):
                continue
            flag = _flag(action)
            if set(flag.names) & options and _is_setting(action):
                shared.append(flag.names[0])
            else:
                groups[title] = (*groups.get(title, ()), flag)
    remark, codes = _epilog(parser.epilog or "")
    return Command(
        name,
        summary=COMMANDS[name][1],
        groups=groups,
        shared=tuple(shared),
        remark=remark,
        exit_codes=codes,
    )


def commands() -> Iterator[str]:
    """Yield the blocks of the page, without its notice."""
    shown = [command_of(name) for name in COMMANDS]
    yield "# Commands"
    yield (
        f"`{PROGRAM}` without a command is `{_SERVE}`. Every command takes `--help` "
        "(`serve`, `check` and `compare` show all flags with `--help-all`) and "
        "`--version`, and exits with code 2 and one line on standard error for bad "
        "usage, with 74 if its output cannot be written. A flag beats its "
        "environment variable."
    )
    yield table(
        ("command", "what it does"),
        (
            (f"[`{command.name}`](#{command.name})", command.summary)
            for command in shown
        ),
    )
    for command in shown:
        yield from _section(command)


def _section(command: Command) -> Iterator[str]:
    yield f"## {command.name}"
    yield f"`{command.synopsis}`"
    yield f"{command.summary[0].upper()}{command.summary[1:]}."
    for title, flags in command.groups.items():
        if title:
            yield f"{title[0].upper()}{title[1:]}:"
        head = ("flag", "environment variable", "default", "meaning")
        yield table(head, map(_row, flags))
    if command.name == _SERVE:
        yield (
            "All its settings are flags as well: [configuration](configuration.md) has "
            "them."
        )
    elif command.shared:
        named = ", ".join(f"`{name}`" for name in command.shared)
        yield f"As in [configuration](configuration.md): {named}."
    if command.remark:
        yield command.remark
    if command.exit_codes:
        codes = (
            (f"{code}", text)
            for code, text in command.exit_codes.items()
            if text != _BAD_USAGE
        )
        yield table(("exit code", "when"), codes)


def _row(flag: Flag) -> tuple[str, ...]:
    variable = ""
    if flag.variable:
        variable = f"`{flag.variable}`"
    return f"`{flag.shown}`", variable, flag.default, flag.meaning


def _flag(action: argparse.Action) -> Flag:
    # argparse wants the percent sign twice.
    text = (action.help or "").replace("%%", "%")
    variable = ""
    default = ""
    # The variable stands last, behind the default.
    if match := _VARIABLE.search(text):
        text = text[: match.start()]
        variable = match[1]
    if match := _DEFAULT.search(text):
        text = text[: match.start()]
        default = match["sentence"] or match["aside"]
    value = _value(action)
    if len(value) > _LONGEST_VALUE and action.choices is not None:
        value = "NAME"
        text = f"{text} One of {', '.join(map(str, action.choices))}."
    return Flag(
        names=tuple(action.option_strings),
        value=value,
        default=default,
        variable=variable,
        meaning=text.strip(),
        # Python before 3.13 calls "any number" required.
        required=action.required and action.nargs != "*",
        repeatable=action.nargs in ("+", "*"),
    )


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.metavar is not None:
        return str(action.metavar)
    if action.choices is not None:
        return "|".join(str(choice) for choice in action.choices)
    if action.option_strings:
        return action.dest.upper()
    return action.dest


def _is_setting(action: argparse.Action) -> bool:
    """Tell whether a flag was made from the option table: then `gather` has its
    default.
    """
    return _VARIABLE.search((action.help or "").replace("%%", "%")) is not None


def _epilog(text: str) -> tuple[str, dict[int, str]]:
    """Return what a help says at its end: the text, and the exit codes."""
    match = _EXIT_CODES.fullmatch(text)
    if match is None:
        return text, {}
    codes = {}
    for part in match["codes"].split("; "):
        code, _, meaning = part.partition(" ")
        codes[int(code)] = meaning
    return match["before"], codes


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table of Markdown, without columns that are empty in all rows."""
    # Few commands have environment variables, and some no defaults.
    columns = [column for column in zip(head, *rows, strict=True) if any(column[1:])]
    head, *body = zip(*columns, strict=True)
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in body:
        # A bar within a cell would end it.
        cells = [cell.replace("|", r"\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
