//! The whole path, from a checkpoint to an artifact that runs: through the library where numbers
//! and bytes are looked at, through the binary where exit codes, messages and files are.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test"
)]

mod adapters;
mod artifact_sources;
mod bad_models;
mod bench;
mod bench_comparisons;
mod bench_example;
mod bench_load;
mod bench_report;
mod bench_shards;
mod bench_workloads;
mod block_graphs;
#[cfg(all(feature = "tensorrt-rtx", not(feature = "tensorrt")))]
mod built_engines;
mod cache_in_place;
mod calibrate;
mod card;
mod chat;
mod command_line;
mod cost;
mod cuda;
mod cuda_artifacts;
mod cuda_generate;
mod cuda_int8;
mod determinism;
mod devices;
mod drawings;
mod edge_inputs;
mod engine;
mod engine_options;
mod errors;
mod evaluate;
mod evaluate_shards;
mod examples;
mod experts;
mod export;
mod external_data;
mod fixed_folders;
mod fixed_point;
mod forms;
mod genai;
mod generate;
mod generate_ahead;
mod generate_images;
mod generate_lines;
mod generate_refusals;
mod generate_searches;
mod generate_settings;
mod generate_tools;
mod goldens;
mod graphs;
mod half_graphs;
mod hostile_files;
mod hostile_names;
mod house;
mod hub;
mod import_options;
mod input_statistics;
mod inspect;
mod interface;
mod labels;
mod larger_artifacts;
mod last_logits;
mod latent_cache;
mod linear_attention;
mod manifest;
mod manual;
mod mock_gpu;
mod near_patterns;
mod not_finite;
mod onnx_sources;
mod openvino;
mod output_folder;
mod overflow;
mod padded_vocabulary;
mod padding;
mod parts;
mod passing_through;
mod pictures;
mod pictures_in_graph;
mod pipeline;
mod precision;
mod predict;
mod predict_refusals;
mod predict_tasks;
mod profile;
mod quantization;
mod quantized_checkpoints;
mod quantized_decoders;
#[cfg(all(feature = "tensorrt-rtx", not(feature = "tensorrt")))]
mod quantized_engines;
mod quantized_graphs;
mod random_graphs;
mod running;
mod seeing;
mod sentence;
mod sentence_packages;
mod signals;
mod small_int8;
mod sounds;
mod sounds_in_graph;
mod speech_errors;
mod states;
mod stores;
mod support;
mod sweep;
mod tensor_parallel;
mod toy_backend;
mod transcribe;
mod transformers_js;
mod triton;
mod tune;
mod unbatched;
mod unsupported_gpu;
mod verification;
mod weight_only;
mod written_texts;
mod zero_shot;
