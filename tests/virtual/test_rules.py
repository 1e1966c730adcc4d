"""The rules of kube-scheduler, from the fields of a pod through the API to a node or a reason."""

from tests.harness import Harness, Json
from tests.objects import node_object, pod_object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TAINT = {"key": "dedicated", "value": "user1", "effect": "NoSchedule"}


def a_pod(name: str = "p", *, cpu: str = "1", **spec: object) -> Json:
    """Return a pod with these fields in its spec."""
    document = pod_object(name, cpu=cpu)
    document["spec"] |= spec
    return document


def wants(*terms: Json) -> Json:
    """Return required node affinity of these terms."""
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def label(key: str, operator: str, *values: str) -> Json:
    """Return a term of one expression on a label."""
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


def named(*names: str) -> Json:
    """Return a term that names nodes."""
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(names)}]}


def container(name: str, cpu: str, **fields: object) -> Json:
    return {"name": name, "image": "registry.example/worker:1", "resources": {"requests": {"cpu": cpu}}, **fields}


def where(*documents: Json) -> dict[str, str]:
    """Run a cluster of these objects and return the node of each pod."""
    h = Harness(*documents)
    h.run()
    return h.nodes_of_pods()


def why(*documents: Json) -> str:
    """Run a cluster of these objects and return why the nodes of its pool refuse the pod `p`."""
    h = Harness(*documents)
    h.run()
    assert h.node_of("p") == ""
    return h.refusal("p")


def test_terms_of_required_affinity_are_alternatives() -> None:
    nodes = [node_object("n1", labels={"zone": "east"}), node_object("n2", labels={"zone": "west"})]
    affinity = wants(label("zone", "In", "north"), label("zone", "In", "west"))
    assert where(*nodes, a_pod(affinity=affinity)) == {"p": "n2"}
    nowhere = wants(label("zone", "In", "north"), label("zone", "DoesNotExist"))
    assert why(*nodes, a_pod(affinity=nowhere)) == (
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    )


def test_bounds_of_affinity_compare_numbers() -> None:
    nodes = [node_object("old", labels={"cores": "9"}), node_object("new", labels={"cores": "16"})]
    assert where(*nodes, a_pod(affinity=wants(label("cores", "Gt", "10")))) == {"p": "new"}
    assert where(*nodes, a_pod(affinity=wants(label("cores", "Lt", "10")))) == {"p": "old"}


def test_term_with_a_bound_that_is_not_a_number_matches_no_node() -> None:
    h = Harness(node_object("n", labels={"cores": "9"}))
    h.add(a_pod("p", affinity=wants(label("cores", "Gt", "many"))), a_pod("q"))
    h.run()
    assert (h.node_of("p"), h.node_of("q")) == ("", "n")
    assert h.why("p").startswith("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity")


def test_pod_with_a_preferred_bound_that_is_not_a_number_runs_once_one_node_alone_fits() -> None:
    h = Harness(node_object("n1"), node_object("n2"), a_pod("other"))
    preference = label("cores", "Lt", "many")
    h.add(a_pod("p", affinity={"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": preference}]}}))
    h.run()
    assert (h.node_of("p"), h.node_of("other")) == ("", "n1")
    field = '[0].matchExpressions[0].values[0]: Invalid value: "many"'
    why = "for 'Gt', 'Lt' operators, the value must be an integer"
    assert h.why("p") == f'running PreScore plugin "NodeAffinity": {field}: {why}'
    h.delete("Node", "n1")
    h.run(15)
    assert h.node_of("p") == "n2"


def test_nodes_may_be_named_by_affinity() -> None:
    nodes = [node_object(name) for name in ("n1", "n2", "n3")]
    assert where(*nodes, a_pod(affinity=wants(named("n2")))) == {"p": "n2"}
    assert where(*nodes[:2], a_pod(affinity=wants(named("n2", "n3")))) == {"p": "n2"}


def test_preferred_label_decides_between_nodes_that_fit() -> None:
    nodes = [node_object("n1"), node_object("n2", labels={"disk": "ssd"}), node_object("n3")]
    preferred = {"nodeAffinity": {PREFERRED: [{"weight": 20, "preference": label("disk", "In", "ssd")}]}}
    assert where(*nodes, a_pod(affinity=preferred)) == {"p": "n2"}


def test_tainted_node_takes_only_pods_with_the_matching_toleration() -> None:
    node = node_object("n", taints=[TAINT])
    equal = {"key": "dedicated", "operator": "Equal", "value": "user1", "effect": "NoSchedule"}
    for toleration in (equal, {"key": "dedicated", "operator": "Exists"}, {"operator": "Exists"}):
        assert where(node, a_pod(tolerations=[toleration])) == {"p": "n"}
    for toleration in (equal | {"value": "user2"}, equal | {"effect": "PreferNoSchedule"}):
        reason = why(node, a_pod(tolerations=[toleration]))
        assert reason == "0/1 nodes are available: 1 node(s) had untolerated taint(s)."


