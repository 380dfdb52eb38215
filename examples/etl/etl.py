"""Visits of a web shop: find out which days there are, count each day's pages, and merge the counts.

How many days there are is known at run time only. Each of `load` and `clean` is one node of the graph, however many days there are.
"""

from __future__ import annotations

import random
from collections import Counter

import dag

PAGES = ("home", "search", "product", "basket", "checkout")


def list_days(month: str, days: int) -> list[str]:
    """Return the days of the month that have a log."""
    return [f"{month}-{day:02d}" for day in range(1, days + 1)]


def load(day: str, visits: int) -> list[str]:
    """Return the visited pages of a day: made up here, read from a file elsewhere."""
    chosen = random.Random(day)  # noqa: S311  made-up data, the same in each attempt
    return [chosen.choice([*PAGES, "robots.txt"]) for _ in range(visits)]


def clean(pages: list[str]) -> dict[str, int]:
    """Count the pages of a day, without the visits of robots."""
    return dict(Counter(page for page in pages if page in PAGES))


def merge(counts: list[dict[str, int]]) -> dict[str, int]:
    """Add counts of pages."""
    merged: Counter[str] = Counter()
    for each in counts:
        merged.update(each)
    return dict(merged)


def report(counts: dict[str, int]) -> str:
    """Return the pages by number of visits."""
    return ", ".join(f"{page} {counts[page]}" for page in sorted(counts, key=lambda page: -counts[page]))


def graph() -> dict[str, dag.Node]:
    """Return the workflow; its outputs are the report and the counts by day."""
    days = dag.bind(list_days, "2026-11", 30)
    logs = dag.map(dag.task(load, retries=2), days, 1_000)
    by_day = dag.map(clean, logs)
    return {"report": dag.bind(report, dag.reduce(merge, by_day, arity=8)), "days": by_day}
