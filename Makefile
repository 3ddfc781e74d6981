# `make help` lists what there is. Everything lands in .venv/ and build/; nothing needs root.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PY := .venv/bin/python

NATIVE := $(wildcard */csrc/* cmake/*) CMakeLists.txt
PYTHON_FILES := $(shell find lambda_svc paramserver feature_store models tools -name '*.py' 2>/dev/null | sort)

.PHONY: help demo test unit native-tests tidy sanitize prove clean installed FORCE

help: ## What this Makefile can do
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

demo: installed ## Install, train on MovieLens, package, serve and rank: the whole path once
	@.venv/bin/lambda-svc demo $(DEMO)

test: installed native-tests tidy unit ## Install, then C++ tests, tidy and pytest

unit: installed native-tests
	@$(PY) -m pytest -q $(PYTEST)

native-tests: installed
	@tools/native_tests.sh build/tests

tidy: installed ## Size, import, include and dead-code rules
	@$(PY) -m tools.tidy

sanitize: installed ## C++ tests under ASan + UBSan, then under TSan
	@tools/native_tests.sh build/asan address,undefined
	@tools/native_tests.sh build/tsan thread

prove: installed ## Everything that takes long, resumable; logs in build/prove/
	@$(PY) -m tools.prove $(PROVE)

clean: ## Forget the environment and everything built
	rm -rf .venv build dist

# The installer leaves its error in a file and exits 0, so that make's last words are that one line.
installed: .venv/installed
	@:$(if $(wildcard build/install.error),$(error $(shell cat build/install.error)))

.venv/installed: constraints.txt pyproject.toml $(NATIVE) build/python_files
	@tools/install.sh

# Changes only when a Python file appears or goes: an editable install knows files by name.
build/python_files: FORCE
	@mkdir -p build && echo '$(PYTHON_FILES)' | cmp -s - $@ || echo '$(PYTHON_FILES)' > $@
