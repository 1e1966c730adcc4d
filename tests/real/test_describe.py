"""What a user reads in `kubectl describe pool`."""

from tests.controlplane.plane import ControlPlane
from tests.objects import node_object, pool_object
from tests.real.cluster import create_nodes, create_pools
from tests.real.daemon import Daemon
from tests.real.history import History


def test_describe_shows_the_numbers_the_conditions_and_the_events_of_a_pool(
    control_plane: ControlPlane, daemon: Daemon, history: History
) -> None:
    create_pools(control_plane, pool_object("first", labels={"a": "1"}), pool_object("second", labels={"b": "1"}))
    create_nodes(control_plane, [node_object("both", cpu="4", labels={"a": "1", "b": "1"})])
    create_nodes(control_plane, [node_object("one", cpu="8", labels={"a": "1"})])
    daemon.start()

    def described() -> str:
        return control_plane.kubectl("describe", "pool", "first").stdout

    history.wait_until(lambda: "NodesClaimedTwice" in described().partition("Events:")[2], "a warning about the pool")
    text = described()
    assert "In the default pool because it is not alone in selecting them, see pool second: both." in text
    assert "Type:                  Ready" in text
    assert text.index("Allocatable:") < text.index("Events:")
    assert "0/8" in text
