#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test-repeat.sh TIMES [ctest options]: the suite so many times, each to its end. The last lines say in how many rounds
# every test passed, and which tests failed how often; what they said is in build/repeat/ROUND.
set -eu
cd "$(dirname "$0")/.."
times=$1
shift

cmake --preset release -DWEFT_TESTS=ON >/dev/null
cmake --build --preset release
rm -rf build/repeat
mkdir -p build/repeat
round=0
passes=0
while [ $round -lt "$times" ]; do
    round=$((round + 1))
    if ctest --preset release -LE 'long|sanitized' -j $((2 * ${JOBS:-2})) "$@" >build/repeat/$round 2>&1; then
        passes=$((passes + 1))
        echo "round $round of $times: passed"
    else
        echo "round $round of $times: FAILED"
        grep '(Failed)\|(Timeout)\|(Not Run)\|Exception\|No tests were found' build/repeat/$round || true
    fi
done
echo "$passes of $times rounds passed"
if [ $passes -ne "$times" ]; then
    echo "failed, and how often:"
    sed -n 's/^[[:space:]]*[0-9]* - \([^ ]*\) (.*)$/\1/p' build/repeat/* | sort | uniq -c | sort -rn
    exit 1
fi
