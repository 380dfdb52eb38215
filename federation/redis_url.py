"""A URL of Redis: of one server, of sentinels that know the master, or of a cluster.

    redis://user:secret@host:6379/0?…                            one server
    unix:///path/redis.sock?…                                    one server of this machine
    redis+sentinel://user:secret@one:26379,two:26379/service?…   the master that the sentinels name
    redis+cluster://user:secret@one:6379,two:6379?…              a cluster, by some of its nodes

`rediss` in the place of `redis` means TLS, on the way to the sentinels too. User and secret are those of the servers. What may
stand after the `?` are options of a connection in redis-py's own words, `ssl_ca_certs=/path/ca.pem` and `db=1` among them;
`sentinel_username` and `sentinel_password` are for sentinels that ask for one of their own.
"""

from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import unquote, urlsplit

from federation.errors import ConfigError

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")


class Form(str, Enum):
    """How the servers stand to each other."""

    SINGLE = "single"
    """One server, which may have replicas that nobody here knows of."""
    SENTINEL = "sentinel"
    """A master that sentinels watch and replace."""
    CLUSTER = "cluster"
    """Several masters that share the keys."""


#: Where nobody says.
_PORTS = {Form.SENTINEL: 26_379, Form.CLUSTER: 6_379}


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisUrl:
    """A URL, taken apart as far as redis-py does not do it itself. Of one server only `form` is told."""

    form: Form
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""  #: The name under which the sentinels know the master.
    username: str = ""
    password: str = field(default="", repr=False)
    connection: str = field(default="", repr=False)  #: A URL without hosts, for redis-py: TLS or not, and the options.


def read_redis_url(url: str) -> RedisUrl:
    """Take the URL apart.

    Raises:
        ConfigError: It is none; the words do not repeat it, for it may hold a password.
    """
    try:
        parts = urlsplit(url)
        transport, _, form = parts.scheme.partition("+")
        if parts.scheme not in SCHEMES:
            raise ConfigError(f"must begin with {', '.join(f'{scheme}://' for scheme in SCHEMES[:-1])} or {SCHEMES[-1]}://")
        if not form:
            return RedisUrl(form=Form.SINGLE)
        user, _, hosts = parts.netloc.rpartition("@")
        name, _, secret = user.partition(":")
        service = unquote(parts.path.strip("/"))
        if Form(form) is Form.SENTINEL and not service:
            raise ConfigError(f"must name the service that the sentinels watch: {parts.scheme}://host:26379,host:26379/SERVICE")
        return RedisUrl(
            form=Form(form),
            hosts=tuple(_host_of(host, _PORTS[Form(form)]) for host in hosts.split(",")),
            service=service,
            username=unquote(name),
            password=unquote(secret),
            connection=f"{transport}://?{parts.query}",
        )
    except ValueError:  # A port that is no number, a bracket that is never closed.
        raise ConfigError("must be a URL whose hosts are written host:port,host:port") from None


def _host_of(host: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ConfigError("must name at least one host: host:port,host:port")
    return parts.hostname, parts.port or port
