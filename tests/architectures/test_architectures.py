"""Architectures of transformers, tiny and random from their config, pass for every target.

A file in a folder beside this one is a config; a new architecture is a new file. None of them is
known to the code: what is tested is that the general way carries them.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from tconv.convert.base import SourceRequest
from tconv.pipeline import build
from tconv.process import Processes
from tconv.report import Passed, Report
from tconv.request import BuildRequest

HERE = Path(__file__).parent
TARGETS = ("onnx", "torchscript")

QUICK = ("bert", "gpt2", "mixtral", "t5", "vit", "wav2vec2")
"""One of a kind each; all others are left to `make test-all`."""


def build_random(config: Path, folder: Path, processes: Processes) -> Report:
    model = folder / config.stem
    model.mkdir()
    (model / "config.json").write_bytes(config.read_bytes())
    request = BuildRequest(
        source=SourceRequest(str(model), random_weights=True, device="cpu"),
        targets=TARGETS,
        name=config.stem,
        output=str(folder / "build"),
        repository=str(folder / "models"),
        device="cpu",
    )
    return build(request, processes=processes)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.cls is not None and "config" in metafunc.fixturenames:
        paths = sorted((HERE / metafunc.cls.folder).glob("*.json"))
        assert paths, metafunc.cls.folder
        marks = [() if path.stem in QUICK else pytest.mark.slow for path in paths]
        params = [
            pytest.param(path, id=path.stem, marks=mark)
            for path, mark in zip(paths, marks, strict=True)
        ]
        metafunc.parametrize("config", params)


class _Architectures:
    """Classes, so that processes of pytest-xdist share them out."""

    folder: ClassVar[str]

    def test_passes(self, config: Path, tmp_path: Path, processes: Processes) -> None:
        report = build_random(config, tmp_path, processes)
        for target in report.targets:
            assert isinstance(target.verdict, Passed), target.verdict
            assert target.verdict.checks >= 15
            assert len(target.attempts) == 1, target.attempts[0].verdict
        assert report.exit_code == 0
        assert report.prepared is not None
        batched = report.prepared.batching.max_size > 0
        if any("logits_per_image" in spec.name for spec in report.prepared.signature.outputs):
            assert not batched
            assert "'logits_per_image' has no batch axis" in report.prepared.batching.reason
        else:
            assert batched, report.prepared.batching.reason


class TestEncoders(_Architectures):
    folder = "encoders"


class TestDecoders(_Architectures):
    folder = "decoders"


class TestEncoderDecoders(_Architectures):
    folder = "encoder_decoders"


class TestImagesAndSound(_Architectures):
    folder = "images_and_sound"
