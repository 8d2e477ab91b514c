"""Models that multiply by a factor, and a desk that publishes them to a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tconv.artifact import Artifact, list_files
from tconv.export.config import ConfigOptions, render_config
from tconv.export.publish import PublishRequest, opened
from tconv.export.repository import export_version
from tconv.export.triton import LocalTriton
from tconv.report import Batching, Prepared
from tconv.spec import Signature, parse_tensor
from tconv.validate.samples import Check, Pool, SampleIndex, SampleStore
from tconv.validate.server import TritonRunner

SIGNATURE = Signature((parse_tensor("x:float32[batch,3]"),), (parse_tensor("y:float32[batch,3]"),))


class Desk:
    """Builds models called `m` and publishes them to one server over `served`."""

    signature = SIGNATURE

    def __init__(self, folder: Path, server: LocalTriton, served: Path) -> None:
        self.folder, self.server, self.served = folder, server, served
        self.count = 0

    @property
    def state(self) -> Path:
        return self.served.parent / f".{self.served.name}.tconv"

    def build(self, factor: float, truth: float | None = None, **options: Any) -> PublishRequest:
        """Export y = factor·x somewhere, beside samples of y = truth·x."""
        self.count += 1
        place = self.folder / str(self.count)
        artifact = write_model(place / "artifact", factor)
        config = render_config(
            "m", artifact, "onnxruntime_onnx", Batching(4), ConfigOptions(**options), 1
        )
        version = export_version(place / "models", "m", artifact, place / "artifact", config)
        return PublishRequest(
            str(version),
            str(write_samples(place / "samples", truth or factor)),
            Prepared("m", "python", "torch", SIGNATURE, Batching(4)),
            str(self.served),
            url=self.server.grpc_url,
            http_url=self.server.http_url,
            load_timeout=30,
            request_timeout=10,
        )

    def site(self) -> Any:
        return opened(str(self.served), self.server.grpc_url, 30, 10)

    def answers(self, server: LocalTriton | None = None) -> float:
        """The factor that a server multiplies by."""
        artifact = Artifact("onnx", "r", (), SIGNATURE)
        url = (server or self.server).grpc_url
        with TritonRunner(url, "m", "", artifact, batched=True) as runner:  # type: ignore[arg-type]
            return float(runner({"x": np.ones((1, 3), np.float32)})["y"][0, 0])

    def tree(self) -> dict[str, bytes]:
        """Every file of the repository and of the records."""
        files = [p for root in (self.served, self.state) for p in root.rglob("*") if p.is_file()]
        return {str(p): p.read_bytes() for p in files}


def write_model(folder: Path, factor: float) -> Artifact:
    folder.mkdir(parents=True)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 3]) for n in "xy"]
    constant = numpy_helper.from_array(np.float32(factor), "c")
    node = helper.make_node("Mul", ["x", "c"], ["y"])
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [constant])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return Artifact("onnx", "r", list_files(folder), SIGNATURE)


def write_samples(folder: Path, factor: float) -> Path:
    store = SampleStore(folder)
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    store.write("p", "in", {0: x})
    store.write("p", "out", {0: x * np.float32(factor)})
    checks = (Check("p", None, "batch 4"), Check("p", (3,), "one row alone"))
    pools = (Pool("p", "ordinary", {"batch": 4}),)
    store.write_index(SampleIndex(SIGNATURE.inputs, SIGNATURE.outputs, pools, checks))
    return folder


@pytest.fixture
def desk(triton: Callable[..., LocalTriton], tmp_path: Path) -> Iterator[Desk]:
    """A desk of its own server over an empty repository."""
    served = tmp_path / "served" / "models"
    served.mkdir(parents=True)
    with triton(served, load=()) as server:
        yield Desk(tmp_path / "built", server, served)


@pytest.fixture
def write_request(tmp_path: Path) -> Callable[[PublishRequest], Path]:
    """Write a request for `publisher.py`."""

    def write(request: PublishRequest) -> Path:
        path = tmp_path / "request.json"
        path.write_bytes(msgspec.json.encode(request))
        return path

    return write
