//! Sessions of TensorRT-RTX on a driver and a TensorRT-RTX of the tests (`testing/src/fake/gpu.c`): what is asked of both, in
//! which order, and what becomes of failures.

#![cfg(all(feature = "trtx", not(feature = "tensorrt")))]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may panic")]

use std::ffi::{CStr, c_char};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libloading::Library;
use planish_eval::Tensor;
use planish_runtimes::tensorrt::{KernelSpecialization, LoadOptions, TensorRt};
use planish_runtimes::{Format, Model, Runtime, RuntimeError, RuntimeValue, Session, SessionOptions};
use planish_testing::{fake, scratch};

/// The libraries, which one test at a time uses.
struct Fake {
    library: Library,
    tensorrt: PathBuf,
    engine: PathBuf,
}

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Fake {
    fn new() -> MutexGuard<'static, Self> {
        static FAKE: Mutex<Option<&'static Mutex<Fake>>> = Mutex::new(None);
        let mut made = FAKE.lock().unwrap_or_else(PoisonError::into_inner);
        let fake = made.get_or_insert_with(|| {
            let folder = Box::leak(Box::new(scratch())).path();
            let tensorrt = fake::gpu(folder);
            // SAFETY: the library of the tests. It stays, and its name in the loader is `libcuda.so`.
            let library = unsafe { Library::new(folder.join("libcuda.so")) }.unwrap();
            Box::leak(Box::new(Mutex::new(Fake { library, tensorrt, engine: fake::engine(folder) })))
        });
        let fake = fake.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, value) in [
            ("fake_capability", 89),
            ("fake_not_capturable", 0),
            ("fake_fails_in_capture", 0),
            ("fake_graph_is_empty", 0),
            ("fake_fails", 0),
            ("fake_host_output", 0),
        ] {
            fake.set(name, value);
        }
        fake.said();
        WARNINGS.lock().unwrap().clear();
        fake
    }

    fn number(&self, name: &str) -> *mut i32 {
        // SAFETY: the library has these as `int`.
        unsafe { *self.library.get::<*mut i32>(name.as_bytes()).unwrap() }
    }

    fn set(&self, name: &str, value: i32) {
        // SAFETY: no session runs meanwhile.
        unsafe { *self.number(name) = value };
    }

    /// What was called since this was asked last.
    fn said(&self) -> Vec<String> {
        // SAFETY: the library has a text of this name, which ends in zero.
        unsafe {
            let log = *self.library.get::<*mut c_char>(b"fake_log").unwrap();
            let text = CStr::from_ptr(log).to_string_lossy().into_owned();
            *log = 0;
            text.lines().map(str::to_owned).collect()
        }
    }

    fn load(&self, kernel_specialization: KernelSpecialization) -> Result<Box<dyn Session>, RuntimeError> {
        let warn = |text: &str| WARNINGS.lock().unwrap().push(text.to_owned());
        let options = LoadOptions { keep_kernels: false, kernel_specialization, warn, ..LoadOptions::default() };
        let runtime = TensorRt::new(Some(self.tensorrt.clone())).options(options);
        runtime.load(Model::file(Format::ENGINE, &self.engine), SessionOptions::default())
    }
}

