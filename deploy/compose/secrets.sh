#!/bin/sh
# Makes the secrets, tokens and certificates of the compose file, where they are missing.
#   sh secrets.sh SERVERS MONITORING     SERVERS: for nodes, brokers and the console; MONITORING: for Prometheus
set -eu

servers=$1 monitoring=$2
user=${SECRETS_USER-10001:10001}
umask 077
if [ ! -e "$servers/done" ]; then
  quorate secret new >"$servers/peer.secret"
  quorate secret new >"$servers/reader.token"
  {
    echo "reader reader $(cat "$servers/reader.token")"
    echo "admin admin $(quorate secret new)"
  } >"$servers/admin.tokens"
  quorate certs init "$servers" >/dev/null
  quorate certs issue "$servers" server --host localhost --host 127.0.0.1 \
    --host node-1 --host node-2 --host node-3 --host broker-1 --host broker-2 --host broker-3 >/dev/null
  # Whoever has it can be anybody: nothing else is signed here.
  rm "$servers/ca.key"
  touch "$servers/done"
fi
cp "$servers/reader.token" "$servers/ca.pem" "$monitoring"
chmod 755 "$monitoring"
chmod 644 "$monitoring"/*
if [ -n "$user" ]; then chown -R "$user" "$servers"; fi
