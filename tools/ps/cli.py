"""The subcommands `lambda-svc ps ...`; each imports what it needs when it runs."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tools.examples import examples
from tools.ps.errors import PsError, told

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="The parameter server: load, serve, update, look inside, plan.",
                  epilog=examples("lambda-svc ps init cluster --shards 2 --example",
                                  "lambda-svc ps serve cluster/servers/*.yaml",
                                  "lambda-svc ps load cluster/example.parquet --cluster cluster --version 1",
                                  "lambda-svc ps publish --cluster cluster",
                                  "lambda-svc ps get example 7 --cluster cluster"))

ClusterDir = Annotated[Path, typer.Option("--cluster", help="The cluster's directory, which holds shards.json and "
                                          "epochs/.", metavar="DIR", envvar="LAMBDA_SVC_CLUSTER")]
Directory = Annotated[Path | None, typer.Option("--directory", help="Instead of a cluster: the directory of one "
                                                "replica whose server does not run.", metavar="DIR")]
EitherCluster = Annotated[Path | None, typer.Option("--cluster", help="The cluster's directory, which holds "
                                                    "shards.json and epochs/.", metavar="DIR",
                                                    envvar="LAMBDA_SVC_CLUSTER")]
TokenFile = Annotated[Path | None, typer.Option("--token-file", help="File with the bearer token of the servers.",
                                                metavar="FILE", envvar="LAMBDA_SVC_TOKEN_FILE")]
TlsCa = Annotated[Path | None, typer.Option("--tls-ca", help="Certificate of the CA that signed the servers'.",
                                            metavar="FILE", envvar="LAMBDA_SVC_TLS_CA")]
Require = Annotated[str, typer.Option("--require", help="all: every replica must have it; one_per_shard: replicas that "
                                      "are down are left behind and catch up later.")]
JsonOut = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AtEpoch = Annotated[int, typer.Option("--epoch", help="Epoch to look at; 0: the newest.", min=0)]
Wait = Annotated[float, typer.Option("--wait-s", help="Seconds to wait for the servers.", min=0)]


@app.command(epilog=examples("lambda-svc ps init cluster --shards 2 --replicas 2",
                             "lambda-svc ps init cluster --shards 2 --example"))
def init(
    directory: Annotated[Path, typer.Argument(help="Directory to make.", metavar="DIR")],
    shards: Annotated[int, typer.Option(help="Parts that ids are spread over.", min=1, max=4096)] = 1,
    replicas: Annotated[int, typer.Option(help="Copies of every shard.", min=1, max=64)] = 1,
    first_port: Annotated[int, typer.Option(help="Free ports of 127.0.0.1 are taken from here on; 0: any.",
                                            min=0, max=65535)] = 7000,
    example: Annotated[bool, typer.Option("--example", help="Also write a table to try, 10,000 rows.")] = False,
) -> None:
    """Make a cluster's directory for this machine: shards.json and a configuration for each server."""
    from tools.ps import setup

    with told():
        raise typer.Exit(setup.init(directory, shards, replicas, first_port, example))


@app.command(epilog=examples(
    "lambda-svc ps load users.parquet items.parquet --cluster cluster --version 3",
    "lambda-svc ps load users=export/part-0.parquet --cluster cluster --version 3 --dtype int8 --row-column vector",
    "lambda-svc ps load resharded/ --cluster cluster --version 3",
))
def load(
    sources: Annotated[list[str], typer.Argument(help="All tables of the version: FILE.parquet, NAME=FILE.parquet "
                                                 "(or a folder of them), or one folder of snapshots by shard.")],
    cluster: ClusterDir,
    version: Annotated[int, typer.Option(help="Package version that the rows belong to.", min=0)],
    dtype: Annotated[str | None, typer.Option(help="f32, f16, bf16 or int8; as the file says when not given.")] = None,
    id_column: Annotated[str, typer.Option(help="Column of ids, any integer type.")] = "id",
    row_column: Annotated[str, typer.Option(help="Column of rows, a list of numbers.")] = "row",
    wait_s: Wait = 30.0,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
) -> None:
    """Turn Parquet into a snapshot per table and shard, and have every replica load it."""
    from tools.ps import setup

    with told():
        options = setup.LoadOptions(version, dtype, id_column, row_column, wait_s)
        raise typer.Exit(setup.load(_cluster(cluster, token_file, tls_ca), sources, options))


@app.command(epilog=examples("lambda-svc ps serve cluster/servers/shard-0-replica-0.yaml",
                             "lambda-svc ps serve cluster/servers/*.yaml"))
def serve(
    configs: Annotated[list[Path], typer.Argument(help="YAML of a shard's server; of several, each is a process.",
                                                  metavar="CONFIG...")],
) -> None:
    """Serve one shard's replica until SIGTERM; of several configurations, a process each."""
    from tools.ps import setup

    with told():
        raise typer.Exit(setup.serve(configs))


@app.command(epilog=examples("lambda-svc ps stats --cluster cluster",
                             "lambda-svc ps stats --directory cluster/data/shard-0-replica-0"))
