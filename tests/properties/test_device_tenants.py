"""Random days with tenant queues whose pods ask for parts of GPUs: a part counts as its share in every quota and limit.

The checks are those of the days with tenants and of the days with devices together.
"""

import pytest

from aischeduler.model.pod import Pod
from tests import seeds
from tests.properties.device_world import DeviceWorld
from tests.properties.playing import SHRINKING_SECONDS_MAX, play
from tests.properties.tenant_world import TenantWorld
from tests.properties.test_devices import DeviceEngine
from tests.properties.test_tenants import CARD_NAMES, SERVICES, TenantDays
from tests.tenants import in_queue


class DeviceTenantWorld(DeviceWorld, TenantWorld):
    """A world with devices and tenant queues."""


class DeviceTenantDays(TenantDays, DeviceEngine):
    """One engine with tenant queues and devices."""

    world: DeviceTenantWorld

    def __init__(self) -> None:
        super().__init__()
        self.world = DeviceTenantWorld()

    def _one_that_wants(self, **wishes: object) -> Pod:
        pod = super()._one_that_wants(**wishes)  # type: ignore[arg-type]
        number = pod.created_seconds  # those of a gang come together, and say the same
        queue = ("batch", "batch", "online", "low", "root", "")[number % 6]
        return in_queue(pod, queue, cards=CARD_NAMES[number % 4], service=SERVICES[number % len(SERVICES)])


def test_random_days_with_devices_of_tenants_briefly() -> None:
    play(DeviceTenantDays, seeds.number("devices of tenants, briefly"), runs=4)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_random_days_with_devices_of_tenants() -> None:
    play(DeviceTenantDays, seeds.number("devices of tenants"), runs=5)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_random_days_with_devices_of_tenants_at_length(number: int) -> None:
    play(DeviceTenantDays, seeds.number(f"devices of tenants, at length {number}"), runs=200)
