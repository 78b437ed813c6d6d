#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh SECONDS: builds the libFuzzer targets and runs each for so long, two at a time, from the
# seeds in tests/fuzz/corpus/. What they find new stays in build/fuzz/corpus, crashes in
# build/fuzz/crashes.
set -eu
cd "$(dirname "$0")/.."
seconds=$1

run_one()
{
    name=$(basename "$1")
    seeds=tests/fuzz/corpus/${name#fuzz_}
    [ -d "$seeds" ] || seeds=tests/fuzz/corpus/$name
    grown=build/fuzz/corpus/$name
    log=build/fuzz/logs/$name
    mkdir -p "$grown"
    if [ -z "$(ls -A "$seeds" 2>/dev/null)" ]; then
        echo "$name: no seeds in $seeds"
        exit 1
    fi
    if ! "$1" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix=build/fuzz/crashes/ "$grown" "$seeds" >"$log" 2>&1; then
        tail -40 "$log"
        echo "$name: FAILED; replay: WEFT_FUZZ_MALLOC=1 $1 build/fuzz/crashes/…" # see arena.h
        exit 1
    fi
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, fine"
    exit 0
}
[ $# -eq 1 ] || run_one "$2"

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
mkdir -p build/fuzz/crashes build/fuzz/logs
printf '%s\n' build/fuzz/fuzz/fuzz_* | xargs -P "${JOBS:-2}" -n 1 scripts/fuzz.sh "$seconds"
