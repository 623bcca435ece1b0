# planish: every task of the project. `make` lists them.
#
# Needs Rust, gcc, and python3 with pip. Variables: CARGO_FLAGS (say, --locked), PROPTEST_RNG_SEED (property tests run
# the same cases each time; another seed, other cases), RUNS, FUZZ_SECONDS, CASES, PEER, DECODER, BENCH_MODELS (what
# bench-compile takes), TRT (no: leave TensorRT out), TARGET, PRECISION (fp16, bf16), TABLE (a page whose table compat-exporters rewrites),
# GPU_FLAGS (options of gpu-check), QUANT_MODEL, QUANT_ARTIFACTS and QUANT_PAGE (what bench-quant compares and where it
# writes), VISION and VISION_FLAGS (of bench-vision), LANGUAGE_MODEL and HELD_BACK (what bench-perplexity and bench-weights take), WEIGHTS_FLAGS (of bench_weights.py), PLANISH_ORT_LIB.

CARGO_FLAGS ?=
TRT ?=
export PROPTEST_RNG_SEED ?= 1
RUNS ?= 7
FUZZ_SECONDS ?= 60
CASES ?= 1000
PEER ?=
DECODER ?=
BENCH_MODELS ?= bert-base gpt2 llama-1.1b
TARGET ?= ort
PRECISION ?=
TABLE ?=
export PLANISH_ORT_LIB ?=
# ONNX Runtime keeps nothing in the home of who runs the tests.
export ORT_DISABLE_TELEMETRY ?= 1

# Without TensorRT neither its library nor libclang is needed. The default features are without it.
ifeq ($(TRT),no)
DEPS_FLAGS := --without tensorrt
FEATURES :=
else
FEATURES := --features tensorrt-rtx
endif

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
PLANISH := $(TARGET_DIR)/release/planish
MINILM := .deps/minilm
DEMO := $(TARGET_DIR)/demo
# Tests add lines to it.
SKIPPED_TESTS := $(abspath $(TARGET_DIR))/skipped-tests.txt
BERT_BASE := .bench/bert-base
COMPAT := .deps/compat
COMPAT_1_31 := .deps/compat-1.31
OPTIMUM := .deps/compat-optimum
SENTENCE := .deps/compat-sentence
FASTEMBED := .deps/compat-fastembed
ONNX_GENAI := .deps/compat-onnx-genai
TRITON := .deps/compat-triton
OPENVINO := .deps/compat-openvino
EXPORTERS := .deps/compat-exporters
QUANTIZATION := .deps/bench-quant
TENSORRT := .deps/compat-tensorrt
WEIGHTS := .deps/bench-weights
RAY := .deps/ray
SWEEP := .deps/sweep
HUB := .deps/compat-hub
STORES := .deps/compat-stores
AZURITE := .deps/azurite
TRANSFORMERS_JS := .deps/compat-transformers-js
GOLDENS = $(dir $(wildcard fixtures/goldens/*/io.safetensors)) $(MINILM):fixtures/minilm/io.safetensors
DECODERS = $(dir $(shell grep -lE '(CausalLM|LMHeadModel)"' fixtures/goldens/*/config.json))

.DELETE_ON_ERROR:

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' $(MAKEFILE_LIST) | while read -r name text; do printf '  %-16s %s\n' "$$name" "$$text"; done

# The build script of trtx-sys watches headers that it writes itself. Cargo finds them newer than the script's run, and so runs it and
# builds what depends on it at each call, unless the headers are older.
OLD_HEADERS = find $(TARGET_DIR)/*/build/trtx-sys-*/out -name '*.h' -exec touch -d @0 {} + 2>/dev/null || true

.PHONY: deps
deps: ## fetch the pinned ONNX Runtime, OpenVINO, TensorRT-RTX, libclang and MiniLM into .deps/ (nothing to do when they are there)
	@python3 tools/deps.py $(DEPS_FLAGS)
	@$(OLD_HEADERS)

.PHONY: build
build: deps ## build the release binary
	cargo build --release $(CARGO_FLAGS) $(FEATURES)

# The part of the version that programs in C are linked with: it changes when they have to be built again.
SONAME := libplanish_c.so.0
COMMA := ,
# Of the release profile, or of the one that packages have.
C_LIBRARY = cargo rustc -p planish-c --lib --profile $(1) --crate-type $(2) $(CARGO_FLAGS) $(FEATURES) -- -C link-arg=-Wl,-soname,$(SONAME)

.PHONY: capi
capi: deps ## build the library for C: target/release/libplanish_c.so and .a; the header is capi/include/planish.h (docs/library.md)
	$(call C_LIBRARY,release,cdylib$(COMMA)staticlib)
	ln -sf libplanish_c.so $(TARGET_DIR)/release/$(SONAME)

CBINDGEN := .deps/cbindgen/bin/cbindgen
$(CBINDGEN):
	cargo install --quiet --root .deps/cbindgen cbindgen --version =0.29.4 --locked

.PHONY: header
header: $(CBINDGEN) ## write capi/include/planish.h from capi/src; a test compares them
	cd capi && $(abspath $(CBINDGEN)) --quiet --config cbindgen.toml --output include/planish.h .

# What crates.io does not get: what serves this repository.
UNPUBLISHED := testing bench-models bench-nodes conformance cuda-compile random-graphs
# Without the line tables of what is thrown away.
.PHONY: package
package: ## pack each crate as for crates.io, and build it from its archive, without TensorRT; the archives are in target/packaging/package
	CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$(abspath $(TARGET_DIR))/packaging cargo package --workspace $(UNPUBLISHED:%=--exclude planish-%) \
	  --allow-dirty $(CARGO_FLAGS)

CARGO_DEB := .deps/cargo-deb/bin/cargo-deb
$(CARGO_DEB):
	cargo install --quiet --root .deps/cargo-deb cargo-deb --version =3.8.0 --locked

# What the program writes itself, for the assets of Cargo.toml. DEB_PROFILE=release takes less time and gives larger files.
DEB_TREE := target/deb
DEB_PROFILE ?= dist

