"""The snapshot format in plain Python, written from csrc/snapshot_format.h: what the native reader is held against, and
how tests forge files whose checksums are right."""

import struct
from dataclasses import dataclass

import numpy as np

__all__ = ["Layout", "crc32c", "forged", "layout_of", "sealed"]

PAGE, BLOCK = 4096, 1 << 20
_HEADER = struct.Struct("<8s6I2Q2qQ2I")


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _table()


def crc32c(raw: bytes) -> int:
    """CRC-32C, byte by byte."""
    crc = 0xFFFFFFFF
    for byte in raw:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


@dataclass
class Layout:
    """A header's fields and where the sections lie."""

    magic: bytes
    format: int
    stored: int
    dim: int
    row_bytes: int
    flags: int
    zero: int
    rows: int
    base_sequence: int
    package_version: int
    time_s: int
    file_bytes: int
    checksums_crc: int
    slot_bytes: int

    @property
    def sections(self) -> dict[str, tuple[int, int]]:
        """Offset and bytes of default row, ids, times, slots and checksums."""
        per_page = PAGE // self.slot_bytes
        slots = -(-self.rows // per_page) * PAGE if per_page else self.rows * self.slot_bytes
        sizes = {"default_row": pages(self.row_bytes), "ids": pages(8 * self.rows),
                 "times": pages(4 * self.rows) if self.flags & 1 else 0, "slots": slots}
        sizes["checksums"] = pages(4 * sum(-(-size // BLOCK) for size in sizes.values()))
        at, places = PAGE, {}
        for name, size in sizes.items():
            places[name] = (at, size)
            at += size
        return places

    def slot(self, number: int) -> int:
        """Where a slot begins in the file."""
        at, per_page = self.sections["slots"][0], PAGE // self.slot_bytes
        if not per_page:
            return at + number * self.slot_bytes
        return at + number // per_page * PAGE + number % per_page * self.slot_bytes


def layout_of(raw: bytes) -> Layout:
    """What the header says."""
    return Layout(*_HEADER.unpack_from(raw))


def sealed(raw: bytes) -> bytes:
    """`raw` with every checksum made right again: a file that only its content betrays."""
    raw, layout = bytearray(raw), layout_of(raw)
    places = layout.sections
    crcs = [crc32c(raw[at + k : min(at + k + BLOCK, at + size)])
            for name, (at, size) in places.items() if name != "checksums" for k in range(0, size, BLOCK)]
    at, size = places["checksums"]
    raw[at : at + size] = np.array(crcs, "<u4").tobytes().ljust(size, b"\0")
    return forged(bytes(raw), checksums_crc=crc32c(raw[at : at + size]))


def forged(raw: bytes, **changes: int) -> bytes:
    """`raw` with fields of its header changed and the header's checksum made right again."""
    header, layout = bytearray(raw[:PAGE]), layout_of(raw)
    for name, value in changes.items():
        setattr(layout, name, value)
    header[: _HEADER.size] = _HEADER.pack(*vars(layout).values())
    header[PAGE - 4 :] = struct.pack("<I", crc32c(header[: PAGE - 4]))
    return bytes(header) + raw[PAGE:]


def pages(size: int) -> int:
    """A size rounded up to whole pages."""
    return -(-size // PAGE) * PAGE
