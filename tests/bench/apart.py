"""Runs a function in a new interpreter, so that runs share no caches, garbage or peak of memory."""

from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import ParamSpec, TypeVar

from tests.bench.spec import VoidRunError

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")

WITHIN_SECONDS = 120.0


def apart(function: Callable[Arguments, Answer], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
    """Return the result of the function; the function, its arguments and its result are pickled.

    Raises VoidRunError if the function fails (the traceback is on standard error) or exceeds `WITHIN_SECONDS`.
    """
    fresh = get_context("spawn")
    here, there = fresh.Pipe(duplex=False)
    process = fresh.Process(target=_answer, args=(there, function, args, kwargs))
    process.start()
    there.close()
    try:
        if not here.poll(WITHIN_SECONDS):
            raise VoidRunError(f"the work did not end within {WITHIN_SECONDS:.0f} s")
        answer: Answer = here.recv()
    except EOFError:
        raise VoidRunError("the work failed") from None
    finally:
        process.kill()
        process.join()
        here.close()
    return answer


def _answer(
    there: Connection, function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    there.send(function(*args, **kwargs))
