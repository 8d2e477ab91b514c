"""A build's record as one HTML page: the verdict first, then how far, where, and at what cost."""

from __future__ import annotations

import math
import shlex
from importlib import resources
from pathlib import Path
from typing import Any

from .process import Cost
from .report import (
    Failed,
    NotConverted,
    OutputCheck,
    Passed,
    Point,
    Report,
    TargetReport,
    Verdict,
)

EDGES = {"≤ 1e-4": 1e-4, "≤ 1e-3": 1e-3, "≤ 0.01": 1e-2, "≤ 0.1": 0.1, "≤ 0.3": 0.3, "≤ 1": 1.0}
"""Where the histogram's bins end, as shares of what is allowed; the last bin is beyond."""
LEFT, CELL, HIGH, TOP, LETTER = 90, 74, 30, 26, 7
"""Of a heat map, in pixels: where cells begin, their least width, height, top, and a letter."""
BAR = 520
"""How long the longest bar is."""
FAIL, WARN, FINE = "fail", "unknown", "pass"


def to_html(report: Report, request: dict[str, Any]) -> str:
    """Return the page; it is whole by itself and asks nothing of a network.

    Args:
        report: the build's record.
        request: what was asked for, as plain values, for the lines that reproduce it.
    """
    from jinja2 import Environment, StrictUndefined

    text = resources.files("tconv").joinpath("templates", "report.html").read_text("utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(text).render(
        report=report,
        headline=_headline(report),
        css=_css,
        outputs=_outputs,
        heat=_heat,
        bins=_bins,
        bars=_bars(report),
        again=_again(report, request),
        config=_config,
        left_out=[planned for planned in _plan(report) if planned.skipped],
        plan=_plan(report),
        number=_number,
        size=_size,
    )


def _headline(report: Report) -> str:
    passed = sum(isinstance(target.verdict, Passed) for target in report.targets)
    return f"{report.name}: {passed} of {len(report.targets)} targets agree with {report.model}"


def _css(verdict: Verdict) -> str:
    if isinstance(verdict, Passed):
        return FINE
    return FAIL if isinstance(verdict, Failed | NotConverted) else WARN


def _outputs(target: TargetReport) -> tuple[OutputCheck, ...]:
    verdict = target.verdict
    return verdict.outputs if isinstance(verdict, Passed | Failed) else ()


def _plan(report: Report) -> list[Any]:
    return list(report.prepared.plan) if report.prepared else []


def _share(output: OutputCheck, point: Point) -> float:
    """Return an error as a share of what is allowed; infinite where no number says how far."""
    if point.error is None:
        return math.inf
    if output.tolerance:
        return point.error / output.tolerance
    return 0.0 if point.passed else math.inf


