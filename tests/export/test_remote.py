from __future__ import annotations

import socket

import pytest

from tconv.errors import Unavailable, UsageProblem
from tconv.export.remote import RemoteTriton, grpc_address, http_address


@pytest.mark.parametrize(
    ("url", "grpc", "http"),
    [
        pytest.param("localhost:8001", "localhost:8001", "localhost:8000", id="plain"),
        pytest.param("grpc://host:9001/", "host:9001", "host:8000", id="scheme"),
        pytest.param("host", "host:8001", "host:8000", id="no port"),
        pytest.param("[::1]:8001", "[::1]:8001", "[::1]:8000", id="IPv6"),
    ],
)
def test_addresses(url: str, grpc: str, http: str) -> None:
    assert grpc_address(url) == grpc
    assert http_address(None, grpc) == http
    assert http_address("http://a:1", grpc) == "a:1"


def test_an_http_address_is_no_grpc_address() -> None:
    with pytest.raises(UsageProblem):
        grpc_address("http://localhost:8000")


@pytest.mark.parametrize(("listens", "said"), [(False, "reached"), (True, "in time")])
def test_a_server_that_does_not_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch, listens: bool, said: str
) -> None:
    monkeypatch.setattr("tconv.export.remote._QUICK", 0.5)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        if listens:
            sock.listen()
        with (
            RemoteTriton(f"127.0.0.1:{sock.getsockname()[1]}") as remote,
            pytest.raises(Unavailable, match=said),
        ):
            remote.require_control()
