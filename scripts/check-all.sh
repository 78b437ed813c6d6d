#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything, at full length: each preset's whole ctest, valgrind over the unit tests, long fuzzing.
# Goes on after a failure, so that one night shows everything; the summary and the status tell.
set -u
cd "$(dirname "$0")/.."
fuzz_seconds=${FUZZ_SECONDS:-600}
jobs=${JOBS:-2}
summary=""
status=0

phase() # NAME COMMAND…
{
    name=$1
    shift
    echo "==== $name"
    if "$@"; then
        summary="$summary  passed  $name\n"
    else
        summary="$summary  FAILED  $name\n"
        status=1
    fi
}

preset()
{
    cmake --preset "$1" >/dev/null && cmake --build --preset "$1" &&
        ctest --preset "$1" -j "$jobs"
}

# The unit tests' own processes; what they start (shells, the command) is not ours to check.
valgrind_units()
{
    failed=0
    for test in build/dev/tests/unit.*; do
        if ! valgrind --quiet --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite \
            "$test" >build/valgrind.log 2>&1; then
            # Debian 12's valgrind does not know pidfd_open, which the tests' own process handling needs.
            if grep -q "unhandled amd64-linux syscall: 434" build/valgrind.log; then
                echo "valgrind: $test skipped, this valgrind knows no pidfd_open"
                continue
            fi
            echo "valgrind: $test"
            tail -40 build/valgrind.log
            failed=1
        fi
    done
    return $failed
}

phase "lint" scripts/lint.sh all
phase "the analyzer over the tests" scripts/lint.sh deep-tidy
phase "release, installation, subsets" scripts/test.sh
phase "release, long" ctest --preset release -L long
phase "dev" preset dev
phase "clang" preset clang
phase "asan" scripts/sanitize.sh asan
phase "tsan" scripts/sanitize.sh tsan
phase "valgrind" valgrind_units
phase "fuzz, $fuzz_seconds s each" scripts/fuzz.sh "$fuzz_seconds"

echo "==== check-all"
# shellcheck disable=SC2059 # holds \n
printf "$summary"
exit $status
