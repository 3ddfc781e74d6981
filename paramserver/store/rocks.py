"""RocksDB as this package uses it: few small records, a bounded memory, and a log whose cut tail is dropped whole."""

import json
from pathlib import Path
from typing import Any

__all__ = ["open_rocks", "sync_option"]

_WRITE_BUFFER_BYTES = 8 << 20
_LOG_BYTES_MAX = 32 << 20


def open_rocks(folder: Path) -> Any:
    """The database in `folder`, made if need be. Raises what rocksdict raises: Exception with RocksDB's words."""
    from rocksdict import DBCompressionType, DBRecoveryMode, Options, Rdict

    _drop_torn_config(folder)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_paranoid_checks(True)
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(2)
    options.set_max_total_wal_size(_LOG_BYTES_MAX)
    options.set_max_background_jobs(2)
    options.set_max_open_files(64)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1 << 20)
    return Rdict(str(folder), options)


def sync_option(sync: bool) -> Any:
    """Write options: on disk before the write returns, or with the operating system."""
    from rocksdict import WriteOptions

    options = WriteOptions()
    options.sync = sync
    return options


def _drop_torn_config(folder: Path) -> None:
    """rocksdict writes a small file of its own in place at every start; a crash may leave half of it, which it would
    not read. It says nothing that is not said above."""
    path = folder / "rocksdict-config.json"
    try:
        json.loads(path.read_bytes())
    except FileNotFoundError:
        return
    except ValueError:
        path.unlink()
