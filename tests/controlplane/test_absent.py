"""A test whose program is missing is skipped, and fails in CI."""

import pytest

from tests.controlplane.absent import leave_out


@pytest.mark.parametrize("environment", ["", "false"])
def test_by_a_developer_it_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch, environment: str) -> None:
    monkeypatch.setenv("CI", environment)
    with pytest.raises(pytest.skip.Exception, match="no screwdriver"):
        leave_out("no screwdriver")


@pytest.mark.parametrize("environment", ["true", "True"])
def test_in_ci_it_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch, environment: str) -> None:
    monkeypatch.setenv("CI", environment)
    with pytest.raises(pytest.fail.Exception, match="no screwdriver"):
        leave_out("no screwdriver")
