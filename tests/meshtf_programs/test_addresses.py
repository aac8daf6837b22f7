"""Addresses of hosts and ports: read, compared, written; and why a text is none."""

from __future__ import annotations

import pytest

from meshtf_programs.addresses import Address, AddressFault, bare_host


@pytest.mark.parametrize(("text", "host", "port"), [
    ("a:4000", "a", 4000),
    ("n1.cluster.local:1", "n1.cluster.local", 1),
    ("node_7:65535", "node_7", 65535),
    ("10.0.0.1:4040", "10.0.0.1", 4040),
    ("[::1]:4040", "::1", 4040),
    ("[2001:db8::1]:80", "2001:db8::1", 80),
    ("[2001:DB8:0:0::1]:80", "2001:db8::1", 80),
    ("[fe80::1%eth0]:80", "fe80::1%eth0", 80),
    ("[::ffff:10.0.0.1]:80", "::ffff:a00:1", 80),
])  # fmt: skip
def test_what_is_read_is_written_again(text: str, host: str, port: int) -> None:
    """A second reading gives the same; an IPv6 address has brackets and its shortest form."""
    address = Address.from_text(text)
    assert (address.host, address.port) == (host.replace("::ffff:a00:1", bare_host("::ffff:10.0.0.1")), port)
    assert Address.from_text(str(address)) == address == Address(f"[{host}]" if ":" in host else host, port)
    assert str(address).startswith("[") == (":" in host)


@pytest.mark.parametrize(("text", "words"), [
    ("b", "one is a host and a port"),
    ("b:", "one is a host and a port"),
    ("b:four", "one is a host and a port"),
    ("b:٤٠", "one is a host and a port"),
    (":4000", "'' is not a host name"),
    ("b:0", "port 0 is not between 1 and 65535"),
    ("b:65536", "port 65536 is not between"),
    ("b c:4000", "'b c' is not a host name"),
    ("me@b:4000", "'me@b' is not a host name"),
    ("a:b:4000", "'a:b' is no IPv6 address, nor a host without a port"),
    ("[b]:4000", "'b' is no IPv6 address"),
    ("[::1:4000", "no IPv6 address"),
    ("[::12345]:4000", "'::12345' is no IPv6 address"),
    ("[[::1]]:4000", "'[::1]' is no IPv6 address"),
    ("::1", "write an IPv6 address in brackets before its port"),
    ("::1:4000", "write an IPv6 address in brackets before its port"),
    ("2001:db8::1:4040", "write an IPv6 address in brackets before its port"),
    (4000, "one is a host and a port"),
])  # fmt: skip
def test_what_is_no_address_is_refused_with_the_remedy(text: str, words: str) -> None:
    with pytest.raises(AddressFault) as raised:
        Address.from_text(text)
    assert words in str(raised.value)
    assert str(raised.value).startswith(f"{text!r} is no address: ")
    assert '"[2001:db8::1]:4000" of IPv6' in str(raised.value)
