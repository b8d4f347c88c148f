"""Which hosts are this machine itself."""

import pytest

from tenuto.errors import ConfigurationError
from tenuto.runtime.addresses import is_loopback
from tenuto.runtime.config import load


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "[::1]",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "app.localhost",
        "App.LocalHost.",
    ],
)
def test_names_and_addresses_of_this_machine_are_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.2", "example.org", "notlocalhost", "localhost.org", "", "."]
)
def test_all_others_are_not(host: str) -> None:
    assert not is_loopback(host)


def test_a_server_on_a_name_of_this_machine_needs_no_key_as_its_requests_need_none() -> None:
    assert load({"host": "app.localhost"}).host == "app.localhost"
    with pytest.raises(ConfigurationError, match="an API key is required"):
        load({"host": "app.example.org"})
