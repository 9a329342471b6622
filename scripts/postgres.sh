#!/bin/sh
# A PostgreSQL server for the tests, where one can be installed: Debian, as root. Elsewhere its tests are skipped.
set -eu
if command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "no PostgreSQL here, and only root installs it: its tests are skipped"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
{ apt-get update -qq && apt-get install -qq --no-install-recommends postgresql >/dev/null; } ||
    echo "PostgreSQL could not be installed: its tests are skipped"
