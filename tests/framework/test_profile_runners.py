"""The runner of several profiles: it asks the plugins of the profile that a class of pods has."""

from inspect import isfunction

from aischeduler.engine.profile import default_profile
from aischeduler.framework.profile_runners import ProfileRunners, make_runner
from aischeduler.framework.runner import Runner
from aischeduler.state.cards import Cards
from aischeduler.state.node_table import NodeTable


def public(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if isfunction(value) and not name.startswith("_")}


def test_every_public_method_of_a_runner_asks_the_runner_of_the_profile() -> None:
    assert public(ProfileRunners) == public(Runner)


def test_one_profile_has_a_plain_runner() -> None:
    plugins, nodes = default_profile().plugins, NodeTable(Cards((), ()))
    assert type(make_runner(plugins, {}, nodes)) is Runner
    assert type(make_runner(plugins, {"b": plugins}, nodes)) is ProfileRunners
