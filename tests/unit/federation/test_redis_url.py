"""Parsing of Redis URLs."""

import pytest

from federation.errors import ConfigError
from federation.redis_url import SCHEMES, RedisForm, RedisUrl, read_redis_url


@pytest.mark.parametrize("url", ["redis://host", "rediss://u:p@host:1/0?ssl_ca_certs=/ca.pem", "unix:///run/redis.sock"])
def test_single_server_url_is_left_to_redis_py(url):
    assert read_redis_url(url) == RedisUrl(form=RedisForm.SINGLE)


def test_sentinels_are_named_with_the_service_that_they_watch():
    assert read_redis_url("redis+sentinel://root:s%40cret@one:26380,two,[::1]:7/my%20leases?db=2") == RedisUrl(
        form=RedisForm.SENTINEL,
        hosts=(("one", 26_380), ("two", 26_379), ("::1", 7)),
        service="my leases",
        username="root",
        password="s@cret",
        connection="redis://?db=2",
    )


def test_cluster_url_names_nodes_and_tls():
    assert read_redis_url("rediss+cluster://one,two:7000?ssl_ca_certs=/ca.pem") == RedisUrl(
        form=RedisForm.CLUSTER, hosts=(("one", 6_379), ("two", 7_000)), connection="rediss://?ssl_ca_certs=/ca.pem"
    )


@pytest.mark.parametrize(
    ("url", "words"),
    [
        pytest.param("localhost:6379", "must begin with redis://", id="no scheme"),
        pytest.param("http://host", "must begin with redis://", id="another scheme"),
        pytest.param("unix+sentinel://host/leases", "must begin with redis://", id="a form that does not exist"),
        pytest.param("redis+sentinel://host:26379", "must name the service", id="sentinels without a service"),
        pytest.param("redis+cluster://", "must name at least one host", id="a cluster without nodes"),
        pytest.param("redis+cluster://one,,two", "must name at least one host", id="an empty host"),
        pytest.param("redis+cluster://one:seven", "host:port", id="a port that is no number"),
        pytest.param("redis+cluster://[::1", "host:port", id="an unclosed bracket"),
    ],
)
def test_invalid_redis_url_is_refused_without_repeating_it(url, words):
    with pytest.raises(ConfigError, match=words) as raised:
        read_redis_url(url.replace("://", "://root:secret@", 1) if "+" in url else url)
    assert "secret" not in str(raised.value)


def test_every_scheme_is_read():
    for scheme in SCHEMES:
        assert read_redis_url(f"{scheme}://host/path").form.value == (scheme.partition("+")[2] or "single")
