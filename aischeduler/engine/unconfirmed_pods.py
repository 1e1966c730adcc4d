"""Pods are read whose Binding or eviction shows no effect: time alone frees no room and ends no claim."""

from dataclasses import replace
from typing import Final

from aischeduler.engine.cluster import Cluster
from aischeduler.model.actions import Action, ReadPod

SETTLE_SECONDS: Final = 30.0
"""An assumed pod that the watch has not shown bound for this long is read."""
UNHEARD_SECONDS: Final = 60.0
"""A pod whose eviction shows no effect for this long is read, and again after the same time."""
SETTLES_MAX: Final = 16
"""The most victims, and the most assumed pods, that one decision has read."""


def settle(cluster: Cluster, actions: list[Action]) -> None:
    """Request reads of the victims and of the assumed pods that are due."""
    names, now = cluster.nodes.names, cluster.now
    for _ in range(SETTLES_MAX):
        uid, asked = next(iter(cluster.victims.items()), ("", None))
        if asked is None or asked.read_at > now:
            break
        cluster.victims[uid] = replace(asked, read_at=now + UNHEARD_SECONDS)
        cluster.victims.move_to_end(uid)
        record = cluster.records[uid]
        actions.append(ReadPod(record.pod, names[record.row], asked.decision, evicted=True))
    for _ in range(SETTLES_MAX):
        uid, due = next(iter(cluster.unsettled.items()), ("", now + 1))
        if due > now:
            break
        cluster.unsettled[uid] = now + SETTLE_SECONDS
        cluster.unsettled.move_to_end(uid)
        record = cluster.records[uid]
        actions.append(ReadPod(record.pod, names[record.row], record.decision))
