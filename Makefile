# make demo | test | lint | bench: each makes .venv first if it is missing or out of date.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint bench clean

demo: $(READY)
	$(BIN)/layline demo

test: $(READY)
	$(BIN)/python -m pytest -n auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# ROOT: a folder of graded images, for what concerns images
bench: $(READY)
	$(BIN)/python benchmarks/heads.py
	$(if $(ROOT),$(BIN)/python benchmarks/images.py --root "$(ROOT)")

clean:
	rm -rf .venv

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	# a start-up hook of this environment alone, see the module
	printf '%s\nimport torchvision_beside_cpu\n' "$(CURDIR)/environment" > "$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')/torchvision_beside_cpu.pth"
	touch $(READY)
