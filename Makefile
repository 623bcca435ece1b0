# planish: every task of the project. `make` lists them.
#
# Needs Rust, gcc, and python3 with pip. Variables: CARGO_FLAGS (say, --locked), PROPTEST_RNG_SEED (property tests run
# the same cases each time; another seed, other cases), RUNS, FUZZ_SECONDS, PEER, DECODER.

CARGO_FLAGS ?=
export PROPTEST_RNG_SEED ?= 1
RUNS ?= 7
FUZZ_SECONDS ?= 60
PEER ?=
DECODER ?=

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
PLANISH := $(TARGET_DIR)/release/planish
MINILM := .deps/minilm
DEMO := $(TARGET_DIR)/demo
BERT_BASE := .bench/bert-base
COMPAT := .deps/compat
GOLDENS = $(dir $(wildcard fixtures/goldens/*/io.safetensors)) $(MINILM):fixtures/minilm/io.safetensors

.DELETE_ON_ERROR:

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' $(MAKEFILE_LIST) | while read -r name text; do printf '  %-15s %s\n' "$$name" "$$text"; done

.PHONY: deps
deps: ## fetch the pinned ONNX Runtime and MiniLM into .deps/ (nothing to do when they are there)
	@python3 tools/deps.py

.PHONY: build
build: ## build the release binary
	cargo build --release $(CARGO_FLAGS)

.PHONY: test
test: deps ## run all tests
	@if cargo nextest --version >/dev/null 2>&1; \
	then cargo nextest run --workspace $(CARGO_FLAGS) && cargo test --workspace --doc $(CARGO_FLAGS); \
	else cargo test --workspace $(CARGO_FLAGS); fi

.PHONY: fmt
fmt: ## check the formatting
	cargo fmt --all --check

.PHONY: clippy
clippy: ## lint, warnings denied
	cargo clippy --workspace --all-targets $(CARGO_FLAGS) -- -D warnings

.PHONY: doc
doc: ## build the documentation, warnings denied
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps $(CARGO_FLAGS)

.PHONY: test-tools
test-tools: ## test the scripts in tools/
	python3 -m unittest discover -s tools

# One stage after another, the quick ones first, with the time of each.
.PHONY: check
check: ## formatting, lints, documentation, tests: what must pass before a commit
	@for stage in fmt test-tools clippy doc test; do \
	  start=$$(date +%s); \
	  echo "== $$stage"; \
	  $(MAKE) --no-print-directory $$stage || { echo "== $$stage failed after $$(($$(date +%s) - start)) s" >&2; exit 1; }; \
	  echo "== $$stage passed in $$(($$(date +%s) - start)) s"; \
	done

.PHONY: demo
demo: deps build ## compile the trained MiniLM for ONNX Runtime, verify it, measure it next to the unfused graph
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	$(PLANISH) compile $(MINILM) -o $(DEMO)/minilm-ort --target ort --verify
	$(PLANISH) compile $(MINILM) -o $(DEMO)/minilm-unfused --target onnx --no-fusion
	$(PLANISH) verify $(DEMO)/minilm-ort --reference $(MINILM)
	$(PLANISH) bench $(DEMO)/minilm-unfused $(DEMO)/minilm-ort --batch 1,8 --seq 128 --reference $(MINILM)

# An independent reader of what we write: the Python packages of ONNX and ONNX Runtime.
.PHONY: compat
compat: deps build $(COMPAT)/.installed ## hold compiled models against stored outputs in Python (needs Python 3.11)
	$(COMPAT)/bin/python tests/compat/check_goldens.py $(PLANISH) --target onnx $(GOLDENS)
	$(COMPAT)/bin/python tests/compat/check_goldens.py $(PLANISH) --target ort $(GOLDENS)

$(COMPAT)/.installed: tests/compat/requirements.txt
	rm -rf $(COMPAT)
	python3 -m venv $(COMPAT)
	$(COMPAT)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary=:all: -r $<
	touch $@

# The cases that the package onnx brings for each operator.
NODE_TESTS := $(TARGET_DIR)/node-tests

.PHONY: conformance
conformance: deps $(NODE_TESTS)/.written ## run ONNX's node tests through us and ONNX Runtime, and through the interpreter (needs Python 3.11)
	cargo run $(CARGO_FLAGS) -p planish-conformance -- $(NODE_TESTS)

$(NODE_TESTS)/.written: tools/node_tests.py $(COMPAT)/.installed
	rm -rf $(NODE_TESTS)
	$(COMPAT)/bin/python tools/node_tests.py $(NODE_TESTS)
	touch $@

.PHONY: bench-models
bench-models: $(BERT_BASE)/model.safetensors ## write a BERT-base with random weights into .bench/

$(BERT_BASE)/model.safetensors: $(wildcard tools/bench-models/src/*.rs)
	cargo run --release $(CARGO_FLAGS) -p planish-bench-models -- bert-base $(BERT_BASE)

.PHONY: bench-compile
bench-compile: build bench-models ## time and peak memory of compiling BERT-base, next to cp of its weights
	python3 tools/bench_compile.py $(PLANISH) $(BERT_BASE) --runs $(RUNS) --check

.PHONY: bench-latency
bench-latency: build bench-models $(COMPAT)/.installed ## latency of BERT-base next to PEER, another exporter's graph of .bench/bert-base
	@test -f "$(PEER)" || { echo 'name the other graph, say: make bench-latency PEER=optimum/model.onnx' >&2; exit 2; }
	$(PLANISH) compile $(BERT_BASE) -o .bench/bert-base-ort --target ort
	$(COMPAT)/bin/python tools/bench_latency.py 1x128,8x128,1x512 $(PEER) .bench/bert-base-ort/model.onnx

.PHONY: bench-generate
bench-generate: deps build ## generation with the cache against without it, by DECODER, an artifact that takes 1003 tokens
	@test -f "$(DECODER)/planish.json" || { echo 'name an artifact, say: make bench-generate DECODER=gpt2-ort' >&2; exit 2; }
	python3 tools/bench_generate.py $(PLANISH) $(DECODER)

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZ_SECONDS (needs nightly Rust and cargo-fuzz)
	@cargo +nightly fuzz --version >/dev/null 2>&1 || \
	  { echo "make fuzz needs nightly Rust and cargo-fuzz: rustup toolchain install nightly && cargo install cargo-fuzz" >&2; exit 1; }
	@set -e; names=$$(cargo +nightly fuzz list); \
	for name in $$names; do cargo +nightly fuzz run $$name -- -max_total_time=$(FUZZ_SECONDS); done

.PHONY: clean
clean: ## remove what was built and measured; .deps/ stays
	cargo clean
	rm -rf .bench
