#!/bin/sh
# axe-core for the tests of the page and the report: accessibility faults are found by it. It comes from npm, by name and
# version, into out/axe; it is in no package. Where there is no npm or no network these tests are skipped.
set -eu
VERSION=4.14.0
FOLDER=out/axe
if [ -f "$FOLDER/node_modules/axe-core/axe.min.js" ] && grep -q "axe v$VERSION" "$FOLDER/node_modules/axe-core/axe.min.js"; then
    exit 0
fi
if ! command -v npm >/dev/null 2>&1; then
    echo "no npm here: the tests of accessibility are skipped"
    exit 0
fi
mkdir -p "$FOLDER"
npm install --silent --no-save --no-audit --no-fund --ignore-scripts --prefix "$FOLDER" "axe-core@$VERSION" >/dev/null ||
    echo "axe-core could not be installed: the tests of accessibility are skipped"
