"""Many scrapes: how often pages are made, and how old their numbers are."""

import asyncio
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Gauge

from aischeduler.observability.scrape_cache import SHARE, Form, ScrapeCache


@dataclass
class Numbers:
    """A number that the test sets, and a clock that only sleeps and the encoding of pages move."""

    number: int = 0
    making_seconds: float = 0.125
    now: float = 100.0
    failure: Exception | None = None
    taken_at: list[float] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.gauge = Gauge("number", "A number", registry=self.registry)

    def take(self) -> None:
        self.taken_at.append(self.now)
        self.now += self.making_seconds
        if self.failure is not None:
            raise self.failure
        self.gauge.set(self.number)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)  # other clients request the page while it waits
        self.now += seconds

    def cache(self) -> ScrapeCache:
        return ScrapeCache(self.registry, self.take, lambda: self.now, self.sleep)


def number_on(page: bytes) -> float:
    return float(page.removesuffix(b"# EOF\n").split()[-1])


async def test_first_scrape_is_answered_at_once() -> None:
    numbers = Numbers(number=7)
    assert number_on(await numbers.cache().page(Form.TEXT)) == 7
    assert numbers.taken_at == [100.0]


async def test_successive_scrapes_have_newer_numbers_and_take_a_tenth_of_the_time() -> None:
    numbers = Numbers()
    cache = numbers.cache()
    for number in range(5):
        numbers.number = number
        assert number_on(await cache.page(Form.TEXT)) == number
    assert numbers.taken_at == [100.0 + 0.125 * SHARE * number for number in range(5)]


async def test_scrape_after_a_pause_does_not_wait() -> None:
    numbers = Numbers()
    cache = numbers.cache()
    await cache.page(Form.TEXT)
    numbers.now = 130.0
    await cache.page(Form.TEXT)
    assert numbers.taken_at == [100.0, 130.0]


async def test_waiting_clients_share_the_next_page() -> None:
    numbers = Numbers()
    cache = numbers.cache()
    await cache.page(Form.TEXT)
    pages = await asyncio.gather(*(cache.page(Form.TEXT) for _ in range(100)))
    assert len(numbers.taken_at) == 2
    assert len(set(map(id, pages))) == 1


async def test_numbers_are_never_older_than_the_request() -> None:
    numbers = Numbers(number=1)
    cache = numbers.cache()
    first = asyncio.create_task(cache.page(Form.TEXT))
    while not numbers.taken_at:
        await asyncio.sleep(0)
    numbers.now += 0.001
    numbers.number = 2
    assert number_on(await cache.page(Form.TEXT)) == 2
    assert number_on(await first) == 1


async def test_both_formats_together_take_a_tenth_of_the_time() -> None:
    numbers = Numbers()
    cache = numbers.cache()
    asked = [cache.page(form) for form in (Form.TEXT, Form.OPENMETRICS) * 20]
    pages = await asyncio.gather(*asked)
    assert sum(page.endswith(b"# EOF\n") for page in pages) == 20
    assert numbers.taken_at == [100.0 + 0.125 * SHARE * number for number in range(3)]


async def test_pages_that_fail_keep_within_their_share_of_the_time() -> None:
    numbers = Numbers(failure=ValueError("a bug"))
    cache = numbers.cache()
    asked = await asyncio.gather(*(cache.page(Form.TEXT) for _ in range(3)), return_exceptions=True)
    assert [str(answer) for answer in asked] == ["a bug"] * 3
    assert numbers.taken_at == [100.0 + 0.125 * SHARE * number for number in range(3)]


async def test_event_loop_continues_while_a_large_page_is_encoded() -> None:
    registry = CollectorRegistry()
    many = Gauge("many", "Many samples", ("which",), registry=registry)
    for which in range(20_000):
        many.labels(str(which)).set(which)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    counting = asyncio.create_task(count_turns())
    page = await ScrapeCache(registry, lambda: None).page(Form.OPENMETRICS)
    counting.cancel()
    assert page.count(b"\nmany{") == 20_000
    assert turns >= 5
