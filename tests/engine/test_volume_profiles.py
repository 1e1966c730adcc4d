"""What a profile says about VolumeBinding."""

import pytest

from aischeduler.model.events import Seen
from tests.build import a_node, a_pod
from tests.engine.session import Session, binds, reports
from tests.engine.test_profiles import profile_of
from tests.engine.test_volume_binding import CLOUD, a_claim, asked, use, written


def test_profile_says_how_long_a_binding_waits_for_volumes() -> None:
    session = Session(profile=profile_of("pluginConfig: [{name: VolumeBinding, args: {bindTimeoutSeconds: 5}}]"))
    session.see(a_node("n1"))
    session.tell(Seen(CLOUD), Seen(a_claim(of="cloud")))
    session.see(a_pod("p", claims=(use("data"),)))
    session.decide()
    written(session)
    assert session.decide(4) == []
    assert "its volumes are not bound after 5 s" in reports(session.decide(2))["p"]


@pytest.mark.parametrize("points", ["multiPoint", "filter"])
def test_profile_without_volume_binding_places_pods_whatever_their_claims_are(points: str) -> None:
    session = Session(profile=profile_of(f"plugins: {{{points}: {{disabled: [{{name: VolumeBinding}}]}}}}"))
    session.see(a_node("n1"), a_pod("p", claims=(use("data"),)))
    said = session.decide()
    assert (binds(said), asked(said)) == ({"p": "n1"}, {})
