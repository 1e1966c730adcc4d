"""A flood of scrapes: how often pages are encoded, and how old their numbers are."""

import asyncio
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Gauge

from aischeduler.observability.scrape_cache import KEPT_SECONDS, KEPT_SHARE, Form, ScrapeCache


@dataclass
class Numbers:
    """A number that the test sets, and a clock that moves when a page is encoded, or when the test says so."""

    number: int = 0
    seconds: float = 0.01
    """How long a page takes."""
    now: float = 100.0
    failure: Exception | None = None
    taken_at: list[float] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.gauge = Gauge("number", "A number", registry=self.registry)

    def take(self) -> None:
        self.taken_at.append(self.now)
        self.now += self.seconds
        if self.failure is not None:
            raise self.failure
        self.gauge.set(self.number)

    def cache(self) -> ScrapeCache:
        return ScrapeCache(self.registry, self.take, lambda: self.now)


def number_on(page: bytes) -> float:
    return float(page.removesuffix(b"# EOF\n").split()[-1])


async def test_first_scrape_has_the_numbers_of_now() -> None:
    numbers = Numbers(number=7)
    assert number_on(await numbers.cache().page(Form.TEXT)) == 7
    assert numbers.taken_at == [100.0]


async def test_page_is_kept_for_a_second_and_then_has_newer_numbers() -> None:
    numbers = Numbers(number=1)
    cache = numbers.cache()
    first = await cache.page(Form.TEXT)
    numbers.number = 2
    numbers.now = 100.0 + KEPT_SECONDS - 0.001
    assert await cache.page(Form.TEXT) is first
    numbers.now = 100.0 + KEPT_SECONDS
    assert number_on(await cache.page(Form.TEXT)) == 2
    assert len(numbers.taken_at) == 2


async def test_page_that_took_long_is_kept_ten_times_as_long() -> None:
    numbers = Numbers(seconds=0.5)
    cache = numbers.cache()
    await cache.page(Form.TEXT)
    numbers.now = 100.0 + KEPT_SHARE * 0.5 - 0.001
    await cache.page(Form.TEXT)
    assert numbers.taken_at == [100.0]
    numbers.now = 100.0 + KEPT_SHARE * 0.5
    await cache.page(Form.TEXT)
    assert numbers.taken_at == [100.0, 105.0]


async def test_flood_shares_one_page_of_each_form() -> None:
    numbers = Numbers()
    cache = numbers.cache()
    pages = await asyncio.gather(*(cache.page(form) for form in (Form.TEXT, Form.OPENMETRICS) * 50))
    assert len(numbers.taken_at) == 2
    assert len(set(map(id, pages))) == 2
    assert sum(page.endswith(b"# EOF\n") for page in pages) == 50


async def test_failure_is_raised_to_each_client_and_kept_as_a_page_is() -> None:
    numbers = Numbers(number=3, failure=ValueError("a bug"))
    cache = numbers.cache()
    answers = await asyncio.gather(*(cache.page(Form.TEXT) for _ in range(3)), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["a bug"] * 3
    assert len(numbers.taken_at) == 1
    numbers.failure = None
    numbers.now = 100.0 + KEPT_SECONDS
    assert number_on(await cache.page(Form.TEXT)) == 3


async def test_event_loop_runs_on_while_a_large_page_is_encoded() -> None:
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
