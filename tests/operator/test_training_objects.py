"""The objects that are made for a TrainingJob: gang labels, commands, variables, ports, and the terms on its Job."""

from typing import Any

import pytest

from aischeduler.operator.owner import Json, dns_label
from tests.operator.documents import OURS
from tests.operator.fake_cluster import PODS, SERVICES
from tests.operator.training_world import JOBS, SMALL, TrainingWorld, paddle_job, training_job

KEY = "resource.aibee.cn/"
GPU: Json = {"limits": {"nvidia.com/gpu": 2, "cpu": "4"}, "requests": {"cpu": "4"}}


def made(document: Json) -> TrainingWorld:
    world = TrainingWorld(document)
    world.passes()
    return world


def main(spec: Json) -> Any:
    return spec["containers"][0]


def variables(container: Json) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def template(world: TrainingWorld) -> Any:
    return world.job["spec"]["template"]


def test_children_are_a_master_the_pservers_a_service_and_an_indexed_job_at_its_minimum() -> None:
    world = made(training_job(pservers=2))
    assert world.names() == ["train-master-0", "train-pserver-0", "train-pserver-1"]
    assert f"{SERVICES}/train" in world.cluster.objects
    spec = world.job["spec"]
    assert (spec["parallelism"], spec["completions"], spec["completionMode"]) == (2, 2, "Indexed")
    assert spec["podFailurePolicy"]["rules"] == [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    ]
    assert (spec["backoffLimit"], spec["template"]["spec"]["restartPolicy"]) == (6, "Never")
    for one in (world.job, world.cluster.objects[f"{SERVICES}/train"], world.pod("train-master-0")):
        (owner,) = one["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["kind"], owner["name"], owner["controller"]) == (
            OURS,
            "TrainingJob",
            "train",
            True,
        )
        assert "blockOwnerDeletion" not in owner


def test_job_that_is_not_fault_tolerant_has_no_master() -> None:
    world = made(training_job(most=2, fault_tolerant=False))
    assert world.names() == ["train-pserver-0"]
    assert template(world)["metadata"]["labels"][f"{KEY}gang-min"] == "3"


def test_all_pods_are_one_gang_with_roles_and_the_labels_of_paddlepaddle() -> None:
    world = made(training_job(least=3, most=9, pservers=2))
    found = {
        "master": world.pod("train-master-0")["metadata"]["labels"],
        "pserver": world.pod("train-pserver-1")["metadata"]["labels"],
        "trainer": template(world)["metadata"]["labels"],
    }
    for role, least in (("master", "1"), ("pserver", "2"), ("trainer", "3")):
        labels = {name.removeprefix(KEY): value for name, value in found[role].items()}
        assert (labels["gang"], labels["gang-min"]) == ("train", "6")
        assert (labels["gang-role"], labels["gang-role-min"]) == (role, least)
        assert labels["app.kubernetes.io/managed-by"] == "ai-scheduler-operator"
    paddle = {role: [name for name in labels if name.startswith("paddle")] for role, labels in found.items()}
    assert paddle == {"master": ["paddle-job-master"], "pserver": ["paddle-job-pserver"], "trainer": ["paddle-job"]}
    assert {labels[paddle[role][0]] for role, labels in found.items()} == {"train"}


def test_all_pods_have_the_scheduler_the_pool_and_the_queue() -> None:
    world = made(training_job(pool="gpu", queue="vision"))
    specs = [
        (world.pod("train-master-0")["metadata"], world.pod("train-master-0")["spec"]),
        (world.pod("train-pserver-0")["metadata"], world.pod("train-pserver-0")["spec"]),
        (template(world)["metadata"], template(world)["spec"]),
    ]
    for metadata, spec in specs:
        assert spec["schedulerName"] == "ai-scheduler"
        assert spec["subdomain"] == "train"
        assert (metadata["annotations"][f"{KEY}pool"], metadata["annotations"][f"{KEY}queue"]) == ("gpu", "vision")
    assert template(world)["metadata"]["annotations"][f"{KEY}training-job"] == f"{OURS}/train"


@pytest.mark.parametrize(
    ("fault_tolerant", "pserver", "trainer"),
    [
        (True, ["paddle_k8s", "start_new_pserver"], ["paddle_k8s", "start_new_trainer"]),
        (False, ["paddle_k8s", "start_pserver"], ["paddle_k8s", "start_trainer", "v2"]),
    ],
)
def test_commands_are_the_new_ones_where_the_job_is_fault_tolerant(
    fault_tolerant: bool, pserver: list[str], trainer: list[str]
) -> None:
    world = made(training_job(most=2, fault_tolerant=fault_tolerant))
    assert main(world.pod("train-pserver-0")["spec"])["command"] == pserver
    assert main(template(world)["spec"])["command"] == trainer
    if fault_tolerant:
        assert main(world.pod("train-master-0")["spec"])["command"] == ["paddle_k8s", "start_master"]