fn inputs(columns: usize, add: i32) -> [(&'static str, Tensor); 2] {
    let ids = (0..i64::try_from(columns).unwrap()).collect::<Vec<_>>();
    [("ids", Tensor::new(vec![1, columns], ids).unwrap()), ("add", Tensor::new(vec![1], vec![add]).unwrap())]
}

fn warnings() -> Vec<String> {
    std::mem::take(&mut *WARNINGS.lock().unwrap())
}

#[test]
fn a_context_has_a_configuration_that_leaves_nothing_to_defaults() {
    let fake = Fake::new();
    for specialization in [KernelSpecialization::Eager, KernelSpecialization::Lazy, KernelSpecialization::None] {
        fake.load(specialization).unwrap();
        let expected = [
            "create runtime",
            "create config",
            "allocation static",
            &specialization.to_string(),
            "graphs disabled",
            "create context with config",
        ];
        assert_eq!(fake.said(), expected);
    }
}

#[test]
fn a_run_is_recorded_after_a_run_and_the_question_whether_it_can_be() {
    let fake = Fake::new();
    let mut session = fake.load(KernelSpecialization::Eager).unwrap();
    fake.said();
    session.bind(&inputs(4, 1)).unwrap();
    session.run_bound().unwrap();
    assert!(session.time_bound(true).unwrap().unwrap().graph);
    let expected = ["enqueue", "is capturable", "begin capture", "enqueue", "end capture", "launch", "launch"];
    assert_eq!(fake.said(), expected);
    assert_eq!(warnings(), [""; 0]);
}

#[test]
fn the_outputs_of_a_replay_are_its_own() {
    let fake = Fake::new();
    let mut session = fake.load(KernelSpecialization::Eager).unwrap();
    let outputs = session.run_as_bound(&inputs(3, 4)).unwrap();
    assert_eq!((outputs[0].0.as_str(), outputs[0].1.as_f32()), ("y", Some(&[4.0, 5.0, 6.0][..])));
    fake.said();
    // Without the graph the host starts the run, and what is bound stays so.
    assert!(session.time_without_graph().unwrap().is_some());
    session.run_bound().unwrap();
    assert_eq!(fake.said(), ["enqueue", "launch"]);
    // The run in front of the recording left the right numbers, which the replay does not write.
    fake.set("fake_graph_is_empty", 1);
    let outputs = session.run_as_bound(&inputs(3, 4)).unwrap();
    assert!(outputs[0].1.as_f32().unwrap().iter().all(|y| y.is_nan()), "{outputs:?}");
    // Where nothing is recorded, there is no other run.
    fake.set("fake_not_capturable", 1);
    let outputs = session.run_as_bound(&inputs(2, 4)).unwrap();
    assert_eq!(outputs[0].1.as_f32(), Some(&[4.0, 5.0][..]));
    assert_eq!(session.time_without_graph().unwrap(), None);
}

#[test]
fn a_run_that_cannot_be_recorded_says_why_and_is_started_kernel_by_kernel() {
    let fake = Fake::new();
    fake.set("fake_not_capturable", 1);
    let cases = [
        (
            KernelSpecialization::Eager,
            "TensorRT-RTX says that the run cannot be recorded: the engine streams its weights",
        ),
        (KernelSpecialization::Lazy, "a graph would keep the fallback kernels"),
    ];
    for (specialization, reason) in cases {
        let mut session = fake.load(specialization).unwrap();
        session.bind(&inputs(4, 1)).unwrap();
        assert!(!session.time_bound(false).unwrap().unwrap().graph);
        let (said, warnings) = (fake.said(), warnings());
        assert!(!said.contains(&"begin capture".to_owned()) && said.ends_with(&["enqueue".to_owned()]), "{said:?}");
        assert!(warnings.len() == 1 && warnings[0].contains(reason), "{warnings:?}");
    }
}

#[test]
fn a_recording_that_fails_leaves_neither_the_stream_recording_nor_its_message() {
    let fake = Fake::new();
    for failing in [1, 2] {
        fake.set("fake_fails_in_capture", failing);
        let mut session = fake.load(KernelSpecialization::Eager).unwrap();
        session.bind(&inputs(4, 1)).unwrap();
        let warnings = warnings();
        assert!(warnings.len() == 1 && warnings[0].ends_with("one by one: it cannot be captured"), "{warnings:?}");
        session.run_bound().unwrap();
        fake.set("fake_fails", 1);
        let error = session.run_bound().unwrap_err().to_string();
        assert!(error.ends_with(": the run was not started"), "{error}");
        let outputs = session.run(&inputs(3, 10)).unwrap();
        assert_eq!(outputs[0].1.as_f32(), Some(&[10.0, 11.0, 12.0][..]));
    }
}

#[test]
fn inputs_that_the_engine_reads_on_the_host_are_there() {
    let fake = Fake::new();
    let mut session = fake.load(KernelSpecialization::Eager).unwrap();
    for add in [5, 7] {
        let given = inputs(2, add).map(|(name, tensor)| (name, RuntimeValue::from(tensor)));
        let outputs = session.run_values(&given.each_ref().map(|(name, value)| (*name, value))).unwrap();
        let add = add as f32;
        assert_eq!(outputs[0].1.to_tensor().unwrap().as_f32(), Some(&[add, add + 1.0][..]));
    }
    // A graph holds the values of the inputs that were bound.
    session.bind(&inputs(2, 3)).unwrap();
    session.run_bound().unwrap();
    let said = fake.said();
    assert!(said.contains(&"launch".to_owned()) && !said.iter().any(|line| line.contains("wrong memory")), "{said:?}");
}

#[test]
fn an_output_on_the_host_is_refused_by_its_name() {
    let fake = Fake::new();
    fake.set("fake_host_output", 1);
    let error = fake.load(KernelSpecialization::Eager).err().unwrap().to_string();
    assert!(error.contains("writes the output `y`") && error.contains("to the host's memory"), "{error}");
}

/// As generation does: what the step before gave is dropped, then the scores of this one are read, for which the stream is waited
/// for.
#[test]
fn steps_take_the_memory_of_earlier_ones() {
    let fake = Fake::new();
    let mut session = fake.load(KernelSpecialization::None).unwrap();
    let mut before = Vec::new();
    let mut allocated = Vec::new();
    for step in 0..20 {
        let given = inputs(6, step).map(|(name, tensor)| (name, RuntimeValue::from(tensor)));
        let outputs = session.run_values(&given.each_ref().map(|(name, value)| (*name, value))).unwrap();
        drop(std::mem::replace(&mut before, outputs));
        assert!(before[0].1.to_tensor().is_some());
        // SAFETY: no session runs meanwhile.
        allocated.push(unsafe { *fake.number("fake_system_allocations") });
    }
    assert_eq!(allocated[19], allocated[2], "{allocated:?}");
}

#[test]
fn a_gpu_without_engines_is_refused_before_anything_is_loaded() {
    let fake = Fake::new();
    fake.set("fake_capability", 90);
    let missing = PathBuf::from("/nonexistent/libtensorrt_rtx.so");
    for library in [&fake.tensorrt, &missing] {
        let runtime = TensorRt::new(Some(library.clone()));
        let model = Model::file(Format::ENGINE, &fake.engine);
        let RuntimeError::Unavailable(refused) = runtime.load(model, SessionOptions::default()).err().unwrap() else {
            unreachable!()
        };
        assert_eq!(runtime.check().unwrap_err(), refused);
        assert!(refused.reason.contains("does not support compute capability 9.0, that of A fake GPU"), "{refused}");
        assert!(refused.remedy.contains("`cuda` and `ort-cuda`"), "{refused}");
    }
    assert_eq!(fake.said(), [""; 0]);
}
