#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The suite: the release tree's ctest, in which format, layers and the installation are tests like any other. Its
# closing lines are the verdict. With --sanitized, instead, what needs builds of its own: the sanitizers over the
# quick tests, and every fuzz target for a moment. JOBS: cores to use (2); a job of ctest's is half a core, because many
# tests mostly wait (tests/CMakeLists.txt).
set -eu
cd "$(dirname "$0")/.."

which='-LE long|sanitized'
if [ "${1:-}" = --sanitized ]; then
    which='-L sanitized'
    shift
fi
cmake --preset release -DWEFT_TESTS=ON >/dev/null
cmake --build --preset release
# shellcheck disable=SC2086 # an option and its value
exec ctest --preset release $which -j $((2 * ${JOBS:-2})) "$@"
