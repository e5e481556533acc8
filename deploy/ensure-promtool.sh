#!/usr/bin/env bash
# Sees that promtool is there: it tries the alert rules of deploy/observability. Debian's package of Prometheus is unpacked for
# it and not installed, since that would start a server.
#   bash deploy/ensure-promtool.sh [FOLDER]     FOLDER: where the binary goes; .venv/bin when absent
set -euo pipefail

folder=${1:-.venv/bin}
if command -v promtool >/dev/null || [ -x "$folder/promtool" ]; then exit 0; fi

unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
  echo "unpacking promtool"
  if [ "$(id -u)" -eq 0 ]; then apt-get update -qq || true; fi
  if (cd "$unpacked" && apt-get -o APT::Sandbox::User=root download -qq prometheus >/dev/null && dpkg-deb -x prometheus_*.deb .); then
    mkdir -p "$folder"
    mv "$unpacked/usr/bin/promtool" "$folder/promtool"
    exit 0
  fi
fi

echo "error: no promtool on the PATH, and it could not be fetched here" >&2
echo "remedy: install Prometheus and try again (Debian: apt-get install prometheus)" >&2
exit 1
