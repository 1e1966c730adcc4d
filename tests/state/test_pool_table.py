from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pool import Pool
from aischeduler.state.node_table import NO_POOL, NodeTable
from aischeduler.state.pool_table import PoolTable
from tests.build import a_node, a_pool


def table_of(*labels: dict[str, str]) -> tuple[NodeTable, PoolTable]:
    nodes = NodeTable()
    pools = PoolTable(nodes, Pool(DEFAULT_POOL))
    for i, have in enumerate(labels):
        node = a_node(f"n{i}", labels=have)
        row, _ = nodes.see(node)
        pools.assign_row(row, node)
    return nodes, pools


def pool_of(nodes: NodeTable, pools: PoolTable, name: str) -> str:
    return pools.name(int(nodes.pool[nodes.rows[name]]))


def test_a_node_that_no_pool_selects_is_in_the_default_pool() -> None:
    nodes, pools = table_of({})
    pools.see(a_pool("cpu", labels={"cpu": "true"}))
    assert pool_of(nodes, pools, "n0") == DEFAULT_POOL


def test_a_node_that_one_pool_selects_is_in_it() -> None:
    nodes, pools = table_of({"cpu": "true"}, {})
    moved = pools.see(a_pool("cpu", labels={"cpu": "true"}))
    assert [move.row for move in moved] == [nodes.rows["n0"]]
    assert pool_of(nodes, pools, "n0") == "cpu"


def test_a_node_that_two_pools_select_is_in_the_default_pool_and_both_conflict() -> None:
    nodes, pools = table_of({"a": "1", "b": "1"})
    pools.see(a_pool("pa", labels={"a": "1"}))
    pools.see(a_pool("pb", labels={"b": "1"}))
    assert pool_of(nodes, pools, "n0") == DEFAULT_POOL
    assert pools.conflicting_nodes("pa") == pools.conflicting_nodes("pb") == ("n0",)
    pools.forget("pb")
    assert pool_of(nodes, pools, "n0") == "pa"
    assert pools.conflicting_nodes("pa") == ()


def test_row_by_row_and_all_at_once_agree() -> None:
    nodes, pools = table_of({"a": "1"}, {"b": "1"}, {"a": "1", "b": "1"}, {})
    pools.see(a_pool("pa", labels={"a": "1"}))
    pools.see(a_pool("pb", labels={"b": "1"}))
    at_once = nodes.pool.tolist(), dict(pools.conflicts)
    for row in nodes.rows.values():
        pools.assign_row(row, nodes.nodes[row])
    assert (nodes.pool.tolist(), dict(pools.conflicts)) == at_once


def test_a_node_of_two_pools_changes_the_conflicts_of_its_row_alone() -> None:
    nodes, pools = table_of(*[{"a": "1"}] * 3)
    pools.see(a_pool("pa", labels={"a": "1"}))
    pools.see(a_pool("pb", labels={"a": "1"}))
    kept, version = pools.conflicts, pools.conflicts_version
    row, _ = nodes.see(a_node("n1", labels={"a": "2"}))
    pools.assign_row(row, nodes.nodes[row])
    assert pools.conflicts is kept, "a copy of all conflicts for each node takes n squared at a start"
    assert (sorted(kept), pools.conflicts_version) == ([nodes.rows["n0"], nodes.rows["n2"]], version + 1)
    pools.assign_row(row, nodes.nodes[row])
    assert pools.conflicts_version == version + 1


def test_a_refused_pool_owns_no_nodes() -> None:
    nodes, pools = table_of({"cpu": "true"})
    pools.see(a_pool("cpu", labels={"cpu": "true"}, invalid="spec.nodeSelector: bad"))
    assert pool_of(nodes, pools, "n0") == DEFAULT_POOL


def test_a_pool_without_selector_owns_no_nodes_and_an_empty_one_owns_all() -> None:
    nodes, pools = table_of({"cpu": "true"})
    pools.see(a_pool("none"))
    assert pool_of(nodes, pools, "n0") == DEFAULT_POOL
    pools.see(a_pool("all", labels={}))
    assert pool_of(nodes, pools, "n0") == "all"


def test_the_default_pool_ignores_its_selector() -> None:
    nodes, pools = table_of({"cpu": "true"})
    pools.see(a_pool(DEFAULT_POOL, labels={"x": "y"}, disable_sharing=True))
    assert pool_of(nodes, pools, "n0") == DEFAULT_POOL
    assert pools.pools[DEFAULT_POOL].disable_sharing


def test_a_gone_node_is_in_no_pool() -> None:
    nodes, pools = table_of({"cpu": "true"})
    row = nodes.forget("n0")
    assert row is not None
    pools.assign_row(row, None)
    assert nodes.pool[row] == NO_POOL
