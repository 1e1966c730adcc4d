"""Rows S20 and S21 of kube-scheduler's own cases, and what a change of images changes."""

import numpy as np
import pytest

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest
from aischeduler.model.images import NodeImage, image_id
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import PlacementStrategy
from aischeduler.plugins.image_locality import MIB, ImageLocality
from aischeduler.state.node_table import Change, NodeTable
from tests.build import a_node, a_pod, replace
from tests.plugins.table import a_table

RULE = ImageLocality()


def having(name: str, **sizes_mib: int) -> Node:
    """Return a node with these images and their sizes in MiB."""
    images = tuple(NodeImage((image_id(image),), size * MIB) for image, size in sizes_mib.items())
    return replace(a_node(name), images=images)


def pod(*images: str, containers: int = 0) -> Pod:
    spec = a_pod().spec
    names = tuple(sorted(image_id(image) for image in images))
    return replace(a_pod(), spec=replace(spec, images=names, containers=containers or len(images)))


def scores(table: NodeTable, asks: Pod) -> list[int]:
    """Return the scores in the order of names; 0 for all where the plugin is skipped."""
    if not RULE.prefers(asks.spec, table):
        return [0] * len(table.rows)
    rows = np.array([table.rows[name] for name in sorted(table.rows)], dtype=np.intp)
    state = RULE.prescore(PlacementRequest(asks.spec, PlacementStrategy.SPREAD), table, None)
    found: list[int] = state.score(NodeView(table, rows)).tolist()
    return found


TWO = (having("n1", small=40, middle=300, large=2000), having("n2", other=250, tiny=10))


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (("small", "other"), [0, 5]),
        (("small", "middle"), [7, 0]),
        (("large", "tiny"), [49, 0]),
        (("none", "tiny"), [0, 0]),
        ((), [0, 0]),
    ],
)
def test_s20_larger_images_score_more(images: tuple[str, ...], expected: list[int]) -> None:
    assert scores(a_table(*TWO), pod(*images)) == expected


def test_s20_image_that_fewer_nodes_have_scores_less() -> None:
    assert scores(a_table(*TWO, a_node("n3")), pod("large", "tiny")) == [32, 0, 0]


def test_s21_only_node_with_a_very_large_image_is_preferred() -> None:
    nodes = (having("n00", huge=3000), *(a_node(f"n{number:02}") for number in range(1, 11)))
    assert scores(a_table(*nodes), pod("huge", "huge")) == [26] + [0] * 10


def test_image_of_two_containers_counts_twice_and_that_of_a_volume_once() -> None:
    assert scores(a_table(*TWO), pod("middle", "middle")) == [100 * (300 - 23) // (2000 - 23), 0]
    assert scores(a_table(*TWO), pod("middle", "large", containers=1)) == [100, 0]


def test_image_that_all_nodes_have_prefers_none() -> None:
    table = a_table(having("n1", app=900), having("n2", app=900))
    assert not RULE.prefers(pod("app").spec, table)
    table.see(having("n2", app=900, other=1))
    assert not RULE.prefers(pod("app").spec, table)
    table.see(having("n2"))
    assert RULE.prefers(pod("app").spec, table)


def test_image_has_the_size_of_the_node_that_had_it_first_until_no_node_has_it() -> None:
    table = a_table(having("n1", app=400), having("n2", app=800))
    assert scores(table, pod("app")) == [0, 0]
    table.see(having("n2"))
    assert scores(table, pod("app")) == [100 * (200 - 23) // (1000 - 23), 0]
    table.see(having("n1"))
    table.see(having("n2", app=800))
    assert scores(table, pod("app")) == [0, 100 * (400 - 23) // (1000 - 23)]
    table.see(having("n2", app=600))
    assert scores(table, pod("app")) == [0, 100 * (300 - 23) // (1000 - 23)]


def test_node_that_leaves_or_joins_changes_how_common_an_image_is() -> None:
    table = a_table(*TWO)
    before = scores(table, pod("large", "tiny"))
    table.see(a_node("n3"))
    assert scores(table, pod("large", "tiny"))[0] < before[0]
    table.forget("n3")
    assert scores(table, pod("large", "tiny")) == before
    table.forget("n1")
    assert scores(table, pod("large", "tiny")) == [0]
    assert image_id("large") not in table.images


def test_change_of_images_is_no_change_of_the_row() -> None:
    table = a_table(*TWO)
    versions = table.version, table.static_version, table.images.version
    row, change = table.see(having("n2", other=250))
    assert (row, change) == (table.rows["n2"], Change.NONE)
    assert (table.version, table.static_version) == versions[:2]
    assert table.images.version > versions[2]
    assert table.nodes[row] == having("n2", other=250)
    _, both = table.see(replace(having("n2", tiny=1), unschedulable=True))
    assert (both, table.images.rows(image_id("tiny")), table.images.rows(image_id("other"))) == (
        Change.CORDON,
        [row],
        [],
    )


def test_sums_of_a_class_are_kept_while_its_own_images_stay() -> None:
    table, images = a_table(*TWO), pod("middle").spec.images
    first = table.images.sums(images, table.alive, table.static_version)
    table.see(having("n2", other=250))
    assert table.images.sums(images, table.alive, table.static_version) is first
    table.see(having("n2", middle=300))
    assert table.images.sums(images, table.alive, table.static_version) is not first


def test_many_rows_of_one_image_come_and_go() -> None:
    table = NodeTable()
    for number in range(100):
        table.see(having(f"n{number}", app=100))
    for number in range(0, 100, 3):
        table.forget(f"n{number}")
    assert table.images.rows(image_id("app")) == sorted(table.rows.values())
