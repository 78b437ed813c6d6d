#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The suite: the release tree's ctest, in which format, layers, the sanitizer subsets, the fuzz targets and
# the installation are tests like any other. Its closing lines are the verdict.
set -eu
cd "$(dirname "$0")/.."

cmake --preset release -DWEFT_TESTS=ON >/dev/null
cmake --build --preset release
exec ctest --preset release -LE long -j "${JOBS:-2}" "$@"
