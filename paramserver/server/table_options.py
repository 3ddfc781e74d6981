"""What a configuration's tables are made with, wherever a shard's directory is opened."""

from typing import Any

from paramserver.server.config import ServerConfig, TableConfig
from paramserver.store.table_files import TableOptions
from paramserver.tier import Tier

__all__ = ["table_options"]


def table_options(config: ServerConfig) -> TableOptions:
    """The `options` of ShardStore.open: a function of table and package version. It makes the folders of tiers, and
    raises OSError where it cannot."""
    def options_of(table: str, _version: int) -> dict[str, Any]:
        options = config.options_of(table)
        return {**_plain(options), **_tier(config, options)}

    return options_of


def _plain(options: TableConfig) -> dict[str, Any]:
    """Options that differ from a table's defaults."""
    plain = {"dtype": options.dtype, "ttl_s": options.ttl_s or None,
             "admit_after": options.admit_after if options.admit_after > 1 else None}
    return {name: value for name, value in plain.items() if value is not None}


def _tier(config: ServerConfig, options: TableConfig) -> dict[str, Any]:
    if options.tier is None:
        return {}
    folder = options.tier.directory or config.directory / "tiers"
    folder.mkdir(parents=True, exist_ok=True)
    return {"tier": Tier(options.tier.ram_bytes_max, folder, cold_reads_max=options.tier.cold_reads_max,
                         spill_bytes_max=options.tier.spill_bytes_max, direct=options.tier.direct)}