.PHONY: deb
deb: deps $(CARGO_DEB) ## build the Debian package into target/debian: program, pages, completions, library for C
	cargo build --profile $(DEB_PROFILE) $(CARGO_FLAGS) $(FEATURES)
	$(call C_LIBRARY,$(DEB_PROFILE),cdylib)
	rm -rf $(DEB_TREE) $(TARGET_DIR)/debian
	python3 tools/pages.py $(TARGET_DIR)/$(DEB_PROFILE)/planish $(DEB_TREE)
	set -- $$($(TARGET_DIR)/$(DEB_PROFILE)/planish --version) && \
	  sed -e 's,@PREFIX@,/usr,' -e "s/@VERSION@/$$2/" capi/planish.pc.in > $(DEB_TREE)/planish.pc
	$(CARGO_DEB) --no-build --no-strip --profile $(DEB_PROFILE)

.PHONY: check-deb
check-deb: deb ## unpack the Debian package, and run the program, its pages and a program in C from there
	python3 tests/compat/check_deb.py target/debian/planish_*.deb fixtures/goldens/bert-sentence examples/c/embed.c

WHEEL_TOOLS := .deps/wheel
WHEELS := $(TARGET_DIR)/wheels
# What maturin puts into the environment beside the program.
WHEEL_DATA := planish.data
# zig links with the symbols of glibc 2.28, so the program runs on Debian 10, Ubuntu 20.04, RHEL 8 and what is newer.
# It runs from a folder that .deps is not below: zig names its headers from the current folder on, and build scripts run in others.
MATURIN = cd python && PATH="$(abspath $(WHEEL_TOOLS))/bin:$$PATH" maturin build -m ../Cargo.toml --profile dist --zig --compatibility manylinux_2_28 \
  --compression-level 9 --out $(abspath $(WHEELS)) $(CARGO_FLAGS)

# The program prints its manual pages, so the wheel is put together twice; the second time nothing is compiled.
.PHONY: wheel
wheel: deps $(WHEEL_TOOLS)/.installed ## build the Python package into target/wheels
	rm -rf $(WHEELS) $(WHEEL_DATA)
	$(MATURIN)
	python3 tools/pages.py $(TARGET_DIR)/x86_64-unknown-linux-gnu/dist/planish $(WHEEL_DATA)/data/share
	$(MATURIN)
	rm -r $(WHEEL_DATA)

.PHONY: check-wheel
check-wheel: wheel ## install the wheel into fresh environments, and compile, verify and run MiniLM there
	python3 tests/compat/check_wheel.py $(WHEELS)/planish-*.whl $(MINILM) fixtures/data/sentences.txt

.PHONY: test
test: export PLANISH_SKIPPED_TESTS := $(SKIPPED_TESTS)
test: deps ## run all tests, and list those that cannot run on this machine
	@rm -f $(SKIPPED_TESTS)
	@if cargo nextest --version >/dev/null 2>&1; \
	then cargo nextest run --workspace $(CARGO_FLAGS) $(FEATURES) && { $(OLD_HEADERS); } && cargo test --workspace --doc $(CARGO_FLAGS) $(FEATURES); \
	else cargo test --workspace $(CARGO_FLAGS) $(FEATURES); fi
	@touch $(SKIPPED_TESTS); echo "$$(wc -l < $(SKIPPED_TESTS)) skipped on this machine"; sort $(SKIPPED_TESTS)

# The library is NVIDIA's lean runtime, which loads engines; PyPI has no wheel of the whole of TensorRT that make deps could pin.
.PHONY: test-tensorrt
test-tensorrt: ## test the binding of TensorRT (the product for data centers) instead of TensorRT-RTX
	@python3 tools/deps.py --with tensorrt-lean
	cargo test -p planish-runtimes --features tensorrt --target-dir $(TARGET_DIR)/tensorrt $(CARGO_FLAGS) -- --skip ort

# All that runs models on ONNX Runtime by the library that PLANISH_ORT_LIB names; nextest has filters like these.
.PHONY: test-ort-1.31
test-ort-1.31: ## run goldens and graphs on ONNX Runtime 1.31.1, the release before the pinned one (needs cargo-nextest)
	@python3 tools/deps.py $(DEPS_FLAGS) --with onnxruntime-1.31
	PLANISH_ORT_LIB=$(abspath .deps/onnxruntime-1.31) cargo nextest run -p planish --test end_to_end $(CARGO_FLAGS) $(FEATURES) \
	  -E 'test(/^(goldens|graphs|half_graphs|block_graphs|quantization|quantized_graphs|weight_only|passing_through|running)::/)'

.PHONY: fmt
fmt: ## check the formatting
	cargo fmt --all --check

.PHONY: clippy
clippy: deps ## lint, warnings denied
	cargo clippy --workspace --all-targets $(CARGO_FLAGS) $(FEATURES) -- -D warnings

.PHONY: doc
doc: deps ## build the documentation, warnings denied
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps $(CARGO_FLAGS) $(FEATURES)

.PHONY: test-tools
test-tools: ## test the scripts in tools/
	python3 -m unittest discover -s tools

# The test of the same name in tests/end_to_end writes the example. Screenshots are in $(TARGET_DIR)/report-screenshots.
.PHONY: test-report
test-report: deps ## open the report of an example, and pages of inspect, in Chromium (Debian: apt install chromium): plots, errors, phones, light and dark
	cargo test -p planish --test end_to_end $(CARGO_FLAGS) $(FEATURES) -- --exact bench_report::the_report_of_an_example_is_written
	python3 tools/check_report.py $(TARGET_DIR)/report-example.html $(TARGET_DIR)/report-screenshots
	cargo test -p planish --test end_to_end $(CARGO_FLAGS) $(FEATURES) -- --exact inspect::pages_are_one_file_with_the_graph
	python3 tools/check_inspect.py --screenshots $(TARGET_DIR)/report-screenshots $(addprefix $(TARGET_DIR)/inspect-,artifact.html checkpoint.html graph.html)

CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

.PHONY: test-report-if-possible
test-report-if-possible:
	@if [ -n "$(CHROMIUM)" ]; then $(MAKE) --no-print-directory test-report; else echo "Chromium is not there: skipped"; fi

