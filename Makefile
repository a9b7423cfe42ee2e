# Two commands need nothing before them: `make demo` and `make test`. `make` alone lists the rest.
# The work is in scripts/, one file a job; build/<preset> holds what each preset builds.

BASE ?= main
SECONDS_EACH ?= 600

.PHONY: help
help:
	@echo "make demo          build, start a daemon, multiply real matrices through it, drain it"
	@echo "make test          everything CI runs: tests, sanitizers, a short fuzz"
	@echo "make build         build/cpu/server/gemmd and build/cpu/client/cli/gemmctl"
	@echo "make bench         build/cpu/bench/gemmd_bench, which measures a daemon"
	@echo "make check         the preset cpu and its tests alone"
	@echo "make sanitize      the sanitizer builds and their tests alone"
	@echo "make fuzz          every fuzz target for SECONDS_EACH=$(SECONDS_EACH) s"
	@echo "make soak          the long tests: 100,000 create/delete cycles and their like"
	@echo "make format        clang-format in place;  make format-check only looks"
	@echo "make tidy          clang-tidy on what changed since BASE=$(BASE)"
	@echo "make install       programs, man pages, C++ library and protos into PREFIX (default /usr/local)"
	@echo "make wheel, deb    build/packages: of build/cuda where it is built, else of build/cpu"
	@echo "make clean         removes build/"

.PHONY: demo
demo:
	@scripts/packages.sh build python
	@scripts/venv.sh client
	@scripts/build.sh cpu gemmd gemmctl
	@scripts/demo.sh

.PHONY: test
test:
	@scripts/packages.sh
	@scripts/test.sh all

.PHONY: check
check:
	@scripts/packages.sh
	@scripts/test.sh cpu

.PHONY: sanitize
sanitize:
	@scripts/packages.sh
	@scripts/test.sh asan tsan

.PHONY: fuzz
fuzz:
	@scripts/packages.sh
	@scripts/fuzz.sh $(SECONDS_EACH)

.PHONY: soak
soak:
	@scripts/packages.sh
	@scripts/test.sh soak

.PHONY: build
build:
	@scripts/packages.sh build
	@scripts/build.sh cpu gemmd gemmctl

.PHONY: bench
bench:
	@scripts/packages.sh build
	@scripts/build.sh cpu gemmd_bench

.PHONY: format format-check
format format-check:
	@scripts/packages.sh tools
	@scripts/format.sh $(if $(filter format-check,$@),--check)

.PHONY: tidy
tidy:
	@scripts/packages.sh
	@scripts/tidy.sh $(BASE)

PREFIX ?= /usr/local
.PHONY: install
install: installed
	cmake --install build/cpu --prefix $(PREFIX)

.PHONY: installed wheel deb
installed:
	@scripts/packages.sh build
	@scripts/build.sh cpu gemmd_installed

packaged := $(if $(wildcard build/cuda/server/gemmd),cuda,cpu)
wheel deb:
	@scripts/packages.sh build python
	@scripts/build.sh $(packaged) gemmd_installed
	@scripts/$@.sh build/$(packaged)

.PHONY: clean
clean:
	rm -rf build
