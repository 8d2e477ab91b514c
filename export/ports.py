"""The ports a local server listens on: checked, and chosen where any will do."""

from __future__ import annotations

import contextlib
import errno
import socket

import msgspec

from ..errors import UsageProblem


class Ports(msgspec.Struct, frozen=True):
    """Where a server listens; 0 is any free port."""

    http: int = 0
    grpc: int = 0
    metrics: int = 0


def claim(ports: Ports, host: str) -> Ports:
    """Return `ports` with free ones for the zeros, after checking that the others are free.

    Raises:
        UsageProblem: one is taken or cannot be used; the option that changes it is named.
    """
    with contextlib.ExitStack() as stack:
        claimed = {}
        # Held together until all are known, so that no port is given out twice.
        for name in sorted(Ports.__struct_fields__, key=lambda name: getattr(ports, name) == 0):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((host, getattr(ports, name)))
                sock.listen()  # only this makes a second bind to the port fail
            except (OSError, OverflowError) as error:
                raise _explain_port(name, getattr(ports, name), host, error) from error
            claimed[name] = sock.getsockname()[1]
        return Ports(**claimed)


def _explain_port(name: str, port: int, host: str, error: Exception) -> UsageProblem:
    option = f"--{name}-port"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return UsageProblem(
            f"Port {port} is taken already.",
            remedy=f"Stop what listens there, or choose another with {option}; 0 is any free one.",
        )
    return UsageProblem(
        f"Cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}.",
        remedy=f"Choose another port with {option}; 0 is any free one.",
    )
