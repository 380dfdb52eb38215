"""Files of cached values: copies within the storage, each tenant's in a folder of the cache."""

from dag.result_cache import CacheEntry
from mesh.core.ids import NodeId, RunId, TenantPath
from mesh.core.values import StoredValue
from mesh.ray.worker.exporting import copied, remove_within


class CachedFiles:
    """`Copies` by fsspec.

    Args:
        storage_url: fsspec URL of the folder with the values of all runs.
    """

    def __init__(self, storage_url: str) -> None:
        self._storage_url = storage_url

    def to_run(self, entry: CacheEntry, run: RunId, node: NodeId) -> StoredValue:
        return copied(entry.value, source=folder_of(entry.tenant), target=run, name=node, storage_url=self._storage_url)

    def to_cache(self, value: StoredValue, run: RunId, tenant: TenantPath, name: str) -> StoredValue:
        return copied(value, source=run, target=folder_of(tenant), name=name, storage_url=self._storage_url)

    def delete(self, entry: CacheEntry) -> None:
        if entry.value.uri is not None:
            remove_within(self._storage_url, folder_of(entry.tenant), entry.value.uri)


def folder_of(tenant: TenantPath) -> RunId:
    """Return the name of the folder of a tenant's cache. No run has it: ids of runs contain no colon."""
    return RunId(f"cache:{tenant}")