def _heat(output: OutputCheck) -> dict[str, Any]:
    """Return the cells of batch × sizes, each the worst over all kinds of values."""
    cells: dict[tuple[int, str], list[Point]] = {}
    for point in output.points:
        where = ", ".join(f"{name} {size}" for name, size in point.sizes.items()) or "fixed sizes"
        cells.setdefault((point.rows, where), []).append(point)
    rows = sorted({rows for rows, _ in cells})
    # By their numbers: the example's sizes come first in the sweep.
    columns = sorted({where for _, where in cells}, key=_digits)
    width = max(CELL, *(LETTER * len(where) + CELL // 4 for where in columns))
    drawn = [
        _cell(output, points, f"batch {row}, {where}")
        | {"x": LEFT + width * columns.index(where), "y": TOP + HIGH * rows.index(row)}
        for (row, where), points in cells.items()
    ]
    return {
        "cells": drawn,
        "rows": [{"y": TOP + HIGH * i + 19, "name": _batch(r)} for i, r in enumerate(rows)],
        "columns": [{"x": LEFT + width * i + width // 2, "name": c} for i, c in enumerate(columns)],
        "cell": width - 3,
        "width": LEFT + width * len(columns) + 4,
        "height": TOP + HIGH * len(rows) + 4,
    }


def _digits(text: str) -> list[int]:
    return [int(word) for word in text.replace(",", "").split() if word.isdigit()]


def _batch(rows: int) -> str:
    return f"batch {rows}" if rows else "no batch"


def _cell(output: OutputCheck, points: list[Point], where: str) -> dict[str, Any]:
    share = max(_share(output, point) for point in points)
    passed = all(point.passed for point in points)
    said = "differs" if not math.isfinite(share) else f"{share:.2g}"
    # A log scale from a thousandth of what is allowed: rounding would be all one shade.
    depth = 0.08 + 0.5 * min(max(math.log10(max(share, 1e-3)) + 3, 0) / 3, 1)
    return {
        "passed": passed,
        "depth": round(depth if passed else 0.45, 2),
        "said": said if passed else f"✗ {said}",
        "title": f"{where}: {said} of what is allowed, over {len(points)} kinds of values",
    }


def _bins(output: OutputCheck) -> list[dict[str, Any]]:
    """Return how many places of the sweep have which share of what is allowed."""
    shares = [_share(output, point) for point in output.points]
    names = (*EDGES, "beyond")
    lows = (-math.inf, *EDGES.values())
    highs = (*EDGES.values(), math.inf)
    counts = [sum(low < s <= high for s in shares) for low, high in zip(lows, highs, strict=True)]
    most = max([*counts, 1])
    return [
        {"name": name, "count": count, "height": round(70 * count / most, 1), "x": 52 * place}
        for place, (name, count) in enumerate(zip(names, counts, strict=True))
    ]


def _bars(report: Report) -> list[dict[str, Any]]:
    """Return where the time and the memory went, step by step."""
    steps: list[tuple[str, Cost | None]] = [("running the source", report.prepare_cost)]
    for target in report.targets:
        for attempt in target.attempts:
            by = f" by {attempt.recipe}" if attempt.recipe else ""
            steps.append((f"converting to {target.target}{by}", attempt.convert_cost))
            steps.append((f"checking {target.target}{by}", attempt.validate_cost))
    known = [(name, cost) for name, cost in steps if cost is not None]
    longest = max((cost.seconds for _, cost in known), default=1.0) or 1.0
    return [
        {
            "name": name,
            "seconds": f"{cost.seconds:.2f} s",
            "memory": _size(cost.peak_memory),
            "width": round(max(BAR * cost.seconds / longest, 1), 1),
            "y": 44 * place,
        }
        for place, (name, cost) in enumerate(known)
    ]


def _again(report: Report, request: dict[str, Any]) -> str:
    """Return the command that builds it again; `request.json` holds all of it."""
    source = request.get("source", {})
    words = ["tconv", "build", report.model, "--name", report.name]
    words += ["--targets", ",".join(target.target for target in report.targets)]
    for text in source.get("inputs", ()):
        words += ["--input", text]
    words += ["--random-weights"] if source.get("random_weights") else []
    words += ["--seed", str(source["seed"])] if source.get("seed") else []
    for option in ("data", "labels", "metric", "samples"):
        if request.get(option):
            words += [f"--{option}", str(request[option])]
    for text in request.get("budget", ()):
        words += ["--budget", text]
    return shlex.join(words)


def _config(target: TargetReport) -> str:
    """Return the text of what was exported for a server; empty where nothing was."""
    if target.exported is None:
        return ""
    try:
        return (Path(target.exported).parent / "config.pbtxt").read_text("utf-8")
    except OSError:
        return ""


def _number(value: float | None, digits: str = ".2g") -> str:
    return "–" if value is None else format(value, digits)


def _size(number: int) -> str:
    """Return bytes for a person, in powers of 1000."""
    value = float(number)
    for unit in ("B", "kB", "MB"):
        if value < 1000:  # noqa: PLR2004
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"
