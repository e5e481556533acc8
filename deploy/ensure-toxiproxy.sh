#!/usr/bin/env bash
# Sees that toxiproxy 2.5.0 is in the environment as toxiproxy-server: the chaos tests put every link behind it.
# It is built by Go; on Debian and its relatives Go is installed if that is allowed.
#   bash deploy/ensure-toxiproxy.sh [FOLDER]     FOLDER: where the binary goes; .venv/bin when absent
set -euo pipefail

version=2.5.0
folder=${1:-.venv/bin}
server=$folder/toxiproxy-server

# Builds by `go install` say "git" where a release says its number, so the version built is kept beside it.
if [ -x "$server" ] && [ "$(cat "$server.version" 2>/dev/null)" = "$version" ]; then exit 0; fi

if ! command -v go >/dev/null && [ -x /usr/local/go/bin/go ]; then PATH=$PATH:/usr/local/go/bin; fi
if ! command -v go >/dev/null; then
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo -n); else as_root=(false); fi
  fi
  if command -v apt-get >/dev/null && [ "${as_root[*]:-}" != "false" ]; then
    echo "installing golang-go"
    { "${as_root[@]}" apt-get update -qq \
      && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends golang-go >/dev/null; } || true
  fi
fi
if ! command -v go >/dev/null; then
  echo "error: no go (the Go tool chain) on the PATH, and it could not be installed here; it builds toxiproxy" >&2
  echo "remedy: install it and try again (Debian: apt-get install golang-go)" >&2
  exit 1
fi

mkdir -p "$folder"
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
echo "building toxiproxy $version"
if ! GOBIN=$built GOFLAGS= go install "github.com/Shopify/toxiproxy/v2/cmd/server@v$version"; then
  echo "error: toxiproxy $version could not be built: see above" >&2
  echo "remedy: see that the Go module proxy can be reached (go env GOPROXY) and try again" >&2
  exit 1
fi
mv "$built/server" "$server"
echo "$version" >"$server.version"
