"""Random days with card types and machine groups: rare nodes and groups are closed, and nobody waits in vain."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pool import GroupRule
from tests import seeds
from tests.build import a_pod, a_pool, group_rule, replace
from tests.placement_oracle import GROUP, PRODUCT
from tests.properties.playing import SHRINKING_SECONDS_MAX, play
from tests.properties.test_engine import TakingBack
from tests.properties.wishes import NAMESPACES, NODES, NUMBER, PODS_MAX, POOLS, SHAPES, ShapeFields, Wishes

PRODUCTS = (
    "NVIDIA-A100-SXM4-80GB",
    "NVIDIA-A100-PCIE-40GB",
    "Tesla-V100-SXM2-32GB",
    "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
)
CARDS = [{PRODUCT: product} for product in PRODUCTS]
OWN_LABELS = [*CARDS, *CARDS, {}, {GROUP: "vision"}, {GROUP: "speech", PRODUCT: PRODUCTS[2]}]
TYPES = [(), (), ("A100",), ("V100", "A100"), ("A100-80GB",), ("A100-40GB", "V100"), ("A100-MIG-1g.10gb",)]
RARE = [(), (), ("A100",), ("A100-80GB",), ("V100-SXM2-32GB",), ("A100-MIG-1g.10gb", "V100")]
RULES: list[tuple[GroupRule, ...]] = [(), (), (group_rule("vision", team="yes"),), (group_rule("speech"),)]

OWN_PODS = st.fixed_dictionaries(
    {
        "shape": st.sampled_from(range(6)),
        "pool": st.sampled_from([*POOLS, *POOLS, ""]),
        "priority": st.sampled_from([0, 0, 5, 10]),
        "namespace": st.sampled_from(NAMESPACES),
        "types": st.sampled_from(TYPES),
        "required": st.sampled_from([True, True, False]),
        "group": st.sampled_from(["", "", "", "vision", "speech"]),
    }
)


class CardEngine(TakingBack):
    """One engine; nodes have cards and groups, pods name them, and pools say what is rare and who names a group."""

    @initialize(labels=st.lists(st.sampled_from(OWN_LABELS), min_size=len(NODES), max_size=len(NODES)))
    def nodes_have_cards(self, labels: list[dict[str, str]]) -> None:
        for name, mine in zip(sorted(self.world.nodes), labels, strict=False):
            self._label(name, mine)

    @rule(wishes=OWN_PODS, copies=st.integers(1, 3))
    def pods_that_name_something_come(self, wishes: Wishes, copies: int) -> None:
        for _ in range(copies):
            if len(self.world.pods) >= PODS_MAX:
                self._oldest_pod_ends()
            self._one_comes(**wishes)
        self.world.go_on()

    def _one_comes(
        self,
        *,
        shape: int,
        pool: str,
        priority: int,
        namespace: str,
        types: tuple[str, ...],
        required: bool,
        group: str,
    ) -> None:
        fields: ShapeFields = {**SHAPES[shape]}
        fields |= {"gpu_types": types, "gpu_type_required": required or not types, "machine_group": group}
        pod = a_pod(
            self.world.next_pod_name(),
            pool=pool,
            priority=priority,
            namespace=namespace,
            labels={"app": "x"},
            created=int(self.world.now),
            **fields,
        )
        self.world.put(pod)

    @rule(name=st.sampled_from(NODES), labels=st.sampled_from(OWN_LABELS))
    def a_node_gets_other_cards_or_another_group(self, name: str, labels: dict[str, str]) -> None:
        if name in self.world.nodes:
            self._label(name, labels)
        self.world.go_on()

    @rule(number=NUMBER, rare=st.sampled_from(RARE), lends=st.booleans(), rules=st.sampled_from(RULES))
    def a_pool_says_what_is_rare_and_who_names_a_group(
        self, number: int, rare: tuple[str, ...], lends: bool, rules: tuple[GroupRule, ...]
    ) -> None:
        name = [*POOLS, DEFAULT_POOL][number % 4]
        pool = self.world.pools.get(name) or a_pool(name, labels={"pool": name})
        self.world.put(replace(pool, rare_types=rare, lend_rare_types=lends, machine_groups=rules))
        self.world.go_on()

    def _label(self, name: str, labels: dict[str, str]) -> None:
        node = self.world.nodes[name]
        kept = {key: value for key, value in node.labels.items() if key not in (PRODUCT, GROUP)}
        self.world.put(replace(node, labels=kept | labels))


def test_random_days_with_cards_briefly() -> None:
    play(CardEngine, seeds.number("cards, briefly"), runs=5)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_random_days_with_cards() -> None:
    play(CardEngine, seeds.number("cards"), runs=8)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_random_days_with_cards_at_length(number: int) -> None:
    play(CardEngine, seeds.number(f"cards, at length {number}"), runs=200)
