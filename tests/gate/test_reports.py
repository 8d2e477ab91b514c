"""One record, and what is made of it for a summary, a test report and annotations."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tconv.gate.judge import Judged
from tconv.gate.latency import Plan
from tconv.gate.reports import (
    HEADLINE,
    MOST_ANNOTATIONS,
    SUMMARY_LIMIT,
    to_annotations,
    to_junit,
    to_markdown,
)
from tconv.gate.run import GateReport
from tconv.gate.threshold import Finding, Verdict, overall

ODD = "a|b<c>`d\\\ne\x00&\"'"


def _report(*findings: Finding, name: str = "m/onnx") -> GateReport:
    judged = Judged(name, overall(list(findings)), findings)
    return GateReport(judged.verdict, (judged,), "b.json", True, Plan())


GOOD = Finding("size", Verdict.PASS, "It is within its limits.", 1234567, 1234567, "max 2")
BAD = Finding("error.y", Verdict.FAIL, "It got worse.", 0.5, 0.1, "max_drop_abs 0.1")
DARK = Finding("latency", Verdict.UNKNOWN, "The store is gone.")


@pytest.mark.parametrize(
    ("report", "verdict"),
    [
        pytest.param(_report(GOOD), Verdict.PASS, id="pass"),
        pytest.param(_report(GOOD, BAD, DARK), Verdict.FAIL, id="fail"),
        pytest.param(_report(GOOD, DARK), Verdict.UNKNOWN, id="unknown"),
    ],
)
def test_the_first_line_is_the_verdict(report: GateReport, verdict: Verdict) -> None:
    assert to_markdown(report).splitlines()[0].startswith(f"# {HEADLINE[verdict]}")


def test_what_failed_comes_first_and_is_said() -> None:
    text = to_markdown(_report(GOOD, DARK, BAD))
    assert "m/onnx error.y: It got worse. (1 failed, 1 not judged, 1 passed)" in text
    assert text.index("error.y |") < text.index("latency |") < text.index("size |")
    assert "1,234,567" in text


def test_odd_names_break_no_table() -> None:
    finding = Finding(ODD, Verdict.FAIL, ODD, ODD, ODD, ODD)
    rows = [line for line in to_markdown(_report(finding, name=ODD)).splitlines() if "❌ |" in line]
    assert len(rows) == 1
    assert rows[0].replace("\\\\", "").replace("\\|", "").count("|") == 7
    assert "<c" not in rows[0]


def test_a_summary_keeps_githubs_limit() -> None:
    finding = Finding("ü" * 100, Verdict.FAIL, "ü" * 1000)
    text = to_markdown(_report(*[finding] * 2000))
    assert len(text.encode()) <= SUMMARY_LIMIT
    assert text.startswith("# ❌")
    assert "cut off here" in text


def test_junit_tells_failures_from_errors() -> None:
    root = ElementTree.fromstring(to_junit(_report(GOOD, BAD, DARK)))
    suite = root[0]
    assert suite.attrib == {
        "name": "m/onnx", "tests": "3", "failures": "1", "errors": "1", "skipped": "0",
    }  # fmt: skip
    assert [[child.tag for child in case] for case in suite] == [[], ["failure"], ["error"]]
    assert suite[1][0].attrib["message"] == "It got worse."


def test_junit_survives_odd_names() -> None:
    finding = Finding(ODD.replace("\x00", ""), Verdict.FAIL, ODD, ODD, ODD, ODD)
    root = ElementTree.fromstring(to_junit(_report(finding)))
    assert root[0][0][0].attrib["message"].startswith("a|b<c>")


def test_annotations_are_few_and_whole() -> None:
    lines = to_annotations(_report(*[DARK] * 8, *[BAD] * 8, GOOD))
    assert len(lines) == MOST_ANNOTATIONS
    assert [line.split()[0] for line in lines] == ["::error"] * 8 + ["::warning"] * 2
    odd = to_annotations(_report(Finding(ODD, Verdict.FAIL, "100 %\nof it")))
    assert odd[0].endswith("::100 %25%0Aof it")
    assert "\n" not in odd[0]
