import orjson

from aischeduler.kube.pool_crd import pool_crd
from aischeduler.sandbox.protocol import Request, Response
from aischeduler.sandbox.types import api_types
from tests.sandbox.cluster import Cluster

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


def test_aggregated_discovery_names_resources_and_subresources() -> None:
    cluster = Cluster()
    answer = cluster.server.handle(Request("GET", "/api", accept=AGGREGATED), cluster.now)
    assert isinstance(answer, Response)
    assert "APIGroupDiscoveryList" in answer.content_type
    [core] = orjson.loads(answer.body)["items"]
    pods = next(one for one in core["versions"][0]["resources"] if one["resource"] == "pods")
    assert pods["responseKind"]["kind"] == "Pod"
    assert [one["subresource"] for one in pods["subresources"]] == ["binding", "eviction", "status"]


def test_old_discovery_names_the_same_and_new_kinds_appear() -> None:
    cluster = Cluster()
    before = {group["name"] for group in cluster.ok("GET", "/apis")["groups"]}
    cluster.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", pool_crd())
    after = {group["name"] for group in cluster.ok("GET", "/apis")["groups"]}
    assert after - before == {"resource.aibee.cn"}
    names = [one["name"] for one in cluster.ok("GET", "/apis/resource.aibee.cn/v1alpha1")["resources"]]
    assert names == ["pools", "pools/status"]


def test_openapi_says_how_lists_are_merged_and_that_fields_are_validated() -> None:
    cluster = Cluster()
    paths = cluster.ok("GET", "/openapi/v3")["paths"]
    document = cluster.ok("GET", paths["api/v1"]["serverRelativeURL"])
    containers = document["components"]["schemas"]["PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "fieldValidation" in [one["name"] for one in patch["parameters"]]
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]


def test_version_and_health() -> None:
    cluster = Cluster()
    assert cluster.ok("GET", "/version")["gitVersion"].startswith("v1.36.3")
    assert cluster.call("GET", "/readyz").body == b"ok"


def test_every_type_in_the_table_is_defined() -> None:
    types = api_types()
    used = {kind.name for one in types.values() for kind in one.fields.values() if kind.shape == "struct"}
    used |= {name for one in types.values() for name in one.inlined.values()}
    assert used <= types.keys()
    assert types["Pod"].fields["spec"].name == "PodSpec"
