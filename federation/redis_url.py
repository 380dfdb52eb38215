"""URLs of Redis: one server, sentinels that know the master, or a cluster.

    redis://user:secret@host:6379/0?…                            one server
    unix:///path/redis.sock?…                                    one server on this machine
    redis+sentinel://user:secret@one:26379,two:26379/service?…   the master that the sentinels name
    redis+cluster://user:secret@one:6379,two:6379?…              a cluster, by some of its nodes

`rediss` instead of `redis` means TLS, also to the sentinels. User and secret are those of the servers. The part after `?` holds options
of a redis-py connection, such as `ssl_ca_certs=/path/ca.pem` and `db=1`. `sentinel_username` and `sentinel_password` are for sentinels
with credentials of their own.
"""

from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import unquote, urlsplit

from federation.errors import ConfigError

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")


class RedisForm(str, Enum):
    """Topology of the servers."""

    SINGLE = "single"
    """One server; it may have replicas that this project does not know."""
    SENTINEL = "sentinel"
    """A master that sentinels monitor and replace."""
    CLUSTER = "cluster"
    """Several masters that share the keys."""


#: Default ports.
_PORTS = {RedisForm.SENTINEL: 26_379, RedisForm.CLUSTER: 6_379}


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisUrl:
    """A URL, parsed as far as redis-py does not parse it. For one server only `form` is set."""

    form: RedisForm
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""  #: The sentinels' name for the master.
    username: str = ""
    password: str = field(default="", repr=False)
    connection: str = field(default="", repr=False)  #: URL without hosts for redis-py: with or without TLS, and the options.


def read_redis_url(url: str) -> RedisUrl:
    """Parse the URL.

    Raises:
        ConfigError: The URL is invalid; the message does not repeat the URL, because it may hold a password.
    """
    try:
        parts = urlsplit(url)
        transport, _, form = parts.scheme.partition("+")
        if parts.scheme not in SCHEMES:
            raise ConfigError(f"must begin with {', '.join(f'{scheme}://' for scheme in SCHEMES[:-1])} or {SCHEMES[-1]}://")
        if not form:
            return RedisUrl(form=RedisForm.SINGLE)
        user, _, hosts = parts.netloc.rpartition("@")
        name, _, secret = user.partition(":")
        service = unquote(parts.path.strip("/"))
        if RedisForm(form) is RedisForm.SENTINEL and not service:
            raise ConfigError(f"must name the service that the sentinels watch: {parts.scheme}://host:26379,host:26379/SERVICE")
        return RedisUrl(
            form=RedisForm(form),
            hosts=tuple(_host_of(host, _PORTS[RedisForm(form)]) for host in hosts.split(",")),
            service=service,
            username=unquote(name),
            password=unquote(secret),
            connection=f"{transport}://?{parts.query}",
        )
    except ValueError:  # A port that is not a number, or an unclosed bracket.
        raise ConfigError("must be a URL whose hosts are written host:port,host:port") from None


def _host_of(host: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ConfigError("must name at least one host: host:port,host:port")
    return parts.hostname, parts.port or port
