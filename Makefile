# SPDX-License-Identifier: Apache-2.0
# The usual targets; meson does the work. `make help` lists the targets.
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 60
SUITES ?=
# If not empty, `make check` prints the name of each test.
VERBOSE ?=
# Debian's meson comes first: it uses the right Python, whichever python3 is first in PATH.
MESON ?= $(firstword $(wildcard /usr/bin/meson) meson)
NINJA ?= ninja
PYTHON ?= /usr/bin/python3
MESON_ARGS ?=

# 1: `make check` runs the slow tests, too; only: it runs no others.
SLOW ?=

# If not empty, `make check` runs failed tests once more, if they are few.
REPEAT ?=

# `enabled`: also build the tests.
TESTS ?= disabled

check_options = $(if $(VERBOSE),--verbose) $(if $(SLOW),--slow $(SLOW)) $(if $(REPEAT),--repeat)

# Shows the output of meson only if it fails.
configure = $(NINJA) -C $(BUILD) build.ninja > $(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; exit 1; }

# Shows only warnings and errors of ninja.
build = out=$$($(NINJA) -C $(BUILD) --quiet 2>&1); rc=$$?; \
  printf '%s\n' "$$out" | grep -v -e '^ninja: no work to do' -e '^$$' >&2; exit $$rc

.PHONY: all help build check deb demo bench bench-arbiter bench-crowd bench-dorm bench-dorm-live bench-long bench-recovery bench-scale bench-slurm bench-streams bench-yarn fuzz soak install clean format sanitize coverage docs tarball tidy
all: build

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

build: ## build into build/ (programs in build/bin)
	@tools/install-deps --dry-run build >&2 || \
	  { echo "install them with: tools/install-deps build   (or \`make check\`, \`make demo\`, which do)" >&2; exit 1; }
	@$(MAKE) --no-print-directory compile

# Does not check the packages: for targets that have just installed them.
.PHONY: compile
compile: $(BUILD)/build.ninja
	@test $(TESTS) = disabled || grep -q '"name": "tests", "value": "$(TESTS)"' $(BUILD)/meson-info/intro-buildoptions.json || \
	  $(MESON) configure $(BUILD) -Dtests=$(TESTS)
	@$(configure)
	@$(build)

$(BUILD)/build.ninja:
	@$(MESON) setup $(BUILD) -Dtests=$(TESTS) $(MESON_ARGS) > $(BUILD).log 2>&1 || { cat $(BUILD).log; rm -f $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log

check: ## install what the tests need, build, and run the tests (those of SUITES="unit e2e"; SLOW=1: the slow ones, too)
	@tools/install-deps check
	@case "$(SUITES)" in "" | *frameworks*) tools/install-frameworks main mxnet types $(if $(SLOW),airflow jupyter) || true ;; esac # if it fails, its tests say what is missing
	@$(MAKE) --no-print-directory TESTS=enabled compile
	@$(PYTHON) tools/check --build $(BUILD) $(check_options) $(addprefix --only ,$(SUITES))

demo: ## install what the demo needs, build, and train a model on two workers
	@tools/install-deps demo
	@$(MAKE) --no-print-directory compile
	@tools/demo

bench: ## install MPICH, build, and print the table of ratios
	@tools/install-deps bench
	@$(MAKE) --no-print-directory compile
	@bench/run

bench-crowd: ## install Java and Maven, build, and measure 200 waiting jobs and 1,000 watched tasks on a real Hadoop
	@tools/install-deps check
	@$(MAKE) --no-print-directory compile
	@bench/crowd waiting
	@bench/crowd watched

bench-dorm: ## build, and simulate a day of 50 jobs with 20 seeds under static, drf and dorm
	@$(MAKE) --no-print-directory build
	@bench/dorm

bench-dorm-live: ## build, and run 18 real trainings on this machine under each of static, drf and dorm (20 minutes)
	@tools/install-deps demo
	@$(MAKE) --no-print-directory compile
	@bench/dorm --live

bench-arbiter: ## install Java and Maven, build, and run trainings on four NodeManagers, with and without the arbiter
	@tools/install-deps check
	@$(MAKE) --no-print-directory compile
	@bench/arbiter

bench-recovery: ## install MPICH and PyTorch, build, and measure how fast killed tasks restart
	@tools/install-deps bench demo
	@$(MAKE) --no-print-directory compile
	@bench/recovery

bench-long: ## install valgrind, build, and measure the journal of a job of 60 days
	@tools/install-deps scale
	@$(MAKE) --no-print-directory compile
	@bench/long

