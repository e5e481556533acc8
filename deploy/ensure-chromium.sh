#!/usr/bin/env bash
# Sees that Chromium is on the PATH; on Debian and its relatives it installs it if it may.
set -euo pipefail

command -v chromium >/dev/null && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo -n); else as_root=(false); fi
fi
if command -v apt-get >/dev/null && [ "${as_root[*]:-}" != "false" ]; then
  echo "installing chromium"
  if "${as_root[@]}" apt-get update -qq \
    && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null \
    && command -v chromium >/dev/null; then
    exit 0
  fi
fi

echo "error: no chromium on the PATH, and it could not be installed here" >&2
echo "remedy: install it and try again (Debian: apt-get install chromium)" >&2
exit 1