def stats(cluster: EitherCluster = None, directory: Directory = None, as_json: JsonOut = False,
          token_file: TokenFile = None, tls_ca: TlsCa = None) -> None:
    """Show every table of every replica: rows, epoch, sequence, lag, bytes, what lookups were answered with."""
    from tools.ps import inside

    with told():
        with _opened(cluster, directory, token_file, tls_ca) as chosen:
            raise typer.Exit(inside.stats(chosen, as_json))


@app.command(epilog=examples("lambda-svc ps get users 42 -7 0xffffffffffffffff --cluster cluster"),
             context_settings={"ignore_unknown_options": True})
def get(
    table: Annotated[str, typer.Argument(help="Table.")],
    ids: Annotated[list[str], typer.Argument(help="Ids of 64 bits, decimal or 0x...", metavar="ID...")],
    cluster: EitherCluster = None,
    directory: Directory = None,
    epoch: AtEpoch = 0,
    as_json: JsonOut = False,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
) -> None:
    """Show the rows of ids as the shards hold them."""
    from tools.ps import inside

    with told():
        asked = inside.parse_ids(ids)
        with _opened(cluster, directory, token_file, tls_ca) as chosen:
            raise typer.Exit(inside.get(chosen, table, asked, epoch, as_json))


@app.command(epilog=examples("lambda-svc ps why users 42 --cluster cluster"),
             context_settings={"ignore_unknown_options": True})
def why(
    table: Annotated[str, typer.Argument(help="Table.")],
    one: Annotated[str, typer.Argument(help="An id of 64 bits, decimal or 0x...", metavar="ID")],
    cluster: EitherCluster = None,
    directory: Directory = None,
    epoch: AtEpoch = 0,
    as_json: JsonOut = False,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
) -> None:
    """Say where an id lies, what wrote it last, and what a lookup answers and why, on each replica of its shard."""
    from tools.ps import inside

    with told():
        asked = inside.parse_ids([one])[0]
        with _opened(cluster, directory, token_file, tls_ca) as chosen:
            raise typer.Exit(inside.why(chosen, table, asked, epoch, as_json))


@app.command("push-delta", epilog=examples("lambda-svc ps push-delta users-000017.arrow --cluster cluster"))
def push_delta(
    files: Annotated[list[Path], typer.Argument(help="Delta files (Arrow), in the order of their sequences.",
                                                metavar="FILE...")],
    cluster: ClusterDir,
    require: Require = "all",
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
) -> None:
    """Stage deltas on every replica; nobody sees them before an epoch names them. Doing it twice changes nothing."""
    from tools.ps import updates

    with told():
        raise typer.Exit(updates.push_deltas(_cluster(cluster, token_file, tls_ca), files, require))


@app.command(epilog=examples("lambda-svc ps publish --cluster cluster",
                             "lambda-svc ps publish --cluster cluster --version 4 --sequence users=17"))
def publish(
    cluster: ClusterDir,
    version: Annotated[int | None, typer.Option(help="Package version; the newest epoch's when not given.",
                                                min=0)] = None,
    sequence: Annotated[list[str] | None, typer.Option(help="TABLE=NUMBER, may repeat; a table that is not named "
                                                       "takes the highest sequence that every replica has.")] = None,
    require: Require = "all",
    wait_s: Wait = 30.0,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
) -> None:
    """Show what is staged as the next epoch, on all shards at once."""
    from tools.ps import updates

    with told():
        raise typer.Exit(updates.publish(_cluster(cluster, token_file, tls_ca), version,
                                         updates.parse_sequences(sequence or []), require, wait_s))


@app.command(epilog=examples("lambda-svc ps rollback --cluster cluster",
                             "lambda-svc ps rollback --cluster cluster --to 12"))
def rollback(
    cluster: ClusterDir,
    to: Annotated[int | None, typer.Option(help="Epoch to show again; when not given, the newest one of another "
                                           "state that was not rolled back.", min=1)] = None,
    require: Require = "all",
    wait_s: Wait = 30.0,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
) -> None:
    """Show an older epoch that is still held again, as a new one; its later deltas are abandoned."""
    from tools.ps import updates

    with told():
        raise typer.Exit(updates.rollback(_cluster(cluster, token_file, tls_ca), to, require, wait_s))


@app.command(epilog=examples("lambda-svc ps snapshot backup --cluster cluster"))
def snapshot(
    folder: Annotated[Path, typer.Argument(help="New folder, on the machine of the servers.", metavar="FOLDER")],
    cluster: ClusterDir,
    epoch: AtEpoch = 0,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
) -> None:
    """Have one replica of each shard write an epoch's state to FOLDER/shard-NNNNN."""
    from tools.ps import offline

    with told():
        raise typer.Exit(offline.snapshot(_cluster(cluster, token_file, tls_ca), folder, epoch))


@app.command(epilog=examples("lambda-svc ps restore backup cluster/servers/*.yaml"))
def restore(
    folder: Annotated[Path, typer.Argument(help="Folder that `ps snapshot` made.", metavar="FOLDER")],
    configs: Annotated[list[Path], typer.Argument(help="Configurations of servers that do not run.",
                                                  metavar="CONFIG...")],
) -> None:
    """Fill the empty directories of servers from a snapshot, each from its shard's part."""
    from tools.ps import offline

    with told():
        raise typer.Exit(offline.restore(folder, configs))


