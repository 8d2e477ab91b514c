"""What `make demo` runs, run whole: gpt2 with 124 M parameters on a real server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.serve
@pytest.mark.timeout(900)
def test_the_demo_ends_with_three_lines_of_truth(tmp_path: Path) -> None:
    demo = [sys.executable, str(ROOT / "examples" / "demo.py")]
    done = subprocess.run(demo, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for target in ("torchscript", "onnx"):
        line = rf"^{target} +passed; the server agrees with PyTorch within (\S+) \(HTTP\) and (\S+)"
        found = re.search(line, done.stdout, re.MULTILINE)
        assert found is not None, done.stdout
        assert all(float(error) < 1e-4 for error in found.groups())
    assert re.search(r"^trt +(passed|preflight only)", done.stdout, re.MULTILINE), done.stdout
    assert "sequence" in done.stdout
    assert "input_ids 1x1 to 8x128" in done.stdout, "a profile over batch and sequence"
    assert "Warning" not in done.stderr
