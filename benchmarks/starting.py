"""From the start of a process to its end: Python alone, with `headgate` imported, and the command line's help."""

from __future__ import annotations

import subprocess
import sys

from harness import Measurement, measure, report


def main() -> None:
    def process(name: str, *arguments: str) -> Measurement:
        command = [sys.executable, *arguments]
        run = lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)  # noqa: E731
        return measure(name, run, 1, rounds=11, unit="processes")

    results = [
        process("python alone", "-c", "pass"),
        process("import headgate", "-c", "import headgate"),
        process("headgate --help", "-m", "headgate.cli", "--help"),
    ]
    report("starting", "Start and end of a process", results, baseline=results[0].name)


if __name__ == "__main__":
    main()