# NVRTC needs no GPU. CUDA_ARCH chooses architectures, say sm_80,sm_90.
CUDA_ARCH ?=
.PHONY: cuda-compile
cuda-compile: deps ## compile the CUDA kernels for sm_80, 86, 89, 90, 100 and 120, and print their registers, shared memory and spills
	cargo build $(CARGO_FLAGS) $(FEATURES) --workspace --bin planish-cuda-compile
	$(TARGET_DIR)/debug/planish-cuda-compile $(if $(CUDA_ARCH),--arch $(CUDA_ARCH))

# The kernels are compiled as C++ with gcc's AddressSanitizer, whose library has to be there first.
.PHONY: test-cuda-asan
test-cuda-asan: deps ## run the CUDA kernels on the processor with AddressSanitizer, in both orders of threads
	cargo test --workspace --lib --no-run $(CARGO_FLAGS) $(FEATURES)
	set -e; for order in "" reverse 7; do \
	  PLANISH_EMULATOR_ORDER=$$order PLANISH_EMULATOR_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -O1 -g" \
	  LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	  $$(ls -t $(abspath $(TARGET_DIR))/debug/deps/planish_runtimes-* | grep -v '\.d$$' | head -1) cuda::tests; \
	done

# Both modes of the emulator on all cases. Buffers have allocations of their own in the second one.
.PHONY: emulator-check
emulator-check: deps ## search the CUDA kernels for races and for accesses after the ends of buffers, on the processor
	cargo test --workspace --lib --no-run $(CARGO_FLAGS) $(FEATURES)
	set -e; tests=$$(ls -t $(abspath $(TARGET_DIR))/debug/deps/planish_runtimes-* | grep -v '\.d$$' | head -1); \
	start=$$(date +%s); PLANISH_EMULATOR_RACES=1 $$tests cuda::tests; \
	echo "== races: $$(($$(date +%s) - start)) s"; start=$$(date +%s); \
	PLANISH_CUDA_SEPARATE_BUFFERS=1 PLANISH_EMULATOR_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -O1 -g" \
	  LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	  $$tests cuda::tests; \
	echo "== separate buffers: $$(($$(date +%s) - start)) s"

# One stage after another, the quick ones first, with the time of each.
.PHONY: check
check: ## formatting, lints, documentation, kernels, tests: what must pass before a commit
	@for stage in fmt test-tools clippy doc cuda-compile test test-random-graphs test-report-if-possible; do \
	  start=$$(date +%s); \
	  echo "== $$stage"; \
	  $(MAKE) --no-print-directory $$stage || { echo "== $$stage failed after $$(($$(date +%s) - start)) s" >&2; exit 1; }; \
	  echo "== $$stage passed in $$(($$(date +%s) - start)) s"; \
	done

.PHONY: demo
demo: deps build ## compile the trained MiniLM for ONNX Runtime, verify it, build a TensorRT engine, measure the artifact next to the unfused graph
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	$(PLANISH) compile $(MINILM) -o $(DEMO)/minilm-ort --target ort --verify
	$(PLANISH) compile $(MINILM) -o $(DEMO)/minilm-unfused --target onnx --no-fusion
	$(PLANISH) verify $(DEMO)/minilm-ort --reference $(MINILM)
	$(if $(filter no,$(TRT)),,$(PLANISH) compile $(MINILM) -o $(DEMO)/minilm-trt --target trt --fp16)
	$(PLANISH) bench $(DEMO)/minilm-unfused $(DEMO)/minilm-ort --batch 1,8 --seq 128 --reference $(MINILM) --html $(DEMO)/report.html
	@echo "the report: $(DEMO)/report.html"

# What users load artifacts with, in Python (3.11 or newer): each library's own reader and its pinned versions.
.PHONY: compat
compat: compat-onnx compat-onnx-1.31 compat-genai compat-onnx-genai compat-optimum compat-sentence compat-fastembed compat-transformers-js compat-browser compat-states compat-triton compat-openvino compat-card compat-hub compat-stores compat-tensorrt ## hold compiled models against stored outputs by all that follow

.PHONY: compat-onnx
compat-onnx: deps build $(COMPAT)/.installed ## ... by the Python packages of ONNX and ONNX Runtime
	$(COMPAT)/bin/python tests/compat/check_goldens.py $(PLANISH) --target onnx $(GOLDENS)
	$(COMPAT)/bin/python tests/compat/check_goldens.py $(PLANISH) --target ort $(GOLDENS)

.PHONY: compat-onnx-1.31
compat-onnx-1.31: deps build $(COMPAT_1_31)/.installed ## ... by the release of ONNX Runtime before the pinned one
	$(COMPAT_1_31)/bin/python tests/compat/check_goldens.py $(PLANISH) --target onnx $(GOLDENS)
	$(COMPAT_1_31)/bin/python tests/compat/check_goldens.py $(PLANISH) --target ort $(GOLDENS)

.PHONY: compat-genai
compat-genai: deps build $(COMPAT)/.installed ## ... by onnxruntime-genai: text of decoders, and of Whisper
	$(COMPAT)/bin/python tests/compat/check_genai.py $(PLANISH) $(DECODERS)
	$(COMPAT)/bin/python tests/compat/check_genai_speech.py $(PLANISH) fixtures/speech

.PHONY: compat-onnx-genai
compat-onnx-genai: deps build $(ONNX_GENAI)/.installed ## ... by onnx-genai, a runtime in Rust that loads the same folders: text of decoders
	$(ONNX_GENAI)/bin/python tests/compat/check_onnx_genai.py $(PLANISH) $(DECODERS)

.PHONY: compat-openvino
compat-openvino: deps build $(OPENVINO)/.installed ## ... by OpenVINO's Python package, compiled for it and for any runtime
	$(OPENVINO)/bin/python tests/compat/check_openvino.py $(PLANISH) --target openvino $(GOLDENS)
	$(OPENVINO)/bin/python tests/compat/check_openvino.py $(PLANISH) --target onnx $(GOLDENS)

.PHONY: compat-optimum
compat-optimum: deps build $(OPTIMUM)/.installed ## ... by Optimum's classes, encoder-decoders also with both decoders in one graph (installs PyTorch, several GB)
	HF_HUB_OFFLINE=1 $(OPTIMUM)/bin/python tests/compat/check_optimum.py $(PLANISH) $(GOLDENS)

