"""What `convert/base.py` promises of every source and target that is registered."""

from __future__ import annotations

import configparser
import inspect
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tconv
from tconv import jobs
from tconv.artifact import Artifact, list_files
from tconv.convert.base import (
    ConvertOptions,
    Runner,
    Source,
    SourceModel,
    SourceRequest,
    Target,
)
from tconv.convert.registry import SOURCE_NAMES, TARGET_NAMES, find_target, source_named
from tconv.errors import TconvError
from tconv.report import NotJudged, Passed, TargetReport
from tconv.validate.judge import judge
from tconv.validate.samples import SampleStore
from tconv.validate.tolerance import Tolerances
from tconv.workspace import Workspace

ROOT = Path(tconv.__file__).parent
HEAVY = (
    "onnx", "onnxruntime", "onnxscript", "polygraphy", "tensorflow", "tensorrt", "tensorrt_rtx",
    "torch", "transformers", "tritonclient",
)  # fmt: skip
FACTORY = """
import torch

class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 4)

    def forward(self, tokens, scale):
        y = torch.tanh(self.layer(scale[:, None] * torch.nn.functional.one_hot(tokens, 6)))
        return {"scores": y, "best": y.sum(1).argmax(-1)}

def factory():
    example = {"tokens": torch.tensor([[0, 5, 2], [1, 3, 4]]), "scale": torch.randn(2, 6)}
    return Two(), example
"""


def _members(protocol: type) -> dict[str, Any]:
    methods = {n: m for n, m in vars(protocol).items() if inspect.isfunction(m) and n[0] != "_"}
    values = [n for n, m in vars(protocol).items() if isinstance(m, property)]
    return {**dict.fromkeys([*inspect.get_annotations(protocol), *values]), **methods}


def _check_members(thing: Any, protocol: type) -> None:
    for name, promised in _members(protocol).items():
        assert hasattr(thing, name), f"{name} is missing"
        if promised is not None:
            wanted = list(inspect.signature(promised).parameters)[1:]
            assert list(inspect.signature(getattr(thing, name)).parameters) == wanted, name


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_a_target_has_every_member(name: str) -> None:
    _check_members(find_target(name), Target)


@pytest.mark.parametrize("name", SOURCE_NAMES)
def test_a_source_has_every_member(name: str) -> None:
    _check_members(source_named(name), Source)


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_a_targets_platform_has_a_template(name: str) -> None:
    target = find_target(name)
    assert (ROOT / "templates" / "config" / f"{target.platform}.pbtxt").is_file()
    assert target.filename == Path(target.filename).name
    assert target.filename.startswith("model.")  # Triton's default names


def test_platforms_and_filenames_belong_to_one_target_each() -> None:
    targets = [find_target(name) for name in TARGET_NAMES]
    for attribute in ("name", "platform", "filename"):
        values = [getattr(target, attribute) for target in targets]
        assert len(set(values)) == len(values)


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_a_targets_extra_can_be_installed(name: str) -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert find_target(name).extra in config["options.extras_require"]


@pytest.mark.parametrize("name", [*TARGET_NAMES, *SOURCE_NAMES])
def test_what_is_preloaded_can_be(name: str) -> None:
    owner: Any = find_target(name) if name in TARGET_NAMES else source_named(name)
    for module in owner.preload:
        if find_spec(module.partition(".")[0]) is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert find_spec(module) is not None, module


