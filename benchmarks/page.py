"""Write docs/benchmarks.md: the prose of `PAGE` with the newest table of each benchmark in `artifacts/`."""

from __future__ import annotations

import json
from pathlib import Path

from harness import ARTIFACTS, short

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "benchmarks.template.md"


def table(subject: str) -> str:
    """The measurements of one benchmark as a Markdown table; a line that says so where it was not run."""
    path = ARTIFACTS / f"{subject}.json"
    if not path.exists():
        return f"*`benchmarks/{subject}.py` was not run.*"
    content = json.loads(path.read_text())
    lines = [
        f"**{content['title']}**",
        "",
        "| what | median | spread | rate | bytes/s | ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in content["measurements"]:
        size = row["work_bytes"]
        lines.append(
            f"| {row['name']} | {1e3 * row['median_s']:.1f} ms | {100 * row['spread']:.0f} % "
            f"| {short(row['rate'])} {row['unit']}/s | {'' if size is None else short(size / row['median_s']) + 'B/s'} "
            f"| {row['ratio']:.3g} |"
        )
    machine = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    return "\n".join([*lines, "", f"Ratios are to *{content['baseline']}*. Machine: {machine}."])


def main() -> None:
    parts = PAGE.read_text().split("{{")
    page = parts[0]
    for part in parts[1:]:
        subject, _, rest = part.partition("}}")
        page += table(subject.strip()) + rest
    (DOCS / "benchmarks.md").write_text(page)


if __name__ == "__main__":
    main()
