# Every target sets itself up: it needs a Python of 3.11 or newer and make, nothing else.
#   make PYTHON=/path/to/python3 ...   chooses the interpreter of a new .venv (default: the first on PATH that will do)
# Each target has a budget of seconds; one that overruns it is ended, and make fails. On a busy machine give it more:
#   make test TEST_BUDGET=900

VENV ?= .venv
PY = $(VENV)/bin/python
BUDGET = $(PY) tools/budget.py "make $@"

SETUP_BUDGET = 600
DEMO_BUDGET = 180
TEST_BUDGET = 480
TEST_JOBS = 4
FAULTS_BUDGET = 5400
CHAOS_BUDGET = 3600
SEARCH_BUDGET = 3600
TIMES = 20
SEED = 1
KILLS = 1000
CHECK_BUDGET = 120
GUARDS_BUDGET = 900
BENCH_BUDGET = 300
PYTHONS_BUDGET = 1200
TEST_SERVERS_BUDGET = 1200

.DEFAULT_GOAL := help
.PHONY: help demo test faults chaos reliability search check guards bench test-pythons test-servers clean distclean

help: ## this list
	@echo "make TARGET, where TARGET is one of"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'
	@echo "A new .venv uses the first Python >= 3.11 on PATH; make PYTHON=/path/to/python3 chooses another."

demo: $(VENV)/.stamp-run ## a real log replayed, FIFO against fair, a worker killed on the way; writes a report
	@$(BUDGET) DEMO_BUDGET $(DEMO_BUDGET) $(PY) -m fairqueue demo

test: $(VENV)/.stamp-dev ## the suite, on real servers it starts itself; many tests wait, so TEST_JOBS (4) run at once
	@$(BUDGET) TEST_BUDGET $(TEST_BUDGET) $(PY) -m pytest -q -n $(TEST_JOBS) --dist loadfile --timeout 120 tests --ignore tests/faults

faults: $(VENV)/.stamp-dev ## a fault at every command of every script (FAULTS_EVERY=3: at each third) and at every exchange with the server, and the faults that people have reported elsewhere
	@rm -f build/faults/*.jsonl
	@$(BUDGET) FAULTS_BUDGET $(FAULTS_BUDGET) $(PY) -m pytest -q -n 2 --dist worksteal --timeout 600 tests/faults; \
		status=$$?; $(PY) -m tools.faults_matrix && exit $$status

chaos: $(VENV)/.stamp-dev ## 1,000 kills, freezes and shutdowns besides, under load, every message accounted for; SEED=7, KILLS=60
	@$(BUDGET) CHAOS_BUDGET $(CHAOS_BUDGET) $(PY) -m tests.chaos --seed $(SEED) --kills $(KILLS)

reliability: $(VENV)/.stamp-dev ## docs/reliability.md from the last whole runs of `make faults` and `make chaos`
	@$(PY) -m tools.reliability $(RELIABILITY)

search: $(VENV)/.stamp-dev ## the properties and the state machine, 20 times as many examples as in the suite, and new ones; TIMES=5
	@PROPERTY_TIMES=$(TIMES) $(BUDGET) SEARCH_BUDGET $(SEARCH_BUDGET) $(PY) -m pytest -q -n 2 --dist worksteal tests/property

check: $(VENV)/.stamp-dev ## format, lint, types, layers, Lua; for root on Debian it installs lua-check if that is missing
	@tools/need_luacheck.sh
	@$(BUDGET) CHECK_BUDGET $(CHECK_BUDGET) $(PY) tools/check.py

guards: $(VENV)/.stamp-dev ## each guard of the engine with its counter-proof, as a table
	@$(BUDGET) GUARDS_BUDGET $(GUARDS_BUDGET) $(PY) -m tests.guards

bench: $(VENV)/.stamp-run ## messages a second on this machine
	@$(BUDGET) BENCH_BUDGET $(BENCH_BUDGET) $(PY) -m fairqueue bench

test-pythons: $(VENV)/.stamp-dev ## unit tests and a smoke test on every Python >= 3.11 at hand, from a built wheel
	@$(BUDGET) PYTHONS_BUDGET $(PYTHONS_BUDGET) $(PY) tools/test_pythons.py

test-servers: $(VENV)/.stamp-dev ## the tests of the engine on Valkey 9, Redis 7 and Redis 8, as far as they can be had
	@tools/need_redis7.sh
	@$(BUDGET) TEST_SERVERS_BUDGET $(TEST_SERVERS_BUDGET) $(PY) tools/test_servers.py

clean: ## removes what was built and cached; the virtual environment and your data stay
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache fairqueue-report.html
	@find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## clean, and the virtual environments too
	@rm -rf $(VENV) .venv-3.*

# A stamp says what was installed. It is older than pyproject.toml, or than the interpreter: it is done again. So it is
# where `pip install .` has put a copy in the place of the source: every target would run the copy from then on.
ifneq ($(wildcard $(VENV)/lib/python3*/site-packages/fairqueue/__init__.py),)
$(VENV)/.stamp-run $(VENV)/.stamp-dev: copied
.PHONY: copied
copied:
	@echo "fairqueue: a copy is installed in $(VENV) in the place of this source: putting the source back"
endif

$(VENV)/.stamp-run: pyproject.toml tools/setup.sh $(PY)
	@$(PY) tools/budget.py "set-up" SETUP_BUDGET $(SETUP_BUDGET) tools/setup.sh $(VENV) .
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml tools/setup.sh $(PY)
	@$(PY) tools/budget.py "set-up" SETUP_BUDGET $(SETUP_BUDGET) tools/setup.sh $(VENV) ".[dev]"
	@touch $@ $(VENV)/.stamp-run

$(PY):
	@tools/make_venv.sh $(VENV)
