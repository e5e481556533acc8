#!/usr/bin/env bash
# Sees that libfaketime is there; on Debian and its relatives it installs it if it may.
set -euo pipefail

found() { compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null; }

found && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo -n); else as_root=(false); fi
fi
if command -v apt-get >/dev/null && [ "${as_root[*]:-}" != "false" ]; then
  echo "installing libfaketime"
  if "${as_root[@]}" apt-get update -qq \
    && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libfaketime >/dev/null \
    && found; then
    exit 0
  fi
fi

echo "error: no /usr/lib/*/faketime/libfaketimeMT.so.1, and it could not be installed here" >&2
echo "remedy: install it and try again (Debian: apt-get install libfaketime)" >&2
exit 1
