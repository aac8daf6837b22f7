# Every target needs Python 3.11 and make, nothing else: it makes .venv, installs the project editable with what the
# target needs, and runs. Another interpreter: `make test PYTHON=python3.12`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
TYPECHECK := build/typecheck
SAMPLE := tests/packaging/typed_sample
LINT := build/lint
DOCS := build/docs

# TensorFlow reports on its build and on missing GPU drivers at every start. meshtf's programs keep that from their users;
# of others this leaves only the lines that are written while TensorFlow is imported, before it reads the setting.
QUIET := TF_CPP_MIN_LOG_LEVEL=3

# A setting that some containers have. Every process that a test starts would compile meshtf anew, and every worker all tests.
unexport PYTHONDONTWRITEBYTECODE

BENCHMARKS := $(filter-out peers gpu.install_bundle gpu.measure gpu.offline_bundle gpu.check gpu.bench gpu.counted,$(subst /,.,$(patsubst benchmarks/%.py,%,$(shell grep -l '^if __name__' benchmarks/*.py benchmarks/[!m]*/*.py))))

RUN ?= lm_tiny
TRAIN_ARGS ?= --gin_file=$(RUN).gin --model_dir=runs/$(RUN)
DECODE_ARGS ?= --model_dir=runs/$(RUN) --prompt='def ' --prompt='import ' --method=sample --top_p=0.8 --max_new_tokens=160
TEST_ARGS ?=
BENCH_ARGS ?=
PLAIN := tests/ops/algebra/test_contraction.py tests/ops/convolution/test_gradients.py tests/optimize/test_low_precision.py \
    tests/lowering/passes/updates/test_update_fusion.py tests/properties/test_other_processors.py
GPU_ARGS ?=
CUDA ?= cuda13
PART_MIB ?= 50
HAS_CUDA = $(if $(shell command -v nvidia-smi),$(VENV)/has-$(CUDA))
TPU_TESTS := tests/xla tests/mesh_impl/tpu tests/lowering/ahead tests/lowering/emit/test_xla_refusals.py \
    tests/lowering/emit/test_oversized.py tests/lowering/passes/test_gathered_reductions.py \
    tests/backends/test_tpu_mesh_impl.py tests/bin/test_compile.py \
    tests/backends/test_on_virtual_tpu.py tests/backends/test_whole_programs_on_virtual_tpu.py tests/train/batches/test_steps_ahead.py \
    tests/cluster/test_tpu_over_processes.py
WORKERS := -n auto --maxprocesses=4 --dist worksteal
# Each room of a long run grows to 7 GB, and the processes that its tests join to 3 GB each.
LONG_WORKERS ?= 2
LONG := -n $(LONG_WORKERS) --dist worksteal --timeout=1800

.PHONY: train train-cluster test test-long test-quick tpu-check tests-of lint typecheck docs bench gpu-check bench-gpu count-gpu offline-bundle benchmark configurables format clean $(BENCHMARKS:%=benchmark-%)

train: $(VENV)/has-examples
	$(BIN)/meshtf-train $(TRAIN_ARGS)
	$(BIN)/meshtf-decode $(DECODE_ARGS)

# Over two processes of four cores: the losses are those of `make train`, but for rounding in sums of four cores.
train-cluster: $(VENV)/has-examples
	$(BIN)/meshtf-launch --processes=2 --cores_per_process=4 -- \
		$(BIN)/meshtf-train --gin_file=$(RUN).gin --model_dir=runs/$(RUN)_cluster

# Some tests of kernels run a second time as on a CPU without AVX-512, where this one has it: products, convolutions, fused
# updates and random bits, in two processes. `make test-long` runs all of these so. Not with TEST_ARGS, which may leave none.
test: lint
	$(BIN)/python -m pytest $(WORKERS) $(TEST_ARGS)
	$(if $(TEST_ARGS),,$(BIN)/python -m tests.plain_cpu -n 2 -m "plain_cpu and not long" $(PLAIN))

# Room by room, for hours. `make test-long TEST_ARGS="ops xla"` runs two rooms. TEST_ARGS=--resume continues.
test-long: lint $(VENV)/has-test-long
	$(BIN)/python -m tests.house.long_run --at_once=$(LONG_WORKERS) $(TEST_ARGS)

# What can be known of programs for TPUs on a machine that has none: those of virtual cores run, and libtpu compiles them
# all for real ones. More than an hour on two cores.
tpu-check: $(VENV)/has-test
	$(BIN)/python -m pytest $(LONG) -m "long or not long" $(TPU_TESTS) $(TEST_ARGS)
	$(QUIET) $(BIN)/python -m benchmarks.tpu.plan_against_compiler

