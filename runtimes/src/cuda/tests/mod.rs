//! The kernels on the emulated device, caches, batches without padding, and the plan of the arena.

mod buffers;
mod cache;
mod memory;
mod packing;
mod replay;
mod steps;

use std::sync::Arc;

use planish_ir::Op;
use planish_ir::ops::Row;

use super::check::{compare, graph, groups, inputs, session};
use super::device::Device;
use super::emulator::{self, Emulator};
use super::program::Style;

/// All cases of a group in both styles.
fn check(name: &str) {
    check_on(Emulator::new(emulator::compiler().unwrap()), name, "");
}

/// The cases of a group whose names have a text.
fn check_on(device: Emulator, name: &str, with: &str) {
    let device: Arc<dyn Device> = Arc::new(device);
    let (_, mut cases) = groups().into_iter().find(|(group, _)| *group == name).unwrap();
    cases.retain(|case| case.name().contains(with));
    assert!(!cases.is_empty(), "no case of {name} has `{with}`");
    let checked = |style| {
        let failed =
            cases.iter().filter_map(|case| Some(format!("{}: {}", case.name(), case.run(&device, style).err()?)));
        failed.collect::<Vec<_>>()
    };
    for style in [Style::Fused, Style::Unfused] {
        let failed = checked(style);
        assert!(failed.is_empty(), "{style:?}: {} of {} cases:\n{}", failed.len(), cases.len(), failed.join("\n"));
    }
}

#[test]
fn every_operator_that_the_runtime_has_is_in_a_case() {
    let graphs = super::check::graphs().unwrap();
    let has = |row: &Row| graphs.iter().any(|(graph, _)| graph.nodes().any(|(_, node)| node.op.row() == row));
    for row in Op::rows() {
        assert_eq!(has(row), !row.types.native.is_empty(), "{}", row.mnemonic);
    }
}

#[test]
fn elements() {
    check("elements");
}

#[test]
fn norms() {
    check("norms");
}

#[test]
fn layers() {
    check("layers");
}

#[test]
fn quantized() {
    check("quantized");
}

#[test]
fn attention() {
    check("attention");
}

#[test]
fn attention_with_the_shared_memory_of_consumer_devices() {
    let device = || Emulator::new(emulator::compiler().unwrap()).with_shared_memory([99 << 10, 100 << 10]);
    check_on(device(), "attention", "heads of 128");
    check_on(device(), "attention", "heads of 192");
}

#[test]
fn packed() {
    check("packed");
}

#[test]
fn best() {
    check("best");
}

/// A product of cublasLt does not take such columns, so that only fused kernels compute them.
#[test]
fn codes_of_an_odd_number_of_columns() {
    let graph = graph(
        "input %x: f16[35, 80]
         input %m: f16[71, 80]
         input %q: f32[71]
         input %c: f16[71]
         %g = quantize(%x) {scale = 0.0123} : i8[35, 80]
         %w = quantize(%m) {scale = 0.0159} : i8[71, 80]
         %small = mul(%q, %q) : f32[71]
         %a = quantized_linear(%g, %w, %small, bias: %c) {to = f16, activation = none} : f16[35, 71]
         output a = %a",
    );
    let graph = graph.unwrap();
    let device: Arc<dyn Device> = Arc::new(Emulator::new(emulator::compiler().unwrap()));
    let mut session = session(&graph, &device, Style::Fused).unwrap();
    // Sums of products of two codes of up to 127 and scales of up to 4 are finite in float16 for small inputs alone.
    let mut inputs = inputs(&graph, &[], 3).unwrap();
    for (_, tensor) in &mut inputs {
        let smaller: Vec<f64> = tensor.to_f64().iter().map(|x| x * 0.05).collect();
        *tensor = planish_eval::Tensor::from_f64(tensor.dtype(), tensor.shape().to_vec(), &smaller).unwrap();
    }
    compare(&graph, &mut session, &inputs).unwrap();
}
