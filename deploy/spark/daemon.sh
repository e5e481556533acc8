#!/usr/bin/env bash
# Run one process of a standalone Spark cluster in the foreground, from the Spark that pip installed.
#
#   deploy/spark/daemon.sh master [OPTION…]
#   deploy/spark/daemon.sh worker [OPTION…] spark://HOST:PORT,HOST:PORT
#
# Environment: PYSPARK_PYTHON (default: python3) has pyspark; SPARK_PROPERTIES (default: spark.conf beside this
# file) says where masters elect; SPARK_LOCAL_IP (default: 127.0.0.1) is the address to listen at.
set -euo pipefail

case "${1:-}" in
    master) main=org.apache.spark.deploy.master.Master ;;
    worker) main=org.apache.spark.deploy.worker.Worker ;;
    *)
        echo "usage: $0 master|worker [OPTION…] [spark://HOST:PORT,…]" >&2
        exit 2
        ;;
esac
shift

export PYSPARK_PYTHON="${PYSPARK_PYTHON:-python3}"
SPARK_HOME=$("$PYSPARK_PYTHON" -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
export SPARK_HOME
export SPARK_LOCAL_IP="${SPARK_LOCAL_IP:-127.0.0.1}"
properties="${SPARK_PROPERTIES:-$(dirname "$0")/spark.conf}"
exec "$SPARK_HOME/bin/spark-class" "$main" --host "$SPARK_LOCAL_IP" --properties-file "$properties" "$@"