# The newest release that Optimum's own package takes, and the newest of all.
.PHONY: compat-sentence
compat-sentence: deps build $(OPTIMUM)/.installed $(SENTENCE)/.installed ## ... by sentence-transformers 5 and 6, with its own pooling and with the graph's (installs PyTorch twice)
	HF_HUB_OFFLINE=1 $(OPTIMUM)/bin/python -W ignore tests/compat/check_sentence.py $(PLANISH) $(MINILM) fixtures/data/sentences.txt
	HF_HUB_OFFLINE=1 $(SENTENCE)/bin/python -W ignore tests/compat/check_sentence.py $(PLANISH) $(MINILM) fixtures/data/sentences.txt

.PHONY: compat-fastembed
compat-fastembed: deps build $(FASTEMBED)/.installed ## ... by fastembed's custom models: vectors, and scores of a reranker
	HF_HUB_OFFLINE=1 $(FASTEMBED)/bin/python tests/compat/check_fastembed.py $(PLANISH) $(MINILM) fixtures/data/sentences.txt

.PHONY: compat-transformers-js
compat-transformers-js: web-models ## ... by Transformers.js in Node: its pipelines with each variant, and its classes of LLaVA and SmolVLM
	$(PLANISH) compile $(MINILM) -o $(TRANSFORMERS_JS)/minilm --target onnx --force
	$(PLANISH) embed $(TRANSFORMERS_JS)/minilm --data fixtures/data/sentences.txt -o $(TRANSFORMERS_JS)/vectors.jsonl
	node tests/compat/check_transformers_js.mjs $(TRANSFORMERS_JS) $(TRANSFORMERS_JS)/minilm fixtures/data/sentences.txt $(TRANSFORMERS_JS)/vectors.jsonl
	$(PLANISH) compile fixtures/seeing/llava -o $(TRANSFORMERS_JS)/llava --target onnx --force
	$(PLANISH) compile fixtures/seeing/smolvlm -o $(TRANSFORMERS_JS)/smolvlm --target onnx --force
	node tests/compat/check_transformers_js_seeing.mjs $(TRANSFORMERS_JS) $(TRANSFORMERS_JS)/llava=fixtures/seeing/llava $(TRANSFORMERS_JS)/smolvlm=fixtures/seeing/smolvlm
	node tests/compat/web/node.mjs $(TRANSFORMERS_JS) $(TRANSFORMERS_JS)/web

.PHONY: compat-browser
compat-browser: web-models ## ... by Transformers.js in headless Chromium, with onnxruntime-web (Debian: apt install chromium)
	python3 tests/compat/web/browser.py $(TRANSFORMERS_JS) $(TRANSFORMERS_JS)/web $(TARGET_DIR)/browser-screenshots

# What both load: artifacts of all variants, and what planish makes with them.
.PHONY: web-models
web-models: deps build $(TRANSFORMERS_JS)/.installed
	rm -rf $(TRANSFORMERS_JS)/web && mkdir -p $(TRANSFORMERS_JS)/web
	python3 tests/compat/web/prepare.py $(PLANISH) $(MINILM) fixtures/goldens fixtures/data/sentences.txt $(TRANSFORMERS_JS)/web

# What Transformers.js has names of states for; Qwen3.5 is in the library with images only.
STATES = $(addprefix fixtures/goldens/,lfm2 lfm2-moe qwen3-next falcon-h1 granitemoehybrid nemotron-h)

.PHONY: compat-states
compat-states: deps build $(COMPAT)/.installed $(TRANSFORMERS_JS)/.installed ## ... by Transformers.js in Node: text of decoders with states of a fixed size
	$(COMPAT)/bin/python tests/compat/check_transformers_js_states.py $(PLANISH) $(TRANSFORMERS_JS) $(STATES)

# Without the scripts of packages: one of them downloads libraries for GPUs.
$(TRANSFORMERS_JS)/.installed:
	rm -rf $(TRANSFORMERS_JS) && mkdir -p $(TRANSFORMERS_JS) && echo '{"private": true}' > $(TRANSFORMERS_JS)/package.json
	npm install --prefix $(TRANSFORMERS_JS) --ignore-scripts --no-audit --no-fund --silent --save-exact @huggingface/transformers@4.3.1
	touch $@

.PHONY: compat-triton
compat-triton: deps build $(TRITON)/.installed ## ... by the protocol of Triton Inference Server: its configurations, and a tokenizer before MiniLM
	$(TRITON)/bin/python tests/compat/check_triton.py $(PLANISH) $(MINILM) fixtures/data/sentences.txt $(addprefix fixtures/goldens/,bert gpt2 t5 vit)

# For example: make compat-card CARD_FLAGS='--only minilm'.
CARD_FLAGS ?=

.PHONY: compat-card
compat-card: deps build $(COMPAT)/.installed $(OPTIMUM)/.installed $(TRANSFORMERS_JS)/.installed ## ... by the code in their model cards, which is run
	HF_HUB_OFFLINE=1 $(OPTIMUM)/bin/python -W ignore tests/compat/check_card.py $(CARD_FLAGS) $(PLANISH) $(MINILM) fixtures/speech $(COMPAT)/bin/python $(TRANSFORMERS_JS) $(sort $(dir $(wildcard fixtures/goldens/*/config.json)))

.PHONY: compat-tensorrt
compat-tensorrt: deps build $(TENSORRT)/.installed ## ... by NVIDIA's Python bindings of TensorRT-RTX, which build the same engines
	$(TENSORRT)/bin/python tests/compat/check_tensorrt.py $(PLANISH) $(MINILM) $(sort $(dir $(wildcard fixtures/goldens/*/config.json)))

# Tiny models of transformers' architectures, as other exporters write them.
EXPORTED := $(TARGET_DIR)/compat-exporters

.PHONY: compat-exporters
compat-exporters: deps build $(EXPORTERS)/.installed $(OPTIMUM)/.installed ## hold graphs of torch.onnx.export and Optimum against what becomes of them (installs PyTorch twice)
	$(OPTIMUM)/bin/python tests/compat/export_models.py optimum $(EXPORTED)
	$(EXPORTERS)/bin/python tests/compat/export_models.py dynamo $(EXPORTED)
	$(EXPORTERS)/bin/python tests/compat/check_exporters.py $(PLANISH) $(EXPORTED) $(TABLE:%=--table %)