def test_node_with_a_prefer_no_schedule_taint_is_chosen_last() -> None:
    nodes = [node_object("n1", taints=[TAINT | {"effect": "PreferNoSchedule"}]), node_object("n2")]
    assert where(*nodes, a_pod()) == {"p": "n2"}
    assert where(nodes[0], a_pod()) == {"p": "n1"}


def test_cordoned_node_takes_only_pods_that_tolerate_it() -> None:
    node = node_object("n")
    node["spec"]["unschedulable"] = True
    assert why(node, a_pod()) == "0/1 nodes are available: 1 node(s) were unschedulable."
    tolerates = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    assert where(node, a_pod(tolerations=[tolerates])) == {"p": "n"}


def test_host_port_is_used_once_per_address_and_protocol() -> None:
    def port(**fields: object) -> list[Json]:
        ports = [{"containerPort": 54322, "hostPort": 54322, **fields}]
        return [container("main", "100m", ports=ports)]

    node, first = node_object("n"), a_pod("a", containers=port(hostIP="127.0.0.1"))
    for other in (port(hostIP="127.0.0.2"), port(hostIP="127.0.0.1", protocol="UDP")):
        assert where(node, first, a_pod("p", containers=other)) == {"a": "n", "p": "n"}
    reason = why(node, first, a_pod("p", containers=port()))
    assert reason == "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."


def test_init_containers_count_by_the_largest_and_sidecars_beside_it() -> None:
    sidecar = container("side", "1", restartPolicy="Always")
    main, init = container("main", "2"), container("init", "5")
    cases = {"5": [init, sidecar], "6": [sidecar, init]}
    for cpu, init_containers in cases.items():
        pod = a_pod(containers=[main], initContainers=init_containers)
        assert where(node_object("n", cpu=cpu), pod) == {"p": "n"}
        less = node_object("n", cpu=str(int(cpu) - 1))
        assert why(less, pod) == "0/1 nodes are available: 1 Insufficient cpu."


def test_pods_without_requests_count_against_the_pods_of_a_node() -> None:
    node, idle = node_object("n", pods=1), pod_object("a", cpu="", memory="")
    assert why(node, idle, pod_object("p", cpu="", memory="")) == "0/1 nodes are available: 1 Too many pods."


def test_resource_that_no_node_has_is_named() -> None:
    assert why(node_object("n"), pod_object("p", gpu=1)) == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def test_reasons_are_counted_by_node_and_sorted_as_text() -> None:
    tainted = [node_object(f"t{number}", taints=[TAINT]) for number in range(2)]
    small = [node_object(f"s{number}", cpu="1") for number in range(3)]
    assert why(*tainted, *small, a_pod(cpu="2")) == (
        "0/5 nodes are available: 2 node(s) had untolerated taint(s), 3 Insufficient cpu."
    )


def test_node_that_lacks_two_things_counts_for_both() -> None:
    assert why(node_object("n", cpu="1", memory="1Gi"), pod_object("p", cpu="2", memory="2Gi")) == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."
    )


def test_recreated_node_has_its_new_size() -> None:
    h = Harness(node_object("n", cpu="8"))
    h.run()
    h.delete("Node", "n")
    h.add(node_object("n", cpu="1"), a_pod("p", cpu="2"))
    h.run(seconds=20)
    assert h.refusal("p") == "0/1 nodes are available: 1 Insufficient cpu."


def test_node_that_shrinks_below_its_use_keeps_its_pods_and_takes_no_more() -> None:
    h = Harness(node_object("n", gpu=8), pod_object("a", gpu=4))
    h.run()
    h.patch("Node", "n", {"status": {"allocatable": {"nvidia.com/gpu": "0"}}}, "status")
    h.add(pod_object("b", gpu=1))
    h.run(seconds=20)
    assert (h.node_of("a"), h.node_of("b")) == ("n", "")
    h.patch("Node", "n", {"status": {"allocatable": {"nvidia.com/gpu": "8"}}}, "status")
    h.run(seconds=20)
    assert h.node_of("b") == "n"


def test_pods_of_a_hard_spread_constraint_go_to_both_nodes_in_equal_numbers() -> None:
    nodes = [node_object(name, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2")]
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    pods = [a_pod(f"p{number}", topologySpreadConstraints=[spread]) for number in range(4)]
    for pod in pods:
        pod["metadata"]["labels"] = {"app": "web"}
    found = list(where(*nodes, *pods).values())
    assert (found.count("n1"), found.count("n2")) == (2, 2)
