"""What is true of every integration test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.local_runs import end_what_was_started


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    """End what a test has started and, having failed, not ended."""
    yield
    end_what_was_started()
