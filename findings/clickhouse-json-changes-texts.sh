#!/bin/sh
# ClickHouse's type JSON changes texts that look like a time: "2026-1-2" is read back as "2026-01-02", an offset is
# calculated away, digits after the ninth are cut. A null and an empty object are not read back at all. A comparison with
# a text ends in an error where another row has a number there. Declare the path, `JSON(due String)`, or set
# `input_format_try_infer_dates` and `input_format_try_infer_datetimes` to 0.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check chdb==4.4.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version

import chdb


def ask(query: str, settings: str = "") -> list[object]:
    rows = chdb.query(f"{query} SETTINGS session_timezone = 'UTC'{settings}", "JSONCompactEachRow").data()
    return [json.loads(line)[0] for line in rows.splitlines()]


print("chdb", version("chdb"), "ClickHouse", *ask("SELECT version()"))
OFF = ", input_format_try_infer_dates = 0, input_format_try_infer_datetimes = 0"
for text, stored in (
    ("2026-1-2", "2026-01-02"),
    ("2026-01-02T03:00:00+02:00", "2026-01-02 01:00:00"),
    ("2026-01-02 03:00:00.123456789123", "2026-01-02 03:00:00.123456789"),
):
    event = json.dumps({"due": text})
    found = ask(f"SELECT '{event}'::JSON AS j")[0]["due"]
    declared = ask(f"SELECT '{event}'::JSON(due String) AS j")[0]["due"]
    off = ask(f"SELECT '{event}'::JSON AS j", OFF)[0]["due"]
    print(f"{text!r} is read back as {found!r}; with a declared path {declared!r}, without guessing {off!r}")
    assert (found, declared, off) == (stored, text, text)
empty = ask("""SELECT '{"a":null,"b":{},"c":1}'::JSON AS j""")
print('{"a":null,"b":{},"c":1} is read back as', empty[0])
assert empty == [{"c": 1}]
try:
    ask("""SELECT j.n = 'x' FROM (SELECT arrayJoin(['{"n":5}', '{"n":"x"}'])::JSON AS j)""")
    raise SystemExit("the comparison has an answer")
except RuntimeError as error:
    print("n = 'x' over 5 and 'x':", str(error).split(":")[0], str(error).split("Exception: ")[1].split(":")[0])
PYTHON
