"""What each release of Triton ships."""

from __future__ import annotations

import pytest

from tconv.errors import UsageProblem
from tconv.export.releases import RELEASES, find_release, release_of_server


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_a_release_is_found_by_its_name_and_by_its_server(release) -> None:
    assert find_release(release.name) is release
    assert release_of_server(release.server) is release


def test_what_a_release_ships() -> None:
    release = release_of_server("2.51.0")
    assert (release.name, release.onnxruntime, release.tensorrt) == ("24.10", "1.19.2", "10.5.0.18")
    assert (release.onnx.ir, release.onnx.opset) == (10, 21)


def test_releases_follow_one_another() -> None:
    names = [release.name for release in RELEASES]
    servers = [tuple(map(int, release.server.split("."))) for release in RELEASES]
    assert names == sorted(set(names))
    assert servers == sorted(set(servers))
    supports = [(release.onnx.ir, release.onnx.opset) for release in RELEASES]
    assert supports == sorted(supports), "a newer runtime reads what an older one read"


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_opset_and_ir_belong_together(release) -> None:
    """They are those of one release of onnx, by its own table."""
    helper = pytest.importorskip("onnx.helper")
    rows = {tuple(row[1:4]) for row in helper.VERSION_TABLE}
    assert (release.onnx.ir, release.onnx.opset, release.onnx.ml_opset) in rows


def test_tensorflow_is_gone_from_25_03() -> None:
    assert "tensorflow" in find_release("25.02").backends
    assert "tensorflow" not in find_release("25.03").backends


@pytest.mark.parametrize(
    ("text", "near"),
    [("24.13", "24.12"), ("20.01", "24.04"), ("31.01", RELEASES[-1].name), ("24.1", "24.04")],
)
def test_an_unknown_release_names_the_nearest(text: str, near: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        find_release(text)
    assert text in caught.value.problem
    assert f"nearest that is known is {near}" in caught.value.remedy


def test_an_unknown_server_names_the_nearest() -> None:
    with pytest.raises(UsageProblem, match=r"2\.51\.7") as caught:
        release_of_server("2.51.7")
    assert "24.10, of server 2.51.0" in caught.value.remedy


@pytest.mark.parametrize("text", ["", "latest", "v24"])
def test_what_is_no_version_has_no_nearest(text: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        find_release(text)
    assert "nearest" not in caught.value.remedy
    assert "write it like 24.10" in caught.value.remedy
