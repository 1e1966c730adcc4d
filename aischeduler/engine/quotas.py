"""Quotas: a unit that would take more than an account may hold is held, and tried again as the account shrinks.

Invariants:
- What a quota forbids is a hold: it takes no room, and blocks no loan. A unit that owns a claim is within its quota.
- Each time an account shrinks, or a pod of it is placed, the first unit that it holds is tried, in the order of queues.
"""

from collections.abc import Iterable
from typing import Final

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.holds import recheck_later
from aischeduler.engine.view import View
from aischeduler.model.unsupported_constraints import ConstraintKind
from aischeduler.state.ledger import Account
from aischeduler.state.pod_records import PodRecord, PodState

QUOTA: Final = ConstraintKind.QUOTA


def over_quota(cluster: View, record: PodRecord) -> str:
    """Return why the pod, or the unit that it leads, may not take more; empty where it may."""
    quotas = cluster.profile.plugins_of(record.pod).quotas
    if not quotas or cluster.claims.of(record.pod.uid) is not None:
        return ""
    total = cluster.total(record)
    return next((why for quota in quotas if (why := quota.refuses(record.pod, total, cluster.ledger))), "")


def try_first(cluster: Cluster, accounts: Iterable[Account]) -> None:
    """Have the first unit tried that each of these accounts holds."""
    for account in sorted(accounts):
        record = cluster.held.first(account)
        while record is not None and (record.state is not PodState.HELD or record.constraint is not QUOTA):
            cluster.held.drop(record.pod.uid)
            record = cluster.held.first(account)
        recheck_later(cluster, (record,) if record is not None else ())
