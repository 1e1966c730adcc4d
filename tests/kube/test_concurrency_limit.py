from heapq import heappop, heappush

from aischeduler.kube.concurrency_limit import BACKLOG_MIN, INITIAL, PERIOD_SECONDS, REST_PERIODS, ConcurrencyLimit


class Server:
    """A server that answers after `seconds`, at most `per_second` requests, and a client that keeps it busy."""

    def __init__(self, limit: int, first: int = INITIAL) -> None:
        self.now = 0.0
        self.limit = ConcurrencyLimit(limit, lambda: self.now, first)
        self.sizes: list[int] = []
        self._under_way: list[tuple[float, float]] = []
        self._free_at = 0.0

    def crowded(self) -> "Server":
        """Report a backlog."""
        self.limit.note_backlog()
        return self

    def work(
        self, seconds: float, per_second: float, lasts: float, *, more_waits: bool = True, luck: int = 0
    ) -> list[int]:
        """Keep as many requests in flight as the limit allows; return the limit after each answer.

        With `luck`, one in so many answers is as fast as without load.
        """
        end, sizes = self.now + lasts, list[int]()
        while self.now < end:
            while len(self._under_way) < self.limit.size:
                self._free_at = max(self.now, self._free_at) + 1 / per_second
                heappush(self._under_way, (self._free_at + seconds, self.now))
            at, began = heappop(self._under_way)
            self.now = max(self.now, at)
            lucky = luck and len(sizes) % luck == 0
            self.limit.record_answer(seconds if lucky else self.now - began, more_waits=more_waits)
            sizes.append(self.limit.size)
        return sizes


def test_few_waiting_pods_get_fewer_connections_than_a_backlog() -> None:
    limit = ConcurrencyLimit(256, lambda: 0.0)
    assert limit.size == INITIAL
    assert limit.note_backlog()
    assert limit.size == BACKLOG_MIN
    assert not limit.note_backlog()


def test_backlog_does_not_lower_a_limit_that_has_grown_for_a_distant_server() -> None:
    server = Server(limit=256)
    assert server.work(seconds=0.2, per_second=5000, lasts=10)[-1] == 256
    assert not server.limit.note_backlog()
    assert server.limit.size == 256


def test_busy_server_nearby_gets_more_requests_only_in_trials() -> None:
    sizes = Server(limit=256).crowded().work(seconds=0.003, per_second=800, lasts=60)
    assert set(sizes) == {BACKLOG_MIN, 2 * BACKLOG_MIN}
    assert sizes.count(BACKLOG_MIN) > 0.85 * len(sizes)


def test_busy_server_with_some_fast_answers_gets_no_trial() -> None:
    sizes = Server(limit=256).crowded().work(seconds=0.003, per_second=800, lasts=60, luck=50)
    assert set(sizes) == {BACKLOG_MIN}


def test_distant_server_gets_as_many_as_allowed_within_seconds() -> None:
    server = Server(limit=200)
    assert server.work(seconds=0.2, per_second=5000, lasts=4)[-1] == 200


def test_distant_server_gets_as_many_as_soon_after_an_idle_period() -> None:
    server = Server(limit=200)
    server.now = 60.0
    assert server.work(seconds=0.2, per_second=5000, lasts=4)[-1] == 200


def test_distant_server_gets_enough_requests_to_be_busy_and_few_more() -> None:
    sizes = Server(limit=1000).crowded().work(seconds=0.2, per_second=400, lasts=60)
    later = sizes[len(sizes) // 2 :]
    assert sorted(later)[len(later) // 2] == 128
    assert max(later) == 256


def test_limit_shrinks_again_when_the_server_is_fast_again() -> None:
    server = Server(limit=256).crowded()
    server.work(seconds=0.2, per_second=5000, lasts=10)
    sizes = server.work(seconds=0.003, per_second=800, lasts=6 * 2 * REST_PERIODS * PERIOD_SECONDS)
    assert sizes[0] == 256
    assert sizes[-1] in (BACKLOG_MIN, 2 * BACKLOG_MIN)


def test_limit_stays_while_few_requests_wait() -> None:
    sizes = Server(limit=256).work(seconds=0.2, per_second=5000, lasts=10, more_waits=False)
    assert set(sizes) == {INITIAL}


def test_maximum_below_the_initial_limit_holds() -> None:
    sizes = Server(limit=7).work(seconds=0.2, per_second=5000, lasts=10)
    assert set(sizes) == {7}


def test_smaller_initial_limit_grows_only_where_throughput_rises() -> None:
    near, far = Server(limit=96, first=24), Server(limit=96, first=24)
    assert set(near.work(seconds=0.003, per_second=800, lasts=60)) == {24, 48}
    assert far.work(seconds=0.2, per_second=5000, lasts=10)[-1] == 96


def test_server_that_is_only_slow_keeps_no_higher_limit() -> None:
    sizes = Server(limit=96, first=24).work(seconds=0.5, per_second=40, lasts=300)
    assert sizes.count(24) > 0.8 * len(sizes)


def test_changed_maximum_holds_at_once_and_the_limit_stays_at_least_initial() -> None:
    limit = ConcurrencyLimit(256, lambda: 0.0)
    assert not limit.set_limit(5)
    assert limit.size == 5
    assert limit.set_limit(7)
    assert limit.size == 7
    assert limit.set_limit(200)
    assert limit.size == INITIAL


def test_maximum_below_the_backlog_limit_holds_for_a_backlog_too() -> None:
    sizes = Server(limit=100).crowded().work(seconds=0.003, per_second=800, lasts=60)
    assert set(sizes) == {100}
