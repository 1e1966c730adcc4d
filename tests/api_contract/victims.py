"""Pods that run and may be evicted, and their budget."""

from tests.api_contract.world import STRATEGIC_PATCH, Answer, Json, World
from tests.objects import binding_object, eviction_object, node_object, pdb_object, pod_object

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def a_victim(world: World, name: str = "victim", *, grace_seconds: int = 30, **labels: str) -> Json:
    """Create a pod that runs on a node of its own."""
    node = world.named(f"node-of-{name}")
    world.create(node_object(node))
    pod = pod_object(name, namespace=world.namespace, labels=labels)
    pod["spec"]["terminationGracePeriodSeconds"] = grace_seconds
    world.create(pod)
    assert world.bind(binding_object(name, node)).status == 201
    return world.patch(world.url("Pod", name, "status"), {"status": READY}, STRATEGIC_PATCH)


def evict(world: World, name: str, uid: str = "") -> Answer:
    eviction = eviction_object(name, namespace=world.namespace)
    if uid:
        eviction["deleteOptions"] = {"preconditions": {"uid": uid}}
    return world.evict(eviction)


def budget_status(world: World) -> Json:
    status: Json = world.get("PodDisruptionBudget", "budget").get("status", {})
    return status


def a_budget(world: World, *, min_available: int, allowed: int, **spec: object) -> None:
    """Create a budget of the pods with the label app=a, and wait until its status is up to date."""
    budget = pdb_object("budget", namespace=world.namespace, min_available=min_available, labels={"app": "a"})
    budget["spec"] |= spec
    world.create(budget)
    world.until(
        lambda: (
            (budget_status(world).get("observedGeneration"), budget_status(world).get("disruptionsAllowed"))
            == (1, allowed)
        )
    )
