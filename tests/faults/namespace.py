"""Network namespace with one link, which can be cut like a cable: packets vanish silently. Root on Linux only."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
from functools import cache
from ipaddress import IPv4Network
from pathlib import Path

#: Addresses for network benchmarks (RFC 2544), unused by the machine. Four for each namespace.
_ADDRESSES = IPv4Network("198.18.0.0/15")
_PREFIX_BITS = 30
_CLONE_NEWNET = 0x40000000
_KEPT = Path("/run/netns")
_numbers = itertools.count()


class Namespace:
    """Network namespace from construction to `close`; processes inside reach servers of this side at `address`."""

    def __init__(self) -> None:
        number = next(_numbers)
        self.name = f"sm{os.getpid()}n{number}"
        self._outer = f"{self.name}o"
        blocks = 2 ** (_PREFIX_BITS - _ADDRESSES.prefixlen)
        here, there = IPv4Network((int(_ADDRESSES[0]) + (os.getpid() * 16 + number) % blocks * 4, _PREFIX_BITS)).hosts()
        self.address = str(here)
        _ip("netns", "add", self.name)
        try:
            _ip("link", "add", self._outer, "type", "veth", "peer", "name", "way", "netns", self.name)
            _ip("address", "add", f"{here}/{_PREFIX_BITS}", "dev", self._outer)
            _ip("link", "set", self._outer, "up")
            for device, address in (("lo", None), ("way", there)):
                if address is not None:
                    _ip("-n", self.name, "address", "add", f"{address}/{_PREFIX_BITS}", "dev", device)
                _ip("-n", self.name, "link", "set", device, "up")
        except BaseException:
            self.close()
            raise

    def cut(self, is_cut: bool = True) -> None:
        """Lose all packets until the link is mended."""
        _ip("link", "set", self._outer, "down" if is_cut else "up")

    def close(self) -> None:
        """Remove it; processes inside keep it alive for themselves."""
        _ip("netns", "delete", self.name)


def enter(name: str) -> None:
    """Move this process and its future children into the namespace; call it before threads exist.

    Raises:
        OSError: No such namespace, or this process is not root.
    """
    with (_KEPT / name).open("rb") as kept:
        if ctypes.CDLL(None, use_errno=True).setns(kept.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")


@cache
def are_possible() -> bool:
    """Return whether this process may create namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    try:
        Namespace().close()
    except subprocess.CalledProcessError:
        return False
    return True


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
