"""The gate over real builds: the same, a slower, a larger, another; and what is in its way."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from tconv.cli import main
from tconv.convert.base import SourceRequest
from tconv.gate.accept import init_baseline
from tconv.gate.latency import Plan
from tconv.gate.run import GateReport, GateRequest, gate
from tconv.gate.threshold import Threshold, Verdict
from tconv.pipeline import BuildRequest, build
from tconv.process import Processes

MODELS = Path(__file__).parents[1] / "models"
QUICK = Plan(budget=3.0)
Build = Callable[[str], Path]


@pytest.fixture(scope="module")
def built(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build a factory of `deep` once, as a model called `deep`."""
    done: dict[str, Path] = {}

    def run(factory: str) -> Path:
        if factory not in done:
            folder = tmp_path_factory.mktemp(factory)
            request = BuildRequest(
                SourceRequest(f"{MODELS / 'deep.py'}:{factory}"),
                ("onnx", "torchscript"),
                "deep",
                output=str(folder),
                repository=str(folder / "models"),
            )
            assert build(request, processes=processes).exit_code == 0
            done[factory] = folder / "deep"
        return done[factory]

    return run


@pytest.fixture(autouse=True)
def _desk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def accepted(built: Build, tmp_path: Path) -> GateRequest:
    """Accept the build `accepted`, and return the request that judges it."""
    path, store = tmp_path / "tconv-baseline.json", str(tmp_path / "store")
    init_baseline((str(built("accepted")),), path, store, "the first")
    return GateRequest((str(built("accepted")),), str(path), store, plan=QUICK)


def _judge(
    request: GateRequest, folder: Path, processes: Processes, **limits: Threshold
) -> GateReport:
    changed = GateRequest(
        (str(folder),), request.baseline, request.store, limits or request.limits, request.plan
    )
    return gate(changed, processes=processes)


def _failed(report: GateReport) -> set[str]:
    found = [f for judged in report.models for f in judged.findings]
    return {f.metric for f in found if f.verdict is Verdict.FAIL}


def test_the_accepted_build_passes_and_nothing_is_written(
    accepted: GateRequest, built: Build, processes: Processes, tmp_path: Path
) -> None:
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    report = _judge(accepted, built("accepted"), processes)
    assert report.verdict is Verdict.PASS
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before


def test_a_slower_and_larger_one_fails(
    accepted: GateRequest, built: Build, processes: Processes
) -> None:
    report = _judge(accepted, built("twice_as_deep"), processes)
    assert report.verdict is Verdict.FAIL
    assert {"size", "latency.b1", "latency.b8"} <= _failed(report)
    for judged in report.models:
        assert [timing.rows for timing in judged.timings] == [1, 8]
        assert all(timing.ratio.estimate > 1.2 for timing in judged.timings)


def test_another_contract_fails(accepted: GateRequest, built: Build, processes: Processes) -> None:
    report = _judge(accepted, built("other_contract"), processes)
    assert report.verdict is Verdict.FAIL
    assert "contract" in _failed(report)


def test_other_weights_alone_are_no_regression(
    accepted: GateRequest, built: Build, processes: Processes
) -> None:
    """Both are the same work: what differs is judged by rows with labels, not by the weights."""
    wide = Threshold(max_drop_rel=0.5)
    report = _judge(accepted, built("other_weights"), processes, latency=wide)
    assert report.verdict is Verdict.PASS, report.models


def test_a_target_that_vanished_is_no_pass(
    accepted: GateRequest, built: Build, processes: Processes, tmp_path: Path
) -> None:
    folder = tmp_path / "deep"
    shutil.copytree(built("accepted"), folder)
    record = json.loads((folder / "report.json").read_text())
    record["targets"] = record["targets"][:1]
    (folder / "report.json").write_text(json.dumps(record))
    report = _judge(accepted, folder, processes)
    assert report.verdict is Verdict.UNKNOWN
    assert report.models[-1].name == "deep/torchscript"


def test_a_store_that_is_gone_is_no_pass(
    accepted: GateRequest, built: Build, processes: Processes
) -> None:
    shutil.rmtree(accepted.store)
    report = _judge(accepted, built("other_weights"), processes)
    assert report.verdict is Verdict.UNKNOWN
    assert "holds no artifact" in report.models[0].findings[-1].why


