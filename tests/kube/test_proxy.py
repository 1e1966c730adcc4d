import pytest

from aischeduler.kube.errors import AccessError
from aischeduler.kube.proxy import Proxy, proxy_of, proxy_of_environment

PROXY = "http://proxy.example:3128"


def chosen(host: str, no_proxy: str, port: int = 443) -> bool:
    """Say whether the proxy of the environment is used for this host."""
    return proxy_of_environment(True, host, port, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}) is not None


def test_https_and_http_servers_have_variables_of_their_own() -> None:
    both = {"HTTPS_PROXY": "http://s:1", "HTTP_PROXY": "http://p:2", "https_proxy": "http://small:3"}
    assert proxy_of_environment(True, "h.example", 443, both) == Proxy("s", 1)
    assert proxy_of_environment(False, "h.example", 80, both) == Proxy("p", 2)
    assert proxy_of_environment(True, "h.example", 443, {"HTTPS_PROXY": "", "https_proxy": "small"}) == Proxy(
        "small", 80
    )
    assert proxy_of_environment(True, "h.example", 443, {"HTTP_PROXY": "http://p:2"}) is None


@pytest.mark.parametrize(
    ("host", "no_proxy"),
    [
        ("api.example.com", "*"),
        ("api.example.com", "other, example.com"),
        ("api.example.com", ".example.com"),
        ("api.example.com", "*.example.com"),
        ("API.example.com", "api.EXAMPLE.com"),
        ("api.example.com", "api.example.com:443"),
        ("10.96.0.1", "10.96.0.0/12"),
        ("10.96.0.1", "10.96.0.1"),
        ("10.96.0.1", "10.96.0.1:443"),
        ("fd00::1", "fd00::/8"),
        ("fd00::1", "[fd00::1]:443"),
        ("fd00::1", "fd00:0::1"),
        ("localhost", ""),
        ("127.0.0.2", ""),
        ("::1", ""),
    ],
)
def test_no_proxy_means_what_client_go_reads_in_it(host: str, no_proxy: str) -> None:
    assert not chosen(host, no_proxy)


@pytest.mark.parametrize(
    ("host", "no_proxy"),
    [
        ("api.example.com", ""),
        ("api.example.com", " , "),
        ("example.com", ".example.com"),
        ("badexample.com", "example.com"),
        ("api.example.com", "api.example.com:8443"),
        ("10.96.0.1", "10.97.0.0/16"),
        ("10.96.0.1", "10.96.0.1:6443"),
        ("api.example.com", "10.96.0.0/12"),
        ("10.96.0.1", "nonsense/99"),
        ("10.96.0.1", ":443"),
    ],
)
def test_proxy_is_used_for_what_no_proxy_does_not_mean(host: str, no_proxy: str) -> None:
    assert chosen(host, no_proxy)


def test_name_and_password_of_a_proxy_are_sent_and_never_shown() -> None:
    proxy = proxy_of("http://me:p%40ss@proxy.example:3128", "config: cluster 'c': proxy-url")
    assert b"\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n" in proxy.request("h:443")
    assert str(proxy) == "http://proxy.example:3128 (config: cluster 'c': proxy-url)"
    assert "bWU6" not in repr(proxy)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("https://u:secret@p:1", "F names a proxy of the kind https://, and only http:// is supported"),
        ("socks5://p:1", "F names a proxy of the kind socks5://, and only http:// is supported"),
        ("http://p:99999", "F is not the address of a proxy"),
        ("http://", "F is not the address of a proxy"),
    ],
)
def test_proxy_that_cannot_be_used_is_refused_with_its_field(text: str, reason: str) -> None:
    with pytest.raises(AccessError) as caught:
        proxy_of(text, "F")
    assert str(caught.value) == reason
