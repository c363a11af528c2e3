"""Addresses, topics and stamps: what is read, what is refused, and in which words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desketch.errors import InputError, RunError
from desketch.integrations.mqtt.address import Address, Topics, client_of, tls_context
from desketch.integrations.mqtt.credentials import make_credentials
from desketch.integrations.mqtt.stamp import Stamp, Stamps


@pytest.mark.parametrize(
    ("url", "host", "port", "tls", "root"),
    [
        ("mqtts://broker.example:8883", "broker.example", 8883, True, "d"),
        ("mqtts://broker.example/my-run", "broker.example", 8883, True, "my-run"),
        ("mqtt://127.0.0.1", "127.0.0.1", 1883, False, "d"),
        ("mqtt://localhost:7/x", "localhost", 7, False, "x"),
        ("mqtt://[::1]:7", "::1", 7, False, "d"),
    ],
)
def test_addresses_are_read_and_written(url, host, port, tls, root):
    address = Address.parse(url)
    assert (address.host, address.port, address.tls, address.root) == (host, port, tls, root)
    assert Address.parse(address.url) == address


@pytest.mark.parametrize(
    "url", ["http://x", "broker:8883", "mqtts://", "mqtts://h:99999", "mqtts://h/a/b", "mqtts://h/a+", "mqtts://u:p@h"]
)
def test_other_addresses_are_refused(url):
    with pytest.raises(InputError, match=r"mqtts://|letters"):
        Address.parse(url)


def test_in_the_clear_only_here_or_on_purpose():
    with pytest.raises(InputError, match=r"in the clear.*--insecure"):
        Address.parse("mqtt://10.0.0.1")
    assert not Address.parse("mqtt://10.0.0.1", insecure=True).tls


def test_topics_name_their_client():
    topics = Topics("run")
    assert topics.sender(topics.replies(17)) == (17, "r")
    assert topics.sender(topics.presence(0)) == (0, "p")
    for foreign in ("other/1/r", "run/x/r", "run/-1/r", "run/1234567890/r", "run/²/r", topics.everybody, ""):
        assert topics.sender(foreign) is None


def test_credentials_say_who_a_client_is(tmp_path):
    make_credentials(tmp_path, "127.0.0.1", 2)
    assert client_of(tmp_path / "client-1", None) == client_of(tmp_path / "client-1", 1) == 1
    with pytest.raises(InputError, match="those of client 1, not of client 0"):
        client_of(tmp_path / "client-1", 0)
    with pytest.raises(InputError, match="names 'server', not a client"):
        client_of(tmp_path / "server", None)
    with pytest.raises(InputError, match="--client 0"):
        client_of(None, None)
    assert client_of(None, 5) == 5


def test_credentials_that_do_not_fit_are_refused_by_name(tmp_path):
    secure, clear = Address.parse("mqtts://h"), Address.parse("mqtt://127.0.0.1")
    with pytest.raises(InputError, match=r"ca\.pem"):
        tls_context(None, secure)
    with pytest.raises(InputError, match="keys/client-0"):
        tls_context(tmp_path, secure)
    with pytest.raises(InputError, match="uses none"):
        tls_context(tmp_path, clear)


def test_existing_keys_are_kept_and_a_wider_deployment_is_refused(tmp_path):
    make_credentials(tmp_path, "127.0.0.1", 1)
    before = (tmp_path / "client-0" / "key.pem").read_bytes()
    make_credentials(tmp_path, "127.0.0.1", 1)
    assert (tmp_path / "client-0" / "key.pem").read_bytes() == before
    assert (tmp_path / "client-0" / "key.pem").stat().st_mode & 0o077 == 0
    with pytest.raises(RunError, match="another deployment"):
        make_credentials(tmp_path, "127.0.0.1", 2)


@given(st.integers(0, 65535), st.integers(1, 32767))
def test_later_stamps_are_later_across_the_wrap(first, later):
    one, other = Stamp(b"ab", first), Stamp(b"ab", (first + later) % 65536)
    assert one.before(other)
    assert not other.before(one)
    assert not one.before(one)
    assert not one.before(Stamp(b"ac", other.serial))
    assert not one.before(None)


def test_stamps_count_and_come_apart_again():
    stamps = Stamps()
    (first, order), (second, empty) = Stamp.split(stamps.next() + b"order"), Stamp.split(stamps.next())
    assert (order, empty) == (b"order", b"")
    assert first.before(second)
    assert Stamp.split(b"abc") is None
