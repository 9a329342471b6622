#!/bin/sh
# Chromium and its driver for the tests of the page, where they can be installed: Debian, as root. Elsewhere these tests
# are skipped.
set -eu
if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "no Chromium with chromedriver here, and only root installs it: its tests are skipped"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
{ apt-get update -qq && apt-get install -qq --no-install-recommends chromium chromium-driver >/dev/null; } ||
    echo "Chromium could not be installed: its tests are skipped"
