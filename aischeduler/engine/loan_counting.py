"""Loans of many pods at once, after rows changed their pools or after an exception."""

from collections import Counter

from aischeduler.engine.cluster import Cluster
from aischeduler.model.pod import PodSpec
from aischeduler.state.loans import Loan


def book_rows(cluster: Cluster, rows: list[int]) -> None:
    """Update the loans on rows that changed their pool, pods of one spec in one step."""
    changes: Counter[tuple[Loan, bytes]] = Counter()
    specs: dict[bytes, PodSpec] = {}
    for row in rows:
        pool = cluster.pool_of(row)
        for record in cluster.on_row(row):
            loan, spec = cluster.loan_in(record, pool), record.counted
            if loan == record.loan or spec is None:
                continue
            specs[spec.key] = spec
            if record.loan is not None:
                changes[record.loan, spec.key] -= 1
                cluster.ended_loans.add(record.loan)
            if loan is not None:
                changes[loan, spec.key] += 1
            cluster.turned.setdefault(record.pod.uid, record.loan)
            record.loan = loan
    for (loan, key), pods in changes.items():
        cluster.loans.count(loan, specs[key], pods)


def recount_loans(cluster: Cluster) -> None:
    """Count all loans again."""
    cluster.loans.clear()
    for record in cluster.records.values():
        record.loan = None
        if record.counted is not None:
            cluster.book(record)
