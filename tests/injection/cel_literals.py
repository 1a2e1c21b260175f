"""The API server's rule that the values of a list or map literal have one type.

It compiles CEL with HomogeneousAggregateLiterals, and so refuses `{"name": "x", "port":
1}`, but not `{"name": dyn("x"), "port": dyn(1)}`. What has no plain type here, such as
a variable, may only stand alone or in dyn().
"""

from collections.abc import Iterator
from itertools import chain

import lark

#: The type of what is not a literal.
_UNKNOWN = "?"
#: Forms whose type is plain to see; any other node with one child merely wraps it.
_FORMS = {"list_lit", "map_lit", "ident_arg", "member_object"}


def literal_faults(tree: lark.Tree[lark.Token]) -> list[str]:
    """Return the literals of an expression whose values are of several types."""
    return list(chain.from_iterable(map(_faults, tree.iter_subtrees())))


def _faults(node: lark.Tree[lark.Token]) -> Iterator[str]:
    items = list(chain.from_iterable(map(_items, node.children)))
    if node.data == "list_lit":
        yield from _mixed("list", items)
    elif node.data == "map_lit":
        yield from _mixed("map keys", items[0::2])
        yield from _mixed("map", items[1::2])


def _items(node: object) -> list[object]:
    if isinstance(node, lark.Tree) and node.data in {"exprlist", "mapinits"}:
        return list(node.children)
    return [node]


def _mixed(subject: str, items: list[object]) -> Iterator[str]:
    types = {_type(item) for item in items}
    if len(types) > 1 or (_UNKNOWN in types and len(items) > 1):
        yield f"{subject} literal of several types: {', '.join(sorted(types))}"


def _type(node: object) -> str:
    """Return the type of an expression as far as its form tells."""
    while (
        isinstance(node, lark.Tree)
        and len(node.children) == 1
        and node.data not in _FORMS
    ):
        node = node.children[0]
    if isinstance(node, lark.Token):
        if node.type == "IDENT":
            return _UNKNOWN
        return str(node.type)
    if not isinstance(node, lark.Tree):
        return _UNKNOWN
    if node.data == "member_object":
        return "object"
    if node.data == "ident_arg" and str(node.children[0]) == "dyn":
        return "dyn"
    return {"list_lit": "list", "map_lit": "map"}.get(str(node.data), _UNKNOWN)
