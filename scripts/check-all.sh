#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything: the suite in each preset, the long forms in release and under the sanitizers, valgrind over the unit tests,
# long fuzzing.
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
        ctest --preset "$1" -LE long -j $((2 * jobs))
}

# An error of memory is in this log of valgrind's; leaks are not asked for.
has_memory_error()
{
    grep -qE '^==[0-9]+== +(Invalid|Conditional jump or move|Use of uninitialised|Syscall param|Mismatched free|Source and destination overlap|Process terminating)' "$1"
}

# Those that do not take minutes without valgrind already.
short_units()
{
    ctest --preset dev -N -R '^unit\.' -LE long | sed -n 's/^ *Test *#[0-9]*: *//p'
}

# The unit tests' own processes; what they start (shells, the command) is not ours to check. Some tests promise times
# that valgrind is too slow for, or count what it holds: one that fails for itself leaves what it would have freed, so of
# those, and of one that does not come to its end, only errors of memory count. (Debian 12's valgrind does not know
# pidfd_open and says so; the library and the tests do without it there.)
valgrind_units()
{
    failed=0
    units=$(short_units)
    [ -n "$units" ] || return 1
    for test in $units; do
        result=0
        XDG_CONFIG_HOME="$PWD/build/dev/no-config" timeout -k 10 1200 valgrind --quiet --fair-sched=try \
            --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite \
            "build/dev/tests/$test" >build/valgrind.log 2>&1 || result=$?
        [ $result -ne 0 ] || continue
        if ! has_memory_error build/valgrind.log &&
            { [ $result -eq 124 ] || grep -q '^\[  FAILED  \]' build/valgrind.log; }; then
            echo "valgrind: $test: no errors of memory, but it does not pass there (status $result)"
            grep '^\[  FAILED  \]' build/valgrind.log | sort -u
            continue
        fi
        echo "valgrind: $test"
        grep -v "unhandled amd64-linux syscall: 434" build/valgrind.log | tail -40
        failed=1
    done
    return $failed
}

phase "lint" scripts/lint.sh all
phase "the analyzer over the tests" scripts/lint.sh deep-tidy
phase "release, installation, subsets" scripts/test.sh
phase "release, long" ctest --preset release -L long -j $((2 * jobs))
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
