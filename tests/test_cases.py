"""The traps of `models/traps.py`: each must end as it should, for every target that is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from tconv.artifact import Artifact
from tconv.convert.base import Array, Arrays
from tconv.convert.registry import find_target
from tconv.errors import TconvError
from tconv.export.repository import read_config
from tconv.report import Failed, NotConverted, Passed, Report, TargetReport
from tconv.validate.judge import judge
from tconv.validate.samples import SampleStore
from tconv.validate.tolerance import Tolerances
from tconv.workspace import Workspace

from .conftest import Build

pytestmark = pytest.mark.timeout(120)


def _target(report: Report, name: str) -> TargetReport:
    return next(target for target in report.targets if target.target == name)


def _configs(report: Report) -> dict[str, int]:
    """Return the `max_batch_size` of every config that was exported."""
    folders = {t.target: Path(t.exported) for t in report.targets if t.exported}
    return {
        name: read_config(folder.parent / "config.pbtxt").max_batch_size
        for name, folder in folders.items()
    }


def _inputs(report: Report) -> tuple[str, ...]:
    assert report.prepared is not None
    return tuple(map(str, report.prepared.signature.inputs))


def _outputs(report: Report) -> tuple[str, ...]:
    assert report.prepared is not None
    return tuple(map(str, report.prepared.signature.outputs))


def _names(report: Report) -> set[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return every target's names of inputs and outputs."""
    artifacts = [target.artifact for target in report.targets if target.artifact]
    assert len(artifacts) == len(report.targets)
    return {(a.signature.input_names, a.signature.output_names) for a in artifacts}


def test_the_control_is_exported_with_batches(build_model: Build) -> None:
    report = build_model("traps:plain_mlp")

    assert report.exit_code == 0
    assert all(isinstance(target.verdict, Passed) for target in report.targets)
    assert _configs(report) == {"torchscript": 8, "onnx": 8}


def _assert_quotes_line(target: TargetReport, file: str) -> None:
    assert isinstance(target.verdict, Failed)
    assert f"{file}:" in target.verdict.problem


def test_a_branch_on_a_value_fails_and_the_line_is_named(build_model: Build) -> None:
    report = build_model("traps:value_branch")

    assert report.exit_code == 1
    for target in report.targets:
        _assert_quotes_line(target, "traps.py")
        assert "flipped values" in target.verdict.problem  # type: ignore[union-attr]
        assert "torch.where" in target.verdict.remedy  # type: ignore[union-attr]
    assert _configs(report) == {}


def test_a_baked_batch_is_never_exported(build_model: Build) -> None:
    report = build_model("traps:baked_batch")

    for target in report.targets:
        if not isinstance(target.verdict, Passed):
            _assert_quotes_line(target, "traps.py")
            assert "has shape [3, 6] instead of [1, 6]" in target.verdict.problem
    right = all(isinstance(target.verdict, Passed) for target in report.targets)
    assert report.exit_code == (0 if right else 1)


def test_what_is_special_at_batch_one_is_never_batched(build_model: Build) -> None:
    report = build_model("traps:specialised_on_one")

    assert report.exit_code == 1
    assert report.prepared is not None
    assert report.prepared.batching.max_size == 0
    for target in report.targets:
        _assert_quotes_line(target, "traps.py")
    assert _configs(report) == {}


def test_rows_that_influence_each_other_are_served_without_batches(build_model: Build) -> None:
    report = build_model("traps:rows_influence_each_other")

    assert report.exit_code == 0
    assert report.prepared is not None
    assert "rows influence each other" in report.prepared.batching.reason
    assert _configs(report) == {"torchscript": 0, "onnx": 0}


def test_a_batch_that_is_asked_for_and_is_none_is_refused(build_model: Build) -> None:
    with pytest.raises(TconvError, match="rows influence each other") as refused:
        build_model("traps:rows_influence_each_other", "x:float32[batch,4]")

    assert refused.value.exit_code == 1


def test_a_squeezed_batch_is_noticed(build_model: Build) -> None:
    with pytest.raises(TconvError, match=r"shape \[\d\] at n \d but \[\] at n 1") as refused:
        build_model("traps:squeeze_loses_batch")

    assert refused.value.exit_code == 1
    assert "squeeze" in refused.value.remedy


def test_one_number_for_the_batch_forbids_batches(build_model: Build) -> None:
    report = build_model("traps:unbatched_side_output")

    assert report.prepared is not None
    assert "'output_1' has no batch axis" in report.prepared.batching.reason
    assert _configs(report) == {"onnx": 0}
    refused = _target(report, "torchscript").verdict
    assert isinstance(refused, NotConverted)  # libtorch's backend has no tensor without dims
    assert "output_1" in refused.problem
    assert report.exit_code == 4


def test_a_colour_is_no_batch(build_model: Build) -> None:
    report = build_model("traps:no_batch_axis")

    assert report.exit_code == 0
    assert _inputs(report) == ("image:float32[3,16,24]",)
    for target in report.targets:
        config = read_config(Path(str(target.exported)).parent / "config.pbtxt")
        assert config.max_batch_size == 0
        assert list(config.input[0].dims) == [3, 16, 24]


