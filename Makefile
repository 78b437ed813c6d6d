# SPDX-License-Identifier: Apache-2.0
# The front door. CMake does the work; `make help` lists what there is.
PREFIX ?= /usr/local
DESTDIR ?=
NINJA_JOBS := $(if $(JOBS),-j$(JOBS))

.PHONY: help demo build test test-repeat test-torch test-sanitized fault soak fuzz check-all lint format bench compare compare-p2p compare-lanes install clean
.NOTPARALLEL:

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

demo: build ## install what is missing, build, and sweep an allreduce of 8 ranks (seconds)
	build/weft bench allreduce -n 8 -b 8 -e 16M -f 8 --report build/demo.html

build: ## leave build/weft and build/libweft.so
	@scripts/deps.sh scripts/deps-build.txt
	@cmake --preset release -DWEFT_TESTS=OFF >/dev/null
	@cmake --build --preset release $(NINJA_JOBS)
	@ln -sfn release/bin/weft build/weft
	@ln -sfn release/lib/libweft.so build/libweft.so
	@ln -sfn libweft.so build/libweft.so.0

test: ## install what the tests need, build, run the suite (about 7 minutes on two cores)
	@scripts/deps.sh scripts/deps-build.txt scripts/deps-test.txt
	@scripts/test.sh

test-repeat: ## the suite TIMES= (10) times, to the end whatever fails: how often each test failed (hours)
	@scripts/deps.sh scripts/deps-build.txt scripts/deps-test.txt
	@scripts/test-repeat.sh $(or $(TIMES),10)

test-torch: build ## the PyTorch backend, in a virtual environment with the PyTorch it is tested with (about 2 minutes)
	@scripts/test-torch.sh

test-sanitized: ## the quick tests under asan, ubsan and tsan, and every fuzz target for a moment (minutes)
	@scripts/deps.sh scripts/deps-build.txt scripts/deps-test.txt
	@scripts/test.sh --sanitized

fault: ## kill a random rank in a random collective, N= times (300), from SEED= (the clock): who names it, how soon
	@scripts/deps.sh scripts/deps-build.txt scripts/deps-test.txt
	@cmake --preset release -DWEFT_TESTS=ON >/dev/null
	@cmake --build --preset release $(NINJA_JOBS) --target fault.f01_random_kills
	@build/release/tests/fault.f01_random_kills $(or $(N),300) $(SEED)

soak: ## the nemesis: 8 ranks at work, every second one fault, for SECONDS= (600) from SEED= (the clock); ARGS=--help
	@scripts/deps.sh scripts/deps-build.txt scripts/deps-test.txt
	@cmake --preset release -DWEFT_TESTS=ON >/dev/null
	@cmake --build --preset release $(NINJA_JOBS) --target net.nemesis_program weft_cli
	@python3 -B tests/net/nemesis.py --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED)) --quiet $(ARGS)

fuzz: ## every parser's libFuzzer target for MINUTES= (1), two at a time, from the seeds in the tree
	@scripts/deps.sh scripts/deps-build.txt scripts/deps-test.txt
	@scripts/fuzz.sh $$(($(or $(MINUTES),1) * 60))

check-all: ## everything, in all presets and at full length (hours); FUZZ_SECONDS= shortens it
	@scripts/deps.sh scripts/deps-build.txt scripts/deps-test.txt scripts/deps-check.txt
	@scripts/check-all.sh

lint: ## clang-format, clang-tidy, cppcheck, layers, pyflakes
	@scripts/deps.sh scripts/deps-build.txt scripts/deps-test.txt
	@scripts/lint.sh all

format: ## rewrite the sources in the project's format
	@scripts/lint.sh fix-format

bench: build ## start-up time at several sizes, beside a bare control
	build/weft bench bootstrap -n 2,8,64

compare: build ## collectives beside Open MPI, MPICH and Gloo, with a page (20 minutes); ROUNDS= ONLY="shm allreduce n2"
	@scripts/deps.sh scripts/deps-bench.txt || echo "going on without what is missing"
	@bench/compare.py --rounds $(or $(ROUNDS),5) $(if $(ONLY),--only "$(ONLY)")

compare-p2p: build ## messages and puts beside Open MPI, UCX, libfabric, iperf3 (minutes); ROUNDS=
	@scripts/deps.sh scripts/deps-bench.txt || echo "going on without what is missing"
	@bench/compare_p2p.py --rounds $(or $(ROUNDS),5)

compare-lanes: build ## all NICs beside one NIC, iperf3 streams and MPTCP, in the lab (root, minutes); ROUNDS=
	@scripts/deps.sh scripts/deps-bench.txt || echo "going on without what is missing"
	@bench/compare_lanes.py --rounds $(or $(ROUNDS),5)

install: build ## header, libraries, command, pkg-config, CMake package into PREFIX
	@DESTDIR="$(DESTDIR)" cmake --install build/release --prefix "$(PREFIX)"

clean: ## remove build/
	rm -rf build
