"""Time `tconv build` of gpt2 to ONNX beside `optimum-cli export onnx`, in interleaved runs.

    make bench            or: python benchmarks/build.py --runs 5

The other tool gets a virtual environment of its own, made here. Both read the same folder (gpt2
with random weights) and write to the same disk. The table goes into benchmarks/README.md. Compare
within one run only: machines differ, and so do their days.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import psutil

from tconv.report import Report

FOLDER = Path("build/benchmark")
README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- measured -->\n", "<!-- end -->\n"
OTHER = ("optimum-onnx[onnxruntime]==0.1.0", "torch==2.13.0")
SAMPLE_SECONDS = 0.1


class Measured(msgspec.Struct):
    """One run: seconds, and bytes."""

    seconds: float
    tree: int
    largest: int
    disk: int


def main() -> None:
    """Run the tools in turn, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    FOLDER.mkdir(parents=True, exist_ok=True)
    model, other = make_model(FOLDER / "gpt2"), make_environment(FOLDER / "other")
    commands = {"tconv": tconv_command(model), "optimum": other_command(other, model)}
    found: dict[str, list[Measured]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, (command, result) in commands.items():
            measured = measure(command, result)
            print(f"run {number} {name}: {measured.seconds:.1f} s", file=sys.stderr)
            if number:  # the first fills the caches
                found[name].append(measured)
    last = FOLDER / "work" / "gpt2" / "report.json"
    write(table(found) + stages(msgspec.json.decode(last.read_bytes(), type=Report)))


def make_model(folder: Path) -> Path:
    """Save gpt2 (124 M parameters) with random weights."""
    if not (folder / "model.safetensors").exists():
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(0)
        GPT2LMHeadModel(GPT2Config()).save_pretrained(folder)
    return folder


def make_environment(folder: Path) -> Path:
    """Install the other tool into an environment of its own."""
    if not (folder / "bin" / "optimum-cli").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", *OTHER], check=True)
    return folder


def tconv_command(model: Path) -> tuple[list[str], Path]:
    """Return the command with its full sweep, and what it makes."""
    places = ["--output", str(FOLDER / "work"), "--repository", str(FOLDER / "models")]
    command = [sys.executable, "-m", "tconv", "build", str(model), "--targets", "onnx", *places]
    return command, FOLDER / "models"


def other_command(environment: Path, model: Path) -> tuple[list[str], Path]:
    """Return the other tool's command, with its own check at one shape."""
    result = FOLDER / "other-onnx"
    cli = str(environment / "bin" / "optimum-cli")
    arguments = ["export", "onnx", "--model", str(model), "--task", "text-generation"]
    return [cli, *arguments, str(result)], result


def measure(command: list[str], result: Path) -> Measured:
    """Run one command from nothing, and watch the memory of all its processes."""
    shutil.rmtree(result, ignore_errors=True)
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    peaks = [0, 0]
    watcher = threading.Thread(target=watch, args=(process.pid, peaks))
    watcher.start()
    _, errors = process.communicate()
    seconds = time.monotonic() - started
    watcher.join()
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{errors.decode(errors='replace')[-2000:]}")
    disk = sum(path.stat().st_size for path in result.rglob("*") if path.is_file())
    return Measured(seconds, peaks[0], peaks[1], disk)


def watch(pid: int, peaks: list[int]) -> None:
    """Keep the largest sum of the tree's memory, and the largest single process.

    Shared pages count once: the proportional set size divides them among those who share them.
    """
    while True:
        try:
            root = psutil.Process(pid)
            tree = [root, *root.children(recursive=True)]
            if root.status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        sizes = [size for process in tree if (size := proportional(process))]
        peaks[0] = max(peaks[0], sum(sizes))
        peaks[1] = max([peaks[1], *sizes])
        time.sleep(SAMPLE_SECONDS)


def proportional(process: psutil.Process) -> int:
    """Return a process' proportional set size in bytes."""
    try:
        return int(process.memory_full_info().pss)
    except (psutil.Error, OSError):
        return 0


def table(found: dict[str, list[Measured]]) -> str:
    """Return the comparison, medians with their range."""
    lines = [
        f"{len(found['tconv'])} interleaved runs each after one to warm up, on {os.cpu_count()} "
        f"cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}.",
        "",
        "| tool | checks | wall, s (range) | process tree, MB | largest process, MB | disk, MB |",
        "|---|---|---|---|---|---|",
    ]
    checks = {"tconv": "the full sweep", "optimum": "one shape"}
    for name, runs in found.items():
        seconds = [run.seconds for run in runs]
        wall = f"{statistics.median(seconds):.1f} ({min(seconds):.1f}–{max(seconds):.1f})"
        sizes = [
            statistics.median(getattr(run, field) for run in runs) / 1e6
            for field in ("tree", "largest", "disk")
        ]
        lines.append(
            f"| {name} | {checks[name]} | {wall} | {' | '.join(f'{s:.0f}' for s in sizes)} |"
        )
    ratios = [a.seconds / b.seconds for a, b in zip(found["tconv"], found["optimum"], strict=True)]
    lines += ["", f"tconv / optimum, run by run: {', '.join(f'{ratio:.2f}' for ratio in ratios)}."]
    return "\n".join(lines) + "\n\n"


def stages(report: Report) -> str:
    """Return where the last build's time and memory went."""
    assert report.prepare_cost is not None
    attempt = report.targets[0].attempts[-1]
    assert attempt.convert_cost is not None
    assert attempt.validate_cost is not None
    costs = {
        "running the source (samples, answers, float64)": report.prepare_cost,
        f"converting ({attempt.recipe})": attempt.convert_cost,
        "checking": attempt.validate_cost,
    }
    lines = ["| tconv's step | s | peak resident, MB |", "|---|---|---|"]
    lines += [f"| {n} | {c.seconds:.1f} | {c.peak_memory / 1e6:.0f} |" for n, c in costs.items()]
    rest = report.seconds - sum(cost.seconds for cost in costs.values())
    return "\n".join([*lines, f"| starting, exporting, writing | {rest:.1f} | |"]) + "\n"


def write(measured: str) -> None:
    """Put the tables between their marks."""
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}{measured}{END}{after}")


if __name__ == "__main__":
    main()
