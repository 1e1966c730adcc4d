"""A flood of scrapes: how often pages are written, and how old the numbers are that they tell."""

import asyncio
from dataclasses import dataclass, field

from aischeduler.observability.exposition import Family, Form
from aischeduler.observability.families import gauge
from aischeduler.observability.scrapes import SHARE, Scrapes


@dataclass
class Numbers:
    """A number that the test sets, and a clock that only sleeping and the writing of pages move."""

    number: int = 0
    writing_seconds: float = 0.125
    now: float = 100.0
    taken_at: list[float] = field(default_factory=list)

    def collect(self) -> list[Family]:
        self.taken_at.append(self.now)
        number = self.number
        self.now += self.writing_seconds
        return [gauge("number", "A number", [({}, number)])]

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)  # who asks now asks while the page waits for its time
        self.now += seconds

    def scrapes(self) -> Scrapes:
        return Scrapes(self.collect, lambda: self.now, self.sleep)


def told(page: bytes) -> float:
    return float(page.removesuffix(b"# EOF\n").split()[-1])


async def test_first_scrape_is_told_at_once() -> None:
    numbers = Numbers(number=7)
    assert told(await numbers.scrapes().page(Form.TEXT)) == 7
    assert numbers.taken_at == [100.0]


async def test_scrapes_one_after_the_other_each_tell_newer_numbers_a_tenth_of_the_time() -> None:
    numbers = Numbers()
    scrapes = numbers.scrapes()
    for number in range(5):
        numbers.number = number
        assert told(await scrapes.page(Form.TEXT)) == number
    assert numbers.taken_at == [100.0 + 0.125 * SHARE * number for number in range(5)]


async def test_scrape_after_a_rest_does_not_wait() -> None:
    numbers = Numbers()
    scrapes = numbers.scrapes()
    await scrapes.page(Form.TEXT)
    numbers.now = 130.0
    await scrapes.page(Form.TEXT)
    assert numbers.taken_at == [100.0, 130.0]


async def test_flood_shares_the_page_that_waits_to_be_written() -> None:
    numbers = Numbers()
    scrapes = numbers.scrapes()
    await scrapes.page(Form.TEXT)
    pages = await asyncio.gather(*(scrapes.page(Form.TEXT) for _ in range(100)))
    assert len(numbers.taken_at) == 2
    assert len(set(map(id, pages))) == 1


async def test_numbers_are_never_older_than_the_question() -> None:
    numbers = Numbers(number=1)
    scrapes = numbers.scrapes()
    first = asyncio.create_task(scrapes.page(Form.TEXT))
    while not numbers.taken_at:
        await asyncio.sleep(0)
    numbers.now += 0.001
    numbers.number = 2
    assert told(await scrapes.page(Form.TEXT)) == 2
    assert told(await first) == 1


async def test_both_forms_together_are_written_a_tenth_of_the_time() -> None:
    numbers = Numbers()
    scrapes = numbers.scrapes()
    asked = [scrapes.page(form) for form in (Form.TEXT, Form.OPENMETRICS) * 20]
    pages = await asyncio.gather(*asked)
    assert sum(page.endswith(b"# EOF\n") for page in pages) == 20
    assert numbers.taken_at == [100.0 + 0.125 * SHARE * number for number in range(3)]


async def test_pages_that_fail_keep_to_their_share_of_the_time_too() -> None:
    numbers = Numbers()

    def fail() -> list[Family]:
        numbers.collect()
        raise ValueError("a bug")

    scrapes = Scrapes(fail, lambda: numbers.now, numbers.sleep)
    asked = await asyncio.gather(*(scrapes.page(Form.TEXT) for _ in range(3)), return_exceptions=True)
    assert [str(answer) for answer in asked] == ["a bug"] * 3
    assert numbers.taken_at == [100.0 + 0.125 * SHARE * number for number in range(3)]
