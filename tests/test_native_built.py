"""That the kernels were compiled at all."""

from __future__ import annotations

import os
import shutil

import pytest

from ropewalk.rotation import native


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler here")
def test_a_compiler_means_compiled_kernels():
    """An error in the C++ makes the package install as plain Python, and the rest is skipped."""
    assert native.kernels() is not None or os.environ.get("ROPEWALK_NATIVE") == "none"
