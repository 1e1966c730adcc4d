"""Which events of a kind are logged, and what is remembered of kinds that never come again."""

import pytest

from aischeduler.kube.report import log_sampler
from aischeduler.kube.report.log_sampler import SAMPLE_SECONDS, LogSampler


def test_next_logged_event_says_how_many_were_left_out() -> None:
    now = 0.0
    sampler = LogSampler(lambda: now)
    assert [sampler.sample("a") for _ in range(3)] == [0, None, None]
    assert sampler.sample("b") == 0
    now = SAMPLE_SECONDS
    assert [sampler.sample("a"), sampler.sample("b")] == [2, 0]


def test_kinds_that_never_come_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_sampler, "KINDS_MAX", 10)
    sampler = LogSampler(lambda: 0.0)
    for kind in range(1000):
        sampler.sample(kind)
        sampler.sample(kind)
    assert max(len(sampler._logged_at), len(sampler._suppressed)) <= 10
