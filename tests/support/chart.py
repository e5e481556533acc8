"""The chart of deploy/helm, and what it renders with its defaults: deploy/kubernetes.yaml.

`python -m tests.support.chart` renders it again. The first line of that file has a digest of the chart, so
that a test without Helm sees whether the two belong together. Source: docs/operate/kubernetes.md.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import yaml

DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
CHART: Final = DEPLOY / "helm" / "quorate"
RENDERED: Final = DEPLOY / "kubernetes.yaml"
#: the oldest that the chart allows, and the newest whose schemas there are
VERSIONS: Final = ("1.31", "1.37")
RELEASE: Final = "quorate"
NAMESPACE: Final = "quorate"
#: an object of Kubernetes
Manifest = Mapping[str, Any]


def helm(*words: str) -> str:
    """Run Helm; return what it printed.

    Raises:
        AssertionError: it failed.
    """
    program = Path(sys.executable).parent / "helm"
    assert program.exists(), "helm is missing: run `bash deploy/ensure-helm.sh`"
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rendered(*values: str) -> str:
    """Render the chart with its defaults, and values over them, as nodes.count=5."""
    given = [word for value in values for word in ("--set", value)]
    version = ("--kube-version", VERSIONS[0])
    return helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *version, *given)


def chart_digest() -> str:
    """Return a digest of the chart's files and their names."""
    digest = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(CHART)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def manifests(text: str) -> list[Manifest]:
    """Read the objects of a file."""
    return [each for each in yaml.safe_load_all(text) if each]


def problems(found: list[Manifest]) -> list[str]:
    """Return what the schemas of Kubernetes find, unknown fields among it."""
    wrong = []
    for version in VERSIONS:
        for each in found:
            try:
                kubernetes_validate.validate(each, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                wrong.append(f"{version}: {each['kind']}/{each['metadata']['name']}: {error.message}")
    return wrong


def header() -> str:
    """Return the first lines of RENDERED."""
    return (
        f"# Chart {chart_digest()}\n"
        "# What the chart helm/quorate renders with its defaults, as release and namespace quorate.\n"
        "# Made by `make kubernetes`; change the chart. docs/operate/kubernetes.md.\n"
    )


if __name__ == "__main__":
    RENDERED.write_text(header() + rendered())