def test_no_baseline_is_no_pass(built: Build, processes: Processes, tmp_path: Path) -> None:
    request = GateRequest((), str(tmp_path / "none.json"), str(tmp_path / "store"), plan=QUICK)
    report = _judge(request, built("accepted"), processes)
    assert report.verdict is Verdict.UNKNOWN
    assert (tmp_path / "none.json.new").is_file()


def _tconv(*words: str, **environment: str) -> Result:
    return CliRunner(env=environment or None).invoke(main, list(words), catch_exceptions=False)


def test_the_way_from_the_first_to_the_next(built: Build, tmp_path: Path) -> None:
    """What a person types, from an empty folder to an accepted change."""
    place = ("--baseline", str(tmp_path / "b.json"), "--store", str(tmp_path / "store"))
    first, second = str(built("accepted")), str(built("twice_as_deep"))
    assert _tconv("baseline", "init", first, *place).exit_code == 0
    assert _tconv("gate", first, *place).exit_code == 0
    assert _tconv("baseline", "init", first, *place).exit_code == 2

    reports = ("--markdown", str(tmp_path / "s.md"), "--junit", str(tmp_path / "j.xml"))
    closed = _tconv("gate", second, *place, "--bench-budget", "3s", *reports)
    assert closed.exit_code == 1, closed.output
    assert "tconv baseline accept" in closed.output
    assert (tmp_path / "s.md").read_text().startswith("# ❌")
    assert ElementTree.parse(tmp_path / "j.xml").getroot().tag == "testsuites"

    baseline = place[:2]
    assert "deep/onnx:size" in _tconv("baseline", "review", *baseline).output
    before = (tmp_path / "b.json").read_text()
    assert _tconv("baseline", "accept", *place).exit_code == 2
    assert _tconv("baseline", "accept", *place, "--reason", " ").exit_code == 2
    assert _tconv("baseline", "accept", "deep/onnx:no", *place, "--reason", "x").exit_code == 2
    assert (tmp_path / "b.json").read_text() == before
    assert _tconv("baseline", "accept", *place, "--reason", "deeper").exit_code == 0
    assert not (tmp_path / "b.json.new").exists()
    assert _tconv("gate", second, *place).exit_code == 0


def test_ci_writes_reports_and_nothing_else(built: Build, tmp_path: Path) -> None:
    place = ("--baseline", str(tmp_path / "b.json"), "--store", str(tmp_path / "store"))
    assert _tconv("baseline", "init", str(built("accepted")), *place).exit_code == 0
    summary = tmp_path / "summary.md"
    summary.write_text("# Earlier\n")
    result = _tconv(
        "gate", str(built("other_contract")), *place, "--bench-budget", "3", "--json",
        CI="true", GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert result.exit_code == 1
    assert json.loads(result.stdout)["verdict"] == "fail"
    assert "::error title=deep/onnx contract::It changed." in result.stderr
    assert summary.read_text().startswith("# Earlier\n# ❌")
    assert not (tmp_path / "b.json.new").exists()
    assert _tconv("baseline", "accept", *place, "--reason", "x", CI="1").exit_code == 2


def _write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param("", 2, id="empty"),
        pytest.param({"schema": 99, "models": {}}, 2, id="another schema"),
        pytest.param({"schema": 1, "models": {"other/onnx": {}}}, 3, id="another model"),
        pytest.param({"schema": 1, "models": {}}, 3, id="no models"),
        pytest.param("<html>", 2, id="a web page"),
    ],
)
def test_baselines_that_are_none(built: Build, tmp_path: Path, content: Any, code: int) -> None:
    path = _write(tmp_path / "b.json", content)
    before = path.read_bytes()
    result = _tconv("gate", str(built("accepted")), "--baseline", str(path))
    assert result.exit_code == code
    assert "Traceback" not in result.output
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param((), "nothing to judge", id="no workspace"),
        pytest.param(("none",), "no finished workspace", id="no such folder"),
        pytest.param((".", "--limit", "size.max"), "no limit", id="no limit"),
        pytest.param((".", "--bench-budget", "soon"), "is no time", id="no time"),
    ],
)
def test_requests_that_are_refused(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = _tconv("gate", *words)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(built: Build, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    result = _tconv("gate", str(built("accepted")), "--baseline", str(folder / "b.json"))
    assert result.exit_code == 2
    assert "can't be written" in result.output
