"""Removes duplicates across shards of documents: an actor keeps what it has seen, and the calls on it run in order.

    schedulemesh submit examples/dedup/dedup.py:graph --id dedup-1

The shards are read and normalized on all meshes at once. The index is one process on one mesh, which gets them shard by shard.
"""

from __future__ import annotations

import hashlib

import dag

SHARDS = [
    ["The quick brown fox.", "A lazy dog."],
    ["a lazy  dog.", "Another text."],
    ["The quick brown fox. ", "another text.", "Something new."],
]


def normalized(texts: list[str]) -> list[str]:
    """Return the texts in lower case, with single spaces."""
    return [" ".join(text.lower().split()) for text in texts]


class Index:
    """Digests of all texts so far."""

    def __init__(self, digest_size: int = 8) -> None:
        self._seen: set[bytes] = set()
        self._digest_size = digest_size

    def keep_new(self, texts: list[str]) -> list[str]:
        """Return the texts that no call has seen before, and remember them."""
        new = []
        for text in texts:
            digest = hashlib.blake2b(text.encode(), digest_size=self._digest_size).digest()
            if digest not in self._seen:
                self._seen.add(digest)
                new.append(text)
        return new

    def size(self) -> int:
        """Return how many different texts there are."""
        return len(self._seen)


def graph() -> dict[str, dag.Node]:
    """Return the outputs of the graph: the new texts of each shard, and their number."""
    index = dag.actor(Index, retries=2).bind(digest_size=16)
    outputs = {f"shard-{number}": index.keep_new.bind(dag.bind(normalized, texts)) for number, texts in enumerate(SHARDS)}
    return {**outputs, "size": index.size.bind()}
