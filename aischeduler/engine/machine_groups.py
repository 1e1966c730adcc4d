"""Who may name a machine group: the rules of the configuration and of all Pools.

Invariants:
- The rules for one group add up: a pod may name it if one of them selects its namespace.
- A group for which there is no rule may be named by every pod: there is nothing that restricts it.
- A pod that may not name its group is held, and is tried again when its namespace or a rule for the group changes.
"""

from collections.abc import Container, Iterable

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.view import View
from aischeduler.model.names import MACHINE_GROUP_KEY
from aischeduler.model.pod import Pod
from aischeduler.model.pool import GroupRule
from aischeduler.model.selectors import Labels
from aischeduler.state.pod_records import PodRecord


def group_refused(cluster: View, pod: Pod) -> str:
    """Return why the pod may not name its machine group; empty where it may, or names none."""
    group = pod.spec.machine_group
    if not group:
        return ""
    rules = [rule for rule in _rules(cluster) if rule.name == group]
    labels = cluster.nodes.pod_counts.namespaces.get(pod.namespace)
    if not rules or (labels is not None and any(rule.namespaces.matches(labels) for rule in rules)):
        return ""
    why = f"machineGroups of the configuration or of a Pool allow it to other namespaces than {pod.namespace} only"
    return f"The pod may not name the machine group {group} (annotation {MACHINE_GROUP_KEY}): {why}."


def groups_have_rules(cluster: View) -> bool:
    """Return whether the namespace of a pod may decide whether it may name a group."""
    return any(True for _ in _rules(cluster))


def namespace_relabelled(cluster: Cluster, name: str, before: Labels | None, labels: Labels) -> None:
    """Have the pods of a namespace tried again that may name their group now, or no longer."""
    changed = {
        rule.name
        for rule in _rules(cluster)
        if rule.namespaces.matches(labels) != (before is not None and rule.namespaces.matches(before))
    }
    _affect(cluster, ((group, name) for group in sorted(changed)))


def rules_changed(cluster: Cluster, before: tuple[GroupRule, ...], rules: tuple[GroupRule, ...]) -> None:
    """Have the pods of all pools tried again whose group has other rules than before."""
    _affect(cluster, ((group, "") for group in sorted({rule.name for rule in {*before} ^ {*rules}})))


def names_one_of(record: PodRecord, groups: Container[tuple[str, str]]) -> bool:
    """Return whether the pod, or one that starts together with it, names one of these groups.

    Beside each group is the namespace from which it is named; empty means any.
    """
    named = ((member.pod.spec.machine_group, member.pod.namespace) for member in record.together)
    return any(group and ((group, "") in groups or (group, namespace) in groups) for group, namespace in named)


def _rules(cluster: View) -> Iterable[GroupRule]:
    yield from cluster.profile.machine_groups
    for pool in cluster.pools.pools.values():
        yield from pool.machine_groups


def _affect(cluster: Cluster, groups: Iterable[tuple[str, str]]) -> None:
    found = dict.fromkeys(groups)
    for pool in cluster.pools.names() if found else ():
        cluster.deferred.affect(pool).groups.update(found)
