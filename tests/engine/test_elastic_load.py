"""`maxLoad` of a Pool: how much of its nodes elastic jobs may fill."""

import pytest

from aischeduler.engine.elastic import PASS_SECONDS
from aischeduler.model.pool import Pool
from tests.build import a_node, a_pod, a_pool, replace
from tests.elastic import AJob, Jobs
from tests.engine.session import Session


def loaded(pool: str, thousandths: int) -> Pool:
    found: Pool = replace(a_pool(pool, labels={"pool": pool}), max_load_thousandths=thousandths)
    return found


@pytest.mark.parametrize(("thousandths", "size"), [(1000, 10), (900, 9), (899, 8), (500, 5), (1, 2)])
def test_job_grows_until_the_load_and_gets_its_minimum_beyond_it(thousandths: int, size: int) -> None:
    session = Session(loaded("a", thousandths), a_node("n", cpu="10", labels={"pool": "a"}))
    jobs = Jobs(session, AJob("j", 2, 60, pool="a"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.running() == {"j": size}


def test_pods_of_others_count_and_so_do_gpus() -> None:
    node = a_node("n", cpu="100", gpu=10, labels={"pool": "a"})
    session = Session(loaded("a", 800), node, a_pod("other", cpu="1", gpu=3, node="n", scheduler_name="other"))
    jobs = Jobs(session, AJob("j", 1, 60, pool="a", gpu=1))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.running() == {"j": 5}


def test_lender_bounds_what_is_borrowed_for_growth() -> None:
    nodes = (a_node(name, cpu="4", labels={"pool": name}) for name in ("a", "b"))
    jobs = Jobs(Session(loaded("a", 1000), loaded("b", 500), *nodes), AJob("j", 1, 60, pool="a"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.running() == {"j": 6}