# For the inner loop: the language on the interpreter of plans, without devices. Under a minute.
test-quick: lint
	$(BIN)/python -m pytest $(WORKERS) -m "quick and not long" $(TEST_ARGS)

# The tests that speak of one file: `make tests-of FILE=meshtf/ops/order/argmax.py`.
tests-of: $(VENV)/has-test
	@$(BIN)/python -m tests.tests_of $(FILE) $(TEST_ARGS)

lint: $(VENV)/has-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.english.plain_english
	rm -rf $(LINT)
	$(BIN)/python setup.py --quiet build --build-base $(LINT)/base --build-lib $(LINT)/lib
	cd $(LINT)/lib && PYTHONPATH=. $(CURDIR)/$(BIN)/lint-imports --config $(CURDIR)/pyproject.toml --no-cache

# What programs know of meshtf's configurables before they import it.
configurables: $(VENV)/has-test
	$(QUIET) $(BIN)/python -m tests.meshtf_programs.configurables

format: $(VENV)/has-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The installed wheel is what is checked; see [tool.pyright] in pyproject.toml. Then a user's project, in an environment
# that has meshtf from the wheel, by pyright and by mypy, both strict. mypy starts in the project's folder, because in this
# one it would read the sources in place of the wheel.
typecheck: $(VENV)/has-typecheck
	rm -rf $(TYPECHECK) build/wheel
	$(BIN)/pyproject-build --no-isolation --outdir build/wheel .
	$(BIN)/python -m pip install --quiet --no-deps --target $(TYPECHECK) build/wheel/*.whl
	$(BIN)/pyright
	rm -rf build/sample-venv
	$(PYTHON) -m venv --without-pip build/sample-venv
	$(BIN)/python -m pip --python build/sample-venv/bin/python install --quiet --no-deps build/wheel/*.whl numpy
	$(BIN)/pyright --pythonpath build/sample-venv/bin/python --project $(SAMPLE)
	cd $(SAMPLE) && $(CURDIR)/$(BIN)/mypy --python-executable $(CURDIR)/build/sample-venv/bin/python \
		--config-file mypy.ini --cache-dir $(CURDIR)/build/mypy .

# The site of the documentation, in build/site; a warning is an error. In build/docs layers/ and models/ are inside meshtf.
docs: $(VENV)/has-docs
	rm -rf $(DOCS)
	$(BIN)/python setup.py --quiet build --build-base $(DOCS)/base --build-lib $(DOCS)/lib
	$(QUIET) NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Beside JAX, Keras and DTensor, in an environment of its own. Writes the tables of docs/benchmarks.md and their pictures.
bench:
	$(MAKE) VENV=build/bench-venv build/bench-venv/has-bench
	$(QUIET) build/bench-venv/bin/python -m benchmarks.peers $(BENCH_ARGS)

# Everything that needs a GPU, in at most six minutes on one. Without one it says what it skips.
gpu-check: $(VENV)/has-examples $(HAS_CUDA)
	$(QUIET) $(BIN)/python -m benchmarks.gpu.check $(GPU_ARGS)

# Beside JAX by hand on one GPU, in at most six minutes. Writes a table and a picture, with the card's name.
bench-gpu: $(VENV)/has-examples $(HAS_CUDA)
	$(QUIET) $(BIN)/python -m benchmarks.gpu.bench $(GPU_ARGS)

# Kernels, bytes and memory of the same programs, in what CUDA's compiler makes of them. It needs no GPU, but the compiler:
# `make .venv/has-cuda13`. Without it, it says so.
count-gpu: $(VENV)/has-examples
	$(QUIET) $(BIN)/python -m benchmarks.gpu.counted $(GPU_ARGS)

# For machines without network that have the same Python: wheels in parts, and a script that installs them there.
offline-bundle: $(VENV)/made
	rm -rf build/bundle build/bundle-wheels
	$(BIN)/python -m pip wheel --quiet --wheel-dir build/bundle-wheels '.[$(CUDA)]'
	$(BIN)/python -m benchmarks.gpu.offline_bundle build/bundle-wheels build/bundle --part_mib=$(PART_MIB) \
		--requirement='meshtf[$(CUDA)]'

# One by one: `make benchmark-planning`.
benchmark: $(BENCHMARKS:%=benchmark-%)

$(BENCHMARKS:%=benchmark-%): benchmark-%: $(VENV)/has-test
	$(QUIET) $(BIN)/python -m benchmarks.$*

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis

# `has-<extra>` says that .venv holds the project with that extra. Made anew when what the project needs changes.
$(VENV)/has-%: pyproject.toml setup.py | $(VENV)/made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@

$(VENV)/made:
	$(PYTHON) -m venv $(VENV)
	touch $@

.PRECIOUS: $(VENV)/has-%
.NOTPARALLEL:
