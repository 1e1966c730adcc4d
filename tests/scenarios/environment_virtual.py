"""The virtual environment: a virtual cluster, new for each scenario, on a clock that only the scenario moves."""

import json
from collections.abc import Mapping

import msgspec

from aischeduler.config.schema import Config, EvictionWay
from aischeduler.daemon.configured_profile import profile_of
from aischeduler.model.names import SCHEDULER_NAME
from aischeduler.sandbox.controllers.kubelet import KubeletOptions
from aischeduler.sandbox.request import Request, request
from aischeduler.sandbox.watches import WatchStream
from tests import seeds
from tests.api_contract.world import Answer, Call, Json, encode
from tests.checked_scheduler import CheckedScheduler
from tests.scenarios.environment import DEFINITIONS, definitions
from tests.virtual.virtual_cluster import VirtualCluster
from tests.virtual.virtual_daemon import Network, VirtualDaemon

MOMENT_SECONDS = 0.05


class VirtualEnvironment:
    """An API server in process with the production engine on virtual time."""

    quiet_seconds = 60.0

    def __init__(self) -> None:
        self._cluster = VirtualCluster(0, KubeletOptions())
        self._scheduler: CheckedScheduler | None = None
        self._daemon: VirtualDaemon | None = None
        self._runs = 0
        self._saves = 0

    def begin(self) -> None:
        self._cluster = VirtualCluster(seeds.number("environment"), KubeletOptions(start_seconds=0.5, stop_seconds=1.0))
        self._runs = self._saves = 0
        for definition in definitions():
            assert self.request(Call("POST", DEFINITIONS, encode(definition))).status == 201
        self._daemon = self._start()

    def end(self) -> None:
        assert self._scheduler is not None
        self._scheduler.look(closely=True)

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def request(self, call: Call) -> Answer:
        answer = self._cluster.server.handle(_request(call), self._cluster.now)
        assert not isinstance(answer, WatchStream), call.url
        return Answer(answer.status, json.loads(answer.body))

    def watch(self, url: str) -> "VirtualStream":
        answer = self._cluster.server.handle(_request(Call("GET", url)), self._cluster.now)
        assert isinstance(answer, WatchStream), answer
        return VirtualStream(self._cluster, answer)

    def now(self) -> float:
        return self._cluster.now

    def pass_time(self, seconds: float = 0.0) -> None:
        self._cluster.run(max(seconds, MOMENT_SECONDS))

    def scheduler_now(self) -> float:
        return self.now()

    def rests(self, seen: Mapping[str, int]) -> bool:
        """Return True: the time that passes is longer than any backoff."""
        return True

    def restart_scheduler(self, **settings: object) -> None:
        assert self._daemon is not None
        self._saves += self._daemon.scheduler.net_saves()
        self._cluster.stop(self._daemon)
        self._daemon = self._start(**settings)

    def nodes_of_pools(self) -> dict[str, int]:
        assert self._daemon is not None
        return {summary.name: summary.nodes for summary in self._daemon.scheduler.summary()}

    def net_saves(self) -> int:
        assert self._daemon is not None
        return self._saves + self._daemon.scheduler.net_saves()

    def _start(self, **settings: object) -> VirtualDaemon:
        self._runs += 1
        config = msgspec.convert(settings, Config)
        self._scheduler = CheckedScheduler(profile_of(config), f"run{self._runs}", often=False)
        daemon = self._cluster.start(self._scheduler, SCHEDULER_NAME, Network(), seeds.random("environment"))
        daemon.honours_budgets = config.eviction is EvictionWay.EVICT
        return daemon


class VirtualStream:
    """A watch in process; time does not pass while it is read."""

    def __init__(self, cluster: VirtualCluster, stream: WatchStream) -> None:
        self._cluster = cluster
        self._stream = stream
        self._lines: list[bytes] = []

    @property
    def ended(self) -> bool:
        return self._stream.closed and not self._lines

    def next(self, seconds: float) -> Json | None:
        self._lines += self._stream.read(self._cluster.now)
        if not self._lines:
            return None
        event: Json = json.loads(self._lines.pop(0))
        return event

    def close(self) -> None:
        self._stream.close()


def _request(call: Call) -> Request:
    asked = request(call.method, call.url, call.body, call.content_type)
    return Request(asked.method, asked.path, asked.query, call.accept, asked.content_type, asked.body)
