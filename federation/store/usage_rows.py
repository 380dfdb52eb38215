"""Stored forms of the accounting of use, as `lua/lib_usage.lua` and `lua/usage_write.lua` have them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from federation.usage.records import Account, Amounts, Holding, Reckoning, RowKey, Sums, UsageEntry, UsageState
from mesh.core.ids import FlavorName, StageId, TenantPath
from mesh.core.wire import decode, encode

_HOLDING, _RECKONING = "holding|", "reckoning|"


def entry_of(entry: str, fields: Mapping[bytes, bytes]) -> UsageEntry:
    """Return the entry of the stream with these fields."""
    tenant, _, flavor = fields[b"lease"].decode().partition("|")
    held = fields.get(b"held")
    return UsageEntry(
        entry=entry,
        at_ms=int(fields[b"at"]),
        stage=StageId(fields[b"stage"].decode()),
        tenant=TenantPath(tenant),
        flavor=FlavorName(flavor),
        user=fields[b"user"].decode(),
        held=None if held is None else _amounts_of(held),
        lost=_amounts_of(fields.get(b"lost", b"")),
    )


def amounts_row(amounts: Amounts) -> str:
    """Return amounts as JSON with the numbers as text, because Lua would round them."""
    return json.dumps({resource: str(units) for resource, units in amounts.items()})


def _amounts_of(row: bytes) -> dict[str, int]:
    return {resource: int(units) for resource, units in json.loads(row).items()} if row else {}


def state_of(fields: Mapping[bytes, bytes]) -> UsageState:
    """Return the state from the fields of its hash."""
    named = {name.decode(): row for name, row in fields.items()}
    return UsageState(
        version=int(named.get("version", 0)),
        cursor=named.get("cursor", b"0-0").decode(),
        holdings={StageId(name.removeprefix(_HOLDING)): decode(Holding, row) for name, row in named.items() if name.startswith(_HOLDING)},
        reckonings={
            _account_of(name.removeprefix(_RECKONING)): decode(Reckoning, row) for name, row in named.items() if name.startswith(_RECKONING)
        },
    )


def holding_field(stage: StageId, holding: Holding | None) -> tuple[str, bytes]:
    """Return the name and the value of the field of a claim; an empty value: the claim has ended."""
    return f"{_HOLDING}{stage}", b"" if holding is None else encode(holding)


def reckoning_field(account: Account, reckoning: Reckoning | None) -> tuple[str, bytes]:
    """Return the name and the value of the field of an account; an empty value: it has no claim."""
    return f"{_RECKONING}{account.tenant}|{account.flavor}", b"" if reckoning is None else encode(reckoning)


def _account_of(name: str) -> Account:
    tenant, _, flavor = name.partition("|")
    return Account(TenantPath(tenant), FlavorName(flavor))


def row_name(key: RowKey) -> str:
    """Return the name of a row in the hash of its day."""
    return json.dumps([key.tenant, key.user, key.flavor, key.resource], ensure_ascii=False, separators=(",", ":"))


def row_key(day: int, name: bytes) -> RowKey:
    """Return the key of a row of the day."""
    tenant, user, flavor, resource = json.loads(name)
    return RowKey(day, TenantPath(tenant), user, FlavorName(flavor), resource)


def sums_row(sums: Sums) -> str:
    """Return the sums of a row as text: they may exceed the integers of the server."""
    return "|".join(map(str, sums))


def sums_of(row: bytes) -> Sums:
    """Return the sums of a row."""
    return Sums(*map(int, row.split(b"|")))
