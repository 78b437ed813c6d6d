#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sanitize.sh asan|tsan [REGEX]: builds that preset and runs its tests; with REGEX only those whose name
# matches, without the slow ones, and builds only them.
set -eu
cd "$(dirname "$0")/.."
preset=$1
regex=${2:-}

cmake --preset "$preset" >/dev/null
if [ -n "$regex" ]; then
    set -- -LE 'slow|long' -R "$regex"
    targets=$(ctest --preset "$preset" -N "$@" | sed -n 's/^ *Test *#[0-9]*: //p')
    # shellcheck disable=SC2086 # one word each
    cmake --build --preset "$preset" --target $targets
else
    set --
    cmake --build --preset "$preset"
fi

# ThreadSanitizer cannot place its shadow when the kernel randomises addresses too widely.
fixed=""
if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then
    fixed="setarch -R"
fi
exec $fixed ctest --preset "$preset" -j $((2 * ${JOBS:-2})) "$@"
