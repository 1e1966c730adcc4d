"""Creating and replacing: defaults, UIDs, stale writers, and the separation of spec and status."""

from tests.api_contract.world import STRATEGIC_PATCH, Call, Json, World, condition, encode, revision
from tests.objects import claim_object, job_object, node_object, pod_object, pool_object, volume_object

STALE = "the object has been modified; please apply your changes to the latest version and try again"


def test_created_object_has_a_uid_a_time_and_a_revision(world: World) -> None:
    metadata = world.create(pod_object("a", namespace=world.namespace))["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("a", world.namespace)
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0


def test_created_pod_waits_with_the_defaults_of_its_kind(world: World) -> None:
    pod = world.create(pod_object("a", namespace=world.namespace, cpu="1", memory="1Gi"))
    spec, status = pod["spec"], pod["status"]
    assert (spec["restartPolicy"], spec["dnsPolicy"], spec["terminationGracePeriodSeconds"]) == (
        "Never",
        "ClusterFirst",
        30,
    )
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert status["phase"] == "Pending"


def test_pod_that_names_no_scheduler_has_the_default_one(world: World) -> None:
    document = pod_object("a", namespace=world.namespace)
    del document["spec"]["schedulerName"]
    assert world.create(document)["spec"]["schedulerName"] == "default-scheduler"


def test_limit_replaces_a_missing_request(world: World) -> None:
    document = pod_object("a", namespace=world.namespace, cpu="", memory="1Gi")
    document["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "2", "memory": "4Gi"}
    requests = world.create(document)["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "2", "memory": "1Gi"}


def test_gated_pod_has_the_condition_from_the_start(world: World) -> None:
    pod = world.create(pod_object("a", namespace=world.namespace, gates=["example.com/wait"]))
    scheduled = condition(pod, "PodScheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "SchedulingGated")


def test_server_completes_a_generated_name(world: World) -> None:
    document = pod_object("", namespace=world.namespace)
    document["metadata"] = {"generateName": "work-"}
    first, second = world.create(document), world.create(document)
    for pod in (first, second):
        assert pod["metadata"]["name"].startswith("work-")
        assert len(pod["metadata"]["name"]) == len("work-") + 5
    assert first["metadata"]["name"] != second["metadata"]["name"]


def test_second_object_of_a_name_is_refused(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    answer = world.try_create(pod_object("a", namespace=world.namespace))
    assert (answer.status, answer.reason, answer.message) == (409, "AlreadyExists", 'pods "a" already exists')


def test_object_with_the_name_of_a_terminating_one_is_refused_with_another_message(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    world.patch(world.url("Pod", "a"), {"metadata": {"finalizers": ["example.com/held"]}})
    world.delete("Pod", "a")
    answer = world.try_create(pod_object("a", namespace=world.namespace))
    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'object is being deleted: pods "a" already exists'


def test_replacing_with_another_uid_is_a_conflict(world: World) -> None:
    pod = world.create(pod_object("a", namespace=world.namespace))
    answer = world.try_replace(pod | {"metadata": {**pod["metadata"], "uid": "another"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: another, UID in object meta: " in answer.message


def test_job_has_the_labels_of_its_pods(world: World) -> None:
    job = world.create(job_object("a", namespace=world.namespace))
    assert job["metadata"]["labels"] == job["spec"]["template"]["metadata"]["labels"]
    assert job["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "a"


def test_object_for_a_namespace_that_does_not_exist_is_refused(world: World) -> None:
    answer = world.post("/api/v1/namespaces/nowhere/pods", pod_object("a", namespace="nowhere"))
    assert (answer.status, answer.reason, answer.message) == (404, "NotFound", 'namespaces "nowhere" not found')


def test_object_of_another_namespace_than_its_path_is_refused(world: World) -> None:
    answer = world.try_create(pod_object("a", namespace="default"))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "the namespace of the provided object does not match the namespace sent on the request" in answer.message


def test_missing_object_is_not_found(world: World) -> None:
    answer = world.try_get("Pod", "a")
    assert (answer.status, answer.reason, answer.message) == (404, "NotFound", 'pods "a" not found')
    pool = world.try_get("Pool", "none")
    assert (pool.status, pool.message) == (404, 'pools.resource.aibee.cn "none" not found')


def test_replacing_from_a_stale_revision_is_a_conflict(world: World) -> None:
    pod = world.create(pod_object("a", namespace=world.namespace))
    world.patch(world.url("Pod", "a"), {"metadata": {"labels": {"tier": "gold"}}})
    answer = world.try_replace(pod)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == f'Operation cannot be fulfilled on pods "a": {STALE}'


def test_replacing_a_pool_from_a_stale_revision_is_a_conflict(world: World) -> None:
    name = world.named("pool")
    pool = world.create(pool_object(name))
    world.patch(world.url("Pool", name), {"spec": {"disableSharing": True}})
    answer = world.try_replace(pool)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == f'Operation cannot be fulfilled on pools.resource.aibee.cn "{name}": {STALE}'


def test_pod_may_be_replaced_without_a_revision_and_a_pool_may_not(world: World) -> None:
    pod = world.create(pod_object("a", namespace=world.namespace))
    del pod["metadata"]["resourceVersion"]
    pod["metadata"]["labels"] = {"tier": "gold"}
    assert world.replace(pod)["metadata"]["labels"] == {"tier": "gold"}
    pool = world.create(pool_object(world.named("pool")))
    del pool["metadata"]["resourceVersion"]
    answer = world.try_replace(pool)
    assert (answer.status, answer.cause_fields) == (422, ["metadata.resourceVersion"])


def test_patch_that_names_a_stale_revision_is_a_conflict(world: World) -> None:
    stale = world.create(pod_object("a", namespace=world.namespace))["metadata"]["resourceVersion"]
    world.patch(world.url("Pod", "a"), {"metadata": {"labels": {"tier": "gold"}}})
    change = {"metadata": {"resourceVersion": stale, "labels": {"tier": "tin"}}}
    assert world.try_patch(world.url("Pod", "a"), change).status == 409


def test_replacing_under_another_name_than_the_path_is_refused(world: World) -> None:
    pod = world.create(pod_object("a", namespace=world.namespace))
    answer = world.send(Call("PUT", world.url("Pod", "b"), encode(pod)))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "does not match the name on the URL" in answer.message


def test_write_without_a_change_keeps_the_revision(world: World) -> None:
    pod = world.create(pod_object("a", namespace=world.namespace, labels={"tier": "gold"}))
    same = world.patch(world.url("Pod", "a"), {"metadata": {"labels": {"tier": "gold"}}})
    assert revision(same) == revision(pod)


def test_status_of_a_pod_is_written_only_through_its_own_path(world: World) -> None:
    pod = world.create(pod_object("a", namespace=world.namespace))
    pod["status"]["phase"] = "Running"
    assert world.replace(pod)["status"]["phase"] == "Pending"
    written = world.replace(world.get("Pod", "a") | {"status": {**pod["status"]}}, "status")
    assert written["status"]["phase"] == "Running"


def test_write_to_the_status_of_a_pod_does_not_change_spec_and_labels(world: World) -> None:
    before = world.create(pod_object("a", namespace=world.namespace, labels={"tier": "gold"}))
    change = {"status": {"message": "soon"}, "spec": {"priorityClassName": "other"}}
    after = world.patch(world.url("Pod", "a", "status"), change)
    assert after["status"]["message"] == "soon"
    assert after["spec"] == before["spec"]


def test_conditions_of_a_pod_are_merged_by_type(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    url = world.url("Pod", "a", "status")
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    ready = {"type": "Ready", "status": "False"}
    for one in (waiting, ready, waiting | {"message": "0/2 nodes"}):
        world.patch(url, {"status": {"conditions": [one]}}, STRATEGIC_PATCH)
    pod = world.get("Pod", "a")
    assert condition(pod, "PodScheduled")["message"] == "0/2 nodes"
    assert condition(pod, "Ready")["status"] == "False"
    assert len(pod["status"]["conditions"]) == 2


def test_generation_of_a_pool_counts_only_changes_of_its_spec(world: World) -> None:
    name = world.named("pool")
    generations = [world.create(pool_object(name))["metadata"]["generation"]]
    changes = (
        (world.url("Pool", name), {"metadata": {"labels": {"tier": "gold"}}}),
        (world.url("Pool", name, "status"), {"status": {"observedGeneration": 1}}),
        (world.url("Pool", name), {"spec": {"disableSharing": True}}),
        (world.url("Pool", name), {"spec": {"disableSharing": True}}),
    )
    for url, change in changes:
        generations.append(world.patch(url, change)["metadata"]["generation"])
    assert generations == [1, 1, 1, 2, 2]


def test_template_of_a_job_may_not_be_changed(world: World) -> None:
    world.create(job_object("a", namespace=world.namespace, completions=3))
    answer = world.try_patch(world.url("Job", "a"), {"spec": {"completions": 5}})
    assert (answer.status, answer.reason, answer.cause_fields) == (422, "Invalid", ["spec.completions"])


def test_requests_of_a_running_pod_may_not_be_changed(world: World) -> None:
    pod = world.create(pod_object("a", namespace=world.namespace, cpu="1"))
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    answer = world.try_replace(pod)
    assert (answer.status, answer.reason, answer.cause_fields) == (422, "Invalid", ["spec"])
    assert "pod updates may not change fields other than" in answer.message


def test_gate_may_be_removed_and_not_added(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace, gates=["example.com/one", "example.com/two"]))
    fewer = world.patch(world.url("Pod", "a"), {"spec": {"schedulingGates": [{"name": "example.com/two"}]}})
    assert fewer["spec"]["schedulingGates"] == [{"name": "example.com/two"}]
    more = [{"name": "example.com/two"}, {"name": "example.com/three"}]
    answer = world.try_patch(world.url("Pod", "a"), {"spec": {"schedulingGates": more}})
    assert (answer.status, answer.reason) == (422, "Invalid")


def test_node_keeps_its_initial_amounts_and_accepts_new_ones(world: World) -> None:
    name = world.named("n")
    node = world.create(node_object(name, cpu="4", memory="16Gi", pods=110))
    assert node["status"]["allocatable"] == {"cpu": "4", "memory": "16Gi", "pods": "110"}
    world.patch(world.url("Node", name, "status"), {"status": {"allocatable": {"cpu": "2"}}})
    assert world.get("Node", name)["status"]["allocatable"]["cpu"] == "2"


def a_lease(holder: str, seconds: int = 15) -> Json:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": "2026-01-02T03:04:05.000600Z"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": spec}


def test_lease_keeps_microseconds_and_of_two_writers_one_gets_a_conflict(world: World) -> None:
    lease = world.create(a_lease("one"))
    assert lease["spec"]["renewTime"] == "2026-01-02T03:04:05.000600Z"
    lease["spec"]["holderIdentity"] = "two"
    world.replace(lease)
    lease["spec"]["holderIdentity"] = "three"
    assert world.try_replace(lease).status == 409
    assert world.get("Lease", "l")["spec"]["holderIdentity"] == "two"


def test_lease_may_not_be_replaced_without_a_revision(world: World) -> None:
    world.create(a_lease("one"))
    answer = world.try_replace(a_lease("two"))
    assert (answer.status, answer.cause_fields) == (422, ["metadata.resourceVersion"])


def test_lease_without_a_duration_is_refused(world: World) -> None:
    answer = world.try_create(a_lease("one", seconds=0))
    assert (answer.status, answer.cause_fields) == (422, ["spec.leaseDurationSeconds"])


def test_claims_and_volumes_are_created_pending_and_their_status_is_written_separately(world: World) -> None:
    namespace, disk = world.namespace, world.named("disk")
    for document in (claim_object("data", namespace=namespace, volume=disk), volume_object(disk)):
        made = world.create(document | {"status": {"phase": "Bound"}})
        assert made["status"]["phase"] == "Pending"
        kind, name = document["kind"], document["metadata"]["name"]
        world.patch(world.url(kind, name), {"metadata": {"finalizers": None}, "status": {"phase": "Bound"}})
        change = {"status": {"phase": "Bound"}, "spec": {"volumeMode": "x"}}
        bound = world.patch(world.url(kind, name, "status"), change)
        assert (bound["status"]["phase"], bound["spec"]) == ("Bound", made["spec"])
        assert [item["metadata"]["name"] for item in world.listed(kind).items] == [name]
        assert world.try_delete(kind, name).status == 200
