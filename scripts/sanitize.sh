#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sanitize.sh asan|tsan [ctest options]: builds that preset and runs its tests.
set -eu
cd "$(dirname "$0")/.."
preset=$1
shift

cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset"

# ThreadSanitizer cannot place its shadow when the kernel randomises addresses too widely.
fixed=""
if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then
    fixed="setarch -R"
fi
exec $fixed ctest --preset "$preset" -j "${JOBS:-2}" "$@"