.PHONY: support-table
support-table: deps build $(EXPORTERS)/.installed ## measure the table of docs/support.md: encoders by task and form (installs PyTorch)
	$(EXPORTERS)/bin/python -W ignore tools/support_table.py $(PLANISH) fixtures/goldens docs/support.md

# ENCODERS has options of the script, say "--only bert --configurations 40 --seed 1".
ENCODERS ?=

.PHONY: compat-encoders
compat-encoders: deps build $(EXPORTERS)/.installed ## hold encoders of random configurations against transformers; 10 minutes (installs PyTorch)
	$(EXPORTERS)/bin/python tests/compat/check_encoders.py $(PLANISH) $(ENCODERS)

# DECODERS_FLAGS has options of the script, as ENCODERS.
DECODERS_FLAGS ?=

.PHONY: compat-decoders
compat-decoders: deps build $(EXPORTERS)/.installed ## hold decoders of random configurations against transformers; 5 minutes (installs PyTorch)
	$(EXPORTERS)/bin/python tests/compat/check_decoders.py $(PLANISH) $(DECODERS_FLAGS)

# VISION_FLAGS has options of the script, as ENCODERS.
VISION_FLAGS ?=

.PHONY: compat-vision
compat-vision: deps build $(EXPORTERS)/.installed ## hold models of images of random configurations against transformers; half a minute (installs PyTorch)
	$(EXPORTERS)/bin/python tests/compat/check_vision.py $(PLANISH) $(VISION_FLAGS)

# SPEECH_FLAGS has options of the script, as ENCODERS.
SPEECH_FLAGS ?=

.PHONY: bench-speech-encoders
bench-speech-encoders: deps build $(EXPORTERS)/.installed ## measure wav2vec 2.0 of random weights next to the graph of torch (installs PyTorch)
	$(EXPORTERS)/bin/python -W ignore tools/bench_speech_encoders.py $(PLANISH) $$(mktemp -d)

.PHONY: compat-speech
compat-speech: deps build $(EXPORTERS)/.installed $(TRANSFORMERS_JS)/.installed ## hold models of recordings of random configurations against transformers, and texts of Transformers.js; five minutes (installs PyTorch)
	$(EXPORTERS)/bin/python tests/compat/check_speech.py $(PLANISH) $(SPEECH_FLAGS)
	$(EXPORTERS)/bin/python tests/compat/check_transformers_js_speech.py $(PLANISH) $(TRANSFORMERS_JS) fixtures/goldens/wav2vec2 fixtures/speech

# CAPTIONERS_FLAGS has options of the script, as ENCODERS.
CAPTIONERS_FLAGS ?=

.PHONY: compat-captioners
compat-captioners: deps build $(EXPORTERS)/.installed ## hold encoders of images with decoders of texts against transformers; 15 minutes (installs PyTorch)
	$(EXPORTERS)/bin/python tests/compat/check_captioners.py $(PLANISH) fixtures/pictures/files/large.png $(CAPTIONERS_FLAGS)

# For example: make compat-seeing SEEING_FLAGS='--configurations 100 --only llava'.
SEEING_FLAGS ?=

.PHONY: compat-seeing
compat-seeing: deps build $(EXPORTERS)/.installed ## hold models that see against transformers: random configurations, and pictures in prompts; some minutes (installs PyTorch)
	$(EXPORTERS)/bin/python tests/compat/check_seeing.py $(PLANISH) $(SEEING_FLAGS)
	$(EXPORTERS)/bin/python tests/compat/check_images_in_prompts.py $(PLANISH) $(addprefix fixtures/pictures/files/,rgb.png tall.png pixel.png large.png)

.PHONY: compat-speech-decoders
compat-speech-decoders: deps build $(EXPORTERS)/.installed ## hold Whisper and Moonshine of random configurations against transformers; half a minute (installs PyTorch)
	$(EXPORTERS)/bin/python -W ignore tests/compat/check_speech_decoders.py $(PLANISH)
	$(EXPORTERS)/bin/python -W ignore tests/compat/check_transcribe_windows.py $(PLANISH)

# TRANSCRIBE_FLAGS has options of the script, say "--seeds 0:100".
TRANSCRIBE_FLAGS ?=

.PHONY: compat-transcribe
compat-transcribe: deps build $(EXPORTERS)/.installed ## hold transcription against the long-form generation of transformers; a minute (installs PyTorch)
	$(EXPORTERS)/bin/python -W ignore tests/compat/check_transcribe.py $(PLANISH) $(TRANSCRIBE_FLAGS)

# BENCH_SPEECH_FLAGS has options of the script, say "--sizes tiny --hours 3"; CTranslate2 is measured where the environment has it.
BENCH_SPEECH_FLAGS ?= --only planish,planish-int8,transformers

.PHONY: bench-speech
bench-speech: deps build $(EXPORTERS)/.installed ## measure transcription next to transformers on models of the sizes of Whisper (installs PyTorch)
	$(EXPORTERS)/bin/python -W ignore tools/bench_speech.py $(PLANISH) $(TARGET_DIR)/bench-speech $(BENCH_SPEECH_FLAGS)

.PHONY: test-ray
test-ray: deps build $(RAY)/.installed ## run the scripts of docs/scale.md (Ray with two workers; Slurm's without Slurm), and compare with one run
	$(RAY)/bin/python tests/compat/check_scale.py $(PLANISH) $(MINILM) fixtures/data/sentences.txt

.PHONY: test-sweep
test-sweep: deps build $(SWEEP)/.installed ## run a sweep of 200 jobs on a local Ray of two nodes, kill one, and compare with one process
	$(SWEEP)/bin/python tests/compat/check_sweep.py $(PLANISH) fixtures/goldens

.PHONY: test-slurm
test-slurm: deps build ## run a sweep as an array of a local Slurm of two nodes, and kill one (needs Debian's slurmctld, slurmd and munge, and root)
	PLANISH_ORT_LIB=$(firstword $(wildcard $(abspath .deps/onnxruntime)/libonnxruntime.so.*)) python3 tests/compat/check_slurm.py $(PLANISH) fixtures/goldens

