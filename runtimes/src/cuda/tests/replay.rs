//! Recorded runs: what a replay does, and what is seen of one that does less.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use planish_eval::Tensor;

use crate::Session;
use crate::cuda::check::{compare, graph, inputs, session};
use crate::cuda::device::{Buffer, Device, Event, Grid, HostMemory, KernelId, Product, Recording};
use crate::cuda::emulator::{self, Emulator};
use crate::cuda::program::Style;
use crate::cuda::source::Source;

fn emulated() -> Arc<dyn Device> {
    Arc::new(Emulator::new(emulator::compiler().unwrap()))
}

/// A device that notes what is asked of it, has a clock, and whose recordings leave out one of the launches.
struct Watched {
    device: Arc<dyn Device>,
    forgotten: usize,
    /// The launches so far of the recording under way; more than all where there is none.
    launches: AtomicUsize,
    asked: Mutex<Vec<&'static str>>,
}

const NO_RECORDING: usize = usize::MAX / 2;

impl Watched {
    fn new(forgotten: usize) -> Self {
        Self { device: emulated(), forgotten, launches: AtomicUsize::new(NO_RECORDING), asked: Mutex::default() }
    }

    fn note(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }
}

/// A point in time.
struct Tick(Instant);

impl Event for Tick {
    fn since(&self, earlier: &dyn Event) -> Result<Duration, String> {
        Ok(self.0 - earlier.as_any().downcast_ref::<Self>().unwrap().0)
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Device for Watched {
    fn multiprocessors(&self) -> usize {
        self.device.multiprocessors()
    }

    fn shared_memory(&self) -> usize {
        self.device.shared_memory()
    }

    fn multiprocessor_shared_memory(&self) -> usize {
        self.device.multiprocessor_shared_memory()
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, String> {
        self.note("allocate");
        self.device.allocate(bytes)
    }

    fn pinned(&self, bytes: usize) -> Result<Box<dyn HostMemory>, String> {
        self.note("pinned");
        self.device.pinned(bytes)
    }

    fn upload(&self, to: u64, bytes: &[u8]) -> Result<(), String> {
        self.note("upload");
        self.device.upload(to, bytes)
    }

    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), String> {
        self.note("download");
        self.device.download(from, to)
    }

    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), String> {
        self.note("copy");
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
        self.note("event");
        Ok(Some(Box::new(Tick(Instant::now()))))
    }

    fn start(&self, _: Duration) -> Result<Option<Box<dyn Event>>, String> {
        self.event()
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
        let device: Arc<dyn Device> = Arc::new(Watched::new(forgotten));
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
    assert!(refused(&mut || device.upload(memory.address(), &[1])).contains("not pinned"));
    assert!(refused(&mut || device.allocate(1).map(drop)).contains("cannot allocate"));
    // What failed leaves no recording under way.
    device.upload(memory.address(), &[1]).unwrap();
}

#[test]
fn a_replay_copies_what_is_in_memory_of_the_host_then() {
    let device = emulated();
    let (memory, mut host) = (device.allocate(4).unwrap(), device.pinned(4).unwrap());
    host.write().copy_from_slice(&[1, 2, 3, 4]);
    let (to, from) = (memory.address(), host.address());
    let recording = device.record(&mut || device.copy(to, from, 4)).unwrap().unwrap();
    let read = || {
        let mut bytes = [0; 4];
        device.download(memory.address(), &mut bytes).unwrap();
        bytes
    };
    assert_eq!(read(), [0xFF; 4]);
    host.write()[1] = 7;
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

#[test]
fn transfers_are_copies_of_pinned_memory_and_nothing_else() {
    let graph = graph(STEP).unwrap();
    let inputs = inputs(&graph, &[("b", 1), ("s", 2), ("p", 3)], 3).unwrap();
    let named: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let watched = Arc::new(Watched::new(usize::MAX));
    let device: Arc<dyn Device> = watched.clone();
    let mut session = session(&graph, &device, Style::Fused).unwrap();
    session.bind(&named).unwrap();
    // The first run makes the copies, before its time begins.
    session.timed(true).unwrap();
    watched.asked.lock().unwrap().clear();
    let (_, times) = session.timed(true).unwrap();
    let times = times.unwrap();
    assert!(times.graph && times.to_device.is_some() && times.to_host.is_some());
    let asked = std::mem::take(&mut *watched.asked.lock().unwrap());
    let wanted = [&["event"][..], &["copy"; 3], &["event"; 2], &["copy"; 3], &["event"]].concat();
    assert_eq!(asked, wanted);
    // The outputs of such a run are those of the inputs, which were copied.
    let (given, wanted) = (session.run_as_bound(&named).unwrap(), session.run(&named).unwrap());
    assert_eq!(given, wanted);
    assert!(session.timed(false).unwrap().1.is_some_and(|times| times.to_device.is_none()));
}
