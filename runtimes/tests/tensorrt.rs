//! TensorRT-RTX builds engines on machines without a GPU. `make deps` puts its library into `.deps`.

#![cfg(all(feature = "trtx", not(feature = "tensorrt")))]
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic, reason = "helpers of tests, too, may panic")]

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use planish_onnx::{EXTERNAL_BYTES, ExportOptions, Placement};
use planish_runtimes::tensorrt::{
    BuildError, BuildOptions, Built, Capability, FLAGS, Flag, HardwareCompatibility, InputRange, Library, Plan,
    PlanError, Profile, Progress, accepts, build, devices,
};
use planish_testing::{scratch, skipped};

const LAYER: &str = r#"graph "layer" {
  input %x: f32[batch, 4]
  weight @w = dense([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]) : f32[4, 2]
  %y = matmul(%x, @w) : f32[batch, 2]
  %z = relu(%y) : f32[batch, 2]
  output z = %z
}"#;

fn export(folder: &Path, text: &str) -> PathBuf {
    let graph = planish_ir::text::parse(text, &planish_ir::text::no_files).unwrap_or_else(|e| panic!("{e}"));
    let options = ExportOptions {
        opset: 20,
        placement: Placement::Copy,
        external_above: EXTERNAL_BYTES,
        data_suffix: "_data",
        metadata: &[],
        progress: &|_| {},
    };
    planish_onnx::export(&graph, "model", folder, &options).unwrap();
    folder.join("model.onnx")
}

fn library() -> &'static Library {
    Library::open(None).unwrap_or_else(|e| panic!("{e}"))
}

fn ada() -> BuildOptions {
    BuildOptions { capabilities: vec![Capability::Sm89], ..BuildOptions::default() }
}

fn rows(min: i64, opt: i64, max: i64) -> Vec<Profile> {
    let range = InputRange { name: "x".to_owned(), min: vec![min, 4], opt: vec![opt, 4], max: vec![max, 4] };
    vec![Profile { inputs: vec![range] }]
}

/// An engine of the layer with its bytes.
fn build_layer(
    profiles: &[Profile],
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<(Built, Vec<u8>), BuildError> {
    let (folder, mut plan) = (scratch(), Vec::new());
    let built = build(library(), &export(folder.path(), LAYER), profiles, options, progress, &mut plan)?;
    assert_eq!(built.bytes, plan.len() as u64);
    Ok((built, plan))
}

#[test]
fn an_engine_is_built_and_its_header_says_for_what() {
    let (built, whole) = build_layer(&rows(1, 8, 32), &ada(), &()).unwrap();
    let folder = scratch();
    let path = folder.path().join("model.engine");
    std::fs::write(&path, &whole).unwrap();
    let plan = Plan::read(&path).unwrap();
    assert_eq!(plan.version, library().version);
    assert_eq!(plan.capabilities, [Capability::Sm89]);
    assert_eq!(plan.bytes, whole.len() as u64);
    let nodes: Vec<&str> = built.layers.0.iter().flat_map(|layer| &layer.nodes).map(String::as_str).collect();
    assert!(!nodes.is_empty(), "{:?}", built.layers);

    // Cut off, of another version, for another GPU, something else.
    let cut = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Plan::read(&path).unwrap_err().to_string()
    };
    let build =
        "build it again: with `planish build-engine` if the artifact has its ONNX files, else with `planish compile`";
    let again = format!("; copy it again, or {build}");
    let length = whole.len();
    assert_eq!(
        cut(&whole[..length - 1]),
        format!("the engine is not whole: its header says {length} bytes, and the file has {}{again}", length - 1)
    );
    assert_eq!(
        cut(&whole[..20]),
        format!("the engine is cut off: the file has 20 bytes, fewer than the header of an engine{again}")
    );
    assert_eq!(cut(b"\x08\x0a"), "it is no engine of TensorRT-RTX: it does not begin with the header of one");
    let mut older = plan.clone();
    older.version.minor -= 1;
    let PlanError::Version { built, present } = older.runs_on(library().version, None).unwrap_err() else { panic!() };
    assert_eq!((built.minor, present), (6, library().version));
    let on = |capability| {
        let device = planish_runtimes::tensorrt::Device { name: "A GPU".to_owned(), capability };
        plan.runs_on(library().version, Some(&device)).unwrap_err().to_string()
    };
    assert_eq!(
        on(120),
        format!("the engine was built for sm89 and the GPU is A GPU (sm120); {build}, with --gpu sm120")
    );
    assert_eq!(
        on(90),
        "the engine was built for sm89 and the GPU is A GPU (sm90); TensorRT-RTX has no engines for sm90; this GPU needs \
         TensorRT, and a planish that is built for it (cargo build --release --features tensorrt); \
         targets `cuda` and `ort-cuda` run on it"
    );
}

