import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, Plugins
from aischeduler.framework.runner import Runner
from aischeduler.model.names import GPU_DEFAULT
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import PlacementStrategy
from aischeduler.plugins.node_fragmentation import NodeFragmentation
from aischeduler.plugins.node_resources_fit import NodeResourcesFit
from aischeduler.state.devices import DELIVERY_LABEL
from tests.build import a_node, a_pod
from tests.devices import gpus
from tests.plugins.table import a_table, scores

RULE = NodeFragmentation((GPU_DEFAULT,))
MODES = ("device-plugin", "koordlet")

# Three quarters of a GPU's share of such a node are 6 CPUs and 48Gi.
STRANDED_BY_FREE = [0, 3, 4, 7, 4, 7, 8, 11, 0]
"""Free GPUs -> stranded GPUs: of 7 free GPUs, jobs of 1 strand none, of 2 strand 1, of 4 strand 3, of 8 strand 7."""


def gpu_node(name: str) -> Node:
    return a_node(name, cpu="64", memory="512Gi", gpu=8)


def job(gpus: int, name: str = "job", node: str = "") -> Pod:
    return a_pod(name, cpu=str(8 * gpus), memory=f"{64 * gpus}Gi", gpu=gpus, node=node)


def with_free(*free: int) -> list[tuple[Node, tuple[Pod, ...]]]:
    """Return nodes with these numbers of free GPUs."""
    return [(gpu_node(f"n{i}"), (job(8 - gpus, f"p{i}", f"n{i}"),) if gpus < 8 else ()) for i, gpus in enumerate(free)]


def scored(pod: Pod, *free: int) -> list[int]:
    worlds = with_free(*free)
    table = a_table(*(node for node, _ in worlds), pods=tuple(pod for _, pods in worlds for pod in pods))
    return scores(RULE, pod, table, PlacementStrategy.FRAGMENTATION)


def expected(gpus: int, free: int) -> int:
    return 50 - (STRANDED_BY_FREE[free - gpus] - STRANDED_BY_FREE[free])


def test_a_job_of_one_gpu_fills_gaps_and_keeps_whole_nodes_free() -> None:
    assert scored(job(1), 1, 2, 3, 4, 5, 6, 7, 8) == [53, 51, 53, 47, 53, 51, 53, 39]
    assert [expected(1, free) for free in range(1, 9)] == [53, 51, 53, 47, 53, 51, 53, 39]


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_larger_jobs_are_scored_by_the_same_table(gpus: int) -> None:
    free = range(gpus, 9)
    assert scored(job(gpus), *free) == [expected(gpus, one) for one in free]


def test_a_job_of_four_gpus_takes_the_half_node_before_the_whole_one() -> None:
    assert scored(job(4), 4, 8) == [54, 46]


def test_a_pod_without_gpus_strands_the_gpus_without_cpu_or_memory() -> None:
    all_cards = a_pod("all", cpu="1", memory="1Gi", gpu=8, node="full")
    table = a_table(a_node("cpu", cpu="64", memory="512Gi"), gpu_node("free"), gpu_node("full"), pods=(all_cards,))
    assert scores(RULE, a_pod(cpu="16", memory="1Gi"), table, PlacementStrategy.FRAGMENTATION) == [50, 50, 50]
    # 32 CPUs are left: 5 GPUs are served, so that 3, 4, 4 and 8 are stranded for jobs of 1, 2, 4 and 8.
    assert scores(RULE, a_pod(cpu="32", memory="1Gi"), table, PlacementStrategy.FRAGMENTATION) == [50, 31, 50]
    # 256Gi are left: 5 GPUs are served.
    assert scores(RULE, a_pod(cpu="1", memory="256Gi"), table, PlacementStrategy.FRAGMENTATION) == [50, 31, 50]


def test_daemons_beside_the_jobs_strand_nothing() -> None:
    table = a_table(gpu_node("n"), pods=(a_pod("daemon", cpu="2", memory="8Gi", node="n"),))
    assert scores(RULE, job(1), table, PlacementStrategy.FRAGMENTATION) == [39]


@pytest.mark.parametrize("placement", [PlacementStrategy.SPREAD, PlacementStrategy.PACK])
def test_other_placements_are_not_scored(placement: PlacementStrategy) -> None:
    table = a_table(gpu_node("n"))
    assert RULE.score(PlacementRequest(job(1).spec, placement), NodeView(table, np.array([0], dtype=np.intp))) is None


def test_a_node_without_memory_is_scored_by_its_other_resources() -> None:
    table = a_table(a_node("n", cpu="64", memory="", gpu=8))
    assert scores(RULE, a_pod(cpu="8", memory="", gpu=1), table, PlacementStrategy.FRAGMENTATION) == [39]


def placed(pod: Pod, *free: int) -> str:
    """Return the node that fragmentation and packing choose together."""
    worlds = with_free(*free)
    table = a_table(*(node for node, _ in worlds), pods=tuple(pod for _, pods in worlds for pod in pods))
    fit = NodeResourcesFit((GPU_DEFAULT,))
    runner = Runner(Plugins((), (fit,), (fit, RULE)), table)
    best = runner.best(
        PlacementRequest(pod.spec, PlacementStrategy.FRAGMENTATION),
        np.array(sorted(table.rows.values()), dtype=np.intp),
    )
    assert best is not None
    return table.names[best[0]]


def test_fragmentation_decides_before_packing() -> None:
    assert placed(job(1), 8, 2, 5) == "n2"


def test_equal_fragmentation_is_decided_by_packing() -> None:
    assert placed(job(1), 7, 5, 3) == "n2"


def test_counts_decide_where_the_kubelet_chooses_though_gpus_are_known() -> None:
    table = a_table(*(a_node(mode, cpu="64", memory="512Gi", gpu=8, labels={DELIVERY_LABEL: mode}) for mode in MODES))
    for mode in MODES:
        table.see_devices(mode, gpus(mode, 8))
    by_count, by_device = scores(RULE, job(1), table, PlacementStrategy.FRAGMENTATION)
    assert by_count == expected(1, 8)
    assert by_device == 50, "nothing came, so that nothing is expected"


@given(st.integers(0, 8), st.integers(0, 70), st.integers(0, 600), st.integers(0, 8), st.integers(0, 70))
def test_it_equals_counting_jobs_one_by_one(gpus: int, cpus: int, gib: int, asked_gpus: int, asked_cpus: int) -> None:
    def stranded(free_gpus: int, free_cpus: int, free_gib: int) -> int:
        total = 0
        for size in (1, 2, 4, 8):
            jobs = 0
            while (
                (jobs + 1) * size <= free_gpus
                and (jobs + 1) * size * 6 <= free_cpus
                and ((jobs + 1) * size * 48 <= free_gib)
            ):
                jobs += 1
            total += free_gpus - jobs * size
        return total

    filler = a_pod("filler", cpu=str(64 - min(cpus, 64)), memory=f"{512 - min(gib, 512)}Gi", gpu=8 - gpus, node="n")
    table = a_table(gpu_node("n"), pods=(filler,))
    left = (gpus, min(cpus, 64), min(gib, 512))
    if asked_gpus <= gpus and asked_cpus <= left[1]:
        pod = a_pod(cpu=str(asked_cpus), memory="", gpu=asked_gpus)
        more = stranded(gpus - asked_gpus, left[1] - asked_cpus, left[2]) - stranded(*left)
        assert scores(RULE, pod, table, PlacementStrategy.FRAGMENTATION) == [50 - more]