.PHONY: compat-hub
compat-hub: deps build $(HUB)/.installed ## hold the cache of models of the hub against Python's huggingface_hub, both ways
	$(HUB)/bin/python tests/compat/check_hub.py $(PLANISH) $(MINILM)

.PHONY: compat-stores
compat-stores: deps build $(STORES)/.installed $(AZURITE)/.installed ## compile from the object stores of moto (S3) and Azurite (Azure), which check signatures
	$(STORES)/bin/python tests/compat/check_stores.py $(PLANISH) $(MINILM) --azurite $(AZURITE)/node_modules/.bin/azurite-blob

.PHONY: compat-sounds
compat-sounds: deps build $(EXPORTERS)/.installed ## hold what becomes of recordings against transformers; needs ffmpeg and espeak-ng (installs PyTorch)
	$(EXPORTERS)/bin/python tests/compat/check_sounds.py $(PLANISH)

$(COMPAT)/.installed: tests/compat/requirements.txt
$(COMPAT_1_31)/.installed: tests/compat/requirements-1.31.txt
$(OPTIMUM)/.installed: tests/compat/requirements-optimum.txt
$(SENTENCE)/.installed: tests/compat/requirements-sentence.txt
$(FASTEMBED)/.installed: tests/compat/requirements-fastembed.txt
$(ONNX_GENAI)/.installed: tests/compat/requirements-onnx-genai.txt
$(TRITON)/.installed: tests/compat/requirements-triton.txt
$(OPENVINO)/.installed: tests/compat/requirements-openvino.txt
$(TENSORRT)/.installed: tests/compat/requirements-tensorrt.txt
$(EXPORTERS)/.installed: tests/compat/requirements-exporters.txt
$(QUANTIZATION)/.installed: tools/quantization/requirements.txt
$(WEIGHTS)/.installed: tools/weights/requirements.txt tests/compat/requirements-exporters.txt
$(RAY)/.installed: tests/compat/requirements-ray.txt
$(SWEEP)/.installed: tests/compat/requirements-sweep.txt tests/compat/requirements-ray.txt
$(WHEEL_TOOLS)/.installed: tools/wheel/requirements.txt
$(HUB)/.installed: tests/compat/requirements-hub.txt
$(STORES)/.installed: tests/compat/requirements-stores.txt
$(AZURITE)/.installed:
	rm -rf $(AZURITE) && mkdir -p $(AZURITE) && echo '{"private": true}' > $(AZURITE)/package.json
	cd $(AZURITE) && npm install --ignore-scripts --no-audit --no-fund --silent --save-exact azurite@3.37.0
	touch $@
%/.installed:
	rm -rf $*
	python3 -m venv $*
	$*/bin/python -m pip install --quiet --disable-pip-version-check --only-binary=:all: -r $<
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

# The type that weights are stored in, where it is not f32.
DTYPE_llama-1.1b := bf16

.PHONY: bench-models
bench-models: $(BENCH_MODELS:%=.bench/%/model.safetensors) ## write BENCH_MODELS with random weights into .bench/