def test_variables_are_those_of_paddlepaddle_with_the_counts_of_the_minimum() -> None:
    world = made(
        training_job(
            least=2,
            most=8,
            pservers=2,
            passes=5,
            portsNum=2,
            trainer={"entrypoint": "python t.py", "workspace": "/w", "resources": GPU},
        )
    )
    expected = {
        "PADDLE_JOB_NAME": "train",
        "TRAINERS": "2",
        "PSERVERS": "2",
        "ENTRY": "python t.py",
        "TRAINER_PACKAGE": "/w",
        "PADDLE_INIT_PORT": "7164",
        "PADDLE_INIT_TRAINER_COUNT": "2",
        "PADDLE_INIT_PORTS_NUM": "2",
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": "2",
        "PADDLE_INIT_NUM_PASSES": "5",
        "PADDLE_INIT_USE_GPU": "1",
        "NAMESPACE": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        "POD_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
    }
    for spec in (template(world)["spec"], *(world.pod(name)["spec"] for name in world.names())):
        assert variables(main(spec)) == expected


@pytest.mark.parametrize(
    ("resources", "count", "gpu"),
    [
        ({"requests": {"cpu": "500m"}}, "1", "0"),
        ({"requests": {"cpu": "5"}, "limits": {"cpu": "8"}}, "5", "0"),
        ({"limits": {"cpu": "2500m"}}, "2", "0"),
        ({"requests": {"memory": "1Gi"}}, "1", "0"),
        ({"limits": {"nvidia.com/gpu": "4"}, "requests": {"cpu": "9"}}, "4", "1"),
        ({"requests": {"nvidia.com/gpu": "4", "cpu": "3"}}, "3", "0"),
    ],
)
def test_trainer_count_is_the_gpus_of_the_limits_else_the_whole_cores(resources: Json, count: str, gpu: str) -> None:
    found = variables(main(template(made(training_job(trainer={"resources": resources})))["spec"]))
    assert (found["PADDLE_INIT_TRAINER_COUNT"], found["PADDLE_INIT_USE_GPU"]) == (count, gpu)


def test_ports_are_dense_and_sparse_ones_and_the_master_has_its_own() -> None:
    world = made(training_job(port=8000, portsNum=2, portsNumForSparse=1))
    names = [(one["name"], one["containerPort"]) for one in main(template(world)["spec"])["ports"]]
    assert names == [("jobport-8000", 8000), ("jobport-8001", 8001), ("jobport-8002", 8002)]
    assert names == [(one["name"], one["containerPort"]) for one in main(world.pod("train-pserver-0")["spec"])["ports"]]
    assert [one["containerPort"] for one in main(world.pod("train-master-0")["spec"])["ports"]] == [8080, 2379]


def test_master_has_an_etcd_beside_it_and_resources_even_if_it_says_none() -> None:
    spec = made(training_job()).pod("train-master-0")["spec"]
    assert [one["name"] for one in spec["containers"]] == ["master", "etcd"]
    assert spec["containers"][1]["image"] == "quay.io/coreos/etcd:v3.2.1"
    assert spec["containers"][0]["resources"] == {
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "1", "memory": "500Mi"},
    }
    own = made(training_job(master={"resources": SMALL})).pod("train-master-0")["spec"]
    assert own["containers"][0]["resources"] == SMALL


def test_volumes_selectors_and_the_network_arrive_in_every_pod() -> None:
    world = made(paddle_job())
    for spec in (template(world)["spec"], *(world.pod(name)["spec"] for name in world.names())):
        assert (spec["volumes"], spec["nodeSelector"]) == ([{"name": "data", "emptyDir": {}}], {"disk": "fast"})
        assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
        assert main(spec)["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]


def test_terms_are_annotations_of_the_job_of_an_elastic_one_alone() -> None:
    document = training_job(trainer={"allowedInstances": [4, 3]}, priorityLevel="Offline", freezingWindow="90s")
    assert made(document).job["metadata"]["annotations"] == {
        f"{KEY}min-instances": "2",
        f"{KEY}max-instances": "4",
        f"{KEY}allowed-instances": "2,3,4",
        f"{KEY}freezing-window": "90s",
        f"{KEY}priority-level": "Offline",
    }
    by_class = made(training_job(priorityClassName="high"))
    assert f"{KEY}priority-level" not in by_class.job["metadata"]["annotations"]
    assert template(by_class)["spec"]["priorityClassName"] == "high"
    assert "annotations" not in made(training_job(most=2)).job["metadata"]


def test_long_names_are_cut_and_the_hostname_of_the_last_trainer_is_a_label() -> None:
    name = "a" * 200
    world = made(training_job(name=name))
    (job,) = [path.rpartition("/")[2] for path in world.cluster.objects if path.startswith(JOBS)]
    assert len(f"{job}-4999") == 63
    (pod,) = [one for path, one in world.cluster.objects.items() if path == f"{PODS}/{dns_label(f'{name}-master-0')}"]
    labels = pod["metadata"]["labels"]
    assert labels["paddle-job-master"] == labels[f"{KEY}gang"] == dns_label(name)
    assert variables(main(pod["spec"]))["PADDLE_JOB_NAME"] == pod["spec"]["subdomain"] == dns_label(name)


def test_label_of_paddlepaddle_is_the_name_where_a_label_can_have_it() -> None:
    labels = made(training_job(name="7.days")).cluster.pods()[dns_label("7.days-master-0")]["metadata"]["labels"]
    assert (labels["paddle-job-master"], labels[f"{KEY}gang"]) == ("7.days", dns_label("7.days"))
