"""The whole path through the command line: build, serve, publish, and asked as a client would."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tconv.export.triton import LocalTriton

from .conftest import StartTriton

pytestmark = [pytest.mark.serve, pytest.mark.timeout(300)]

MODEL = """
import torch

class Scorer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x, mask):
        y = torch.tanh(self.layer(x)) * SCALE
        return {{"scores": y * mask[:, None], "best": y.argmax(-1)}}

def create():
    torch.manual_seed(0)
    return Scorer(), {{"x": torch.randn(3, 8), "mask": torch.tensor([1.0, 0.0, 1.0])}}
"""


def _tconv(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tconv", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def _write_model(folder: Path, scale: float) -> None:
    (folder / "model.py").write_text(MODEL.replace("SCALE", str(scale)).format())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def server(triton: StartTriton, folder: Path) -> LocalTriton:
    served = folder / "served"
    served.mkdir()
    return triton(served, load=())


def _build(folder: Path, *more: str) -> dict[str, dict[str, object]]:
    done = _tconv(
        folder, "build", "model.py:create", "--targets", "torchscript,onnx", "--json", *more
    )
    assert done.returncode == 0, done.stderr
    return {target["target"]: target for target in json.loads(done.stdout)["targets"]}


def _publish(folder: Path, server: LocalTriton) -> subprocess.CompletedProcess[str]:
    urls = ["--url", server.grpc_url, "--http-url", server.http_url]
    return _tconv(folder, "publish", "create", "--repository", "served", *urls)


def _ask(server: LocalTriton, model: str, outputs: tuple[str, str]) -> dict[str, np.ndarray]:
    """Ask as a client does that knows nothing of tconv."""
    from tritonclient.http import InferenceServerClient, InferInput

    feeds = {"x": np.ones((2, 8), np.float32), "mask": np.ones((2, 1), np.float32)}
    with InferenceServerClient(server.http_url) as client:
        inputs = []
        for name, array in feeds.items():
            inputs.append(InferInput(name, array.shape, "FP32"))
            inputs[-1].set_data_from_numpy(array)
        answer = client.infer(model, inputs)
    return {name: answer.as_numpy(name) for name in outputs}


def test_two_builds_reach_a_client_one_after_the_other(folder: Path, server: LocalTriton) -> None:
    _write_model(folder, 1.0)
    first = _build(folder)
    assert str(first["onnx"]["exported"]).endswith("create_onnx/1")
    published = _publish(folder, server)
    assert published.returncode == 0, published.stderr
    assert "create_onnx version 1 answers right" in published.stdout
    before = _ask(server, "create_onnx", ("scores", "best"))
    wire = _ask(server, "create_torchscript", ("OUTPUT__0", "OUTPUT__1"))
    np.testing.assert_allclose(before["scores"], wire["OUTPUT__0"], rtol=1e-5)
    np.testing.assert_array_equal(before["best"].ravel(), wire["OUTPUT__1"].ravel())

    _write_model(folder, 2.0)
    assert str(_build(folder)["onnx"]["exported"]).endswith("create_onnx/2")
    published = _publish(folder, server)
    assert published.returncode == 0, published.stderr
    assert "create_onnx version 2 answers right" in published.stdout
    after = _ask(server, "create_onnx", ("scores", "best"))
    np.testing.assert_allclose(after["scores"], 2 * before["scores"], rtol=1e-5)


def test_publishing_the_same_again_adds_no_version(folder: Path, server: LocalTriton) -> None:
    versions = sorted(path.name for path in (folder / "served" / "create_onnx").iterdir())
    assert _publish(folder, server).returncode == 0
    assert sorted(p.name for p in (folder / "served" / "create_onnx").iterdir()) == versions


def test_a_stage_alone_works_on_what_the_one_before_left(folder: Path) -> None:
    again = _tconv(folder, "convert", "build/create", "--targets", "onnx")
    assert again.returncode == 3, again.stderr
    assert "not validated yet" in again.stdout
    judged = _tconv(folder, "validate", "build/create", "--tolerance", "1e-4")
    assert judged.returncode == 0, judged.stderr
    exported = _tconv(folder, "export", "build/create", "--repository", "elsewhere")
    assert exported.returncode == 0, exported.stderr
    assert (folder / "elsewhere" / "create_onnx" / "1" / "model.onnx").is_file()
    shown = _tconv(folder, "inspect", "elsewhere/create_onnx")
    assert "input  x:float32[batch=1..8,8]" in shown.stdout


def test_nothing_is_published_to_a_server_that_is_not_there(folder: Path) -> None:
    gone = _tconv(folder, "publish", "create", "--url", "127.0.0.1:1", "--repository", "served")
    assert gone.returncode == 3
    assert "127.0.0.1:1" in gone.stderr
    assert "Traceback" not in gone.stderr
