//! The kernels on the emulated device, caches, batches without padding, and the plan of the arena.

mod buffers;
mod cache;
mod memory;
mod packing;
mod replay;
mod steps;

use std::sync::Arc;

use super::check::groups;
use super::device::Device;
use super::emulator::{self, Emulator};
use super::program::Style;

/// All cases of a group in both styles.
fn check(name: &str) {
    let device: Arc<dyn Device> = Arc::new(Emulator::new(emulator::compiler().unwrap()));
    let (_, cases) = groups().into_iter().find(|(group, _)| *group == name).unwrap();
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
fn packed() {
    check("packed");
}

#[test]
fn best() {
    check("best");
}
