"""Pods get their nodes: the first Job, pods of several pools, the order of pods, and what is written of them."""

from tests.harness import Harness
from tests.objects import job_object, node_object, pod_object, pool_object

CPU = {"cpu": "true"}
GPU = {"gpu": "true"}


def test_job_of_the_first_document_ends_on_the_nodes_of_its_pool() -> None:
    h = Harness(
        *(node_object(f"cpu-{number}", cpu="4", labels=CPU) for number in range(3)),
        *(node_object(f"gpu-{number}", cpu="64", gpu=8, labels=GPU) for number in range(3)),
        node_object("other", cpu="64"),
        pool_object("cpu-pool", labels=CPU),
        pool_object("gpu-pool", labels=GPU),
    )
    h.add(job_object("test-job-cpu", completions=10, parallelism=10, cpu="1000m", memory="100M", pool="cpu-pool"))
    h.run(seconds=60)
    nodes = h.nodes_of_pods()
    assert len(nodes) == 10
    assert set(nodes.values()) == {"cpu-0", "cpu-1", "cpu-2"}


def test_bound_pod_has_annotations_of_its_pool_its_home_pool_and_its_decision() -> None:
    h = Harness(node_object("n", labels=CPU), pool_object("cpu-pool", labels=CPU), pod_object("p", pool="cpu-pool"))
    h.run()
    assert h.marks("p") == {
        "resource.aibee.cn/pool": "cpu-pool",
        "scheduling.resource.aibee.cn/pool": "cpu-pool",
        "scheduling.resource.aibee.cn/home-pool": "cpu-pool",
        "scheduling.resource.aibee.cn/decision": "run1-1",
    }
    assert h.events_about("p", "Scheduled") == ["Successfully assigned default/p to n"]
    assert h.condition("Pod", "p", "PodScheduled")["status"] == "True"


def test_pods_of_one_second_are_bound_in_the_order_of_arrival() -> None:
    h = Harness(node_object("n", cpu="8"))
    h.run()
    names = ["c", "a", "b"]
    h.add(*(pod_object(name) for name in names))
    h.run()
    assert h.binds == names


def test_gpu_pods_pack_and_others_spread() -> None:
    nodes = [node_object(name, cpu="16", gpu=8) for name in ("n1", "n2")]
    gpu = Harness(*nodes, *(pod_object(name, gpu=1) for name in ("a", "b", "c")))
    gpu.run()
    assert len(set(gpu.nodes_of_pods().values())) == 1
    cpu = Harness(*nodes, *(pod_object(name) for name in ("a", "b")))
    cpu.run()
    assert set(cpu.nodes_of_pods().values()) == {"n1", "n2"}


def test_pool_that_packs_fills_one_node_before_the_next() -> None:
    nodes = [node_object(name, cpu="4", labels=CPU) for name in ("n1", "n2")]
    h = Harness(*nodes, pool_object("cpu-pool", labels=CPU, placement="Pack"))
    h.add(*(pod_object(name, cpu="1", memory="1Gi", pool="cpu-pool") for name in ("a", "b", "c")))
    h.run()
    assert len(set(h.nodes_of_pods().values())) == 1


def test_condition_has_the_generation_of_the_spec_that_was_read() -> None:
    h = Harness(pool_object("p", labels=CPU))
    h.run()
    h.patch("Pool", "p", {"spec": {"placement": "Pack"}})
    h.run()
    assert h.get("Pool", "p")["status"]["observedGeneration"] == h.get("Pool", "p")["metadata"]["generation"] == 2


def test_pods_of_one_pool_do_not_wait_for_those_of_another() -> None:
    h = Harness(node_object("a", cpu="1", labels={"a": "1"}), node_object("b", labels={"b": "1"}))
    h.add(pool_object("pool-a", labels={"a": "1"}), pool_object("pool-b", labels={"b": "1"}))
    h.add(*(pod_object(f"a{number}", cpu="2", pool="pool-a") for number in range(50)), pod_object("b0", pool="pool-b"))
    h.run(seconds=0.1)
    assert h.node_of("b0") == "b"