bench-scale: ## install valgrind, build, and measure jobs of 1,000 and 10,000 tasks
	@tools/install-deps scale
	@$(MAKE) --no-print-directory compile
	@bench/scale

bench-slurm: ## install Slurm, build, and measure the start and end of jobs beside sbatch and srun
	@tools/install-deps check
	@$(MAKE) --no-print-directory compile
	@bench/slurm

bench-streams: ## install socat, build, and measure streams into a task beside socat
	@tools/install-deps bench
	@$(MAKE) --no-print-directory compile
	@bench/streams

bench-yarn: ## install Java and Maven, build, and measure tony on a real Hadoop
	@tools/install-deps check
	@$(MAKE) --no-print-directory compile
	@bench/yarn

soak: ## the long tests (more than an hour)
	@tools/install-deps check frameworks scale vm
	@tools/install-frameworks horovod || true # its test says that it is missing
	@$(MAKE) --no-print-directory TESTS=enabled compile
	@$(PYTHON) tools/check --build $(BUILD) $(check_options) --slow 1 --only soak --only soak-yarn --only slurm --only vm

fuzz: ## run libFuzzer on each parser, FUZZ_SECONDS (60) each
	@tools/install-deps fuzz check
	@CC=clang $(MAKE) --no-print-directory BUILD=build-fuzz \
	  MESON_ARGS="-Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false" build-fuzz/build.ninja
	@$(NINJA) -C build-fuzz --quiet fuzzers
	@tools/fuzz build-fuzz $(FUZZ_SECONDS)

sanitize: ## all tests with ASan and UBSan, in build-asan/
	@tools/install-deps check
	@$(MAKE) --no-print-directory BUILD=build-asan TESTS=enabled \
	  MESON_ARGS="-Db_sanitize=address,undefined -Db_lundef=false -Dbuildtype=debugoptimized" compile
	@$(PYTHON) tools/check --build build-asan $(check_options) $(addprefix --only ,$(SUITES))

# Without the tests on a real Hadoop: its nodes can only run static programs, which cannot count lines.
coverage: ## line coverage of all tests except yarn, or of SUITES="unit fuzz", in build-cov/
	@tools/install-deps check
	@$(MAKE) --no-print-directory BUILD=build-cov TESTS=enabled MESON_ARGS="-Dcoverage=true -Dbuildtype=debug" compile
	@find build-cov -name '*.gcda' -delete
	@$(PYTHON) tools/check --build build-cov $(check_options) $(addprefix --only ,$(or $(SUITES),layers docs tools unit fuzz e2e)); rc=$$?; tools/coverage build-cov; exit $$rc

install: ## install into $(DESTDIR)$(PREFIX), stripped
	@test -d $(BUILD)/bin || $(MAKE) --no-print-directory build
	@$(MESON) introspect $(BUILD) --buildoptions | grep -q '"name": "prefix", "value": "$(abspath $(PREFIX))"' || \
	  $(MESON) setup --reconfigure $(BUILD) --prefix $(abspath $(PREFIX)) > /dev/null
	@$(configure)
	@$(build)
	@DESTDIR=$(DESTDIR) $(MESON) install -C $(BUILD) --no-rebuild --strip --quiet
	@echo "installed into $(DESTDIR)$(abspath $(PREFIX))"

deb: ## make dist/tony_VERSION_ARCH.deb; made on Debian 12, it installs on Debian 12 and 13
	@tools/install-deps package
	@$(MAKE) --no-print-directory compile
	@packaging/package deb $(BUILD)

tarball: ## make dist/tony-VERSION-linux-ARCH.tar.xz: static programs for any Linux
	@tools/install-deps package
	@$(MAKE) --no-print-directory BUILD=build-static MESON_ARGS="-Dstatic_all=true" compile
	@packaging/package tarball build-static

docs: ## build, and make a web site of the pages in build/site, with search
	@tools/install-deps build docs
	@$(MAKE) --no-print-directory compile
	@tools/make-docs $(BUILD)

format: ## run clang-format on the C files
	@tools/install-deps format
	@clang-format -i $$(git ls-files '*.c' '*.h')

tidy: ## run clang-tidy on the C files
	@tools/install-deps format build
	@$(MAKE) --no-print-directory compile
	@clang-tidy --quiet -p $(BUILD) $$(git ls-files 'src/*.c')

clean: ## remove every build directory
	@rm -rf build build-asan build-cov build-fuzz $(BUILD)
