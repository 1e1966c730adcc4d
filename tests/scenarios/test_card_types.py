"""Card types: the types that pods name, rare types, and the cards of pools."""

from collections.abc import Mapping
from typing import Any

from aischeduler.model.names import GPU_TYPE_KEY, GPU_TYPE_POLICY_KEY
from aischeduler.model.workload import CARD_NAME_KEY
from tests.scenarios.stage import Stage

PRODUCT = "nvidia.com/gpu.product"
A100, V100, H200 = "NVIDIA-A100-SXM4-80GB", "Tesla-V100-SXM2-32GB", "NVIDIA-H200"
RARE = "had the rare GPU type H200, which the pod does not name"


def card_node(stage: Stage, name: str, product: str, *, pool: str = "", gpu: int = 2) -> None:
    """Create a node with GPUs of this product, as GPU feature discovery labels it."""
    stage.node(name, pool=pool, gpu=gpu, labels={PRODUCT: product})


def naming(types: str, *, policy: str = "") -> Mapping[str, Any]:
    """Return the annotations of a pod that names these types."""
    return {"annotations": {GPU_TYPE_KEY: types} | ({GPU_TYPE_POLICY_KEY: policy} if policy else {})}


def test_pod_runs_on_the_type_that_it_names_however_it_is_spelt(stage: Stage) -> None:
    card_node(stage, "a", A100)
    card_node(stage, "v", V100)
    for name, types, node in (
        ("p", "V100", "v"),
        ("q", "v100-32gb", "v"),
        ("r", "NVIDIA A100", "a"),
        ("s", "A100", "a"),
    ):
        stage.pod(name, gpu=1, **naming(types))
        stage.goes(**{name: node})


def test_pod_of_a_type_without_room_waits_and_starts_when_a_node_gets_the_label(stage: Stage) -> None:
    stage.node("n", gpu=2)
    stage.pod("p", gpu=1, **naming("A100|V100"))
    stage.waits("p", "1 node(s) didn't match the GPU type A100|V100")
    stage.patch("Node", "n", {"metadata": {"labels": {PRODUCT: V100}}})
    stage.goes(p="n")


def test_left_type_comes_before_the_right_one(stage: Stage) -> None:
    card_node(stage, "a", A100, gpu=1)
    card_node(stage, "v", V100, gpu=8)
    stage.pod("first", gpu=1, **naming("A100|V100"))
    stage.goes(first="a")
    stage.pod("second", gpu=1, **naming("A100|V100"))
    stage.goes(second="v")


def test_preferred_type_comes_first_and_any_other_will_do(stage: Stage) -> None:
    card_node(stage, "v", V100, gpu=1)
    stage.node("n", gpu=1)
    stage.pod("first", gpu=1, **naming("V100", policy="Preferred"))
    stage.goes(first="v")
    stage.pod("second", gpu=1, **naming("V100", policy="Preferred"))
    stage.goes(second="n")


def test_rare_type_is_closed_to_pods_that_do_not_name_it_whether_or_not_they_ask_for_gpus(stage: Stage) -> None:
    card_node(stage, "h", H200, pool="a")
    stage.pools("a", rareTypes=["NVIDIA H200"])
    stage.pod("plain", pool="a")
    stage.pod("other", pool="a", gpu=1, **naming("A100", policy="Preferred"))
    stage.pod("named", pool="a", gpu=1, **naming("H200"))
    stage.goes(named="h")
    stage.waits("plain", f"1 node(s) {RARE}")
    stage.waits("other", f"1 node(s) {RARE}")


def test_rare_type_of_the_configuration_is_closed_in_every_pool(stage: Stage) -> None:
    stage.restart_scheduler(rareTypes=["H200"])
    card_node(stage, "h", H200, pool="a")
    card_node(stage, "d", H200)
    stage.pools("a")
    stage.pod("plain", pool="a")
    stage.pod("elsewhere")
    stage.pod("named", gpu=1, **naming("h200"))
    stage.goes(named="d")
    stage.waits("plain", RARE)
    stage.waits("elsewhere", RARE)


def test_type_that_is_rare_no_longer_is_open_again(stage: Stage) -> None:
    card_node(stage, "h", H200, pool="a")
    stage.pools("a", rareTypes=["H200"])
    stage.pod("plain", pool="a")
    stage.waits("plain", RARE)
    stage.set_pool("a", rareTypes=None)
    stage.goes(plain="h")


def test_node_that_becomes_rare_keeps_its_pods_and_takes_no_others(stage: Stage) -> None:
    card_node(stage, "h", H200, pool="a")
    stage.pools("a")
    stage.pod("before", pool="a")
    stage.goes(before="h")
    stage.set_pool("a", rareTypes=["H200"])
    stage.heeded("a")
    stage.pod("after", pool="a")
    stage.waits("after", RARE)
    stage.stays(lambda: stage.node_of("before") == "h")


def test_rare_type_is_lent_only_where_the_pool_says_so(stage: Stage) -> None:
    card_node(stage, "h", H200, pool="a")
    stage.pools("a", rareTypes=["H200"])
    stage.pools("b")
    stage.pod("p", pool="b", gpu=1, **naming("H200"))
    stage.waits("p", "rare GPU types are not lent")
    stage.set_pool("a", lendRareTypes=True)
    stage.goes(p="h")


