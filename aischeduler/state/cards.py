"""The card types of the nodes, and the nodes that are closed because their type is rare.

Invariants:
- Nodes with the same cards share one `CardKind`, so that a question costs per kind and not per node.
- What is kept is built from labels, the memory of GPUs, pools and rules, and built again when one of them changes.
- Without rare types every question about them is answered by one check.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from cachetools import LRUCache

from aischeduler.model.card_shares import Memories
from aischeduler.model.card_types import MPS_PREFIX, card_names, covered_names, is_card, shortest
from aischeduler.model.names import GPU_DEFAULT, GPU_TYPE_LABELS
from aischeduler.model.pool import Pool
from aischeduler.model.selectors import Labels
from aischeduler.state.kept import StatePart, Versions, reading
from aischeduler.state.label_index import LabelIndex, Mask, Rows

if TYPE_CHECKING:
    from aischeduler.state.node_table import NodeTable

GPU_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
"""The label with the memory of a card in MiB."""
GPU_REPLICAS_LABEL: Final = "nvidia.com/gpu.replicas"
MIB_PER_GIB: Final = 1024
MASKS_MAX: Final = 256
"""The most lists of types whose masks are kept; beyond that all are dropped and built again."""
READ_FOR_KINDS: Final = reading(StatePart.LABELS, StatePart.GPU_MEMORIES)
READ_FOR_UNNAMED: Final = reading(StatePart.LABELS, StatePart.OFFERED)
READ_FOR_MASKS: Final = reading(StatePart.LABELS, StatePart.POOLS, StatePart.CARDS)
_ANY: Final = "*"


@dataclass(frozen=True)
class CardKind:
    """The names of the cards of a node, the full name of the first label first; none where it has no card."""

    names: tuple[str, ...] = ()
    label: str = ""
    """The shortest name of the first label, under which its cards are counted."""
    share: str = ""
    """How the node shares its cards by MPS, as `/mps-18g*1/8`; empty where it says nothing of that."""
    gpu_memories: Memories = ()
    """The memory of its GPUs, each size once; none where it has no Device object."""

    @property
    def card(self) -> str:
        """The full name of its card, with how it is shared; empty where it has none."""
        return f"{self.names[0]}{self.share}" if self.names else ""

    @cached_property
    def covered(self) -> frozenset[str]:
        """The names by which the cards may be rare."""
        return frozenset(name for card_type in self.names for name in covered_names(card_type))

    def closed_to(self, types: tuple[str, ...], rare: frozenset[str]) -> frozenset[str]:
        """Return the names by which the cards are rare; none where a pod that names these types names one of them."""
        found = self.covered & rare
        named = (
            any(card_type in self.names and not found.isdisjoint(covered_names(card_type)) for card_type in types)
            if found
            else False
        )
        return frozenset() if named else found


def kind_of(labels: Labels, keys: tuple[str, ...]) -> CardKind:
    """Return the kind of a node with these labels; a key of a type may have a `*`."""
    found = [card_names(labels[key]) for key in _present(labels, keys)]
    first = next(filter(None, found), ())
    names = dict.fromkeys(name for names in found for name in names)
    return CardKind(tuple(names), shortest(first) if first else "", _share_of(labels) if names else "")


def _share_of(labels: Labels) -> str:
    """Return how a node says that MPS shares its cards: the memory of a card in GiB, and the number of shares.

    Source: gpu-feature-discovery, and the names of capacity-card.
    """
    memory, replicas = labels.get(GPU_MEMORY_LABEL, ""), labels.get(GPU_REPLICAS_LABEL, "")
    if not (memory.isdecimal() and replicas.isdecimal() and int(replicas) > 1):
        return ""
    return f"{MPS_PREFIX}{(int(memory) + MIB_PER_GIB // 2) // MIB_PER_GIB}g*1/{int(replicas)}"


def _present(labels: Mapping[str, object], keys: tuple[str, ...]) -> list[str]:
    """Return the labels among these keys, in the order of the keys; those of one key with a `*` by name."""
    found: list[str] = []
    for key in keys:
        head, star, tail = key.partition(_ANY)
        if star:
            long = len(head) + len(tail)
            found += sorted(
                label for label in labels if label.startswith(head) and label.endswith(tail) and len(label) > long
            )
        elif key in labels:
            found.append(key)
    return found


class Cards:
    """Rules for cards: the labels that have their types, and the types that are rare everywhere or in one pool."""

    def __init__(
        self,
        keys: tuple[str, ...] = GPU_TYPE_LABELS,
        rare: tuple[str, ...] = (),
        resources: tuple[str, ...] = (GPU_DEFAULT,),
    ) -> None:
        self._keys, self._resources = keys, resources
        self._rare = frozenset(rare)
        self._rare_in: dict[int, frozenset[str]] = {}
        self.rare = bool(rare)
        """Whether any type is rare anywhere."""
        self._lends: set[int] = set()
        """The pools that lend nodes of rare types."""
        self.version = 0
        self._labels: LRUCache[tuple[str, ...], str] = LRUCache(MASKS_MAX)
        """Values of labels of types -> the name under which such cards are counted."""
        self._kinds: tuple[CardKind, ...] = (CardKind(),)
        self._numbers: Rows = np.zeros(0, dtype=np.intp)
        self._numbers_made_from: Versions = ()
        self._unnamed: Mask | None = None
        self._unnamed_made_from: Versions = ()
        self._masks: dict[tuple[str, ...] | int | None, Mask] = {}
        self._masks_made_from: Versions = ()

    @property
    def rare_by_pool(self) -> bool:
        """Whether a pool has rare types of its own, so that a node that changes its pool may open or close."""
        return bool(self._rare_in)

    def see_pool(self, number: int, pool: Pool | None) -> bool:
        """Note the rare types of a pool, None where it is gone; return whether they changed."""
        rare = frozenset(pool.rare_types) if pool is not None else frozenset()
        lends = pool is not None and pool.lend_rare_types
        if rare == self._rare_in.get(number, frozenset()) and lends == (number in self._lends):
            return False
        self.version += 1
        self._rare_in.pop(number, None)
        self._lends.discard(number)
        if rare:
            self._rare_in[number] = rare
        self.rare = bool(self._rare or self._rare_in)
        if lends:
            self._lends.add(number)
        return True

    def kinds(self, nodes: "NodeTable") -> tuple[tuple[CardKind, ...], Rows]:
        """Return all kinds, and per row the number of its kind; the caller must not change them."""
        versions = READ_FOR_KINDS(nodes)
        if versions != self._numbers_made_from:
            self._kinds, self._numbers = self._read_kinds(nodes)
            self._numbers_made_from = versions
        return self._kinds, self._numbers

    def unnamed(self, nodes: "NodeTable") -> Mask | None:
        """Return a mask of the rows that have cards and do not say which, None where there are none.

        The caller must not change it.
        """
        kinds, numbers = self.kinds(nodes)
        versions = READ_FOR_UNNAMED(nodes)
        if versions != self._unnamed_made_from:
            columns = [at for name, at in nodes.columns.items() if is_card(name, self._resources)]
            nameless = np.array([not kind.label for kind in kinds], dtype=np.bool_)
            mask: Mask = nameless[numbers] & ((nodes.allocatable[columns] > 0).any(axis=0) | (nodes.devices.gpus > 0))
            self._unnamed = mask if mask.any() else None
            self._unnamed_made_from = versions
        return self._unnamed

    def gpu_memories(self, nodes: "NodeTable") -> Memories:
        """Return the memory of all GPUs that are known, each size once."""
        if not nodes.devices.active:
            return ()
        return tuple(sorted({memory for kind in self.kinds(nodes)[0] for memory in kind.gpu_memories}))

    def label_of(self, labels: Labels) -> str:
        """Return the name under which the cards of a node with these labels are counted; empty where it has none."""
        present = tuple(labels[key] for key in _present(labels, self._keys))
        if present not in self._labels:
            self._labels[present] = kind_of(labels, self._keys).label
        return self._labels[present]

    def card_on(self, nodes: "NodeTable", row: int) -> str:
        """Return the card of a row by which quotas count (see `CardKind.card`); empty where it has none."""
        kinds, numbers = self.kinds(nodes)
        return kinds[int(numbers[row])].card

    def named(self, nodes: "NodeTable", types: tuple[str, ...]) -> Rows:
        """Return per row how far left among `types` the first one is that its cards have: 0 where they have none."""
        places = {card_type: len(types) - at for at, card_type in enumerate(types)}
        kinds, numbers = self.kinds(nodes)
        best = np.array([max((places.get(name, 0) for name in kind.names), default=0) for kind in kinds], dtype=np.intp)
        return best[numbers]

    def closed(self, nodes: "NodeTable", types: tuple[str, ...]) -> Mask:
        """Return a mask of the rows whose rare type a pod that names these types does not name."""
        return self._kept(nodes, types, lambda kind, rare: bool(kind.closed_to(types, rare)))

    def not_lent(self, nodes: "NodeTable") -> Mask | None:
        """Return a mask of the rows of a rare type that their pools do not lend; None where nothing is rare."""
        if not self.rare:
            return None
        return self._kept(nodes, None, lambda kind, rare: not kind.covered.isdisjoint(rare))

    def closed_to_home(self, nodes: "NodeTable", home: int) -> Mask | None:
        """Return a mask of the rows of a rare type that other pools do not lend to this one; None where none is rare.

        The caller must not change it.
        """
        not_lent = self.not_lent(nodes)
        if not_lent is None:
            return None
        found = self._masks.get(home)
        if found is None:
            found = self._masks[home] = not_lent & (nodes.pool != home)
        return found

    def rare_among(self, nodes: "NodeTable", rows: Rows, types: tuple[str, ...]) -> Counter[str]:
        """Return the rare types that close these rows to a pod that names these types, with their numbers of rows.

        A row counts for the shortest of its rare names.
        """
        (kinds, numbers), (rules, of_row) = self.kinds(nodes), self._rules(nodes)
        pairs, counts = np.unique(of_row[rows] * len(kinds) + numbers[rows], return_counts=True)
        found: Counter[str] = Counter()
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            names = kinds[pair % len(kinds)].closed_to(types, rules[pair // len(kinds)])
            if names:
                found[shortest(names)] += count
        return found

    def known(self, nodes: "NodeTable") -> tuple[str, ...]:
        """Return the names of the cards of all nodes, sorted."""
        return tuple(sorted({name for kind in self.kinds(nodes)[0] for name in kind.names}))

    def _kept(
        self, nodes: "NodeTable", key: tuple[str, ...] | None, closed: Callable[[CardKind, frozenset[str]], bool]
    ) -> Mask:
        versions = READ_FOR_MASKS(nodes)
        if versions != self._masks_made_from:
            self._masks.clear()
            self._masks_made_from = versions
        found = self._masks.get(key)
        if found is None:
            if len(self._masks) >= MASKS_MAX:
                self._masks.clear()
            found = self._masks[key] = self._mask(nodes, closed)
            if key is None and self._lends:
                found &= ~np.isin(nodes.pool, list(self._lends))
        return found

    def _mask(self, nodes: "NodeTable", closed: Callable[[CardKind, frozenset[str]], bool]) -> Mask:
        """Return a mask of the rows whose kind is closed by the rule of their pool, in one step for all pools."""
        (kinds, numbers), (rules, of_row) = self.kinds(nodes), self._rules(nodes)
        table = np.array([[closed(kind, rule) for kind in kinds] for rule in rules], dtype=np.bool_)
        mask: Mask = table[of_row, numbers]
        return mask

    def _rules(self, nodes: "NodeTable") -> tuple[tuple[frozenset[str], ...], Rows]:
        """Return the sets of rare types, and per row the number of the set that holds in its pool."""
        rules = tuple(dict.fromkeys((self._rare, *(self._rare | rare for rare in self._rare_in.values()))))
        of_pool = np.zeros(2 + max((int(nodes.pool.max()), *self._rare_in)), dtype=np.intp)  # the last is for no pool
        for pool, rare in self._rare_in.items():
            of_pool[pool] = rules.index(self._rare | rare)
        of_row: Rows = of_pool[nodes.pool]
        return rules, of_row

    def _read_kinds(self, nodes: "NodeTable") -> tuple[tuple[CardKind, ...], Rows]:
        """Read the kinds from labels; rows whose labels of cards are equal have one kind."""
        labels: LabelIndex = nodes.labels
        codes = np.zeros(nodes.width, dtype=np.intp)
        sharing = [key for key in (GPU_MEMORY_LABEL, GPU_REPLICAS_LABEL) if labels.has_key(key)]
        for key in (*_present(labels.keys(), self._keys), *sharing):
            numbers = labels.numbers(key)
            codes = np.unique(codes * (int(numbers.max()) + 2) + numbers + 1, return_inverse=True)[1].reshape(-1)
        codes = codes * len(nodes.devices.memories) + nodes.devices.memory_numbers
        _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
        kinds = tuple(self._kind_on(nodes, row) for row in first.tolist())
        return kinds, numbers.reshape(-1)

    def _kind_on(self, nodes: "NodeTable", row: int) -> CardKind:
        node, memories = nodes.nodes[row], nodes.devices.memories_on(row)
        kind = CardKind() if node is None else kind_of(node.labels, self._keys)
        return replace(kind, gpu_memories=memories) if memories else kind
