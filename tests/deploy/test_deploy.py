"""Image, compose file, unit, chart, dashboard and alerts name what the server really has."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.server import load_settings
from headgate.testing import running_server

PROJECT = Path(__file__).parent.parent.parent
DEPLOY = PROJECT / "deploy"
TOOLS = Path(sys.prefix) / ".deploy-tools"
"""Where `make test-long` puts helm and promtool."""

LISTENERS = load_settings(None, {}).listeners
PORTS = {
    getattr(LISTENERS, name): name
    for name in ("amqp", "stream", "stomp", "http", "servicebus", "rocketmq", "rocketmq_names", "rocketmq_classic")
}
"""The ports that are open without a configuration."""

CONTAINERFILE = (PROJECT / "Containerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))["services"]
STATEFUL_SET = (DEPLOY / "helm" / "headgate" / "templates" / "statefulset.yaml").read_text(encoding="utf-8")
UNIT = DEPLOY / "systemd" / "headgate.service"
RULES = DEPLOY / "prometheus" / "rules.yml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "headgate.json").read_text(encoding="utf-8"))


def test_ports_are_those_of_the_listeners() -> None:
    (exposed,) = re.findall(r"^EXPOSE (.*)$", CONTAINERFILE, re.MULTILINE)
    assert [int(port) for port in exposed.split()] == list(PORTS)
    assert [each.split(":") for each in COMPOSE["headgate"]["ports"]] == [
        ["127.0.0.1", str(port), str(port)] for port in PORTS
    ]
    assert [int(port) for port in re.findall(r"containerPort: (\d+)", STATEFUL_SET)] == list(PORTS)
    service = (DEPLOY / "helm" / "headgate" / "templates" / "service.yaml").read_text(encoding="utf-8")
    named = dict(re.findall(r"{name: ([\w-]+), containerPort: (\d+)}", STATEFUL_SET))
    assert all(len(name) <= 15 for name in named), "Kubernetes takes names of ports of at most 15 characters"
    assert re.findall(r"{name: ([\w-]+), port: (\d+), targetPort: ([\w-]+)}", service) == [
        (name, port, name) for name, port in named.items()
    ]


def test_variables_are_keys_of_the_configuration() -> None:
    texts = [path.read_text(encoding="utf-8") for path in DEPLOY.rglob("*") if path.is_file()]
    names = set(re.findall(r"HEADGATE_SERVER__[A-Z_]+", "\n".join([*texts, CONTAINERFILE])))
    assert "HEADGATE_SERVER__AUTHENTICATION__DEFAULT_PASSWORD" in names
    for name in names:
        load_settings(None, {name: "process" if name.endswith("DURABILITY") else "text"})


def test_the_folder_of_streams_and_the_user_are_the_same_everywhere() -> None:
    assert "VOLUME /var/lib/headgate\n" in CONTAINERFILE and "HEADGATE_ROOT=/var/lib/headgate " in CONTAINERFILE
    assert "streams:/var/lib/headgate" in COMPOSE["headgate"]["volumes"]
    assert "{name: streams, mountPath: /var/lib/headgate}" in STATEFUL_SET
    (user,) = set(re.findall(r"^USER (\d+)$", CONTAINERFILE, re.MULTILINE))
    assert f"--uid {user} " in CONTAINERFILE
    assert f"runAsUser: {user}\n" in STATEFUL_SET
    assert f"/var/cache/headgate:uid={user},mode=0700" in COMPOSE["headgate"]["tmpfs"]


def test_files_that_are_mounted_or_copied_are_there() -> None:
    for service in COMPOSE.values():
        for volume in service["volumes"]:
            source = volume.removeprefix("${HEADGATE_PIPELINES:-").split(":")[0].rstrip("}")
            assert not source.startswith(".") or (DEPLOY / "compose" / source).exists(), volume
    for copied in re.findall(r"^COPY (?!--)(.*) \S+$", CONTAINERFILE, re.MULTILINE):
        ignored = (PROJECT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        assert all((PROJECT / each).exists() and f"!{each}" in ignored for each in copied.split())


def test_a_stop_may_take_longer_than_the_server_needs() -> None:
    needed_s = load_settings(None, {}).timeouts.shutdown_s
    assert int(COMPOSE["headgate"]["stop_grace_period"].removesuffix("s")) > needed_s
    values = yaml.safe_load((DEPLOY / "helm" / "headgate" / "values.yaml").read_text(encoding="utf-8"))
    assert values["terminationGracePeriodSeconds"] > needed_s
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(UNIT)
    assert int(unit["Service"]["TimeoutStopSec"]) > needed_s
    assert unit["Service"]["KillSignal"] == "SIGTERM" and "STOPSIGNAL SIGTERM\n" in CONTAINERFILE


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    # The programs of the unit are not installed here.
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/headgate/bin/headgate", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, complaints) == (0, [])


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server({}) as running:
        yield running.http.rstrip("/")


def test_paths_of_probes_and_scrapes_are_answered(server: str) -> None:
    texts = "\n".join(path.read_text(encoding="utf-8") for path in DEPLOY.rglob("*") if path.is_file())
    paths = set(re.findall(r"/(?:health|metrics)(?:/[a-z-]+)?\b", texts + CONTAINERFILE))
    assert {"/health/live", "/health/ready", "/metrics/per-object"} <= paths
    for path in paths:
        with urllib.request.urlopen(server + path) as answer:
            assert answer.status == 200, path


def expressions() -> Iterator[tuple[str, str]]:
    """Each expression of PromQL, with a name for where it stands."""
    for rule in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def variables() -> Iterator[tuple[str, str]]:
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


WORDS = {"up", "by", "sum", "max", "rate", "increase", "deriv", "and", "label_values"}
LABEL_LISTS = re.compile(r"\bby \(([^)]*)\)|{([^}]*)}|label_values\(.*, (\w+)\)")


def labels_of_metrics() -> dict[str, set[str]]:
    """The labels of each metric, from the page that is made from the code."""
    found: dict[str, set[str]] = {}
    labels: set[str] = set()
    for line in (PROJECT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            labels = set(re.findall(r"`(\w+)`", line))
        elif named := re.match(r"\| `((?:headgate|rabbitmq)_\w+)` \|", line):
            found[named[1]] = labels
    return found


def test_expressions_name_metrics_of_the_server_and_their_labels(server: str) -> None:
    with urllib.request.urlopen(f"{server}/metrics/per-object") as answer:
        exported = set(re.findall(r"^# TYPE (\w+) ", answer.read().decode(), re.MULTILINE))
    labels = labels_of_metrics()
    seen = 0
    for where, expression in [*expressions(), *variables()]:
        plain = re.sub(r"\[[^]]*\]|\"[^\"]*\"", "", LABEL_LISTS.sub("", expression))
        if "label_values" in expression:
            plain = expression.split("(")[1].split(",")[0].split("{")[0]
        names = set(re.findall(r"\b[a-z]\w+", plain)) - WORDS
        assert names <= exported or "up{" in expression, (where, names - exported)
        for name in names:
            seen += 1
            used = {
                label.strip()
                for by, matchers, value in LABEL_LISTS.findall(expression)
                for label in [*by.split(","), *re.findall(r"(\w+)(?:=|!)", matchers), value]
                if label.strip()
            }
            assert used <= {"instance", "job", *labels[name]}, (where, name)
    assert seen > len(DASHBOARD["panels"])


def test_texts_of_alerts_name_labels_of_their_metrics() -> None:
    labels = labels_of_metrics()
    for rule in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]:
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        offered = [labels[name] for name in re.findall(r"(?:headgate|rabbitmq)_\w+", rule["expr"])]
        assert named <= {"instance"}.union(*offered), rule["alert"]


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken and all(x < 24 for x, _ in cells), panel["title"]
        taken |= cells


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{TOOLS}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"there is no {name}: `make test-long` builds it with Go")
    return found


@pytest.mark.long
def test_promtool_takes_the_rules_and_they_raise_what_they_should() -> None:
    for command in (["check", "rules", RULES], ["test", "rules", RULES.with_name("rules.test.yml")]):
        done = subprocess.run([tool("promtool"), *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run(
        [tool("promtool"), "check", "config", "--syntax-only", DEPLOY / "compose" / "prometheus.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def rendered(*options: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [tool("helm"), "template", "orders", DEPLOY / "helm" / "headgate", "--kube-version", "1.34.0", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


@pytest.mark.long
def test_helm_takes_the_chart() -> None:
    subprocess.run(
        [tool("helm"), "lint", "--strict", DEPLOY / "helm" / "headgate", "--set", "credentials.password=x"], check=True
    )
    kinds = [each["kind"] for each in rendered("--set", "credentials.password=x")]
    assert sorted(kinds) == ["ConfigMap", "Secret", "Service", "StatefulSet"]
    given = rendered("--set", "credentials.secret=mine", "--set", "monitoring.enabled=true")
    assert sorted(each["kind"] for each in given) == ["ConfigMap", "Service", "ServiceMonitor", "StatefulSet"]
    (pod,) = [each["spec"]["template"]["spec"] for each in given if each["kind"] == "StatefulSet"]
    (container,) = pod["containers"]
    assert {variable["valueFrom"]["secretKeyRef"]["name"] for variable in container["env"][:2]} == {"mine"}
    with pytest.raises(AssertionError, match=r"give credentials.secret, or credentials.password"):
        rendered()
