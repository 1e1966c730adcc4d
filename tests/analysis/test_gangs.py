"""What `explain` says of gangs: what is missing, the largest part that fits now, and what would start all of it."""

from aischeduler.analysis.explain import explain
from aischeduler.analysis.explanation import Explanation, Verdict
from aischeduler.model.gang import Gang, GangSource, Lack, TopologyLevel
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod
from tests.engine.session import Session
from tests.gangs import a_gang, a_key, member, members


def explained(name: str, *objects: Node | Pod) -> Explanation:
    """Return the explanation of a pod once the engine has decided."""
    session = Session(*objects)
    session.decide()
    cluster = session.scheduler.cluster
    return explain(cluster, cluster.records[f"uid-{name}"], session.now)


def labelled(least: int, *, topology: tuple[TopologyLevel, ...] = (), roles: tuple[tuple[str, int], ...] = ()) -> Gang:
    return a_gang("g", least, GangSource.LABELS, topology=topology, roles=roles)


def test_role_that_lacks_pods_is_named_with_its_numbers() -> None:
    gang = labelled(3, roles=(("actor", 1), ("learner", 2)))
    pods = [member(a_pod(f"actor-{turn}"), gang, role="actor") for turn in range(2)]
    found = explained("actor-0", a_node("n"), *pods, member(a_pod("learner-0"), gang, role="learner"))
    key = a_key("g", source=GangSource.LABELS)
    lacks = "the role learner has 1 of at least 2"
    assert (found.verdict, found.message) == (Verdict.GATED, f"The gang {key} waits for more pods: {lacks}.")
    assert found.unit is not None
    assert found.unit.lacks == (Lack("learner", 1, 2),)


def test_largest_part_that_fits_is_counted_and_a_remedy_starts_all_of_it() -> None:
    found = explained("g-0", *(a_node(f"n{turn}", cpu="2") for turn in range(2)), *members(labelled(3), 3))
    assert found.message.startswith("2 of the 3 pods that start together fit. The next, g-2: ")
    assert found.unit is not None
    assert (found.unit.required, found.unit.first_refused, found.unit.fit) == (3, "default/g-2", 2)
    assert found.remedies
    assert {len(one.start.nodes) for one in found.remedies} == {3}


def test_pod_that_does_not_fit_hides_no_other_that_does() -> None:
    gang = labelled(3)
    cards = {"g-0": 1, "g-1": 9, "g-2": 1}
    pods = [member(a_pod(name, gpu=count), gang) for name, count in cards.items()]
    found = explained("g-0", a_node("n", gpu=2), *pods)
    assert found.message.startswith("2 of the 3 pods that start together fit. The next, g-1: ")


def test_gang_whose_pods_are_too_far_from_each_other_is_told_so() -> None:
    gang = labelled(2, topology=(TopologyLevel("rack", required=True),))
    nodes = [a_node(f"n{turn}", cpu="2", labels={"rack": f"r{turn}"}) for turn in range(2)]
    found = explained("g-0", *nodes, *members(gang, 2))
    text = "1 Insufficient cpu, 1 node(s) didn't match the topology of the gang."
    assert text in found.message
