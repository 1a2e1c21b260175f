"""`completion`: a script with which a shell completes commands, flags and choices.

It is written from the parsers, so it has what this version has. bash completes files
itself where nothing fits; zsh runs the same script.
"""

import argparse
import importlib
from collections.abc import Iterator

from ..config.options import Parser
from .exit_codes import FINE, USAGE
from .table import COMMANDS, PROGRAM

_SHELLS = ("bash", "zsh")
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"
_SCRIPT = """\
_vllm_specdec_exporter() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local command=${{COMP_WORDS[1]}} words
  [[ $COMP_CWORD -gt 1 && $command != -* ]] || command=serve
  case $command in
{cases}
  esac
  case $command$previous in
{choices}
  esac
  [[ $COMP_CWORD -gt 1 || $word == -* ]] || words="{commands}"
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _vllm_specdec_exporter {program}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `completion` to `parser`."""
    parser.epilog = (
        "For this shell: source <(vllm-specdec-exporter completion bash). "
        f"Exit codes: {FINE} success; {USAGE} bad usage."
    )
    parser.add_argument("shell", choices=_SHELLS, help="The shell.")


def run(args: argparse.Namespace) -> int:
    """Print the script and return the exit code."""
    cases = []
    choices = []
    for name, (module, _) in COMMANDS.items():
        parser = Parser(name, "")
        importlib.import_module(f"vllm_specdec_exporter.{module}").add_arguments(parser)
        flags = " ".join(sorted({"--version", *parser._option_string_actions}))
        cases.append(f'    {name}) words="{flags}" ;;')
        choices += [
            f'    {name}{flag}) words="{words}" ;;' for flag, words in _choices(parser)
        ]
    script = _SCRIPT.format(
        cases="\n".join(cases),
        choices="\n".join(choices),
        commands=" ".join(COMMANDS),
        program=PROGRAM,
    )
    if args.shell == "zsh":
        script = _ZSH + script
    print(script, end="")
    return FINE


def _choices(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield each flag with choices, and what comes behind the command itself."""
    for action in parser._actions:
        if action.choices is None:
            continue
        for flag in action.option_strings or [parser.prog]:
            yield flag, " ".join(map(str, action.choices))
