#!/usr/bin/env bash
# Sees that the tool chains of other languages are there, for the clients of `make clients`: Go, Node.js with npm, Rust's cargo.
# On Debian and its relatives it installs what is missing if it may.
set -euo pipefail

go_min=1.21 node_min=20.19 cargo_min=1.85

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo -n); else as_root=(false); fi
fi
missing=()
command -v go >/dev/null || missing+=(golang-go)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v cargo >/dev/null || missing+=(cargo)
if [ "${#missing[@]}" -gt 0 ] && command -v apt-get >/dev/null && [ "${as_root[*]:-}" != "false" ]; then
  echo "installing ${missing[*]}"
  { "${as_root[@]}" apt-get update -qq \
    && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; } || true
fi

failed=0
# has NAME MINIMUM COMMAND…: the command prints a version that is not below the minimum
has() {
  local name=$1 minimum=$2 found
  shift 2
  found=$("$@" 2>/dev/null | grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?' | head -n 1) || found=
  if [ -z "$found" ] || [ "$(printf '%s\n%s\n' "$minimum" "$found" | sort -V | head -n 1)" != "$minimum" ]; then
    echo "error: $name is ${found:-missing}, and the clients need $minimum or newer" >&2
    failed=1
  fi
}
has Go "$go_min" go version
has Node.js "$node_min" node --version
has npm 9 npm --version
has "Rust's cargo" "$cargo_min" cargo --version
if [ "$failed" -ne 0 ]; then
  echo "remedy: install what is missing and try again (go.dev, nodejs.org, rustup.rs; Debian's packages may be too old)" >&2
  exit 1
fi
