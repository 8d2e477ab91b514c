from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tconv.artifact import Artifact, list_files
from tconv.errors import PublishError, RollbackError, TconvError, Unavailable, UsageProblem
from tconv.export.config import ConfigOptions, render_config
from tconv.export.publish import PublishRequest, publish
from tconv.export.remote import RemoteTriton
from tconv.export.repository import export_version, versions_of
from tconv.export.triton import LocalTriton
from tconv.report import Batching, Prepared
from tconv.spec import Signature, parse_tensor
from tconv.validate.samples import Check, Pool, SampleIndex, SampleStore
from tconv.validate.server import TritonRunner

pytestmark = [pytest.mark.serve, pytest.mark.timeout(120)]

SIGNATURE = Signature(
    (parse_tensor("x:float32[batch,3]"), parse_tensor("k:float32[batch]")),
    (parse_tensor("y:float32[batch,3]"), parse_tensor("s:float32[batch]")),
)
PREPARED = Prepared("m", "python", "torch", SIGNATURE, Batching(4))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository that the server serves."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def server(triton: Callable[..., LocalTriton], served: Path) -> LocalTriton:
    return triton(served, load=())


def _model(folder: Path, factor: float) -> Artifact:
    """Write y = factor·x + 0·k and s = k."""
    folder.mkdir(parents=True)
    ends = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (
            ("x", ["batch", 3]),
            ("k", ["batch"]),
            ("y", ["batch", 3]),
            ("s", ["batch"]),
        )
    }
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "c"], ["y"]), helper.make_node("Identity", ["k"], ["s"])],
        "g",
        [ends["x"], ends["k"]],
        [ends["y"], ends["s"]],
        [numpy_helper.from_array(np.float32(factor), "c")],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return Artifact("onnx", "r", list_files(folder), SIGNATURE)


def _samples(folder: Path, factor: float) -> Path:
    """Write what a source that multiplies by `factor` answers."""
    store = SampleStore(folder)
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    k = np.arange(1, 5, dtype=np.float32)
    store.write("p", "in", {0: x, 1: k})
    store.write("p", "out", {0: x * np.float32(factor), 1: k})
    checks = (Check("p", None, "batch 4"), Check("p", (3,), "one row alone"))
    store.write_index(
        SampleIndex(
            SIGNATURE.inputs, SIGNATURE.outputs, (Pool("p", "ordinary", {"batch": 4}),), checks
        )
    )
    return folder


class Desk:
    """Builds models and publishes them to one server."""

    def __init__(self, folder: Path, server: LocalTriton, served: Path, name: str) -> None:
        self.folder, self.server, self.served, self.name = folder, server, served, name
        self.count = 0

    def build(self, factor: float, truth: float | None = None, **options: Any) -> PublishRequest:
        self.count += 1
        place = self.folder / str(self.count)
        artifact = _model(place / "artifact", factor)
        config = render_config(
            self.name,
            artifact,
            "onnxruntime_onnx",
            Batching(4),
            ConfigOptions(**options),
            1,
        )
        version = export_version(place / "models", self.name, artifact, place / "artifact", config)
        return self.request(version, _samples(place / "samples", truth or factor))

    def request(self, version: Path, samples: Path) -> PublishRequest:
        return PublishRequest(
            str(version),
            str(samples),
            PREPARED,
            str(self.served),
            url=f"grpc://{self.server.grpc_url}",
            http_url=f"http://{self.server.http_url}",
            load_timeout=30,
            request_timeout=5,
        )

    @property
    def model(self) -> Path:
        return self.served / self.name

    def answers(self) -> float | None:
        """The factor that the server multiplies by now."""
        with RemoteTriton(self.server.grpc_url) as remote:
            version = remote.ready().get(self.name)
        if version is None:
            return None
        artifact = Artifact("onnx", "r", (), SIGNATURE)
        with TritonRunner(
            self.server.grpc_url, self.name, version, artifact, batched=True
        ) as runner:
            feeds = {"x": np.ones((1, 3), np.float32), "k": np.ones(1, np.float32)}
            return float(runner(feeds)["y"][0, 0])


@pytest.fixture
def desk(tmp_path: Path, server: LocalTriton, served: Path, request: Any) -> Iterator[Desk]:
    name = request.node.originalname
    yield Desk(tmp_path, server, served, name)
    with RemoteTriton(server.grpc_url) as remote:
        remote.unload(name)  # every model costs two processes


def test_a_first_version_is_published_and_checked(desk: Desk) -> None:
    published = publish(desk.build(2.0))
    assert (published.version, published.previous) == (1, None)
    assert (
        published.checks == 10
    )  # one row and four, through gRPC and HTTP, then from three clients
    assert desk.answers() == 2.0


def test_publishing_again_changes_nothing(desk: Desk) -> None:
    request = desk.build(2.0)
    first = publish(request)
    again = publish(request)
    assert again.unchanged
    assert (again.version, again.previous) == (first.version, first.previous)
    assert versions_of(desk.model) == (1,)


def test_other_content_takes_the_place_of_the_old(desk: Desk) -> None:
    publish(desk.build(2.0))
    published = publish(desk.build(3.0))
    assert (published.version, published.previous) == (2, 1)
    assert desk.answers() == 3.0
    assert versions_of(desk.model) == (1, 2)


def test_a_smaller_batch_is_checked_at_its_own_largest(desk: Desk) -> None:
    assert publish(desk.build(2.0, max_batch_size=2)).checks == 10


