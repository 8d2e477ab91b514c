"""What the tests of architectures share: child processes that have transformers imported once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tconv.convert.registry import source_named
from tconv.process import Processes


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    pytest.importorskip("transformers")
    with Processes(source_named("transformers").preload) as running:
        yield running
