"""Which addresses are public: by tables of our own, whatever the interpreter says."""

import socket

import pytest

from quire.errors import SourceRefused
from quire.fetch.items import SourceOptions
from quire.fetch.network import is_allowed, is_public, resolve

#: The table of the security review, first what it found refused, then what it found let through.
OF_THE_REVIEW = (
    "::1", "::", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::7f00:1", "2002:7f00:1::",
    "fe80::1", "fd00:ec2::254", "2001:0:7f00:1::", "2001:db8::1",
    "::127.0.0.1", "fec0::1", "::ffff:0:127.0.0.1", "64:ff9b:1::a9fe:a9fe", "2600::5efe:7f00:1",
    "5f00::1", "3fff::1", "100:0:0:1::1",
)  # fmt: skip
OTHERS = (
    "::8.8.8.8", "::ffff:0:8.8.8.8", "64:ff9b:1::808:808", "64:ff9b:1:a9fe:a9:fe00:808:808",
    "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "2002:a00:1::", "2600::200:5efe:a00:1",
    "2002:808:808::5efe:7f00:1", "2001:0:808:808::", "2001:10::1", "2001:2::1", "ff02::1",
    "fe80::1%eth0", "fdff::1", "100::1", "4000::1", "::ffff:100.64.0.1", "2001:db8::1",
    "0.0.0.1", "10.1.2.3", "100.100.100.200", "127.255.255.255", "168.63.129.16",
    "169.254.169.254", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
    "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.7", "224.0.0.1",
    "240.0.0.1", "255.255.255.255",
)  # fmt: skip
PUBLIC = (
    "8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1",
    "192.0.1.1", "198.17.255.255", "198.20.0.0", "223.255.255.255", "168.63.129.15",
    "2606:4700:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888", "2001:200::1",
    "2002:808:808::1", "64:ff9b::808:808", "::ffff:8.8.8.8", "2600::5efe:808:808", "3ffe::1",
)  # fmt: skip


@pytest.mark.parametrize("address", [*OF_THE_REVIEW, *OTHERS])
def test_an_address_that_is_or_may_lead_to_a_private_one_is_not_public(address):
    assert not is_public(address)
    assert not is_allowed(address, SourceOptions())


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_public(address):
    assert is_public(address)


def test_what_is_public_does_not_hang_on_the_tables_of_the_interpreter(monkeypatch):
    import ipaddress

    for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        monkeypatch.setattr(kind, "is_global", True)
        monkeypatch.setattr(kind, "is_private", False)
    assert not any(map(is_public, [*OF_THE_REVIEW, *OTHERS]))


@pytest.mark.parametrize("host", ["::127.0.0.1", "fec0::1", "::ffff:0:127.0.0.1"])
def test_a_host_of_such_an_address_is_refused_before_anything_is_connected(host):
    if not socket.has_ipv6:
        pytest.skip("this interpreter has no IPv6")
    with pytest.raises(SourceRefused, match="private address"):
        resolve(host, 80, SourceOptions())