.bench/%/model.safetensors: $(wildcard tools/bench-models/src/*.rs)
	cargo run --release $(CARGO_FLAGS) -p planish-bench-models -- $* .bench/$* --dtype $(or $(DTYPE_$*),f32)

.PHONY: bench-compile
bench-compile: build bench-models ## time and peak memory of compiling BENCH_MODELS for TARGET, next to cp of what is written
	set -e; for model in $(BENCH_MODELS); do \
	  python3 tools/bench_compile.py $(PLANISH) .bench/$$model --target $(TARGET) $(PRECISION:%=--precision %) --runs $(RUNS) --check; \
	done

# RUNS=500 for the number that counts.
.PHONY: signal-sweep
signal-sweep: build .bench/gpt2/model.safetensors ## interrupt compile of .bench/gpt2 at RUNS moments: the old artifact or the new, never half
	python3 tools/signal_sweep.py $(PLANISH) .bench/gpt2 --runs $(RUNS)

# TUNE_FLAGS has options of tools/bench_tune.py. The peer of Llama is the graph of onnxruntime-genai, if bench-decoding made it.
TUNE_FLAGS ?=
TUNE_MODELS := bert-base gpt2 llama-1.1b vit-base

.PHONY: bench-tune
bench-tune: deps build $(OPTIMUM)/.installed $(TUNE_MODELS:%=.bench/%/model.safetensors) ## what compile --tune chooses in 10 repeats of 5 models, and its gain over the default and Optimum; an hour or two (installs PyTorch)
	python3 tools/bench_tune.py $(PLANISH) .bench/tune minilm=$(MINILM) $(foreach name,$(TUNE_MODELS),$(name)=.bench/$(name)) \
	  --optimum $(OPTIMUM)/bin/python --peer llama-1.1b=.bench/decoding/genai/model.onnx $(TUNE_FLAGS)

.PHONY: bench-nodes
bench-nodes: ## time of import, passes and export by the number of nodes, of graphs of 10k, 30k and 100k
	cargo run --release $(CARGO_FLAGS) -p planish-bench-nodes -- --runs $(RUNS) --target $(TARGET)

.PHONY: bench-latency
bench-latency: build $(BERT_BASE)/model.safetensors $(COMPAT)/.installed ## latency of BERT-base next to PEER, another exporter's graph of .bench/bert-base
	@test -f "$(PEER)" || { echo 'name the other graph, say: make bench-latency PEER=optimum/model.onnx' >&2; exit 2; }
	$(PLANISH) compile $(BERT_BASE) -o .bench/bert-base-ort --target ort
	$(COMPAT)/bin/python tools/bench_latency.py 1x128,8x128,1x512 $(PEER) .bench/bert-base-ort/model.onnx

.PHONY: bench-check
bench-check: deps build $(COMPAT)/.installed ## the times of planish bench next to those of Python's onnxruntime on the same file: within 3%
	@mkdir -p $(DEMO)
	test -d $(DEMO)/bench-check || $(PLANISH) compile $(MINILM) -o $(DEMO)/bench-check --target ort
	$(COMPAT)/bin/python tools/bench_check.py $(PLANISH) $(DEMO)/bench-check/model.onnx 1x16 1x128 8x128 --library $(abspath .deps/onnxruntime)

# PAIRS of consecutive runs; BENCH has options of bench.
PAIRS ?= 20
BENCH ?= --seq 16 --set time=1

.PHONY: bench-agreement
bench-agreement: deps build ## hold the medians of PAIRS of consecutive runs of MiniLM against their intervals: 95 % differ by less
	@mkdir -p $(DEMO)
	test -d $(DEMO)/memory-minilm || $(PLANISH) compile $(MINILM) -o $(DEMO)/memory-minilm --target ort
	python3 tools/bench_agreement.py $(PLANISH) $(DEMO)/memory-minilm --pairs $(PAIRS) --bench "$(BENCH) --reference $(MINILM) --runtime-option ort-lib=$(abspath .deps/onnxruntime)"

.PHONY: memory-check
memory-check: deps build .bench/gpt2/model.safetensors ## the memory figures of bench and inspect next to what the system counts for planish run: within 10%
	@mkdir -p $(DEMO)
	test -d $(DEMO)/memory-minilm || $(PLANISH) compile $(MINILM) -o $(DEMO)/memory-minilm --target ort
	test -d $(DEMO)/memory-gpt2 || $(PLANISH) compile .bench/gpt2 -o $(DEMO)/memory-gpt2 --target ort
	python3 tools/memory_check.py $(PLANISH) $(DEMO)/memory-minilm=1,8,32 $(DEMO)/memory-gpt2=1,4 --library $(abspath .deps/onnxruntime)

# tools/quantization/settings.txt has the settings of planish. QUANT_ARTIFACTS are NAME=DIR, compiled before.
QUANT_MODEL ?= $(MINILM)
# QUANT_FLAGS=--realtime measures at real-time priority on a machine that is shared.
QUANT_ARTIFACTS ?=
QUANT_FLAGS ?=
QUANT_PAGE ?= docs/quantization.md

.PHONY: bench-embed
bench-embed: deps build $(OPTIMUM)/.installed ## embeddings a second of MiniLM next to sentence-transformers (onnx and torch), 1000 texts of mixed lengths (installs PyTorch)
	$(PLANISH) compile $(MINILM) -o $(TARGET_DIR)/bench-embed --force
	$(OPTIMUM)/bin/python -W ignore tools/bench_embed.py $(PLANISH) $(MINILM) $(TARGET_DIR)/bench-embed fixtures/data/sentences.txt

OPENVINO_BENCH ?=

.PHONY: bench-openvino
bench-openvino: deps build $(OPENVINO)/.installed ## MiniLM for OpenVINO, float32 to INT8, next to NNCF and ONNX Runtime: accuracy and interleaved latency; 10 minutes
	$(OPENVINO)/bin/python tools/bench_openvino.py $(PLANISH) $(MINILM) $(OPENVINO_BENCH)

.PHONY: bench-quant
bench-quant: build $(QUANTIZATION)/.installed $(OPTIMUM)/.installed ## INT8 of QUANT_MODEL next to its peers: accuracy, latency, cost of calibration (installs PyTorch)
	HF_HUB_OFFLINE=1 $(QUANTIZATION)/bin/python tools/bench_quant.py $(PLANISH) $(QUANT_MODEL) --optimum $(OPTIMUM)/bin/python \
	  $(QUANT_FLAGS) $(QUANT_ARTIFACTS:%=--artifact %) $(QUANT_PAGE:%=--document %)

# Names of tools/vision/models.py, and cnn. VISION_FLAGS=--cpu-time measures the time of a processor on a machine that is shared.
VISION ?= cnn vit-base resnet-50 convnext-tiny segformer-b0
VISION_FLAGS ?=

.PHONY: bench-vision
bench-vision: deps build $(OPTIMUM)/.installed ## latency of VISION in float32 and INT8 next to Optimum and ONNX Runtime's static tool (installs PyTorch)
	HF_HUB_OFFLINE=1 $(OPTIMUM)/bin/python -W ignore tools/bench_vision.py $(PLANISH) $(VISION) $(VISION_FLAGS) --document docs/measurements.md

# A picture for bench-seeing, and its options.
PICTURE ?= fixtures/pictures/files/large.png
SEEING_BENCH ?=

.PHONY: bench-seeing
bench-seeing: deps build $(EXPORTERS)/.installed ## a model of the sizes of SmolVLM-256M with a picture next to transformers: first token, tokens a second, memory (installs PyTorch)
	$(EXPORTERS)/bin/python tools/bench_seeing.py $(PLANISH) $(PICTURE) $(SEEING_BENCH)

# A language model and text that it was not trained on.
LANGUAGE_MODEL ?= ../shared/models/pylm
HELD_BACK ?= $(LANGUAGE_MODEL)/heldback.txt

.PHONY: bench-perplexity
bench-perplexity: deps build ## perplexity of LANGUAGE_MODEL in INT8 and FP8 next to float32, on the text HELD_BACK; at most 1 % more
	python3 tools/bench_perplexity.py $(PLANISH) $(LANGUAGE_MODEL) $(HELD_BACK)

.PHONY: bench-weights
bench-weights: build $(WEIGHTS)/.installed .bench/llama-1.1b/model.safetensors ## weights of 4 and 8 bits next to peers: accuracy, size, time and memory, generation (installs PyTorch)
	$(WEIGHTS)/bin/python tools/bench_weights.py $(PLANISH) --language-model $(LANGUAGE_MODEL) --held-back $(HELD_BACK) \
	  --encoder $(MINILM) --decoder .bench/llama-1.1b $(WEIGHTS_FLAGS)

# Made by bench-decoding where they are not there.
DECODING := .bench/decoding
# DECODING_FLAGS=--rounds 3 for a first look.
DECODING_FLAGS ?=

.PHONY: bench-decoding
bench-decoding: build $(WEIGHTS)/.installed .bench/llama-1.1b/model.safetensors ## steps and first tokens of Llama 1.1B INT4 next to onnxruntime-genai: equal threads, 0 to 2 busy processes; 12 minutes (installs PyTorch)
	@mkdir -p $(DECODING)
	$(PLANISH) compile .bench/llama-1.1b -o $(DECODING)/default --force --int4 --recipe cache=in-place
	$(PLANISH) compile .bench/llama-1.1b -o $(DECODING)/equal-bits --force --int4 --recipe cache=in-place --keep @head=int4 --keep @table=float
	test -f $(DECODING)/genai/genai_config.json || { mkdir -p $(DECODING)/source && \
	  ln -sf $(abspath .bench/llama-1.1b)/* $(abspath $(LANGUAGE_MODEL))/tokenizer* $(DECODING)/source && \
	  HF_HUB_OFFLINE=1 $(WEIGHTS)/bin/python -m onnxruntime_genai.models.builder -i $(DECODING)/source -o $(DECODING)/genai \
	    -p int4 -e cpu -c $(DECODING)/cache; }
	$(WEIGHTS)/bin/python tools/bench_decoding.py $(PLANISH) --ours planish=$(DECODING)/default \
	  --ours "planish, equal bits=$(DECODING)/equal-bits" --theirs $(DECODING)/genai $(DECODING_FLAGS)

# Other models than those of .bench and MiniLM: SIZE_MODELS.
SIZE_MODELS ?= $(MINILM) .bench/bert-base .bench/t5-small .bench/gpt2 .bench/vit-base cnn lstm

.PHONY: bench-sizes
bench-sizes: build deps $(QUANTIZATION)/.installed $(patsubst %,%/model.safetensors,$(filter .bench/%,$(SIZE_MODELS))) ## sizes and errors of INT8 artifacts of SIZE_MODELS next to ONNX Runtime's tool
	$(QUANTIZATION)/bin/python tools/bench_sizes.py $(PLANISH) $(SIZE_MODELS) --document docs/quantization.md

.PHONY: bench-cache
bench-cache: build .bench/gpt2/model.safetensors $(COMPAT)/.installed ## a step of GPT-2 by the length of its cache, appended to in place next to a copy
	$(PLANISH) compile .bench/gpt2 -o .bench/gpt2-copy --recipe cache=copy
	$(PLANISH) compile .bench/gpt2 -o .bench/gpt2-in-place --recipe cache=in-place
	$(COMPAT)/bin/python tools/bench_cache.py .bench/gpt2-copy/model.onnx .bench/gpt2-in-place/model.onnx \
	  --cells 1x16,1x128,1x512,1x960,4x512,8x128,8x960

.PHONY: bench-generate
bench-generate: deps build ## generation with the cache against without it, by DECODER, an artifact that takes 1003 tokens
	@test -f "$(DECODER)/planish.json" || { echo 'name an artifact, say: make bench-generate DECODER=gpt2-ort' >&2; exit 2; }
	python3 tools/bench_generate.py $(PLANISH) $(DECODER)

GPU_CHECK := $(TARGET_DIR)/gpu-check
# Options of tools/gpu_check.py, say --only kernels,goldens.
GPU_FLAGS ?=

.PHONY: gpu-check
gpu-check: build ## check planish on a machine with an NVIDIA GPU and measure it, in ten minutes: gpu.html says what to mend (docs/gpu.md)
	@rm -rf $(GPU_CHECK)
	python3 tools/gpu_check.py $(PLANISH) --out $(GPU_CHECK) $(GPU_FLAGS)

.PHONY: gpu-check-emulated
gpu-check-emulated: build ## try all steps of gpu-check without a GPU, on small models and the emulator
	@rm -rf $(GPU_CHECK)-emulated
	python3 tools/gpu_check.py $(PLANISH) --out $(GPU_CHECK)-emulated --small --device cpu --runtime cuda-emulator $(GPU_FLAGS)

# Needs valgrind. The suppressions are for a read past a string in glibc's own loader.
.PHONY: valgrind-tensorrt
valgrind-tensorrt: deps ## run the tests of TensorRT-RTX's builder in valgrind: building, refusals, cancelling, leaks
	cargo test -p planish-runtimes --features tensorrt-rtx --test tensorrt --no-run $(CARGO_FLAGS)
	cd runtimes && valgrind --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite --suppressions=../tools/valgrind.supp \
	  $$(ls -t $(abspath $(TARGET_DIR))/debug/deps/tensorrt-* | grep -v '\.d$$' | head -1) --test-threads 1

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZ_SECONDS (needs nightly Rust and cargo-fuzz)
	@cargo +nightly fuzz --version >/dev/null 2>&1 || \
	  { echo "make fuzz needs nightly Rust and cargo-fuzz: rustup toolchain install nightly && cargo install cargo-fuzz" >&2; exit 1; }
	@set -e; names=$$(cargo +nightly fuzz list); \
	for name in $$names; do cargo +nightly fuzz run $$name -- -max_total_time=$(FUZZ_SECONDS); done

.PHONY: mutations
mutations: deps ## compile and verify CASES random changes of the graphs in fixtures/
	cargo run --release $(CARGO_FLAGS) $(FEATURES) -p planish-random-graphs --bin mutations -- fixtures/onnx fixtures/graphs --cases $(CASES)

# GRAPHS=--patterns has mostly patterns that are raised, and what nearly is one; GRAPHS="--keep DIR" keeps what is found.
GRAPHS ?=

.PHONY: random-graphs
random-graphs: deps ## grow and compile CASES random graphs, and compare them with ONNX Runtime without optimization
	cargo run --release $(CARGO_FLAGS) $(FEATURES) -p planish-random-graphs --bin random-graphs -- --cases $(CASES) $(GRAPHS)

# What the tests have built is used again.
RANDOM_GRAPHS ?= 300
.PHONY: test-random-graphs
test-random-graphs: deps ## the same of RANDOM_GRAPHS graphs [300]
	cargo build $(CARGO_FLAGS) $(FEATURES) --workspace --bin random-graphs
	$(TARGET_DIR)/debug/random-graphs --cases $(RANDOM_GRAPHS)

.PHONY: clean
clean: ## remove what was built and measured; .deps/ stays
	cargo clean
	rm -rf .bench
