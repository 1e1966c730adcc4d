"""Rows R1-R12 of kube-scheduler's own cases: what a pod requests, and which node has it free."""

import pytest

from aischeduler.framework.plugin import Plugins
from aischeduler.framework.runner import Runner
from aischeduler.model.names import CPU, MEMORY
from aischeduler.model.pod import Pod
from aischeduler.model.resources import ContainerRequest, PodRequest, ResourceList, pod_request
from aischeduler.plugins.node_resources_fit import NodeResourcesFit
from tests.build import a_node, a_pod, a_spec, replace
from tests.plugins.table import a_table, passing, reasons

EXT, HUGE = "example.com/aaa", "hugepages-2Mi"
FIT = NodeResourcesFit(())
NO_CPU, NO_MEMORY = "Insufficient cpu", "Insufficient memory"


def small(cpu: int, memory: int) -> ResourceList:
    return {CPU: cpu, MEMORY: memory}


def of(amounts: ResourceList, *, sidecar: bool = False) -> ContainerRequest:
    return ContainerRequest(amounts, sidecar=sidecar)


def asking(containers: tuple[ResourceList, ...], inits: tuple[ContainerRequest, ...] = ()) -> PodRequest:
    return pod_request([of(one) for one in containers], inits, {}, {})


def pod(request: PodRequest, name: str = "p", node: str = "") -> Pod:
    return replace(a_pod(name, node=node), spec=a_spec(request))


def on_small_node(request: PodRequest, used: ResourceList, *, pods: int = 110) -> tuple[bool, dict[str, int], bool]:
    """Return whether the pod fits beside what is used, why not, and whether it could if nothing was used.

    The node has 10m CPU, 20 bytes, 5 devices and 5 bytes of huge pages.
    """
    node = a_node("n", cpu="10m", memory="20", pods=pods, extended={EXT: "5", HUGE: "5"})
    table = a_table(node, pods=(pod(asking((used,)), "resident", "n"),))
    runner = Runner(Plugins((), (FIT,), ()), table)
    asks = pod(request)
    rows = table.rows_of_pool(int(table.pool[table.rows["n"]]))
    return passing(FIT, asks, table) == ["n"], dict(reasons(FIT, asks, table)), bool(runner.could_run(asks.spec, rows))


@pytest.mark.parametrize(
    ("row", "used", "request_", "why"),
    [
        ("R1", small(10, 20), asking(({},)), ()),
        ("R2", small(10, 20), asking((small(1, 1),)), (NO_CPU, NO_MEMORY)),
        ("R3", small(8, 19), asking((small(1, 1),), (of(small(3, 1)),)), (NO_CPU,)),
        ("R3 two inits", small(8, 19), asking((small(1, 1),), (of(small(3, 1)), of(small(2, 1)))), (NO_CPU,)),
        ("R4", small(9, 19), asking((small(1, 1),), (of(small(1, 1)), of(small(1, 1)))), ()),
        ("R5", small(5, 19), asking((small(5, 1),)), ()),
    ],
)
def test_cpu_and_memory_fit_as_in_kube_scheduler(
    row: str, used: ResourceList, request_: PodRequest, why: tuple[str, ...]
) -> None:
    assert on_small_node(request_, used)[:2] == (not why, dict.fromkeys(why, 1)), row


@pytest.mark.parametrize("device", [EXT, HUGE])
@pytest.mark.parametrize(
    ("used", "containers", "inits", "expected"),
    [
        pytest.param(0, (10,), (), (False, False), id="R6 more than the node has"),
        pytest.param(5, (1,), (), (False, True), id="R6 all in use"),
        pytest.param(2, (3,), (), (True, True), id="R7 all that is left"),
        pytest.param(2, (3, 3), (), (False, False), id="R7 containers add up"),
        pytest.param(2, (), (3, 3), (True, True), id="R7 inits run one by one"),
        pytest.param(2, (), (6, 3), (False, False), id="R7 the largest init counts"),
    ],
)
def test_r6_r7_r9_devices_and_huge_pages_fit_as_in_kube_scheduler(
    device: str, used: int, containers: tuple[int, ...], inits: tuple[int, ...], expected: tuple[bool, bool]
) -> None:
    request = asking(tuple({device: amount} for amount in containers), tuple(of({device: one}) for one in inits))
    fits, could = expected
    assert on_small_node(request, {device: used}) == (fits, {} if fits else {f"Insufficient {device}": 1}, could)


def test_r8_device_that_no_node_has_is_insufficient_and_no_pod_that_leaves_helps() -> None:
    found = on_small_node(asking(({"example.com/bbb": 1},)), {})
    assert found == (False, {"Insufficient example.com/bbb": 1}, False)


@pytest.mark.parametrize(
    ("resource", "ignored"),
    [
        ("example.com/bbb", True),
        ("group.example/any", True),
        ("example.com/aaa", False),
        ("kubernetes.io/bbb", False),
        ("cpu", False),
    ],
)
def test_r8_only_named_extended_resources_and_groups_are_ignored(resource: str, ignored: bool) -> None:
    names = frozenset(("example.com/bbb", "kubernetes.io/bbb", "cpu"))
    rule = NodeResourcesFit((), ignored_resources=names, ignored_resource_groups=frozenset(("group.example", "cpu")))
    assert (rule.ignores(resource), rule.ignores_any) == (ignored, True)


def test_r10_node_takes_no_more_pods_than_it_allows_and_one_that_leaves_helps() -> None:
    assert on_small_node(asking(({},)), {}, pods=1) == (False, {"Too many pods": 1}, True)


@pytest.mark.parametrize(
    ("inits", "needs"),
    [((of({CPU: 1}, sidecar=True), of({CPU: 5})), 6), ((of({CPU: 5}), of({CPU: 1}, sidecar=True)), 5)],
)
def test_r11_sidecar_counts_beside_the_inits_after_it(inits: tuple[ContainerRequest, ...], needs: int) -> None:
    assert asking(({CPU: 2},), inits).amounts == {CPU: needs}


def test_r12_pod_level_requests_replace_the_sum_and_overhead_is_added() -> None:
    containers = [of({CPU: 1000, EXT: 2}), of({CPU: 1000})]
    found = pod_request(containers, (), {CPU: 3000, HUGE: 4, EXT: 9}, {CPU: 500, HUGE: 1})
    assert found.amounts == {CPU: 3500, EXT: 2, HUGE: 5}


def test_pod_level_requests_score_only_once_the_pod_is_on_a_node() -> None:
    """Source: NodeResourcesFit of kube-scheduler 1.36 scores the containers of the pod that it places."""
    found = pod_request([of({CPU: 1000}), of({})], (), {CPU: 3000}, {CPU: 500})
    assert (found.score_cpu_milli, found.score_memory_bytes) == (3500, 2 * 200 * 2**20)
    assert found.scored_alone == (1000 + 100 + 500, 2 * 200 * 2**20)
    assert pod_request([of({CPU: 1000})], (), {}, {}).scored_alone is None


def test_container_counts_as_a_small_one_only_where_the_whole_pod_lacks_a_request() -> None:
    found = pod_request([of({}), of({MEMORY: 7})], (), {CPU: 3000}, {})
    assert (found.score_cpu_milli, found.score_memory_bytes) == (3000, 7)
