//! A backend of one file: nothing but the values here knows of it.

use std::fs;
use std::path::Path;

use planish::artifact::Artifact;
use planish::artifact::verification::{ReferenceKind, Tolerances};
use planish::backend::{Backend, EmitOptions, Emitted, Emitter, OnnxEmitter, RuntimeSettings};
use planish::bench::{BenchObserver, BenchOptions, Contest, Entrant, Measured};
use planish::compile::{CompileOptions, compile};
use planish::request::Silent;
use planish::source::SourceModel;
use planish::verify::{VerifyOptions, verify_artifact, verify_compiled};
use planish_ir::{DType, Graph, Weight};
use planish_onnx::{DEFAULT_OPSET, ImportOptions};
use planish_passes::{Kernels, Target};
use planish_runtimes::{
    Arithmetic, Description, Format, Model, Profiler, ReferenceRuntime, Runtime, RuntimeError, Session, SessionOptions,
    Unavailable,
};

use crate::support::{golden, scratch};

static TOY: Target = Target {
    name: "toy",
    summary: "a backend of a test",
    kernels: Kernels { missing: |_, _| None, ..Target::BASE.kernels },
    absorbs_biases: true,
    substitutes_kernels: false,
    vocabulary_multiple: Some(64),
    ..Target::BASE
};

static BACKEND: Backend = Backend {
    target: &TOY,
    emitter: &ToyEmitter,
    runtimes: &[|_: &RuntimeSettings| Box::new(ToyRuntime)],
    engines: None,
    device: None,
    tolerances: |_, _| Tolerances { max_relative: 1e-6, ..Tolerances::F32 },
};

const FORMAT: Format = Format { name: "toy" };

/// Writes ONNX's bytes under other names.
struct ToyEmitter;

impl Emitter for ToyEmitter {
    fn format(&self) -> Format {
        FORMAT
    }

    fn emit(&self, graph: &Graph, part: &str, folder: &Path, options: &EmitOptions<'_>) -> anyhow::Result<Emitted> {
        let mut emitted = OnnxEmitter::WHOLE.emit(graph, part, folder, options)?;
        for (name, _) in &mut emitted.files {
            let toy = name.replace("onnx", "toy");
            fs::rename(folder.join(&*name), folder.join(&toy))?;
            *name = toy;
        }
        Ok(emitted)
    }

    fn read(&self, file: &Path, options: &ImportOptions) -> anyhow::Result<Graph> {
        OnnxEmitter::WHOLE.read(file, options)
    }

    fn copies(&self, weight: &Weight) -> bool {
        OnnxEmitter::WHOLE.copies(weight)
    }
}

/// The reference interpreter on such files.
struct ToyRuntime;

impl Runtime for ToyRuntime {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn check(&self) -> Result<Description, Unavailable> {
        Ok(Description { product: "toys", version: "7".to_owned(), location: "a test".to_owned() })
    }

    fn formats(&self) -> &'static [Format] {
        &[FORMAT]
    }

    fn arithmetic(&self, _: DType) -> Arithmetic {
        Arithmetic::Rounded
    }

    fn is_on_gpu(&self) -> bool {
        false
    }

    fn saturates(&self) -> bool {
        false
    }

    fn profiler(&self) -> Result<&dyn Profiler, &'static str> {
        Err("nothing profiles it")
    }

    fn load(&self, model: Model<'_>, options: SessionOptions) -> Result<Box<dyn Session>, RuntimeError> {
        match model {
            Model::File { format: FORMAT, path, .. } => ReferenceRuntime::default().load(Model::onnx(path), options),
            other => panic!("{other} is not a toy"),
        }
    }
}

struct Quiet;

impl BenchObserver for Quiet {
    fn progress(&mut self, _: f64) {}
    fn measured(&mut self, _: Measured<'_>) {}
    fn warning(&mut self, text: &str) {
        panic!("{text}");
    }
    fn note(&mut self, text: &str) {
        panic!("{text}");
    }
}

#[test]
fn a_backend_of_one_file_compiles_verifies_and_benches() {
    for (name, files) in [
        ("gpt2", &["model.toy"][..]),
        ("t5", &["encoder_model.toy", "decoder_model.toy", "decoder_with_past_model.toy"]),
    ] {
        let folder = scratch();
        let out = folder.path().join("out");
        let model = SourceModel::open(&golden(name)).unwrap();
        let options = CompileOptions::new(&BACKEND, DEFAULT_OPSET);
        let compiled = compile(&model, &out, &options, &Silent).unwrap();
        let verify = VerifyOptions { max_length: Some(9), ..VerifyOptions::default() };
        let mut note = |text: &str| panic!("{text}");
        let report = verify_compiled(&compiled.artifact, &model, &compiled.source, &verify, &mut note).unwrap();
        assert!(report.passed() && report.reference == ReferenceKind::Interpreter, "{report}");
        assert_eq!(report.tolerances.max_relative, 1e-6);
        compiled.publish().unwrap();

        let error = Artifact::open(&out).err().unwrap().to_string();
        assert!(error.contains("is compiled for the target `toy`, which this version does not have"), "{error}");
        let artifact = Artifact::open_among(&out, &[&BACKEND]).unwrap();
        let parts = &artifact.manifest.parts;
        assert_eq!(parts.iter().map(|part| part.files[0].as_str()).collect::<Vec<_>>(), files);
        assert!(parts.iter().all(|part| part.vocabulary.as_ref().is_some_and(|v| v.padded % 64 == 0)), "{name}");
        let verified = verify_artifact(&artifact, &[], &verify, &mut note).unwrap();
        assert!(verified.report.passed() && verified.source.ends_with(name));

        let contest = Contest {
            entrants: vec![Entrant::of(artifact)],
            references: Vec::new(),
            runtimes: Vec::new(),
            settings: RuntimeSettings::default(),
            inputs: None,
            data: None,
            limits: None,
        };
        let quick = BenchOptions {
            sequence: vec![3],
            interval: 0.0,
            time: std::time::Duration::ZERO,
            iterations: 1,
            ..BenchOptions::default()
        };
        let document = contest.bench(&quick, &mut Quiet).unwrap();
        assert_eq!(document.cells.len(), if name == "gpt2" { 2 } else { 3 });
        assert!(document.cells.iter().all(|cell| cell.failure.is_none() && cell.backend == "toy"), "{name}");
        let document = serde_json::to_value(&document).unwrap();
        assert_eq!(document["env"]["runtimes"], serde_json::json!({"toys": "7"}));
    }
}