def test_the_parent_asks_everything_without_a_framework() -> None:
    code = f"""
import sys
from tconv.convert.base import ConvertOptions
from tconv.convert.registry import SOURCE_NAMES, TARGET_NAMES, find_target, source_named
for name in TARGET_NAMES:
    target = find_target(name)
    assert target.recipes(ConvertOptions())
    target.availability()
for name in SOURCE_NAMES:
    source = source_named(name)
    for model in ("gpt2", "org/name", "file.py:factory", "a.b:c", "/nowhere", ""):
        if source.claims(model):
            assert source.default_name(model)
sys.exit(", ".join(set({HEAVY}) & set(sys.modules)) or 0)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_a_target_says_why_it_is_unavailable(name: str) -> None:
    found = find_target(name).availability()
    assert bool(found.remedy) is bool(found.build or found.run)


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_recipes_are_names_of_files_too(name: str) -> None:
    for options in (ConvertOptions(), ConvertOptions(script=True)):
        recipes = find_target(name).recipes(options)
        assert recipes
        assert len(set(recipes)) == len(recipes)
        assert all(recipe and Path(recipe).name == recipe for recipe in recipes)


BUILT = [
    pytest.param(name, recipe, id=f"{name}-{recipe}")
    for name in TARGET_NAMES
    for recipe in find_target(name).recipes(ConvertOptions())
]
Made = Callable[[str, str], tuple[Path, Artifact]]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("contract")
    (folder / "model_of_the_contract.py").write_text(FACTORY)
    made = Workspace(folder / "build")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = jobs.prepare(str(made.folder), msgspec.to_builtins(_request(made)), None)
    made.write("source.json", built)
    return made


def _request(workspace: Workspace) -> SourceRequest:
    path = workspace.folder.parent / "model_of_the_contract.py"
    return SourceRequest(f"{path}:factory", device="cpu")


@pytest.fixture(scope="module")
def make(workspace: Workspace) -> Made:
    made: dict[tuple[str, str], Artifact] = {}

    def convert(name: str, recipe: str) -> tuple[Path, Artifact]:
        target = find_target(name)
        if target.base is not None:
            pytest.skip(f"it is made from {target.base}, and has tests of its own")
        available = target.availability()
        if available.build or available.run:
            pytest.skip(available.build or available.run)
        folder = workspace.artifact(name)
        if (name, recipe) not in made:
            request = msgspec.to_builtins(_request(workspace))
            options = msgspec.to_builtins(ConvertOptions())
            built = jobs.convert(str(workspace.folder), name, recipe, request, options)
            made[name, recipe] = msgspec.convert(built["artifact"], Artifact)
        else:
            assert list_files(folder) == made[name, recipe].files
        return folder, made[name, recipe]

    return convert


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("name", "recipe"), BUILT)
def test_an_artifact_is_what_it_says(
    name: str, recipe: str, make: Made, workspace: Workspace
) -> None:
    folder, artifact = make(name, recipe)
    target, prepared = find_target(name), workspace.prepared()
    assert (artifact.target, artifact.recipe) == (name, recipe)
    assert artifact.files == list_files(folder)
    assert target.filename in {file.name for file in artifact.files}
    assert artifact.versions
    for ours, theirs in (
        (artifact.signature.inputs, prepared.signature.inputs),
        (artifact.signature.outputs, prepared.signature.outputs),
    ):
        described = [(spec.name, spec.dtype, spec.shape) for spec in ours]
        assert described == [(spec.name, spec.dtype, spec.shape) for spec in theirs]
    names = (*artifact.signature.input_names, *artifact.signature.output_names)
    assert set(artifact.wire_names) <= set(names)
    assert len({artifact.wire(tensor) for tensor in names}) == len(names)
    assert msgspec.json.decode(msgspec.json.encode(artifact), type=Artifact) == artifact

    runner = target.open(folder, artifact, "cpu")
    _check_members(runner, Runner)
    assert runner.device == "cpu"
    verdict = judge(runner, SampleStore(workspace.samples), prepared, Tolerances())
    assert isinstance(verdict, Passed), verdict

    report = TargetReport(name, NotJudged("", ""), (), artifact)
    workspace.write(f"artifacts/{name}.json", report)
    again = jobs.validate(str(workspace.folder), name, {}, "cpu")
    assert msgspec.convert(again, Passed) == verdict

    inspected = target.inspect(folder / target.filename)
    assert inspected.input_names == tuple(map(artifact.wire, artifact.signature.input_names))
    if inspected.outputs:
        shown = [(spec.name, spec.dtype, len(spec.shape)) for spec in inspected.outputs]
        assert shown == [(s.name, s.dtype, len(s.shape)) for s in artifact.signature.outputs]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGET_NAMES)
def test_an_artifact_may_be_asked_from_anywhere(name: str, make: Made) -> None:
    """Inputs that are views, read-only or in another order of memory are inputs still."""
    recipe = find_target(name).recipes(ConvertOptions())[-1]
    folder, artifact = make(name, recipe)
    runner = find_target(name).open(folder, artifact, "cpu")
    feeds = {
        "tokens": np.array([[0, 5, 1], [2, 1, 0], [3, 4, 4]]),
        "scale": np.ones((3, 6), "float32"),
    }
    expected = runner(feeds)
    turned = {key: np.asfortranarray(array) for key, array in reversed(feeds.items())}
    for array in turned.values():
        array.flags.writeable = False
    for key, value in runner(turned).items():
        assert np.array_equal(value, expected[key])
    strided = {"tokens": feeds["tokens"].repeat(2, 1)[:, ::2], "scale": feeds["scale"]}
    for key, value in runner(strided).items():
        assert np.array_equal(value, expected[key])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGET_NAMES)
@pytest.mark.parametrize("content", [b"", b"nonsense" * 100, None], ids=["empty", "no", "missing"])
def test_what_is_no_file_of_the_format(name: str, content: bytes | None, tmp_path: Path) -> None:
    target = find_target(name)
    if find_spec("tensorrt") is None and name == "trt":
        pytest.skip("the package tensorrt is not installed")
    path = tmp_path / target.filename
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TconvError) as caught:
        target.inspect(path)
    assert caught.value.remedy
    assert str(path) in caught.value.problem


@pytest.mark.filterwarnings("ignore")
def test_a_loaded_source_has_every_member(workspace: Workspace) -> None:
    model = source_named("python").load(_request(workspace), workspace.folder / "source")
    _check_members(model, SourceModel)
    model.run(model.examples)
    again = source_named("python").load(_request(workspace), workspace.folder / "source")
    assert model.fingerprint() == again.fingerprint()
