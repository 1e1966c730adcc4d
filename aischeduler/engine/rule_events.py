"""Handling of events about rules: disruption budgets, namespaces, gangs and sets of pods."""

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.evictions import budget_gone, budget_seen
from aischeduler.engine.pool_events import namespace_gone, namespace_seen
from aischeduler.engine.units import gang_changed
from aischeduler.model.events import (
    BudgetGone,
    BudgetSeen,
    GangGone,
    GangSeen,
    NamespaceGone,
    NamespaceSeen,
    PodSetGone,
    PodSetSeen,
    RuleEvent,
)


def rule_changed(cluster: Cluster, event: RuleEvent) -> None:
    """Handle an object that is a rule for pods."""
    match event:
        case BudgetSeen(budget):
            budget_seen(cluster, budget)
        case BudgetGone(namespace, name):
            budget_gone(cluster, namespace, name)
        case NamespaceSeen(name, labels):
            namespace_seen(cluster, name, labels)
        case NamespaceGone(name):
            namespace_gone(cluster, name)
        case GangSeen() | GangGone():
            gang_changed(cluster, event)
        case PodSetSeen(pod_set):
            cluster.pod_sets.see(pod_set)
        case PodSetGone(kind, namespace, name):
            cluster.pod_sets.forget((kind, namespace, name))
