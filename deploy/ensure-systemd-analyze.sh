#!/usr/bin/env bash
# Sees that systemd-analyze is on the PATH: it judges the units of deploy/systemd.
# On Debian and its relatives it is installed if that is allowed.
set -euo pipefail

command -v systemd-analyze >/dev/null && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo -n); else as_root=(false); fi
fi
if command -v apt-get >/dev/null && [ "${as_root[*]:-}" != "false" ]; then
  echo "installing systemd"
  if "${as_root[@]}" apt-get update -qq \
    && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends systemd >/dev/null \
    && command -v systemd-analyze >/dev/null; then
    exit 0
  fi
fi

echo "error: no systemd-analyze on the PATH, and it could not be installed here" >&2
echo "remedy: install it and try again (Debian: apt-get install systemd)" >&2
exit 1
