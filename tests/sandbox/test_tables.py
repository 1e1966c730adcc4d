import orjson
import pytest

from aischeduler.sandbox.columns import human_duration
from aischeduler.sandbox.jsonpath import find_path
from aischeduler.sandbox.protocol import Request, Response
from tests.sandbox.cluster import PODS, Cluster

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        *(
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (3600 * 3, "3h"),
            (3600 * 3 + 60, "3h1m"),
        ),
        *((3600 * 47, "47h"), (3600 * 49, "2d1h"), (86400 * 8, "8d"), (86400 * 729, "729d"), (86400 * 731, "2y1d")),
    ],
)
def test_ages_are_shown_as_kubectl_shows_them(seconds: int, shown: str) -> None:
    assert human_duration(seconds) == shown


def test_table_has_heads_cells_and_metadata() -> None:
    cluster = Cluster()
    cluster.add_pod("p1")
    cluster.now += 65
    answer = cluster.server.handle(Request("GET", PODS, accept=TABLE), cluster.now)
    assert isinstance(answer, Response)
    table = orjson.loads(answer.body)
    assert table["kind"] == "Table"
    assert [one["name"] for one in table["columnDefinitions"]][:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert table["rows"][0]["cells"][:5] == ["p1", "0/1", "Pending", "0", "65s"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


def test_metadata_alone_is_shown_where_it_is_asked_for() -> None:
    cluster = Cluster()
    cluster.add_pod("p1")
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    answer = cluster.server.handle(Request("GET", PODS, accept=accept), cluster.now)
    assert isinstance(answer, Response)
    listed = orjson.loads(answer.body)
    assert (listed["kind"], list(listed["items"][0])) == (
        "PartialObjectMetadataList",
        ["kind", "apiVersion", "metadata"],
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".a.b", 1),
        (".a['c.d']", 2),
        (".list[1].v", "y"),
        (".list[-1].v", "y"),
        ('.list[?(@.k=="p")].v', "x"),
        (".none.b", None),
        (".list[7]", None),
    ],
)
def test_paths_of_columns_are_found(path: str, value: object) -> None:
    obj = {"a": {"b": 1, "c.d": 2}, "list": [{"k": "p", "v": "x"}, {"k": "q", "v": "y"}]}
    assert find_path(obj, path) == value
