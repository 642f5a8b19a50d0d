# make demo | test | lint | bench | docs: each makes .venv first if it is missing or out of date.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint bench docs clean

demo: $(READY)
	$(BIN)/python examples/demo.py

test: $(READY)
	$(BIN)/python -m pytest -n auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/heads.py

# site/index.html; the tutorials and the reports of the gallery are run first, if they changed
docs: $(READY)
	$(BIN)/python docs/_site/made_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html"

clean:
	rm -rf .venv site build

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	# a start-up hook of this environment alone, see the module
	printf '%s\nimport torchvision_beside_cpu\n' "$(CURDIR)/environment" > "$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')/torchvision_beside_cpu.pth"
	touch $(READY)
