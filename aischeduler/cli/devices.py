"""`ai-scheduler devices`: the devices of nodes, what is used of each, and which pods have it.

Invariants:
- The cluster is listed with the caller's rights, or read from a snapshot file. Nothing is written, no daemon is asked.
- Whole devices of which nobody knows which are a row of their own without a minor, after the others of their node.
- What is wrong with a Device object, and what pods have of devices that it does not have, is one sentence each on
  standard error.
- What nobody says is `-` in the table and null in JSON. In JSON, memory is in bytes.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
from rich.table import Table
from rich.text import Text
from typer import TyperException

from aischeduler.analysis.cluster_snapshot import loaded
from aischeduler.analysis.device_use import DeviceHolder, DeviceUse, NodeDeviceUse, device_use
from aischeduler.cli.cluster_source import ClusterSource, read_cluster
from aischeduler.cli.output import console, plain_table, print_trimmed
from aischeduler.cli.pools_output import amount
from aischeduler.config.load import load_config
from aischeduler.daemon.configured_profile import profile_of
from aischeduler.engine.cluster import Cluster
from aischeduler.kube.watch.cluster_lister import WITHOUT
from aischeduler.model.device import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from aischeduler.model.names import MEMORY
from aischeduler.model.user_text import nearest, quoted
from aischeduler.observability.logging import printable

COLUMNS: Final = ("Node", "Type", "Minor", "Health", "Core", "Memory", "Ratio", "Amount", "Holders")
"""Amount is the one dimension of a device that is no GPU."""
UNKNOWN: Final = "-"
ONLY_COUNTS: Final = "nodes without a Device object give whole GPUs, by count only"
NONE: Final = (
    f"there are no Device objects: {ONLY_COUNTS}; devices.installCRD of the chart installs the definition of Devices, "
    f"and deviceReporter.enabled the agent that writes them"
)
_TEXTS: Final = ("Node", "Type", "Health", "Holders")
"""The columns of texts; the others are of numbers."""

Json = dict[str, Any]


async def print_devices(source: ClusterSource, node: str, *, config: Path | None, json: bool) -> None:
    """Print the devices of a node, of all for an empty name.

    Raises AccessError, ListError, ConfigError, and TyperException where there is nothing to print.
    """
    profile = profile_of(load_config(config))
    snapshot = await read_cluster(source, cached=True)
    if any(gap.endswith(f": {WITHOUT['Device']}") for gap in snapshot.gaps):
        raise TyperException("Device objects cannot be listed, and there is no answer without them")
    found = _of_node(loaded(profile, snapshot).cluster, node)
    if json:
        console().out(devices_json(found), highlight=False)
    else:
        print_trimmed(console(), device_table(found))
    for note in notes(found):
        print(printable(note), file=sys.stderr, flush=True)


def _of_node(cluster: Cluster, name: str) -> Sequence[NodeDeviceUse]:
    """Return a node, all for an empty name; raises TyperException where no Device object tells of it."""
    uses = device_use(cluster)
    found = [use for use in uses if name in ("", use.node)]
    if name and not found and cluster.nodes.node(name) is None:
        near = nearest(name, sorted(cluster.nodes.rows))
        raise TyperException(f"there is no node {quoted(name)}{f'; is it {near}?' if near else ''}")
    if not found:
        raise TyperException(f"the node {name} has no Device object: {ONLY_COUNTS}" if uses else NONE)
    return found


def notes(uses: Sequence[NodeDeviceUse]) -> Iterator[str]:
    """Yield a sentence for everything that is wrong with these devices."""
    for use in uses:
        for fault in use.faults:
            yield f"the Device object of the node {use.node}: {fault}"
        for holder, held in use.missing:
            what = f"{held.type} {held.minor if held.minor >= 0 else held.id}"
            yield f"{_named(holder)} has {what} of the node {use.node}, whose Device object does not have it"


def device_table(uses: Sequence[NodeDeviceUse]) -> Table:
    """Return the table of the devices of these nodes."""
    table = plain_table()
    for column in COLUMNS:
        if column in _TEXTS:
            table.add_column(column, overflow="fold", no_wrap=column == "Health")
        else:
            table.add_column(column, justify="right", no_wrap=True)
    for use in uses:
        for one in use.devices:
            device = one.device
            table.add_row(
                Text(use.node, style="bold"),
                device.type,
                f"{device.minor}",
                "Healthy" if device.healthy else Text("Unhealthy", style="red"),
                *_shares(one),
                _holders(one.holders),
            )
        for unknown in use.unknown:
            count = Text(f"{unknown.devices:,} whole", style="yellow")
            cells = (UNKNOWN, UNKNOWN, "", "", "", count, _holders(unknown.holders))
            table.add_row(Text(use.node, style="bold"), unknown.type, *cells)
    return table


def devices_json(uses: Sequence[NodeDeviceUse]) -> str:
    """Return a list of one object a device on one line."""
    return orjson.dumps([line for use in uses for line in _lines(use)]).decode()


def _lines(use: NodeDeviceUse) -> Iterator[Json]:
    for one in use.devices:
        device, used = one.device, dict(one.used)
        yield {
            "node": use.node,
            "type": device.type,
            "minor": device.minor,
            "id": device.id or None,
            "health": device.healthy,
            "dimensions": {name: {"used": used[name], "total": total} for name, total in device.totals},
            "holders": [_holder_json(holder) for holder in one.holders],
        }
    for unknown in use.unknown:
        yield {
            "node": use.node,
            "type": unknown.type,
            "minor": None,
            "id": None,
            "health": None,
            "dimensions": {},
            "holders": [_holder_json(holder) for holder in unknown.holders],
        }


def _holder_json(holder: DeviceHolder) -> Mapping[str, str]:
    return {"namespace": holder.namespace, "name": holder.name, "uid": holder.uid, "source": str(holder.source)}


def _shares(one: DeviceUse) -> Iterator[str]:
    """Yield the cells of Core, Memory, Ratio and Amount."""
    used, kind = dict(one.used), one.device.type
    for dimension in (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, kind):
        if (kind == GPU) == (dimension == kind):
            yield ""
        elif dimension not in used:
            yield UNKNOWN
        else:
            resource = MEMORY if dimension == GPU_MEMORY else dimension
            yield f"{amount(resource, used[dimension])}/{amount(resource, one.device.total(dimension))}"


def _holders(holders: Sequence[DeviceHolder]) -> Text:
    """Return the pods, each on a line of its own."""
    return Text("\n".join(f"{_named(holder)} ({holder.source})" for holder in holders))


def _named(holder: DeviceHolder) -> str:
    return f"{holder.namespace}/{holder.name}"
