"""The wire format of protocol buffers, as far as an encoder of a few messages needs it. Pure.

A message is its fields one after the other, in any order; every function here returns one field.
"""

from __future__ import annotations

import struct

_VARINT, _FIXED64, _DELIMITED = 0, 1, 2
_DOUBLE = struct.Struct("<d").pack


def varint(number: int) -> bytes:
    """Return a number, from 0 up, seven bits to a byte."""
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def unsigned(field: int, number: int) -> bytes:
    """Return a field of type uint32, uint64 or enum."""
    return varint(field << 3 | _VARINT) + varint(number)


def integer(field: int, number: int) -> bytes:
    """Return a field of type int32 or int64, where numbers below zero stand as their complement."""
    return unsigned(field, number & 0xFFFF_FFFF_FFFF_FFFF)


def zigzag(field: int, number: int) -> bytes:
    """Return a field of type sint32 or sint64, where numbers near zero are short."""
    return unsigned(field, 2 * number if number >= 0 else -2 * number - 1)


def double(field: int, number: float) -> bytes:
    """Return a field of type double."""
    return varint(field << 3 | _FIXED64) + _DOUBLE(number)


def delimited(field: int, content: bytes) -> bytes:
    """Return a field of type bytes, or one that holds a message."""
    return varint(field << 3 | _DELIMITED) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    """Return a field of type string."""
    return delimited(field, content.encode())
