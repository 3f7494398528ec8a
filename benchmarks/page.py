"""Write docs/benchmarks.md: the prose of `PAGE` with the newest table of each benchmark in `artifacts/`.

A benchmark that was not run on this machine keeps the table that the page has.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from harness import ARTIFACTS, milliseconds, short

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "benchmarks.template.md"


def table(subject: str, page: str) -> str:
    """The measurements of one benchmark as a Markdown table; `page` is the page as it was."""
    path = ARTIFACTS / f"{subject}.json"
    if not path.exists():
        before = re.search(rf"<!-- {subject} -->\n(.*?)\n<!-- end -->", page, flags=re.DOTALL)
        return f"*{subject}: not measured yet.*" if before is None else before[1]
    content = json.loads(path.read_text())
    machine = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    if "header" in content:
        aligned = ["---"] * 2 + ["---:"] * (len(content["header"]) - 2)
        lines = [f"| {' | '.join(line)} |" for line in (content["header"], aligned, *content["cells"])]
        return "\n".join([f"**{content['title']}**", "", *lines, "", f"Machine: {machine}."])
    lines = [
        f"**{content['title']}**",
        "",
        "| what | median | spread | rate | bytes/s | ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in content["measurements"]:
        size = row["work_bytes"]
        lines.append(
            f"| {row['name']} | {milliseconds(row['median_s'])} | {100 * row['spread']:.0f} % "
            f"| {short(row['rate'])} {row['unit']}/s | {'' if size is None else short(size / row['median_s']) + 'B/s'} "
            f"| {row['ratio']:.3g} |"
        )
    return "\n".join([*lines, "", f"Ratios are to *{content['baseline']}*. Machine: {machine}."])


def main() -> None:
    written = DOCS / "benchmarks.md"
    before = written.read_text()
    parts = PAGE.read_text().split("{{")
    page = parts[0]
    for part in parts[1:]:
        subject, _, rest = part.partition("}}")
        subject = subject.strip()
        page += f"<!-- {subject} -->\n{table(subject, before)}\n<!-- end -->{rest}"
    written.write_text(page)


if __name__ == "__main__":
    main()
