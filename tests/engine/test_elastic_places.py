"""Pods of a Pool that packs leave places for the instances of its elastic jobs."""

from collections import Counter

import pytest

from aischeduler.engine.elastic import PASS_SECONDS
from aischeduler.model.actions import Bind
from aischeduler.model.pool import PlacementStrategy
from tests.build import a_node, a_pod, a_pool
from tests.elastic import AJob, Jobs
from tests.engine.session import Session

SERVERS = 6


def servers_on_nodes(jobs: Jobs) -> list[int]:
    """Let pods of 4 cores come, and return how many of them are on each node that has some."""
    names = [f"server-{number}" for number in range(SERVERS)]
    jobs.session.see(*(a_pod(name, cpu="4", pool="training") for name in names))
    found = (action for action in jobs.session.decide() if isinstance(action, Bind))
    return sorted(Counter(bind.node for bind in found if bind.pod.name in names).values())


def a_training(*jobs: AJob, placement: PlacementStrategy = PlacementStrategy.PACK) -> Jobs:
    labels = {"pool": "training"}
    nodes = (a_node(f"n{number}", cpu="17", labels=labels) for number in range(4))
    return Jobs(Session(a_pool("training", labels=labels, placement=placement), *nodes), *jobs)


@pytest.mark.parametrize(("elastic", "by_node"), [(True, [3, 3]), (False, [2, 4])])
def test_pods_leave_room_for_an_instance_where_there_are_elastic_jobs(*, elastic: bool, by_node: list[int]) -> None:
    job = AJob("a", 1, 3, cpu="5", pool="training")
    jobs = a_training(*([job] if elastic else []))
    jobs.run(2 * PASS_SECONDS)
    assert servers_on_nodes(jobs) == by_node


def test_instances_of_a_pool_that_spreads_are_not_expected() -> None:
    jobs = a_training(AJob("a", 1, 3, cpu="5", pool="training"), placement=PlacementStrategy.SPREAD)
    jobs.run(2 * PASS_SECONDS)
    assert jobs.session.scheduler._cluster.nodes.instances == {}


def test_pods_fill_nodes_again_when_the_last_elastic_job_is_gone() -> None:
    jobs = a_training(AJob("a", 1, 3, cpu="5", pool="training"))
    jobs.run(2 * PASS_SECONDS)
    jobs.remove("a")
    jobs.run(2 * PASS_SECONDS)
    assert servers_on_nodes(jobs) == [2, 4]
