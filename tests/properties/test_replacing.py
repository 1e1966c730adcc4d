"""Objects that are deleted and made again under the same name between two looks leave nothing of the old one behind.

The state equals that of an engine that was told the last objects alone.
"""

from collections import Counter
from collections.abc import Mapping
from random import Random  # noqa: TID251 - the generator is made from the seed
from typing import Any

import pytest

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.events import Seen, gone
from aischeduler.model.pod import Pod
from aischeduler.model.storage_objects import CsiNode
from tests import seeds
from tests.build import a_spec, replace
from tests.invariants.state import check
from tests.properties.churn import KINDS, MAKERS, Churn, ended, seen

NAMES = 3
"""The names of each kind."""
ORDER = ("namespace", "pool", "node", "class", "csi node", "csi driver", "capacity", "volume", "claim", "attachment")


NO_SPEC = a_spec()


class Replacing(Churn):
    """Objects of a few names, of which the next one comes before, or without, news that the last one is gone."""

    def play(self, events: int) -> None:
        end = self.events + events
        while self.events < end:
            kind = self.chance.choice([*["pod"] * 6, *["node"] * 3, *KINDS])
            name = f"{kind}-{self.chance.randrange(NAMES)}".replace(" ", "-")
            old = self.live.setdefault(kind, {}).get(name)
            if old is not None and self.chance.random() < 0.2:
                self._end(kind, name)
            else:
                self._replace(kind, name, old)
            if self.chance.random() < 0.2:
                self.now += self.chance.choice([0.0, 0.1, 1.0, 12.0])
                self._decide()

    def _replace(self, kind: str, name: str, old: Any) -> None:
        new = MAKERS[kind](self, name)
        if hasattr(new, "uid"):
            new = replace(new, uid=f"uid-{self.events}")
        if isinstance(new, CsiNode):
            new = replace(new, name=name.removeprefix("csi-"))
        self.live[kind][name] = new
        if old is None:
            self._tell(seen(new))
        elif isinstance(old, Pod):  # pods are told apart by their uids
            told = [gone(Pod, old.uid), Seen(new)]
            self._tell(*(reversed(told) if self.chance.random() < 0.5 else told))
        elif ended(old) != ended(new) or self.chance.random() < 0.3:
            self._tell(ended(old), seen(new))
        else:
            self._tell(seen(new))

    def settle(self) -> None:
        """Let time pass until no Binding is under way, and no new node waits for a list of Pools."""
        for _ in range(100):
            self.now += 40.0
            self._decide(1000)
            if not self.scheduler.assumed() and not self.scheduler.cluster.unknown_pools.late:
                return
        raise AssertionError("a Binding has no outcome")

    def fresh(self) -> Scheduler:
        """Return an engine that was told the objects as they are now."""
        scheduler = Scheduler(default_profile(), "fresh")
        kinds = [*ORDER, *(kind for kind in KINDS if kind not in ORDER), "pod"]
        objects = [seen(one) for kind in kinds for one in self.live.get(kind, {}).values()]
        for event in (*self.base, *objects, *map(Seen, self.stay.values())):
            scheduler.observe(event, self.now)
        return scheduler


def believed(cluster: Cluster) -> dict[str, Any]:
    """Return what an engine believes of objects, without what it decided for pods that wait."""
    nodes, storage, counts = cluster.nodes, cluster.nodes.storage, cluster.nodes.pod_counts
    names = nodes.names
    on = {uid: names[one.row] for uid, one in cluster.records.items() if one.counted is not None}
    return {
        "nodes": {name: (nodes.nodes[row], cluster.pool_of(row)) for name, row in nodes.rows.items()},
        "amounts": {name: +Counter(nodes.named(nodes.allocatable[:, row])) for name, row in nodes.rows.items()},
        "labels": {pair: {names[row] for row in rows} for pair, rows in nodes.labels._pairs._rows.items()},
        "taints": {taint: {names[row] for row in rows} for taint, rows in nodes.taints._rows.items()},
        "images": {name: {names[row] for row in nodes.images.rows(name)} for name in nodes.images._images},
        "pools": cluster.pools.pools,
        "conflicts": {names[row]: pools for row, pools in cluster.pools.conflicts.items()},
        "pods": {uid: (replace(one.pod, spec=NO_SPEC), one.pod.spec.own_key) for uid, one in cluster.records.items()},
        "homes": {uid: (one.home, one.loan) for uid, one in cluster.records.items()},
        "on nodes": on,
        "counts": {
            one.by: {uid for uid, places in one._members.items() if not all(claims for _, claims in places)}
            for one in counts.all()
        },
        "reads": counts.terms._reads,
        "namespaces": cluster.nodes.pod_counts.namespaces,
        "units": {name: {*unit.members} for name, unit in cluster.units.by_name.items()},
        "gangs": (cluster.units.gangs.by_key, cluster.units.gangs._strangers),
        "budgets": (cluster.budgets._budgets, cluster.budgets._index._found),
        "pod sets": (cluster.pod_sets.by_key, cluster.pod_sets._in),
        "claims": (storage.claims, storage._claims_of, storage._unbound, storage.users()),
        "volumes": (storage.volumes, storage.by_class, storage._by_ref),
        "storage": (storage.classes, storage.csi_nodes, storage.drivers, storage.capacities, storage._capacity_keys),
        "attachments": (storage.attached, storage._attachments, storage._attachments_of),
        "used": {names[row]: used for row, used in storage.used.on.items()},
    }


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return what differs, in mappings by key."""
    found: dict[str, Any] = {}
    for part, left in one.items():
        right = other[part]
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            # A waiting pod may still be spread by a Service of before: it changes its class when it is tried.
            known = left.keys() & right.keys() if part == "counts" else left.keys() | right.keys()
            keys = [key for key in known if left.get(key) != right.get(key)]
            found |= {f"{part} {key}": (left.get(key), right.get(key)) for key in keys}
        elif left != right:
            found[part] = left, right
    return found


def replaced(chance: Random, events: int) -> None:
    world = Replacing(chance)
    for _ in range(4):
        world.play(events // 4)
        world.settle()
        assert check(world.scheduler.cluster) == ()
        fresh = world.fresh()
        assert differences(believed(world.scheduler.cluster), believed(fresh.cluster)) == {}
    assert not world.scheduler.counters.internal_errors


@pytest.mark.parametrize("number", range(4))
def test_objects_made_again_under_their_names_leave_nothing_behind(number: int) -> None:
    replaced(seeds.random(f"replacing {number}"), 400)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(200))
def test_objects_made_again_under_their_names_leave_nothing_behind_at_length(number: int) -> None:
    replaced(seeds.random(f"replacing at length {number}"), 4_000)
