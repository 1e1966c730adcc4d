"""The contract of the engine, which a scheduler keeps."""

from typing import get_args

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model import contract
from aischeduler.model.contract import Engine


def test_a_scheduler_is_an_engine_and_each_word_of_the_contract_is_described() -> None:
    engine: Engine = Scheduler(default_profile(), "run")
    assert not engine.still_assumed("uid-p", "run-1")
    for union in (contract.Event, contract.Action, contract.Proposal):
        assert [one.__name__ for one in get_args(union) if not (one.__doc__ or "").strip()] == []
