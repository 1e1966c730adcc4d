"""The self-check finds, counts and returns violations; on a sound state it costs little and returns none."""

from collections.abc import Callable

import numpy as np
import pytest

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.self_check import NAMES, POSTPONED_MAX_SECONDS, RECORDS_MAX, SELF_CHECK_SECONDS
from aischeduler.model.events import Seen
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session
from tests.invariants.test_state import A, a_busy_cluster

BREACHES: list[tuple[str, str, Callable[[Cluster], object]]] = [
    ("I1", "a waiting pod counts on a node", lambda c: setattr(c.records["uid-large"], "row", 0)),
    ("I1", "a bound pod counts on another node", lambda c: setattr(c.records["uid-other"], "row", c.nodes.rows["n"])),
    ("I2", "a node counts too much", lambda c: c.nodes.used.__setitem__((0, 0), 1)),
    ("I3", "a queue forgets a pod", lambda c: c.queues["a"]._records.pop("uid-large")),
    ("I4", "a node is in the wrong pool", lambda c: c.nodes.pool.__setitem__(c.nodes.rows["n"], 0)),
    ("I5", "a pod on a node has lost its loan", lambda c: setattr(c.records["uid-guest"], "accounts", ())),
    ("I5", "a pod is not known on its node", lambda c: c.running._on_row[c.nodes.rows["m"]].pop("uid-other")),
]


def checked(session: Session) -> set[str]:
    """Return the names of the violations that the next check finds."""
    return {one.name for one in session.scheduler.self_check(session.now + POSTPONED_MAX_SECONDS)}


@pytest.mark.parametrize(("name", "what", "breach"), BREACHES, ids=[what for _, what, _ in BREACHES])
def test_violation_is_found(name: str, what: str, breach: Callable[[Cluster], object]) -> None:
    session = a_busy_cluster()
    assert checked(session) == set()
    session = a_busy_cluster()
    breach(session.scheduler.cluster)
    assert name in checked(session) <= set(NAMES)


def test_violation_is_returned_and_counted_at_the_next_check() -> None:
    session = a_busy_cluster()
    assert session.scheduler.self_check(session.now) == ()
    session.scheduler.cluster.nodes.used[0, 0] += 1
    assert session.scheduler.self_check(session.now) == ()
    found = session.scheduler.self_check(session.now + POSTPONED_MAX_SECONDS)
    assert [violation.name for violation in found] == ["I2"]
    assert session.scheduler.counters.violations == {"I2": 1}


def test_check_waits_while_there_is_something_to_decide() -> None:
    session = a_busy_cluster()
    session.scheduler.cluster.nodes.used[0, 0] += 1
    assert session.scheduler.self_check(session.now) != ()
    session.scheduler.closely = False
    session.scheduler.observe(Seen(a_pod("new")), session.now)
    assert session.scheduler.self_check(session.now + SELF_CHECK_SECONDS) == ()
    assert session.scheduler.self_check(session.now + POSTPONED_MAX_SECONDS) != ()


def test_large_cluster_is_checked_part_by_part() -> None:
    session = Session()
    session.scheduler.closely = False
    session.see(a_pool("a", labels=A), *(a_node(f"n{i}", labels=A) for i in range(30)))
    session.see(*(a_pod(f"p{i}", pool="a", cpu="0.01", memory="1Mi") for i in range(RECORDS_MAX + 50)))
    session.scheduler.decide("a", 0.0, 10_000)
    cluster = session.scheduler.cluster
    last = cluster.records[f"uid-p{RECORDS_MAX + 49}"]
    last.queue = "default"
    cluster.nodes.used[0, cluster.nodes.rows["n29"]] += 1
    found = [v for turn in range(15) for v in session.scheduler.self_check(100.0 * (turn + 1))]
    assert {violation.name for violation in found} == {"I1", "I2"}
    assert any(last.pod.uid in violation.message for violation in found)
    assert any("n29" in violation.message for violation in found)


def test_digest_is_the_same_for_the_same_state_and_changes_with_it() -> None:
    session, other = a_busy_cluster(), a_busy_cluster()
    assert session.scheduler.digest() == other.scheduler.digest()
    other.see(a_pod("more", pool="a"))
    told, after = session.scheduler.digest(), other.scheduler.digest()
    assert told["digest"] != after["digest"]
    assert (told["pods"], after["pods"]) == (4, 5)
    assert np.sum([told[f"pods_{place}"] for place in ("bound", "nominated", "parked")]) == 4