def test_wrong_numbers_bring_the_old_version_back(desk: Desk) -> None:
    publish(desk.build(2.0))
    config = (desk.model / "config.pbtxt").read_bytes()
    with pytest.raises(PublishError, match=r"y.*differs.*[Vv]ersion 1 answers"):
        publish(desk.build(2.5, truth=3.0))
    assert desk.answers() == 2.0
    assert (desk.model / "config.pbtxt").read_bytes() == config
    assert versions_of(desk.model) == (1,)


def test_the_number_of_a_failed_version_is_not_used_again(desk: Desk) -> None:
    publish(desk.build(2.0))
    with pytest.raises(PublishError):
        publish(desk.build(2.5, truth=3.0))
    assert publish(desk.build(4.0)).version == 3


def test_a_model_that_does_not_load_brings_the_old_version_back(desk: Desk) -> None:
    publish(desk.build(2.0))
    request = desk.build(3.0)
    folder = desk.folder / "broken"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"no model")
    broken = Artifact("onnx", "r", list_files(folder), SIGNATURE)
    config = render_config(desk.name, broken, "onnxruntime_onnx", Batching(4), ConfigOptions(), 1)
    version = export_version(folder / "models", desk.name, broken, folder, config)
    with pytest.raises(PublishError, match=r"[Vv]ersion 1 answers"):
        publish(msgspec.structs.replace(request, source=str(version)))
    assert desk.answers() == 2.0


def test_a_config_that_does_not_load_brings_the_old_one_back(desk: Desk) -> None:
    request = desk.build(2.0)
    publish(request)
    path = Path(request.source).parent / "config.pbtxt"
    path.write_text(path.read_text().replace("TYPE_FP32", "TYPE_INT8"))
    with pytest.raises(TconvError, match="would break") as caught:
        publish(request)
    assert caught.value.exit_code == 1
    with pytest.raises(PublishError, match=r"[Vv]ersion 1 answers"):
        publish(msgspec.structs.replace(request, allow_contract_change=True))
    assert desk.answers() == 2.0
    assert versions_of(desk.model) == (1,)


def test_wrong_numbers_without_an_old_version_leave_nothing(desk: Desk) -> None:
    with pytest.raises(TconvError, match="differs") as caught:
        publish(desk.build(2.0, truth=3.0))
    assert caught.value.exit_code == 1
    assert desk.answers() is None
    assert not desk.model.exists()


def test_a_model_on_disk_that_was_not_loaded_stays_on_disk(desk: Desk) -> None:
    request = desk.build(2.0)
    shutil.copytree(Path(request.source).parent, desk.model)
    config = (desk.model / "config.pbtxt").read_bytes()
    with pytest.raises(TconvError, match="differs"):
        publish(desk.build(2.0 + 1, truth=9.0))
    assert (desk.model / "config.pbtxt").read_bytes() == config
    assert versions_of(desk.model) == (1,)


def test_a_version_built_where_it_is_served_is_not_copied(desk: Desk) -> None:
    for factor, number in ((2.0, 1), (3.0, 2)):
        built = desk.build(factor)
        artifact = _model(desk.folder / f"a{number}", factor)
        config = render_config(
            desk.name, artifact, "onnxruntime_onnx", Batching(4), ConfigOptions(), 1
        )
        version = export_version(
            desk.served, desk.name, artifact, desk.folder / f"a{number}", config
        )
        published = publish(msgspec.structs.replace(built, source=str(version)))
        assert (published.version, published.folder) == (number, str(version))
        assert desk.answers() == factor
    assert published.previous == 1
    wrong = desk.request(desk.model / "2", _samples(desk.folder / "s", 7.0))
    with pytest.raises(TconvError) as caught:  # what answers wrong was there before
        publish(wrong)
    assert caught.value.exit_code == 1
    assert versions_of(desk.model) == (1, 2)


def test_a_rollback_that_fails_asks_for_a_person(desk: Desk) -> None:
    publish(desk.build(2.0))
    (desk.model / "1" / "model.onnx").write_bytes(b"lost")
    # The new version fails only after the switch: over HTTP, at a port where nobody listens.
    request = msgspec.structs.replace(desk.build(2.5), http_url="127.0.0.1:1")
    with pytest.raises(RollbackError) as caught:
        publish(request)
    assert "--recover" in caught.value.remedy
    shutil.rmtree(desk.model / "1")


def test_a_repository_that_is_not_served_is_noticed(desk: Desk, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    request = msgspec.structs.replace(desk.build(2.0), repository=str(other))
    with pytest.raises(TconvError):
        publish(request)
    assert list(other.iterdir()) == []


def test_a_repository_that_is_not_there_is_not_made(desk: Desk, tmp_path: Path) -> None:
    request = msgspec.structs.replace(desk.build(2.0), repository=str(tmp_path / "other"))
    with pytest.raises(UsageProblem, match="no folder"):
        publish(request)
    assert not (tmp_path / "other").exists()


def test_a_server_that_is_not_there_changes_nothing(desk: Desk) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{sock.getsockname()[1]}"
        with pytest.raises(Unavailable, match="cannot be reached"):
            publish(msgspec.structs.replace(desk.build(2.0), url=url))
    assert not desk.model.exists()


def test_another_control_mode_is_refused(
    triton: Callable[..., LocalTriton], desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with triton(tmp_path / "other", model_control="none") as other:
        request = msgspec.structs.replace(
            desk.build(2.0), url=other.grpc_url, repository=str(tmp_path / "other")
        )
        with pytest.raises(UsageProblem) as caught:
            publish(request)
    assert "--model-control-mode=explicit" in caught.value.remedy
    assert list((tmp_path / "other").iterdir()) == []