@app.command(epilog=examples("lambda-svc ps reshard backup wider --shards 8"))
def reshard(
    source: Annotated[Path, typer.Argument(help="Folder of snapshots by shard.", metavar="FOLDER")],
    target: Annotated[Path, typer.Argument(help="Folder to make.", metavar="NEW_FOLDER")],
    shards: Annotated[int, typer.Option(help="Shards to make.", min=1, max=4096)],
) -> None:
    """Deal a snapshot out to another number of shards, verified by counts and fingerprints."""
    from tools.ps import offline

    with told():
        raise typer.Exit(offline.reshard(source, target, shards))


@app.command(epilog=examples("lambda-svc ps diff backup-monday backup-tuesday",
                             "lambda-svc ps diff 12 13 --cluster cluster --table users --show 20"))
def diff(
    first: Annotated[str, typer.Argument(help="Snapshot, folder of snapshots, or number of an epoch.")],
    second: Annotated[str, typer.Argument(help="The same, to compare with.")],
    cluster: Annotated[Path | None, typer.Option(help="Of the epochs; its servers must be on this machine.",
                                                 metavar="DIR", envvar="LAMBDA_SVC_CLUSTER")] = None,
    table: Annotated[list[str] | None, typer.Option(help="Only this table; may repeat.")] = None,
    show: Annotated[int, typer.Option(help="How many ids of each kind to show.", min=0)] = 5,
    as_json: JsonOut = False,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
) -> None:
    """Compare two states row by row; exit code 1 when they differ, 2 when they cannot be compared."""
    from tools.ps import offline

    with told(code=2):
        chosen = None if cluster is None else _cluster(cluster, token_file, tls_ca)
        raise typer.Exit(offline.diff(first, second, cluster=chosen, tables=table or [], show=show, as_json=as_json))


@app.command(epilog=examples(
    "lambda-svc ps plan tables.yaml --svg hit_rate.svg",
    "lambda-svc ps plan --schema criteo.pbtxt --dim 128 --dtype f16 --zipf s=1.2,q=100 --host-ram 256GiB",
    "lambda-svc ps plan --rows 1000000000 --dim 64 --dtype int8 --trace ids.parquet",
))
def plan(
    file: Annotated[Path | None, typer.Argument(help="YAML file of tables and hosts.", metavar="PLAN",
                                                show_default=False)] = None,
    schema: Annotated[Path | None, typer.Option(help="Schema in protobuf text: a table for each categorical "
                                                "feature.", metavar="FILE")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows of a single table.", min=1)] = None,
    scale: Annotated[float, typer.Option(help="Multiplies the rows of --schema.", min=1e-9)] = 1.0,
    dim: Annotated[int, typer.Option(help="Numbers in a row, with --schema or --rows.", min=1, max=4096)] = 32,
    dtype: Annotated[str, typer.Option(help="f32, f16, bf16 or int8, with --schema or --rows.")] = "f16",
    zipf: Annotated[str | None, typer.Option(help="Popularity P(rank r) ~ (r+q)^-s: s=NUMBER,q=NUMBER.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Ids as they were looked up: .npy, .parquet or text; its "
                                               "popularity is every table's.", metavar="FILE")] = None,
    column: Annotated[str, typer.Option(help="Column of a Parquet trace.")] = "id",
    host_ram: Annotated[str | None, typer.Option(help="RAM of a host, such as 64GiB.")] = None,
    replicas: Annotated[int | None, typer.Option(help="Copies of every shard.", min=1)] = None,
    svg: Annotated[Path | None, typer.Option(help="Also draw hit rate over RAM into this file.",
                                             metavar="FILE")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the answer to this file.",
                                                   metavar="FILE")] = None,
) -> None:
    """Say bytes per row, hit rate per RAM budget and hosts needed, before anything is built."""
    from tools.ps.plan import ask

    asked = ask.Asked(file=file, schema=schema, rows=rows, scale=scale, dim=dim, dtype=dtype, zipf=zipf, trace=trace,
                      column=column, host_ram=host_ram, replicas=replicas)
    with told():
        raise typer.Exit(ask.run(asked, svg_file=svg, json_file=json_file))


@contextmanager
def _opened(cluster: Path | None, directory: Path | None, token_file: Path | None, tls_ca: Path | None):
    """The cluster, or one replica's directory: exactly one is given."""
    if (cluster is None) == (directory is None):
        raise PsError("pass --cluster DIR for a running cluster, or --directory DIR for one replica that does not run")
    if directory is None:
        yield _cluster(cluster, token_file, tls_ca)
        return
    from tools.ps.directory import OfflineShard

    with OfflineShard(directory) as shard:
        yield shard


def _cluster(directory: Path, token_file: Path | None, tls_ca: Path | None):
    from tools.ps.cluster import Access, Cluster

    return Cluster(directory, Access(token_file, tls_ca))