def test_an_unused_input_is_kept_everywhere_and_said(build_model: Build) -> None:
    report = build_model("traps:unused_input")

    assert report.exit_code == 0
    names = ("input_ids", "attention_mask", "token_type_ids")
    assert _names(report) == {(names, ("output",))}
    for target in report.targets:
        assert target.artifact is not None
        assert any("'token_type_ids' reaches no output" in n for n in target.artifact.notes)
        config = read_config(Path(str(target.exported)).parent / "config.pbtxt")
        assert [tensor.name for tensor in config.input] == list(names)


def test_nested_outputs_have_the_same_names_everywhere(build_model: Build) -> None:
    report = build_model("traps:nested_output")

    assert report.exit_code == 0
    assert _names(report) == {(("x",), ("scores", "boxes_0", "boxes_1"))}
    assert report.prepared is not None
    assert [(o.name, o.reason) for o in report.prepared.omitted] == [("loss", "it is None")]


def test_live_dropout_is_called_stochastic(build_model: Build) -> None:
    with pytest.raises(TconvError, match="stochastic") as refused:
        build_model("traps:live_dropout")

    assert refused.value.exit_code == 1


@pytest.mark.parametrize(
    ("model", "outputs"),
    [
        pytest.param(
            "pass_through_output",
            ("output_0:int64[batch=1..8]", "output_1:float32[batch=1..8,2]"),
            id="an input",
        ),
        pytest.param(
            "same_output_twice",
            ("output_0:float32[batch=1..8,2]", "output_1:float32[batch=1..8,2]"),
            id="the same tensor",
        ),
        pytest.param(
            "very_different_scales",
            ("output_0:float32[batch=1..8,16]", "output_1:float32[batch=1..8,16]"),
            id="scales ten orders apart",
        ),
        pytest.param("mask_constant", ("output:float32[batch=1..8,8]",), id="a large constant"),
    ],
)
def test_awkward_outputs_pass(build_model: Build, model: str, outputs: tuple[str, ...]) -> None:
    report = build_model(f"traps:{model}")

    assert report.exit_code == 0
    assert _outputs(report) == outputs
    assert len(_names(report)) == 1
    assert _configs(report) == {"torchscript": 8, "onnx": 8}


def test_keyword_only_inputs_are_bound_by_name(build_model: Build) -> None:
    report = build_model("traps:keyword_only_inputs")

    assert report.exit_code == 0
    assert _names(report) == {(("query", "key", "value"), ("output",))}
    assert report.prepared is not None
    assert report.prepared.frozen == {"scale": "0.5"}


def test_two_axes_vary_and_ids_stay_in_the_vocabulary(build_model: Build, tmp_path: Path) -> None:
    report = build_model("traps:dynamic_sequence", "tokens:int64[batch,seq=1..64]")

    assert report.exit_code == 0
    assert _outputs(report) == ("output:float32[batch=1..8,seq=1..64,8]",)
    index = SampleStore(tmp_path / "build" / "dynamic_sequence" / "samples").read_index()
    lengths = {pool.sizes["seq"] for pool in index.pools}
    assert {1, 64} <= lengths
    assert any(length % 2 and length > 1 for length in lengths)


class _Wrong:
    """A runner that spoils one output of another, the worst of its checks only."""

    def __init__(self, runner: object, output: str, factor: float, add: float) -> None:
        self.runner, self.output, self.factor, self.add = runner, output, factor, add
        self.device = "cpu"

    def __call__(self, feeds: Arrays) -> dict[str, Array]:
        answer = self.runner(feeds)  # type: ignore[operator]
        spoiled = answer[self.output]
        answer[self.output] = (spoiled * self.factor + self.add).astype(spoiled.dtype)
        return answer  # type: ignore[no-any-return]


def _judge_spoiled(
    folder: Path, target: str, output: str, factor: float = 1.0, add: float = 0.0
) -> Passed | Failed:
    """Judge an artifact of a workspace again, with one of its outputs changed."""
    workspace = Workspace(folder)
    artifact = workspace.target(target).artifact
    assert isinstance(artifact, Artifact)
    runner = find_target(target).open(workspace.artifact(target), artifact, "cpu")
    wrong = _Wrong(runner, output, factor, add)
    return judge(wrong, SampleStore(workspace.samples), workspace.prepared(), Tolerances())


def test_ties_pass_and_a_wrong_index_does_not(build_model: Build, tmp_path: Path) -> None:
    report = build_model("traps:topk_ties")

    assert report.exit_code == 0
    folder = tmp_path / "build" / "topk_ties"
    wrong = _judge_spoiled(folder, "onnx", "output_1", factor=0.0, add=31)
    assert isinstance(wrong, Failed)
    assert "'output_1'" in wrong.problem
    assert isinstance(_judge_spoiled(folder, "onnx", "output_1"), Passed)


def test_a_small_error_shows_at_any_scale(build_model: Build, tmp_path: Path) -> None:
    build_model("traps:very_different_scales", targets="onnx")

    for output in ("output_0", "output_1"):
        folder = tmp_path / "build" / "very_different_scales"
        wrong = _judge_spoiled(folder, "onnx", output, factor=1.001)
        assert isinstance(wrong, Failed)
        assert repr(output) in wrong.problem


def test_bfloat16_is_right_where_it_can_be_served(build_model: Build) -> None:
    report = build_model("traps:bfloat16_io")

    refused = _target(report, "torchscript").verdict
    assert isinstance(refused, NotConverted)
    assert "bfloat16" in refused.problem
    assert "float32" in refused.remedy
    assert isinstance(_target(report, "onnx").verdict, Passed)
    assert _configs(report) == {"onnx": 8}
    assert report.exit_code == 4
