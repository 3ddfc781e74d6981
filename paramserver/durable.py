"""Files and folders that appear whole and outlast a power loss: write beside the place, sync, rename, sync the folder.

Everything that this package makes durable outside its log goes through these few calls.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paramserver.errors import StoreError, StoreFull

__all__ = ["disk_errors", "link_into_place", "move_into_place", "remove_tree", "replacing", "sync_file", "sync_folder",
           "sync_tree", "temporary_name", "write_file", "write_synced"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Raise StoreFull or StoreError for what the operating system refuses; `what` opens the message."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull(f"{what}: no space left ({error}); nothing was taken: free space and try again") from error
        raise StoreError(f"{what}: {error}") from error


def temporary_name(path: Path) -> Path:
    """A name beside `path` that nobody else uses and that readers ignore."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file and sync its content; its name is durable once the folder is synced. Raises OSError."""
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_file(path: Path, content: bytes) -> None:
    """Write or replace the file at `path`, whole and synced. Raises OSError."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` for a new file, which takes its place, synced, when the block ends well, and vanishes
    otherwise. Raises OSError."""
    temporary = temporary_name(path)
    try:
        yield temporary
        sync_file(temporary)
        move_into_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def move_into_place(temporary: Path, path: Path) -> None:
    """Rename a synced file or folder, and sync the folder that it comes into. Raises OSError."""
    os.rename(temporary, path)
    sync_folder(path.parent)


def link_into_place(temporary: Path, path: Path) -> None:
    """As move_into_place, but FileExistsError when `path` is there, so that of several writers one wins, and without
    the folder's sync: the caller tells a name that is not there from one that may not last. Raises OSError."""
    os.link(temporary, path)


def sync_file(path: Path) -> None:
    """Make a file's content durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Sync every file and folder below `folder`, and itself. Raises OSError."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            sync_tree(Path(entry.path))
        else:
            sync_file(Path(entry.path))
    sync_folder(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder and what is in it. It first takes a temporary name, so that it vanishes whole. Raises OSError."""
    temporary = temporary_name(folder)
    os.rename(folder, temporary)
    shutil.rmtree(temporary)