def test_common_nodes_of_a_pool_with_rare_ones_are_lent(stage: Stage) -> None:
    card_node(stage, "h", H200, pool="a", gpu=8)
    card_node(stage, "v", V100, pool="a", gpu=1)
    stage.pools("a", rareTypes=["H200"])
    stage.pools("b")
    stage.pod("p", pool="b", gpu=1, **naming("H200|V100"))
    stage.goes(p="v")


def test_loan_on_a_node_that_becomes_rare_ends_where_the_pool_evicts(stage: Stage) -> None:
    card_node(stage, "h", H200, pool="a")
    stage.pools("a", reclaimPolicy="Evict")
    stage.pools("b")
    stage.pod("p", pool="b", gpu=1, **naming("H200"))
    stage.goes(p="h")
    stage.set_pool("a", rareTypes=["H200"])
    stage.evicts("p")


def test_pod_of_high_priority_evicts_nobody_on_a_closed_node(stage: Stage) -> None:
    card_node(stage, "h", H200, pool="a", gpu=1)
    card_node(stage, "v", V100, pool="a", gpu=1)
    stage.pools("a", rareTypes=["H200"])
    stage.pod("rare", pool="a", gpu=1, **naming("H200"))
    stage.goes(rare="h")
    stage.pod("common", pool="a", gpu=1, priority=100)
    stage.goes(common="v")
    stage.pod("high", pool="a", gpu=1, priority=50)
    stage.waits("high", RARE)
    stage.stays(lambda: stage.victims() == [])


def test_preemption_on_a_rare_node_for_a_pod_that_names_it(stage: Stage) -> None:
    card_node(stage, "h", H200, pool="a", gpu=1)
    stage.pools("a", rareTypes=["H200"])
    stage.pod("low", pool="a", gpu=1, **naming("H200"))
    stage.goes(low="h")
    stage.pod("high", pool="a", gpu=1, priority=50, **naming("H200"))
    stage.evicts("low")
    stage.goes(high="h")


def test_misspelt_type_gets_the_nearest_name_in_an_event(stage: Stage) -> None:
    card_node(stage, "a", A100)
    stage.pod("p", gpu=1, **naming("A10O"))
    stage.waits("p", "didn't match the GPU type A10O")
    said = f"No node has the GPU type A10O (annotation {GPU_TYPE_KEY} or {CARD_NAME_KEY}). Did you mean A100?"
    stage.until(lambda: stage.events("p", "UnknownGpuType") == [said])


def test_waiting_pod_whose_annotation_is_corrected_starts(stage: Stage) -> None:
    card_node(stage, "a", A100)
    stage.pod("p", gpu=1, **naming("A10O"))
    stage.waits("p", "didn't match the GPU type A10O")
    stage.patch("Pod", "p", {"metadata": {"annotations": {GPU_TYPE_KEY: "A100"}}})
    stage.goes(p="a")
    stage.pod("q", gpu=1, **naming("A100", policy="Always"))
    stage.waits("q", "is not Required or Preferred")
    stage.patch("Pod", "q", {"metadata": {"annotations": {GPU_TYPE_POLICY_KEY: None}}})
    stage.goes(q="a")


def test_pod_that_runs_stays_where_it_is_when_its_annotation_changes(stage: Stage) -> None:
    card_node(stage, "a", A100, gpu=1)
    stage.pod("p", gpu=1, **naming("A100"))
    stage.goes(p="a")
    stage.patch("Pod", "p", {"metadata": {"annotations": {GPU_TYPE_KEY: "V100"}}})
    stage.pod("q", gpu=1, **naming("A100"))
    stage.waits("q", "Insufficient nvidia.com/gpu")
    stage.delete("Pod", "p")
    stage.goes(q="a")


def test_malformed_annotation_holds_the_pod_and_names_itself(stage: Stage) -> None:
    card_node(stage, "a", A100)
    stage.pod("p", gpu=1, **naming("A100", policy="Always"))
    stage.waits("p", f"metadata.annotations[{GPU_TYPE_POLICY_KEY}]", "is not Required or Preferred")
    stage.pod("q", gpu=1, **naming("A100||V100"))
    stage.waits("q", f"metadata.annotations[{GPU_TYPE_KEY}]", "is not the name of a card type")
    stage.pod("fine", gpu=1)
    stage.goes(fine="a")


def test_status_of_a_pool_has_its_cards_by_type(stage: Stage) -> None:
    card_node(stage, "a", A100, pool="a", gpu=8)
    card_node(stage, "v", V100, pool="a", gpu=4)
    stage.node("n", pool="a")
    stage.pools("a")
    stage.pod("p", pool="a", gpu=3, **naming("V100"))
    stage.goes(p="v")
    cards = [{"type": "A100", "total": 8, "used": 0}, {"type": "V100", "total": 4, "used": 3}]
    stage.until(lambda: stage.status("a").get("cardsByType") == cards)
    assert stage.status("a")["columns"]["cards"] == "A100 0/8, V100 3/4"
