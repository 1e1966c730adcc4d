from typing import Any

import pytest

from aischeduler.kube.pool_crd import pool_crd
from tests.sandbox.cluster import Cluster

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"
MERGE = "application/merge-patch+json"


def with_pools() -> Cluster:
    cluster = Cluster()
    cluster.ok("POST", CRDS, pool_crd())
    return cluster


def a_pool(name: str, **spec: Any) -> Any:
    return {
        "apiVersion": "resource.aibee.cn/v1alpha1",
        "kind": "Pool",
        "metadata": {"name": name},
        "spec": {"nodeSelector": {"matchLabels": {"pool": name}}, **spec},
    }


def test_definition_is_established_and_served_at_once() -> None:
    cluster = with_pools()
    definition = cluster.ok("GET", f"{CRDS}/pools.resource.aibee.cn")
    kinds = {one["type"]: one["status"] for one in definition["status"]["conditions"]}
    assert kinds == {"NamesAccepted": "True", "Established": "True"}
    assert cluster.ok("GET", POOLS)["kind"] == "PoolList"


def test_pool_of_the_readme_is_accepted_and_its_generation_counts_the_spec() -> None:
    cluster = with_pools()
    pool = cluster.ok("POST", f"{POOLS}?fieldValidation=Strict", a_pool("demo"))
    assert pool["metadata"]["generation"] == 1
    cluster.ok("PATCH", f"{POOLS}/demo", {"metadata": {"labels": {"a": "b"}}}, MERGE)
    pool = cluster.ok("PATCH", f"{POOLS}/demo", {"spec": {"disableSharing": True}}, MERGE)
    assert pool["metadata"]["generation"] == 2


def test_status_is_a_subresource() -> None:
    cluster = with_pools()
    cluster.ok("POST", POOLS, a_pool("demo") | {"status": {"observedGeneration": 3}})
    assert "status" not in cluster.ok("GET", f"{POOLS}/demo")
    pool = cluster.ok(
        "PATCH", f"{POOLS}/demo/status", {"status": {"observedGeneration": 3}, "spec": {"disableSharing": True}}, MERGE
    )
    assert pool["status"] == {"observedGeneration": 3}
    assert (pool["spec"].get("disableSharing", False), pool["metadata"]["generation"]) == (False, 1)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"disableSharing": "yes"}, "spec.disableSharing"),
        ({"placement": "Everywhere"}, "spec.placement"),
        ({"nodeSelector": {"matchLabels": {"a": 1}}}, "spec.nodeSelector.matchLabels.a"),
    ],
)
def test_what_the_schema_forbids_is_refused_at_its_path(spec: Any, field: str) -> None:
    status = with_pools().refused("POST", POOLS, a_pool("bad", **spec))
    assert (status["code"], status["details"]["causes"][0]["field"]) == (422, field)


def test_type_error_has_the_words_of_the_real_server() -> None:
    status = with_pools().refused("POST", POOLS, a_pool("bad", disableSharing="yes"))
    words = (
        'spec.disableSharing: Invalid value: "string": spec.disableSharing in body must be of type boolean: "string"'
    )
    assert status["message"].startswith(f'Pool.resource.aibee.cn "bad" is invalid: [{words}, ')


def test_unknown_field_is_refused_strictly_and_pruned_else() -> None:
    cluster = with_pools()
    pool = a_pool("demo", disableSharring=True)
    words = 'Pool in version "v1alpha1" cannot be handled as a Pool: strict decoding error: '
    words += 'unknown field "spec.disableSharring"'
    status = cluster.refused("POST", f"{POOLS}?fieldValidation=Strict", pool)
    assert (status["code"], status["message"]) == (400, words)
    answer = cluster.call("POST", POOLS, pool)
    assert answer.warnings == ('unknown field "spec.disableSharring"',)
    assert "disableSharring" not in cluster.ok("GET", f"{POOLS}/demo")["spec"]


def test_update_without_a_revision_is_refused() -> None:
    cluster = with_pools()
    pool = cluster.ok("POST", POOLS, a_pool("demo"))
    del pool["metadata"]["resourceVersion"]
    status = cluster.refused("PUT", f"{POOLS}/demo", pool)
    assert status["details"]["causes"][0]["field"] == "metadata.resourceVersion"


def test_deleted_definition_takes_objects_and_watches_along() -> None:
    cluster = with_pools()
    cluster.ok("POST", POOLS, a_pool("demo"))
    watch = cluster.watch(f"{POOLS}?watch=1&resourceVersion={cluster.server.cluster.store.revision}")
    cluster.ok("DELETE", f"{CRDS}/pools.resource.aibee.cn")
    assert watch.closed
    assert cluster.refused("GET", POOLS)["code"] == 404
    cluster.ok("POST", CRDS, pool_crd())
    assert cluster.names(POOLS) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scope": "Everywhere"}, "spec.scope"),
        ({"group": "other.example.com"}, "metadata.name"),
        ({"versions": []}, "spec.versions"),
    ],
)
def test_bad_definition_is_refused(change: Any, field: str) -> None:
    definition = pool_crd()
    definition["spec"] = {**definition["spec"], **change}
    status = Cluster().refused("POST", CRDS, definition)
    assert field in [cause["field"] for cause in status["details"]["causes"]]
