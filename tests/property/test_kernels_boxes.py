"""The property tests of windows, joins and keyed boxes once more, with compiled kernels."""

from __future__ import annotations

import pytest

from tests.property.test_aggregate import (  # noqa: F401
    test_first_last_and_lists_go_by_event_time,
    test_sessions,
    test_windows_by_count,
    test_windows_on_a_grid,
)
from tests.property.test_boxes_keyed import test_dedup, test_latest  # noqa: F401
from tests.property.test_join import test_asof_join_with_ties, test_band_join  # noqa: F401

pytestmark = [
    pytest.mark.timeout(600),  # compiling takes seconds of CPU, the first time
    pytest.mark.xdist_group("kernels"),
    pytest.mark.usefixtures("compiled_kernels"),
]
