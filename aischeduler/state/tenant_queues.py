"""The table of tenant queues: which one a name means, and its ancestors.

Invariants:
- Of two objects of one name, that of our own kind counts.
- A chain begins at the queue itself and ends at its root, or where a parent is missing or comes again.
- What is kept of chains is dropped with every change.
"""

from collections.abc import Iterable

from aischeduler.model.tenant_queue import DEFAULT_QUEUE, LEVELS_MAX, QueueSource, QueueState, TenantQueue
from aischeduler.state.ledger import QUEUE, Account

Chain = tuple[TenantQueue, ...]
"""A queue and its ancestors, the root last."""


class TenantQueues:
    """The queues by name. `served` says whether the API server serves a kind of queues, as far as that is known."""

    def __init__(self) -> None:
        self.version = 0
        self.served = False
        self.in_force = False
        """Whether names of queues mean something: there are queues, or there could be."""
        self.kept: dict[str, object] = {}
        """What callers keep until a queue changes."""
        self.open: set[str] = set()
        """Queues that take pods, as far as they and their ancestors say; until a queue changes."""
        self._by_name: dict[str, TenantQueue] = {}
        self._objects: dict[str, dict[QueueSource, TenantQueue]] = {}
        self._chains: dict[str, Chain] = {}
        self._accounts: dict[tuple[str, str], tuple[Account, ...]] = {}

    def serve(self, *, served: bool) -> None:
        """Note whether the API server serves a kind of queues."""
        self.served = served
        self.in_force = served or bool(self._objects)

    def see(self, queue: TenantQueue) -> bool:
        """Store a queue as it is now; return whether that changed something."""
        objects = self._objects.setdefault(queue.name, {})
        if objects.get(queue.source) == queue:
            return False
        objects[queue.source] = queue
        self._changed(queue.name)
        return True

    def forget(self, source: QueueSource, name: str) -> bool:
        """Remove a queue; return whether there was one."""
        objects = self._objects.get(name, {})
        if objects.pop(source, None) is None:
            return False
        if not objects:
            del self._objects[name]
        self._changed(name)
        return True

    def get(self, name: str) -> TenantQueue | None:
        """Return the queue that a name means; None where there is none."""
        return self._by_name.get(name)

    def names(self) -> tuple[str, ...]:
        """Return the names of all queues, sorted."""
        return tuple(sorted(self._objects))

    def objects(self) -> tuple[TenantQueue, ...]:
        """Return all objects, also those that another one of their name hides, sorted."""
        return tuple(self._objects[name][source] for name in self.names() for source in sorted(self._objects[name]))

    @property
    def default(self) -> str:
        """The name of the queue of pods that name none; empty where there is no such queue of our own kind."""
        return DEFAULT_QUEUE if QueueSource.OWN in self._objects.get(DEFAULT_QUEUE, {}) else ""

    def chain(self, name: str) -> Chain:
        """Return the queue of this name and its ancestors; empty where there is none."""
        found = self._chains.get(name)
        if found is None:
            chain: list[TenantQueue] = []
            queue = self.get(name)
            while queue is not None and queue not in chain and len(chain) < LEVELS_MAX:
                chain.append(queue)
                queue = self.get(queue.parent) if queue.parent else None
            found = self._chains[name] = tuple(chain)
        return found

    def accounts(self, name: str, card: str) -> tuple[Account, ...]:
        """Return the accounts in which pods of the queue of this name count, on nodes with this card."""
        key = name, card
        found = self._accounts.get(key)
        if found is None:
            found = self._accounts[key] = tuple((QUEUE, queue.name, card) for queue in self.chain(name))
        return found

    def problem(self, queue: TenantQueue) -> str:
        """Return why a queue takes nothing new although its own spec is right: its ancestors; empty where it may."""
        chain = self.chain(queue.name)
        last = chain[-1]
        if not last.parent:
            return ""
        if self.get(last.parent) is None:
            missing = "does not exist"
            return f"its parent {last.parent} {missing}" if last.name == queue.name else _through(last, missing)
        if len(chain) == LEVELS_MAX:
            return f"it has more than {LEVELS_MAX - 1} ancestors"
        return f"its ancestors form a cycle: {' -> '.join((*(member.name for member in chain), last.parent))}"

    def state_of(self, chain: Chain) -> tuple[QueueState, str]:
        """Return the strictest state of a queue and its ancestors, and the name of the queue that has it."""
        for state in (QueueState.DRAINING, QueueState.CLOSED):
            for queue in chain:
                if queue.state is state:
                    return state, queue.name
        return QueueState.OPEN, chain[0].name

    def below(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return these queues and all queues below one of them, sorted."""
        above = set(names)
        return tuple(name for name in self.names() if any(queue.name in above for queue in self.chain(name)))

    def _changed(self, name: str) -> None:
        self.version += 1
        self.in_force = self.served or bool(self._objects)
        self._chains.clear()
        self._accounts.clear()
        self.kept.clear()
        self.open.clear()
        objects = self._objects.get(name, {})
        counts = next((objects[source] for source in QueueSource if source in objects), None)
        if counts is None:
            self._by_name.pop(name, None)
        else:
            self._by_name[name] = counts


def _through(ancestor: TenantQueue, what: str) -> str:
    return f"the parent {ancestor.parent} of its ancestor {ancestor.name} {what}"
