"""Which addresses are of the public internet. Pure: the registries of special addresses are the source."""

import pytest

from tenuto.tools.egress import Egress, is_public, problem_of_addresses, problem_of_port


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",  # shared by a provider's customers
        "169.254.169.254",  # metadata of most clouds
        "168.63.129.16",  # and of Azure
        "192.0.0.192",  # and of Oracle
        "100.100.100.200",  # and of Alibaba
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "2606:4700::1%eth0",
        "fc00::1",
        "fd00:ec2::254",  # metadata of AWS
        "ff02::1",
        "2001:db8::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",  # Teredo
        "5f00::1",
        "100::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:0:127.0.0.1",
        "::127.0.0.1",
        "::8.8.8.8",
        "64:ff9b::a00:1",  # NAT64 of 10.0.0.1
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "2002:7f00:1::1",  # 6to4 of 127.0.0.1
        "2002:a9fe:a9fe::1",  # 6to4 of 169.254.169.254
    ],
)
def test_an_address_that_is_not_of_the_internet_is_not_public(address: str) -> None:
    assert not is_public(address)
    assert problem_of_addresses(Egress.PUBLIC, [address]) is not None
    assert problem_of_addresses(Egress.ALL, [address]) is None


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "172.32.0.1",
        "100.128.0.1",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
    ],
)
def test_an_address_of_the_internet_is_public_also_within_another(address: str) -> None:
    assert is_public(address)
    assert problem_of_addresses(Egress.PUBLIC, [address]) is None


def test_a_host_with_one_address_inside_is_refused_without_a_word_of_which() -> None:
    problem = problem_of_addresses(Egress.PUBLIC, ["8.8.8.8", "10.9.8.7"])
    assert problem is not None
    assert "10.9.8.7" not in problem
    assert "--egress public" in problem


def test_nothing_is_called_where_egress_is_off() -> None:
    assert problem_of_addresses(Egress.OFF, ["8.8.8.8"]) is not None


@pytest.mark.parametrize(("port", "allowed"), [(80, True), (443, True), (8080, True), (22, False), (25, False)])
def test_ports_of_other_protocols_are_refused(port: int, allowed: bool) -> None:
    assert (problem_of_port(Egress.PUBLIC, port) is None) is allowed
    assert problem_of_port(Egress.ALL, port) is None
