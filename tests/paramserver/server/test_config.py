"""The server's configuration: every problem at once, each with its path."""

from pathlib import Path

import pytest
import yaml

from paramserver.errors import ConfigError
from paramserver.server import load_config
from paramserver.server.config import tokens_of


def write(folder: Path, **config: object) -> Path:
    """A configuration file in `folder`, where a cluster's directory is too."""
    (folder / "cluster").mkdir(exist_ok=True)
    path = folder / "server.yaml"
    path.write_text(yaml.safe_dump({"directory": "shard", "cluster": "cluster", **config}))
    return path


def test_paths_are_relative_to_the_file(tmp_path):
    config = load_config(write(tmp_path, tables={"item": {"tier": {"ram_bytes_max": 1 << 20, "directory": "cold"}}}))
    assert config.directory == tmp_path / "shard" and config.cluster == tmp_path / "cluster"
    assert config.options_of("item").tier.directory == tmp_path / "cold"
    assert config.options_of("other").tier is None


def test_every_problem_is_told_at_once_with_its_path(tmp_path):
    path = write(tmp_path, listen="here", durability="maybe", tabels={}, limits={"lookups_max": 0},
                 tables={"item": {"ttl_s": -1}, "a/b": {}})
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    for place in ("listen", "durability", "tabels", "limits.lookups_max", "tables.item.ttl_s", "tables.a/b"):
        assert f"  {place}" in str(raised.value), place
    assert str(path) in str(raised.value)


def test_files_that_are_not_there_are_told_together(tmp_path):
    path = write(tmp_path, cluster="nowhere", token_file="tokens", tls={"certificate": "c.pem", "key": "k.pem"})
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    for place in ("cluster:", "token_file:", "tls.certificate:", "tls.key:"):
        assert f"  {place}" in str(raised.value), place


@pytest.mark.parametrize("text", ["[", "- 1", "", "\x00", "a: !!python/object:os.system {}"])
def test_what_is_no_configuration_is_a_config_error(tmp_path, text):
    path = tmp_path / "server.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"server\.yaml"):
        load_config(path)


def test_a_shard_must_be_one_of_the_shards(tmp_path):
    with pytest.raises(ConfigError, match="shard is 3 of 3"):
        load_config(write(tmp_path, shard=3, shards=3))


def test_tokens_are_lines_of_some_length(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("# of the ranking service\n0123456789abcdef\n\nfedcba9876543210\n")
    assert tokens_of(path) == ["0123456789abcdef", "fedcba9876543210"]
    for text in ("", "# none\n", "short\n"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="at least 16"):
            tokens_of(path)
