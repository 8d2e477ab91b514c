"""What several folders of tests share: real servers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tconv.errors import MissingExtra
from tconv.export.installation import find_server
from tconv.export.triton import LocalTriton

StartTriton = Callable[..., LocalTriton]


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartTriton]:
    """Start a real server over a repository: `triton(folder, load=...)`; all stop at the end."""
    try:
        server = find_server()
    except MissingExtra as error:
        pytest.skip(str(error))
    with contextlib.ExitStack() as stack:

        def start(repository: Path, **options: Any) -> LocalTriton:
            log = tmp_path_factory.mktemp("triton") / "server.log"
            running = stack.enter_context(LocalTriton(server))
            return running.start(repository, **{"log": log, **options})

        yield start
