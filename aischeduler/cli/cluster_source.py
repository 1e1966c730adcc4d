"""`ai-scheduler snapshot`, and the cluster that `explain` and `plan` read: listed now, or from a snapshot file.

Invariants:
- A file appears whole or not at all, and only its owner can read it.
- What could not be read is one sentence each on standard error.
"""

import gzip
import os
import sys
import time
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final

from msgspec import Struct
from typer import TyperException

from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, SnapshotError, read_lines, write_lines
from aischeduler.config.load import load_config
from aischeduler.config.schema import ElasticKind
from aischeduler.kube.access.server import Server, connect
from aischeduler.kube.http.client import Client
from aischeduler.kube.watch.cluster_lister import list_cluster
from aischeduler.model.events import Seen, objects_of
from aischeduler.model.pod import Pod
from aischeduler.observability.logging import printable

GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_SUFFIX: Final = ".gz"


class ClusterSource(Struct, frozen=True):
    """Where the cluster comes from: a `snapshot` file, else the cluster of the kubeconfig."""

    kubeconfig: Path | None
    context: str | None
    snapshot: Path | None = None


async def read_cluster(
    source: ClusterSource, kinds: Sequence[ElasticKind] = (), *, cached: bool = False, with_pod: str = ""
) -> ClusterSnapshot:
    """Return the cluster, with these kinds of elastic objects too, and print its gaps.

    `cached` lists it as the API server has it in its watch cache, so that many readers cost etcd nothing; where that
    does not have the pod of the uid `with_pod` yet, it is listed from etcd. Raises AccessError, ListError, and
    TyperException for a file that is no snapshot.
    """
    snapshot = _read_file(source.snapshot) if source.snapshot else await _list(source, kinds, with_pod, cached=cached)
    for gap in snapshot.gaps:
        print(printable(gap), file=sys.stderr, flush=True)
    return snapshot


async def write_snapshot(source: ClusterSource, path: Path, config: Path | None = None) -> None:
    """List the cluster and write it into a file; a name that ends in `.gz` is compressed."""
    snapshot = await read_cluster(source, load_config(config).elastic.kinds)
    try:
        _write_file(snapshot, path)
    except OSError as error:
        raise TyperException(f"{path}: cannot be written: {error.strerror or error}") from error
    print(printable(f"{path}: {sum(isinstance(event, Seen) for event in snapshot.events)} objects"), file=sys.stderr)


@asynccontextmanager
async def connected(source: ClusterSource) -> AsyncIterator[tuple[Client, Server]]:
    """Yield a client of the cluster of the kubeconfig, and its server; raises AccessError."""
    kubeconfig = str(source.kubeconfig) if source.kubeconfig else None
    server = await connect(kubeconfig, source.context, time.monotonic, terminal=sys.stdin.isatty())
    async with Client(server) as client:
        yield client, server


async def _list(source: ClusterSource, kinds: Sequence[ElasticKind], with_pod: str, *, cached: bool) -> ClusterSnapshot:
    async with connected(source) as (client, server):
        listed = await list_cluster(client, server.url, time.time(), cached=cached, kinds=kinds)
        uids = {pod.uid for pod in objects_of(listed.events, Pod)}
        lags = cached and with_pod != "" and with_pod not in uids
        return await list_cluster(client, server.url, time.time(), kinds=kinds) if lags else listed


def _read_file(path: Path) -> ClusterSnapshot:
    try:
        with path.open("rb") as file:
            return read_lines(_lines(file))
    except OSError as error:
        raise TyperException(f"{path}: cannot be read: {error.strerror or error}") from error
    except SnapshotError as error:
        raise TyperException(f"{path}: {error}") from error


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    compressed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    file.seek(0)
    try:
        with gzip.open(file) if compressed else nullcontext(file) as lines:
            yield from lines
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise SnapshotError(f"it is cut off or damaged: {error}") from error


def _write_file(snapshot: ClusterSnapshot, path: Path) -> None:
    """Write a file beside it, which only the owner can read, and rename it."""
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            if path.suffix == GZIP_SUFFIX:
                with gzip.open(file, "wb") as packed:
                    packed.writelines(line + b"\n" for line in write_lines(snapshot))
            else:
                file.writelines(line + b"\n" for line in write_lines(snapshot))
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(file.name).unlink()
            raise
