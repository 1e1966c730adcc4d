"""A device is a plugin with a filter, a choice and a part of allocations: no line of the engine knows of it."""

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.model.actions import Action, Bind
from aischeduler.model.events import gone
from aischeduler.model.gang import GangSource
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod, replace
from tests.engine.session import Session, evictions, nominations
from tests.gangs import a_gang, member
from tests.seams.halves import HALF, Halves, part_of


def profile() -> Profile:
    found, halves = default_profile(), Halves()
    plugins = found.plugins
    return replace(
        found, plugins=replace(plugins, filters=(*plugins.filters, halves), allocators=(*plugins.allocators, halves))
    )


def node(name: str) -> Node:
    return a_node(name, cpu="8", extended={HALF: "2"})


def pod(name: str, halves: int = 1, *, on: str = "", has: str = "", priority: int = 0) -> Pod:
    return a_pod(
        name, cpu="1", extended={HALF: str(halves)}, node=on, labels={HALF: has} if has else {}, priority=priority
    )


def halves(said: list[Action]) -> dict[str, tuple[str, object]]:
    """Return pod -> its node and its halves."""
    return {one.pod.name: (one.node, one.allocation.part(HALF)) for one in said if isinstance(one, Bind)}


def test_pods_get_different_halves_of_one_card() -> None:
    session = Session(node("n"), pod("p"), pod("q"), pod("late"), profile=profile())
    said = halves(session.decide())
    assert sorted(said.values()) == [("n", ("left",)), ("n", ("right",))]


def test_pods_of_a_gang_that_are_placed_together_get_different_halves() -> None:
    gang = a_gang("g", 2, GangSource.LABELS)
    session = Session(node("n"), *(member(pod(name), gang) for name in ("p", "q")), profile=profile())
    assert sorted(halves(session.decide()).values()) == [("n", ("left",)), ("n", ("right",))]


def test_what_a_bound_pod_has_is_read_from_the_pod() -> None:
    session = Session(node("n"), pod("old", on="n", has="left"), pod("p"), profile=profile())
    assert halves(session.decide()) == {"p": ("n", ("right",))}


def test_claim_has_the_half_of_the_victim_until_the_pod_gets_it() -> None:
    session = Session(node("n"), profile=profile())
    session.see(pod("low", on="n", has="right"), pod("high", on="n", has="left", priority=9), pod("p", priority=5))
    said = session.decide()
    assert (evictions(said), nominations(said)) == ({"low": "Preempted"}, {"p": "n"})
    cluster = session.scheduler.cluster
    claim = cluster.claims.all()[0]
    assert [one.allocation.part(HALF) for one in claim.assigned] == [("right",)]
    session.tell(gone(Pod, "uid-low"))
    assert halves(session.decide()) == {"p": ("n", ("right",))}


def test_a_search_for_victims_leaves_the_halves_as_they_were() -> None:
    session = Session(node("n"), node("m"), profile=profile())
    session.see(pod("low", 2, on="n", has="left.right"), pod("other", 2, on="m", has="left.right", priority=7))
    part = part_of(session.scheduler.cluster.nodes)
    before = {row: dict(on) for row, on in part.on.items()}
    session.see(pod("p", 2, priority=1))
    assert evictions(session.decide()) == {"low": "Preempted"}
    claimed = {key: halves for on in part.on.values() for key, halves in on.items() if key[1]}
    assert [*claimed.values()] == [("left", "right")]
    assert {row: {k: v for k, v in on.items() if not k[1]} for row, on in part.on.items()} == before
