#!/usr/bin/env bash
# Sees that Helm 3 is in the environment: it renders the chart of deploy/helm. It is built by Go, which takes minutes once.
#   bash deploy/ensure-helm.sh [FOLDER]     FOLDER: where the binary goes; .venv/bin when absent
set -euo pipefail

version=3.18.6
folder=${1:-.venv/bin}
if [ -x "$folder/helm" ] && [ "$(cat "$folder/helm.version" 2>/dev/null)" = "$version" ]; then exit 0; fi

if ! command -v go >/dev/null && [ -x /usr/local/go/bin/go ]; then PATH=$PATH:/usr/local/go/bin; fi
if ! command -v go >/dev/null; then
  echo "error: no go (the Go tool chain) on the PATH; it builds helm" >&2
  echo "remedy: install Go 1.24 or newer and try again (go.dev)" >&2
  exit 1
fi

mkdir -p "$folder"
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
echo "building helm $version"
if ! GOBIN=$built GOFLAGS= go install "helm.sh/helm/v3/cmd/helm@v$version"; then
  echo "error: helm $version could not be built: see above" >&2
  echo "remedy: see that the Go module proxy can be reached (go env GOPROXY) and try again" >&2
  exit 1
fi
mv "$built/helm" "$folder/helm"
echo "$version" >"$folder/helm.version"
