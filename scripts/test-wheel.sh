#!/bin/sh
# Installs the newest wheel of target/wheels into a clean virtual environment, and runs its tests:
# first without any other package, then with those that take its tables, and with Spark if that is asked
# for.
#
#   PYTHON=python3.13 scripts/test-wheel.sh
#   PAGEWARDEN_SPARK=1 scripts/test-wheel.sh       also on Spark; needs Java 17
set -eu
cd "$(dirname "$0")/.."

wheel=$(ls -t target/wheels/pagewarden-*.whl | head -n 1)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
python=$folder/venv/bin/python
$python -m pip --quiet install --disable-pip-version-check "$wheel" pytest
test_all() { $python -m pytest --quiet -p no:cacheprovider python/tests "$@"; }
test_all
if test "${PAGEWARDEN_SPARK:-}" = 1; then
    $python -m pip --quiet install --disable-pip-version-check pyarrow polars duckdb 'pyspark>=4,<5' 'pandas<3'
else
    $python -m pip --quiet install --disable-pip-version-check pyarrow polars duckdb
fi
test_all
# The other Spark that there is: it has no data sources in Python, and compares DataFrames alike.
if test "${PAGEWARDEN_SPARK:-}" = 1; then
    $python -m pip --quiet install --disable-pip-version-check 'pyspark>=3.5,<3.6' 'numpy<2.3' setuptools
    test_all --ignore python/tests/test_spark_cluster.py
fi
