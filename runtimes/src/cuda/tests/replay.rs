//! Recorded runs: what a replay does, and what is seen of one that does less.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use planish_eval::Tensor;

use crate::Session;
use crate::cuda::check::{compare, graph, inputs, session};
use crate::cuda::device::{Buffer, Device, Event, Grid, HostBuffer, HostMemory, KernelId, Product, Recording};
use crate::cuda::emulator::{self, Emulator};
use crate::cuda::program::Style;
use crate::cuda::source::Source;

fn emulated() -> Arc<dyn Device> {
    Arc::new(Emulator::new(emulator::compiler().unwrap()))
}

/// A device whose recordings leave out one of the launches.
struct Forgetful {
    device: Arc<dyn Device>,
    forgotten: usize,
    /// The launches so far of the recording under way; more than all where there is none.
    launches: AtomicUsize,
}

const NO_RECORDING: usize = usize::MAX / 2;

impl Device for Forgetful {
    fn multiprocessors(&self) -> usize {
        self.device.multiprocessors()
    }

    fn shared_memory(&self) -> usize {
        self.device.shared_memory()
    }

    fn multiprocessor_shared_memory(&self) -> usize {
        self.device.multiprocessor_shared_memory()
    }

    fn pinned(&self, bytes: usize) -> Result<Box<dyn HostMemory>, String> {
        self.device.pinned(bytes)
    }

    fn start(&self, busy: Duration) -> Result<Option<Box<dyn Event>>, String> {
        self.device.start(busy)
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, String> {
        self.device.allocate(bytes)
    }

    fn allocate_host(&self, bytes: usize) -> Result<HostBuffer, String> {
        self.device.allocate_host(bytes)
    }

    fn copy_from_host(&self, to: u64, from: &HostBuffer, bytes: usize) -> Result<(), String> {
        self.device.copy_from_host(to, from, bytes)
    }

    fn copy_to_host(&self, to: &HostBuffer, from: u64, bytes: usize) -> Result<(), String> {
        self.device.copy_to_host(to, from, bytes)
    }

    fn upload(&self, to: u64, bytes: &[u8]) -> Result<(), String> {
        self.device.upload(to, bytes)
    }

    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), String> {
        self.device.download(from, to)
    }

    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), String> {
        self.device.copy(to, from, bytes)
    }

    fn prepare(&self, sources: &[Source]) -> Result<Vec<KernelId>, String> {
        self.device.prepare(sources)
    }

    fn launch(&self, kernel: KernelId, grid: Grid, arguments: &[&[u64]]) -> Result<(), String> {
        if self.launches.fetch_add(1, Ordering::Relaxed) == self.forgotten {
            return Ok(());
        }
        self.device.launch(kernel, grid, arguments)
    }

    fn multiply(&self, product: &Product) -> Result<(), String> {
        self.device.multiply(product)
    }

    fn wait(&self) -> Result<(), String> {
        self.device.wait()
    }

    fn record(&self, give: &mut dyn FnMut() -> Result<(), String>) -> Result<Option<Box<dyn Recording>>, String> {
        self.launches.store(0, Ordering::Relaxed);
        let recording = self.device.record(give);
        self.launches.store(NO_RECORDING, Ordering::Relaxed);
        recording
    }

    fn event(&self) -> Result<Option<Box<dyn Event>>, String> {
        self.device.event()
    }
}

/// A step of attention, whose outputs are made by one launch each, or by a launch and a copy.
const STEP: &str = "input %x: f32[b, s, 8]
     input %pk: f32[b, 2, p, 4]
     input %pv: f32[b, 2, p, 4]
     %e = exp(%x) : f32[b, s, 8]
     %y, %key, %value = attention(%e, %x, %x, past_key: %pk, past_value: %pv) {heads = 2, scale = 0.5, causal = true, present = true} : f32[b, s, 8], f32[b, 2, p + s, 4], f32[b, 2, p + s, 4]
     output y = %y
     output key = %key
     output value = %value";

#[test]
fn a_replay_that_leaves_out_a_launch_is_seen() {
    let graph = graph(STEP).unwrap();
    let inputs = inputs(&graph, &[("b", 2), ("s", 1), ("p", 5)], 3).unwrap();
    let checked = |forgotten: usize| {
        let launches = AtomicUsize::new(NO_RECORDING);
        let device: Arc<dyn Device> = Arc::new(Forgetful { device: emulated(), forgotten, launches });
        let mut session = session(&graph, &device, Style::Fused).unwrap();
        compare(&graph, &mut session, &inputs)
    };
    let mut launches = 0;
    while let Err(reason) = checked(launches) {
        // A run that records nothing is right.
        assert!(reason.starts_with("replayed: element"), "{reason}");
        launches += 1;
    }
    // The exponential, two appends, and a softmax or two kernels that share the keys.
    assert!(launches >= 4, "{launches}");
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let device = emulated();
    let memory = device.allocate(16).unwrap();
    let refused = |give: &mut dyn FnMut() -> Result<(), String>| device.record(give).err().unwrap();
    assert!(refused(&mut || device.wait()).contains("cannot wait"));
    assert!(refused(&mut || device.upload(memory.address(), &[1])).contains("page-locked"));
    assert!(refused(&mut || device.allocate(1).map(drop)).contains("cannot allocate"));
    // What failed leaves no recording under way.
    device.upload(memory.address(), &[1]).unwrap();
}

#[test]
fn a_replay_copies_what_is_in_memory_of_the_host_then() {
    let device = emulated();
    let (memory, host) = (device.allocate(4).unwrap(), device.allocate_host(4).unwrap());
    host.write(0, &[1, 2, 3, 4]);
    let recording = device.record(&mut || device.copy_from_host(memory.address(), &host, 4)).unwrap().unwrap();
    let read = || {
        let mut bytes = [0; 4];
        device.download(memory.address(), &mut bytes).unwrap();
        bytes
    };
    assert_eq!(read(), [0xFF; 4]);
    host.write(1, &[7]);
    recording.replay().unwrap();
    assert_eq!(read(), [1, 7, 3, 4]);
}

#[test]
fn a_bound_run_is_one_with_a_graph_and_one_without() {
    let graph = graph(STEP).unwrap();
    let inputs = inputs(&graph, &[("b", 1), ("s", 2), ("p", 3)], 3).unwrap();
    let named: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let mut session = session(&graph, &emulated(), Style::Fused).unwrap();
    assert!(session.time_without_graph().is_err());
    session.bind(&named).unwrap();
    assert!(session.time_without_graph().unwrap().is_some());
    session.run_bound().unwrap();
}
