"""A gate's record for those who read it: a job summary, a test report, annotations."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from .judge import Judged
from .run import GateReport
from .threshold import Finding, Value, Verdict

SUMMARY_LIMIT = 1 << 20
"""Bytes that GitHub takes of a step's summary; beyond it the whole is dropped."""
MOST_ANNOTATIONS = 10
"""Of a kind and step that GitHub shows; more are dropped without a word."""
HEADLINE = {
    Verdict.PASS: "✅ The gate is open",
    Verdict.FAIL: "❌ The gate is closed",
    Verdict.UNKNOWN: "⚠️ The gate could not judge",
}
_MARK = {Verdict.PASS: "✅", Verdict.FAIL: "❌", Verdict.UNKNOWN: "⚠️"}
_CUT = "\n\n… cut off here: a job summary holds no more. The JSON record has all.\n"


def to_markdown(report: GateReport) -> str:
    """Return a job summary; its first line is the verdict."""
    lines = [f"# {HEADLINE[report.verdict]}: {headline(report)}", ""]
    lines += [f"{note}\n" for note in report.notes]
    for judged in report.models:
        lines += _table(judged)
    lines.append(f"Baseline `{report.baseline}`, tconv {report.tconv}.")
    return _cut("\n".join(lines) + "\n")


def headline(report: GateReport) -> str:
    """Return what a reader wants to know first, in one line."""
    counts = dict.fromkeys(Verdict, 0)
    for _, finding in findings(report):
        counts[finding.verdict] += 1
    worst = [(j, f) for j, f in findings(report) if f.verdict is report.verdict]
    said = f"{counts[Verdict.FAIL]} failed, {counts[Verdict.UNKNOWN]} not judged, "
    said += f"{counts[Verdict.PASS]} passed"
    if report.verdict is Verdict.PASS or not worst:
        return said
    judged, finding = worst[0]
    return f"{judged.name} {finding.metric}: {finding.why} ({said})"


def findings(report: GateReport) -> Iterator[tuple[Judged, Finding]]:
    """Yield every finding, with the target that it is of."""
    for judged in report.models:
        for finding in judged.findings:
            yield judged, finding


def _table(judged: Judged) -> list[str]:
    lines = [
        f"## {_MARK[judged.verdict]} {_plain(judged.name)}",
        "",
        "| | metric | baseline | now | limit | |",
        "|---|---|---|---|---|---|",
    ]
    order = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS)
    for finding in sorted(judged.findings, key=lambda f: order.index(f.verdict)):
        cells = (finding.metric, show(finding.old), show(finding.new), finding.limit, finding.why)
        lines.append(f"| {_MARK[finding.verdict]} | {' | '.join(map(_plain, cells))} |")
    return [*lines, ""]


def show(value: Value | None) -> str:
    """Return a metric's value for a person."""
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value


def _plain(text: str) -> str:
    """Keep a cell a cell, whatever a model calls its tensors."""
    special = text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
    return special.replace("<", "&lt;").replace("`", "\\`")


def _cut(text: str) -> str:
    content = text.encode()
    if len(content) <= SUMMARY_LIMIT:
        return text
    room = SUMMARY_LIMIT - len(_CUT.encode())
    return content[:room].decode(errors="ignore").rpartition("\n")[0] + _CUT


def to_junit(report: GateReport) -> str:
    """Return a JUnit report: a suite a target; what could not be judged is an error, no failure."""
    suites = ElementTree.Element("testsuites", name="tconv gate")
    for judged in report.models:
        suite = ElementTree.SubElement(suites, "testsuite", name=judged.name)
        counts = dict.fromkeys(Verdict, 0)
        for finding in judged.findings:
            counts[finding.verdict] += 1
            case = ElementTree.SubElement(
                suite, "testcase", classname=judged.name, name=finding.metric
            )
            kind = {Verdict.FAIL: "failure", Verdict.UNKNOWN: "error"}.get(finding.verdict)
            if kind is not None:
                element = ElementTree.SubElement(case, kind, message=_xml(finding.why))
                element.text = _xml(_told(finding))
        suite.set("tests", str(len(judged.findings)))
        suite.set("failures", str(counts[Verdict.FAIL]))
        suite.set("errors", str(counts[Verdict.UNKNOWN]))
        suite.set("skipped", "0")
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _told(finding: Finding) -> str:
    return (
        f"{finding.why}\nbaseline: {show(finding.old)}\nnow: {show(finding.new)}\n"
        f"limit: {finding.limit or 'none'}"
    )


def _xml(text: str) -> str:
    """Drop the control characters that XML 1.0 has no way to write."""
    return "".join(char for char in text if char in "\t\n\r" or char >= " ")


def to_annotations(report: GateReport) -> list[str]:
    """Return GitHub's workflow commands for what failed, then for what could not be judged."""
    ordered = sorted(findings(report), key=lambda pair: pair[1].verdict is not Verdict.FAIL)
    lines = []
    for judged, finding in ordered:
        if finding.verdict is Verdict.PASS:
            continue
        level = "error" if finding.verdict is Verdict.FAIL else "warning"
        title = _property(f"{judged.name} {finding.metric}")
        lines.append(f"::{level} title={title}::{_data(finding.why)}")
    return lines[:MOST_ANNOTATIONS]


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
