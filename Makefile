# `make demo` and `make test` work in a fresh clone: they need only Python 3.11 or newer, and make.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: demo test opencl webgpu cross test-long slow-tests lint types docs package format clean

demo: $(STAMP)
	$(BIN)/python examples/matmul.py
	$(BIN)/python -m examples.fashion_mnist.demo
	$(BIN)/python -m examples.onnx_cnn
	$(BIN)/python -m examples.sorting.demo
	$(BIN)/python -m examples.dictionary.demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal

# An OpenCL device for any processor, on which the tests of devices run; without one they are skipped, and say so.
opencl:
	@ldconfig -p | grep -q libOpenCL.so.1 && ls /etc/OpenCL/vendors/*.icd >/dev/null 2>&1 || { \
	echo "Installing PoCL"; apt-get update -qq && \
	apt-get install -y -qq --no-install-recommends pocl-opencl-icd ocl-icd-libopencl1 >/dev/null; }

# A Vulkan device for any processor, lavapipe, which is a WebGPU device as well, below the package wgpu of .venv; and the
# tools that check SPIR-V.
webgpu:
	@ldconfig -p | grep -q libvulkan.so.1 && ls /usr/share/vulkan/icd.d/*.json >/dev/null 2>&1 && command -v spirv-val >/dev/null || { \
	echo "Installing lavapipe"; apt-get update -qq && \
	apt-get install -y -qq --no-install-recommends mesa-vulkan-drivers libvulkan1 spirv-tools >/dev/null; }

# Compilers and emulators of other processors, on which tests/cross runs; without them its tests are skipped, and say so.
CROSS := qemu-user lld clang wasi-libc gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-arm-linux-gnueabihf \
	libc6-dev-armhf-cross gcc-riscv64-linux-gnu libc6-dev-riscv64-cross
CROSS_TOOLS := qemu-aarch64 wasm-ld clang aarch64-linux-gnu-gcc arm-linux-gnueabihf-gcc riscv64-linux-gnu-gcc
cross: $(STAMP)
	@missing=; for tool in $(CROSS_TOOLS); do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	test -z "$$missing" && test -d /usr/lib/wasm32-wasi || { echo "Installing $(CROSS)"; apt-get update -qq && \
	apt-get install -y -qq --no-install-recommends $(CROSS) >/dev/null; }

test-long: $(STAMP)
	ONEIR_TEST_LONG=1 $(BIN)/python -m pytest -n auto --dist worksteal

slow-tests: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal --durations=30 --durations-min=1

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/pyright

# The site of docs/ and the API reference, in build/site. A warning, such as for a link to nothing, is an error.
docs: $(STAMP)
	PYTHONPATH=src NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

package: $(STAMP)
	.ci/package

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis

# The environment follows pyproject.toml: it is made, or brought up to date, whenever that file is newer than the stamp.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "\
	OneIR needs Python 3.11 or newer, and '$(PYTHON)' is not one. Install it (Debian: apt-get install python3 python3-venv) \
	or name the one to use: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "\
	'$(PYTHON)' cannot make virtual environments: it has no ensurepip. Install it (Debian: apt-get install python3-venv)." >&2; exit 1; }
	@$(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@echo "Installing OneIR and what its tests need into .venv (a few minutes the first time)"
	@$(BIN)/python -m pip --disable-pip-version-check install -qq --editable '.[dev]'
	@$(BIN)/python -m compileall -q src || true  # where Python is told to write no bytecode, importing would take 0.8 s
	@touch $@
