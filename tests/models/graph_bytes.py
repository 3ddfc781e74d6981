"""GraphDefs byte by byte, for processes that must not import tensorflow."""


def field(number: int, content: bytes) -> bytes:
    """A protocol buffer's field with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """A protocol buffer's number."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def node(name: str, op: str, *inputs: str) -> bytes:
    """A NodeDef."""
    return field(1, name.encode()) + field(2, op.encode()) + b"".join(field(3, one.encode()) for one in inputs)


def graph(*nodes: bytes) -> bytes:
    """A GraphDef of nodes."""
    return b"".join(field(1, one) for one in nodes)


def library(function: str, *nodes: bytes) -> bytes:
    """What appended to a GraphDef adds a function of nodes to it."""
    body = field(1, field(1, function.encode())) + b"".join(field(3, one) for one in nodes)
    return field(2, field(1, body))


HOSTILE = {
    "WriteFile": graph(node("out", "WriteFile", "a", "b")),
    "ReadFile": graph(node("in", "ReadFile", "a")),
    "PyFunc": graph(node("call", "PyFunc", "a")),
    "PrintV2": library("deep", node("inner", "PrintV2", "a")),
    "InitializeTableFromTextFileV2": graph(node("fill", "InitializeTableFromTextFileV2", "table", "path")),
}
"""Graphs to be put after a good one, by the op that must not pass."""