#[test]
fn without_capabilities_an_engine_is_for_gpus_from_ampere_on() {
    let (_, plan) = build_layer(&rows(1, 8, 32), &BuildOptions::default(), &()).unwrap();
    let folder = scratch();
    let path = folder.path().join("model.engine");
    std::fs::write(&path, plan).unwrap();
    assert_eq!(Plan::read(&path).unwrap().capabilities, Capability::DEFAULT);

    let turing = BuildOptions { capabilities: vec![Capability::Sm75], ..BuildOptions::default() };
    let refused = build_layer(&rows(1, 8, 32), &turing, &()).err().unwrap().to_string();
    assert!(refused.contains("FP32 GEMM is not supported"), "{refused}");
}

#[test]
fn a_profile_that_is_missing_or_does_not_fit_is_named() {
    let none = build_layer(&[], &ada(), &()).err().unwrap().to_string();
    assert!(none.contains("profile"), "{none}");
    let inverted = build_layer(&rows(9, 8, 32), &ada(), &()).err().unwrap().to_string();
    assert!(inverted.starts_with("profile 0 does not fit the input `x`"), "{inverted}");
    let mut other = rows(1, 8, 32);
    other[0].inputs[0].name = "nothing".to_owned();
    let unknown = build_layer(&other, &ada(), &()).err().unwrap();
    assert!(unknown.to_string().contains("nothing") || unknown.to_string().contains("profile"), "{unknown}");
}

#[test]
fn what_the_parser_refuses_is_named_by_node_and_operator() {
    let folder = scratch();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, "not an ONNX file").unwrap();
    let garbage = build(library(), &path, &[], &ada(), &(), &mut Vec::new()).err().unwrap();
    assert!(matches!(garbage, BuildError::Refused { .. }), "{garbage}");
    let missing = build(library(), Path::new("/nonexistent/model.onnx"), &[], &ada(), &(), &mut Vec::new())
        .err()
        .unwrap()
        .to_string();
    assert!(missing.contains("/nonexistent/model.onnx"), "{missing}");
    let whole = scratch();
    let bytes = std::fs::read(export(whole.path(), LAYER)).unwrap();
    assert_eq!(accepts(library(), &bytes), Ok(Ok(())));
    // A constant of strings.
    let strings = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/onnx/strings.onnx")).unwrap();
    let errors = accepts(library(), &strings).unwrap().unwrap_err();
    assert!(errors.iter().any(|error| !error.operator.is_empty() || !error.text.is_empty()), "{errors:?}");
}

/// Counts phases, and cancels at a step.
#[derive(Default)]
struct Count {
    phases: Mutex<Vec<String>>,
    ended: AtomicU32,
    cancel: bool,
}

impl Progress for Count {
    fn begin(&self, phase: &str, _: Option<&str>, _: u32) {
        self.phases.lock().unwrap().push(phase.to_owned());
    }

    fn step(&self, _: &str, _: u32) -> bool {
        !self.cancel
    }

