"""Variables of a checkpoint, read by parts from the file itself.

TensorFlow's own reader brings a whole tensor into memory even for a slice of it. So where a tensor's bytes lie is
looked up in the checkpoint's index (a table in LevelDB's format: blocks of prefix-compressed keys, a footer that points
to the block of blocks), and large tensors are mapped.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import tensor_bundle_pb2

from ..errors import SavedModelError

__all__ = ["Checkpoint", "CheckpointVariable"]

MAPPED_BYTES_MIN = 16 << 20
_MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES, _TRAILER_BYTES = 48, 5


class Checkpoint:
    """The tensors of the checkpoint files `prefix`.index and `prefix`.data-*, by key."""

    def __init__(self, prefix: Path | str):
        """Reads the index. Raises SavedModelError when it is missing or damaged, or a data file is missing or short."""
        self.prefix = Path(prefix)
        self._index = Path(f"{prefix}.index")
        try:
            entries = dict(_table(self._index.read_bytes()))
            self._header = tensor_bundle_pb2.BundleHeaderProto.FromString(entries.pop(b"", b""))
            self._entries = {key.decode("utf-8", "replace"): tensor_bundle_pb2.BundleEntryProto.FromString(value)
                             for key, value in entries.items()}
        except OSError as error:
            raise SavedModelError(self._index, f"the variables' index cannot be read: {error.strerror}") from error
        except (DecodeError, ValueError, struct.error, IndexError) as error:
            raise SavedModelError(self._index, f"expected a checkpoint's index: {error}") from error
        self._check_sizes()

    def keys(self) -> set[str]:
        """The keys of all tensors."""
        return set(self._entries)

    def variable(self, key: str, part: str = "") -> "CheckpointVariable":
        """The tensor of that key, or a part of it as RestoreV2 spells them. Raises SavedModelError naming the key."""
        entry = self._entries.get(key)
        if entry is None:
            raise SavedModelError(self._index, f"no variable {key!r}; the graph restores it")
        shape = [dimension.size for dimension in entry.shape.dim]
        if part:
            extents = [one.split(",") for one in part.split(" ")[-1].split(":")]
            shape = [size if len(e) == 1 else int(e[1]) for e, size in zip(extents, shape, strict=True)]
        place = None
        plain = not part and not entry.slices and entry.dtype in _PLAIN and self._header.endianness == 0
        if plain and entry.size >= MAPPED_BYTES_MIN:
            place = (self._data_file(entry.shard_id), entry.offset)
        return CheckpointVariable(self.prefix, key, part, tuple(shape), tf.as_dtype(entry.dtype), place)

    def _data_file(self, shard: int) -> Path:
        return Path(f"{self.prefix}.data-{shard:05d}-of-{self._header.num_shards:05d}")

    def _check_sizes(self) -> None:
        ends: dict[Path, int] = {}
        for entry in self._entries.values():
            if not entry.slices:
                file = self._data_file(entry.shard_id)
                ends[file] = max(ends.get(file, 0), entry.offset + entry.size)
        for file, end in sorted(ends.items()):
            try:
                size = file.stat().st_size
            except OSError as error:
                raise SavedModelError(file, f"the variables cannot be read: {error.strerror}") from error
            if size < end:
                raise SavedModelError(file, f"{size} bytes came, the index says at least {end}")


_PLAIN = {getattr(tf, name).as_datatype_enum for name in (
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")}


class CheckpointVariable:
    """One tensor of a checkpoint. Small ones are read whole, with their checksum tested; large ones are mapped."""

    def __init__(self, prefix: Path, key: str, part: str, shape: tuple[int, ...], dtype, place):
        self._prefix, self._key, self._part, self._type, self._place = prefix, key, part, dtype, place
        self.shape = shape
        self.dtype = np.dtype(dtype.as_numpy_dtype)

    def read(self, start: int, stop: int) -> np.ndarray:
        """The rows start to stop (exclusive), as numpy; a scalar is one row. Raises SavedModelError."""
        if self._place is not None:
            file, offset = self._place
            mapped = np.memmap(file, self.dtype.newbyteorder("<"), "r", offset, self.shape)
            return np.array(mapped[start:stop], self.dtype)
        try:
            with tf.device("/CPU:0"):
                (value,) = tf.raw_ops.RestoreV2(prefix=str(self._prefix), tensor_names=[self._key],
                                                shape_and_slices=[self._part], dtypes=[self._type])
        except tf.errors.OpError as error:
            raise SavedModelError(self._prefix, f"variable {self._key!r} cannot be read: {error.message}") from error
        return value.numpy()[None] if not self.shape else value.numpy()[start:stop]


def _table(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a LevelDB table without compression. Raises ValueError, struct.error, IndexError."""
    if len(raw) < _FOOTER_BYTES or struct.unpack("<Q", raw[-8:])[0] != _MAGIC:
        raise ValueError("no table's footer")
    _, _, at = _handle(raw, len(raw) - _FOOTER_BYTES)
    offset, size, _ = _handle(raw, at)
    for _, value in _block(raw, offset, size):
        yield from _block(raw, *_handle(value, 0)[:2])


def _block(raw: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    if offset + size + _TRAILER_BYTES > len(raw) or raw[offset + size] != 0:
        raise ValueError("a block that is compressed or beyond the file's end")
    block = raw[offset:offset + size]
    end = len(block) - 4 - 4 * struct.unpack("<I", block[-4:])[0]
    at, key = 0, b""
    while at < end:
        shared, at = _varint(block, at)
        unshared, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at:at + unshared]
        yield key, block[at + unshared:at + unshared + length]
        at += unshared + length


def _handle(raw: bytes, at: int) -> tuple[int, int, int]:
    """Offset and size of a block, and where the handle ends."""
    offset, at = _varint(raw, at)
    size, at = _varint(raw, at)
    return offset, size, at


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
