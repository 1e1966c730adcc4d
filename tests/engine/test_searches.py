"""A search that is repeated for some rows returns the result of a search over all rows."""

from hypothesis import given, settings
from hypothesis import strategies as st

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.searches import find_unit_victims, find_victims
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import EvictRefusal, EvictRefused, Seen, gone
from aischeduler.model.names import CLUSTER
from aischeduler.model.pod import Pod
from aischeduler.model.selectors import label_selector
from aischeduler.policies.preemption import Candidate, VictimRequest, choose_victims
from aischeduler.policies.unit_preemption import UnitCandidate
from aischeduler.state.pod_records import PodRecord, PodState
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session
from tests.gangs import a_gang, member
from tests.tenants import a_queue, in_queue

NODES, PLACES = 8, 4
NUMBER = st.integers(0, 99)


def crowd() -> Session:
    """Return a session with full nodes whose pods differ in priority, age and home pool."""
    session = Session(a_pool("default"), a_pool("other", labels={"none": "has-it"}))
    session.scheduler.often = False
    for node in range(NODES):
        session.see(a_node(f"n{node}", cpu=str(PLACES)))
        for place in range(PLACES):
            number = node * PLACES + place
            home = "other" if number % 5 == 0 else ""
            running = a_pod(f"r{number}", node=f"n{node}", pool=home, labels={"app": "x" if number % 3 else "y"})
            session.see(replace(running, priority=number * 7 % 4, started_seconds=1 + number * 3 % 11))
    return session


def an_asker(cpu: int, priority: int) -> PodRecord:
    return PodRecord(
        a_pod(f"asker-{cpu}-{priority}", cpu=str(cpu), priority=priority), 0, PodState.ACTIVE, home="default"
    )


def agree(cluster: Cluster, asker: PodRecord) -> bool:
    """Return whether two searches return the result of a search without kept results."""
    rows = cluster.nodes.rows_of_pool(cluster.pools.id("default"))
    ask = VictimRequest(asker.pod.spec, cluster.preemptor_of(asker))
    whole = choose_victims(ask, cluster.runner, cluster.running, rows, cluster.budgets)
    return [find_victims(cluster, asker, rows, ()) for _ in range(2)] == [whole, whole]


def happen(session: Session, what: str, number: int) -> None:
    """Change one pod or node."""
    running = sorted(record.pod.name for record in session.scheduler.cluster.records.values() if record.counted)
    name = running[number % len(running)] if running else "r0"
    match what:
        case "gone":
            session.tell(gone(Pod, f"uid-{name}"))
        case "new":
            node = f"n{number % NODES}"
            session.see(a_pod(f"x{number}", cpu="1", node=node, priority=number % 5, started=number))
        case "queue":
            session.tell(Seen(a_queue("team")))
        case "of a queue":
            tenant = a_pod(f"q{number}", cpu="1", node=f"n{number % NODES}", priority=number % 5, started=number)
            session.see(in_queue(tenant, "team"))
        case "asked for":
            session.see(a_pod(f"o{number}", cpu=str(1 + number % 3), priority=3 + number % 4))
            session.decide()
        case "spared":
            session.tell(EvictRefused(f"uid-{name}", EvictRefusal.UNAVAILABLE, "x"))
        case "budget":
            session.tell(
                Seen(DisruptionBudget("default", "b", "uid-b", label_selector("b", {"app": "x"}, ()), number % 3))
            )
        case "labels":
            session.see(a_node(f"n{number % NODES}", cpu=str(PLACES + number % 2), labels={"a": str(number % 3)}))
        case "time":
            session.decide(float(number))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["gone", "new", "asked for", "asked for", "spared", "budget", "labels", "time", "queue", "of a queue"]
            ),
            NUMBER,
        ),
        min_size=5,
        max_size=25,
    )
)
def test_search_of_changed_rows_equals_a_search_of_all_rows(steps: list[tuple[str, int]]) -> None:
    session = crowd()
    cluster = session.scheduler.cluster
    askers = [an_asker(cpu, priority) for cpu in (1, 3) for priority in (2, 9)]
    for what, number in steps:
        happen(session, what, number)
        assert all(agree(cluster, asker) for asker in askers), what


def test_one_changed_row_causes_no_full_search() -> None:
    session = crowd()
    cluster, asker = session.scheduler.cluster, an_asker(3, 9)
    rows = cluster.nodes.rows_of_pool(cluster.pools.id("default"))
    first = find_victims(cluster, asker, rows, ())
    made = cluster.searches.made
    assert made
    assert isinstance(first, Candidate)
    session.tell(gone(Pod, f"uid-{cluster.records[first.victims[0]].pod.name}"))
    assert agree(cluster, asker)
    assert cluster.searches.made == made


def test_queue_without_pods_makes_no_search_longer() -> None:
    made = []
    for queues in ((), (a_queue("team"),)):
        session = crowd()
        for queue in queues:
            session.tell(Seen(queue))
        cluster = session.scheduler.cluster
        rows = cluster.nodes.rows_of_pool(cluster.pools.id("default"))
        assert isinstance(find_victims(cluster, an_asker(1, 9), rows, ()), Candidate)
        made.append(cluster.searches.made)
    assert made == [0, 0]


def test_victims_of_a_gang_that_were_found_earlier_are_not_those_of_now() -> None:
    nodes = [a_node(f"n{number}", cpu="2", gpu=8) for number in range(4)]
    asks = [member(a_pod(f"new-{n}", cpu="2", gpu=8, priority=5), "new") for n in range(2)]
    old = [
        member(a_pod(f"{name}-{n}", cpu="2", gpu=gpu, node=f"n{first + n}", started=started), name)
        for name, first, gpu, started in (("eight", 0, 8, 990), ("one", 2, 1, 1))
        for n in range(2)
    ]
    session = Session(*nodes, *old)
    session.tell(*(Seen(a_gang(name, 2)) for name in ("eight", "one", "new")))
    session.now = 1000
    session.see(*asks)
    session.scheduler.decide(CLUSTER, session.now, 1)
    cluster = session.scheduler.cluster
    lead = next(record for record in cluster.records.values() if record.leads is not None)
    rows = cluster.nodes.rows_of_pool(cluster.pools.id("default"))
    found = find_unit_victims(cluster, lead, rows, ())
    cluster.now = 37_000
    later = find_unit_victims(cluster, lead, rows, ())
    assert isinstance(found, UnitCandidate)
    assert isinstance(later, UnitCandidate)
    assert sorted(found.victims) == ["uid-eight-0", "uid-eight-1"]
    assert sorted(later.victims) == ["uid-one-0", "uid-one-1"]