    fn end(&self, _: &str) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn phases_are_seen_and_a_build_is_cancelled() {
    let watched = Count::default();
    build_layer(&rows(1, 8, 32), &ada(), &watched).unwrap();
    let phases = watched.phases.lock().unwrap().clone();
    assert!(!phases.is_empty());
    assert_eq!(watched.ended.load(Ordering::SeqCst) as usize, phases.len());

    let cancelling = Count { cancel: true, ..Count::default() };
    let cancelled = build_layer(&rows(1, 8, 32), &ada(), &cancelling).err().unwrap();
    assert!(matches!(cancelled, BuildError::Cancelled), "{cancelled}");
}

/// Has room for the beginning of an engine.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_engine_that_cannot_be_written_ends_the_build() {
    let (folder, profiles) = (scratch(), rows(1, 8, 32));
    let onnx = export(folder.path(), LAYER);
    for room in [0, 1, 1000] {
        let refused = build(library(), &onnx, &profiles, &ada(), &(), &mut Full(room)).unwrap_err();
        let BuildError::Write(error) = refused else { panic!("{refused}") };
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
    build(library(), &onnx, &profiles, &ada(), &(), &mut Vec::new()).unwrap();
}

#[test]
fn weights_that_can_be_replaced_need_a_driver() {
    if devices().is_ok() {
        return skipped("a GPU is there");
    }
    for options in [BuildOptions { refit: true, ..ada() }, BuildOptions { strip: true, ..ada() }] {
        let refused = build_layer(&rows(1, 8, 32), &options, &()).err().unwrap();
        assert!(matches!(&refused, BuildError::Unavailable(u) if u.reason.contains("CUDA driver")), "{refused}");
    }
}

#[test]
fn flags_are_taken_by_name() {
    // Not those that need a GPU, a lean runtime or a timing cache.
    let taken = |flag: &&Flag| !flag.refits() && !flag.name.contains("LEAN") && !flag.name.contains("MISS");
    let flags: Vec<&'static Flag> = FLAGS.iter().filter(taken).collect();
    assert!(flags.iter().any(|flag| flag.name == "DISTRIBUTIVE_INDEPENDENCE"));
    build_layer(&rows(1, 8, 32), &BuildOptions { flags, ..ada() }, &()).unwrap();
    let unknown = Flag::named("FP16").err().unwrap();
    assert!(unknown.starts_with("there is no such flag; there are DEBUG"), "{unknown}");
}

/// Each way out of a build drops what there is by then, and the next build does not see it.
#[test]
fn a_build_may_end_at_every_step() {
    let (folder, profiles) = (scratch(), rows(1, 8, 32));
    let onnx = export(folder.path(), LAYER);
    let step = |onnx: &Path, profiles: &[Profile], options: &BuildOptions, progress: &dyn Progress, room: usize| {
        build(library(), onnx, profiles, options, progress, &mut Full(room)).map(drop)
    };
    let other = BuildOptions { hardware_compatibility: Some(HardwareCompatibility::Same), ..ada() };
    let small = BuildOptions { workspace: Some(1 << 20), ..ada() };
    let turing = BuildOptions { capabilities: vec![Capability::Sm75], ..BuildOptions::default() };
    let cancelling = Count { cancel: true, ..Count::default() };
    let all = usize::MAX;
    for _ in 0..2 {
        let parsed = step(&folder.path().join("none.onnx"), &profiles, &ada(), &(), all);
        assert!(matches!(parsed, Err(BuildError::Refused { .. })));
        assert!(matches!(step(&onnx, &profiles, &other, &(), all), Err(BuildError::Option { .. })));
        assert!(matches!(step(&onnx, &rows(9, 8, 32), &ada(), &(), all), Err(BuildError::Profile { .. })));
        assert!(matches!(step(&onnx, &profiles, &turing, &(), all), Err(BuildError::Failed { .. })));
        assert!(matches!(step(&onnx, &profiles, &ada(), &cancelling, all), Err(BuildError::Cancelled)));
        assert!(matches!(step(&onnx, &profiles, &ada(), &(), 0), Err(BuildError::Write(_))));
        let Err(BuildError::Failed { reason, .. }) = step(&onnx, &profiles, &small, &(), all) else { panic!() };
        assert!(reason.ends_with("--workspace 1MiB is too small for this model"), "{reason}");
        step(&onnx, &profiles, &ada(), &(), all).unwrap();
    }
}

/// TensorRT-RTX 1.7 orders some records by addresses: a few hundred bytes of two builds may differ.
#[test]
fn two_builds_differ_in_no_size_and_no_layer() {
    let built = || build_layer(&rows(1, 8, 32), &ada(), &()).unwrap();
    let (one, other) = (built(), built());
    let ((one, plan), (other, second)) = (one, other);
    assert_eq!(plan.len(), second.len());
    assert_eq!(plan[..64], second[..64]);
    assert_eq!(one.layers, other.layers);
}

#[test]
fn engines_are_built_in_threads() {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..2).map(|_| scope.spawn(|| build_layer(&rows(1, 8, 32), &ada(), &()).is_ok())).collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    });
}
