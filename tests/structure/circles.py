"""Who has to be there before whom: modules, and packages as a whole."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from structure.imports import Module


def circle(modules: Mapping[str, Module]) -> str:
    """Return a circle in what modules import as they are imported, empty where there is none."""
    # A package is imported before what is in it: that is no dependency of its own.
    return _circle(modules, lambda name: name, lambda name, own: not name.startswith(f"{own}."))


def circle_of_packages(modules: Mapping[str, Module], commands: Collection[str]) -> str:
    """Return a circle between packages, and modules that are in none; empty where there is none.

    Args:
        modules: all of them, by name.
        commands: modules that only the command line imports. Each stands for itself, and so does what it
            alone imports of its package: a command uses the whole program, and the program uses its package.
    """
    leaves = dict.fromkeys(commands, "")
    while more := _only_for(modules, leaves):
        leaves |= dict.fromkeys(more, "")

    def folded(name: str) -> str:
        return name if name in leaves else name.partition(".")[0]

    def counts(name: str, own: str) -> bool:
        return name.partition(".")[0] != own.partition(".")[0]

    return _circle(modules, folded, counts)


def _only_for(modules: Mapping[str, Module], leaves: Collection[str]) -> set[str]:
    """Return which more are imported by `leaves` of their package only, but for its door."""
    users: dict[str, set[str]] = {}
    for name, module in modules.items():
        for own in module.own:
            if own.rpartition(".")[0] != name:
                users.setdefault(own, set()).add(name)
    found = set()
    for name in set(users) - set(leaves):
        of_package = {leaf for leaf in leaves if leaf.startswith(f"{name.partition('.')[0]}.")}
        if "." in name and users[name] <= of_package:
            found.add(name)
    return found


def _circle(
    modules: Mapping[str, Module], node: Callable[[str], str], counts: Callable[[str, str], bool]
) -> str:
    graph: dict[str, set[str]] = {}
    for name, module in modules.items():
        needed = {own for own in module.own - module.late - {name, ""} if counts(name, own)}
        if name:
            graph.setdefault(node(name), set()).update(node(own) for own in needed)
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return " -> ".join(reversed(error.args[1]))
    return ""
