"""Pods get their nodes: the first Job, the order of pods, and the annotations of a bound pod."""

from tests.harness import Harness
from tests.objects import job_object, node_object, pod_object, pool_object, priority_class_object

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


def test_pod_runs_once_it_is_bound() -> None:
    h = Harness(node_object("n"), pod_object("p"))
    h.run()
    assert h.get("Pod", "p")["status"]["phase"] == "Running"


def test_pod_of_another_scheduler_is_not_scheduled_and_counts_on_its_node() -> None:
    h = Harness(node_object("n", cpu="4"), pod_object("theirs", cpu="3", scheduler_name="other", node="n"))
    h.add(pod_object("waiting", scheduler_name="other"), pod_object("ours", cpu="2"))
    h.run()
    assert h.binds == []
    assert h.refusal("ours") == "0/1 nodes are available: 1 Insufficient cpu."


def test_pod_of_higher_priority_is_bound_first_then_the_older_pod() -> None:
    h = Harness(priority_class_object("high", value=100))
    for name, priority_class in (("old", ""), ("young", ""), ("high", "high")):
        h.add(pod_object(name, cpu="1", priority_class=priority_class))
        h.run(seconds=20)
    h.add(node_object("n", cpu="4"))
    h.run(seconds=20)
    assert h.binds == ["high", "old", "young"]


def test_pods_of_one_second_are_bound_in_the_order_of_arrival() -> None:
    h = Harness(node_object("n", cpu="8"))
    h.run()
    names = ["c", "a", "b"]
    h.add(*(pod_object(name) for name in names))
    h.run()
    assert h.binds == names


def test_room_of_finished_pods_goes_to_the_next() -> None:
    h = Harness(node_object("n", cpu="1"), job_object("j", completions=3, parallelism=3, cpu="1"))
    for _ in range(3):
        h.run(seconds=10)
        (running,) = [pod for pod in h.all("Pod") if pod["status"]["phase"] == "Running"]
        h.patch("Pod", running["metadata"]["name"], {"status": {"phase": "Succeeded"}}, "status")
    h.run(seconds=10)
    assert h.condition("Job", "j", "Complete")["status"] == "True"


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
