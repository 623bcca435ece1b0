//! `planish verify`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_ir::Graph;
use planish_models::{LoadOptions, Loaded};
use planish_runtimes::ort::Provider;
use planish_runtimes::{Model, Reference as Interpreter, Runtime, RuntimeError, Session, SessionOptions};

use super::{RuntimeArguments, VerificationFailed, compile::summary, note_elsewhere, print, print_json};
use crate::artifact::manifest::{Input, Manifest, Part};
use crate::artifact::{MANIFEST, part_path};
use crate::compile::Compiled;
use crate::files::{digest, resolved};
use crate::inputs::{InputSpec, Values, specs};
use crate::source::SourceModel;
use crate::verify::{
    CaseReport, OnnxFile, Pair, Reference, ReferenceKind, Report, Skipped, Tolerances, is_quantized, reference_limits,
    verify, verify_parts,
};

/// Run an artifact and compare it with its source; exit 3 on a miss
///
/// The source runs on the reference interpreter. An ONNX graph that this cannot run, or that has quantized
/// operators, runs on ONNX Runtime without graph optimization instead; the report says which it was.
///
/// The inputs are made from a seed: several shapes from one token to the longest sequence (512
/// tokens at most where there is a cache), with padding and without; some continue from a cache. What the source itself
/// cannot run, or what takes more than 1 GiB, is made shorter, and the report says so. Weights that the inputs do not
/// reach, such as embeddings of other tokens, are not seen. Of linked weights, which the checkpoint shares, only the size is recorded: what was
/// changed in place has changed in both.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The artifact's folder
    artifact: PathBuf,
    /// The checkpoint or .onnx file it was compiled from [default: where it was then, in the artifact or in its folder,
    /// beside it under its recorded name, or in the current folder, whichever is unchanged]
    #[arg(long, value_name = "MODEL")]
    reference: Option<PathBuf>,
    /// The most tokens to compare in a row; what a model of a billion parameters gives for many
    /// takes the reference minutes [default: as many as the model takes, 512 with a cache]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_length: Option<u32>,
    /// The seed of the inputs
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Threads of the runtime [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    runtime: RuntimeArguments,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let manifest = Manifest::read(&arguments.artifact)?;
    let runtime = arguments.runtime.runtime(&manifest);
    runtime.check()?;
    let (reference, model) = source(arguments.reference.as_slice(), &arguments.artifact, &manifest)?;
    let seeded = Seeded { seed: arguments.seed, max_length: arguments.max_length };
    let verification = Verification {
        onnx_file: model.onnx_file(arguments.runtime.ort_lib.clone(), arguments.threads.unwrap_or(0).into()),
        source: &loaded(&model, &manifest)?,
        folder: &arguments.artifact,
        manifest: &manifest,
        threads: arguments.threads,
    };
    let report = verification.report(seeded, runtime.as_ref())?;
    if arguments.json {
        print_json(&report)?;
    } else {
        print(&format!("{report}\n"))?;
    }
    VerificationFailed::check(&report)?;
    if !arguments.json {
        print(&format!("verified against {}: {}\n", reference.display(), summary(&report)))?;
    }
    Ok(())
}

/// The report on an artifact in the making.
pub(super) fn draft(
    compiled: &Compiled,
    model: &SourceModel,
    runtime: &RuntimeArguments,
    max_length: Option<u32>,
    threads: Option<u16>,
) -> Result<Report> {
    let verification = Verification {
        onnx_file: model.onnx_file(runtime.ort_lib.clone(), threads.unwrap_or(0).into()),
        source: &compiled.source,
        folder: compiled.draft.folder(),
        manifest: &compiled.manifest,
        threads,
    };
    verification.report(Seeded { seed: 0, max_length }, runtime.runtime(&compiled.manifest).as_ref())
}

/// Which inputs are made.
#[derive(Clone, Copy)]
struct Seeded {
    seed: u64,
    /// The most tokens in a row, if not as many as the model takes.
    max_length: Option<u32>,
}

/// An artifact and what it was compiled from.
struct Verification<'a> {
    /// The model before any pass.
    source: &'a Loaded,
    /// Its ONNX file, where it has one.
    onnx_file: Option<OnnxFile>,
    /// Where the artifact is.
    folder: &'a Path,
    manifest: &'a Manifest,
    threads: Option<u16>,
}

impl Verification<'_> {
    fn report(&self, seeded: Seeded, runtime: &dyn Runtime) -> Result<Report> {
        let mut report = self.on(runtime, seeded)?;
        // ONNX Runtime's CPU provider computes float16 in float32 and rounds some results only.
        if !self.manifest.computes_in_half() || runtime.name() != Provider::Cpu.runtime() {
            return Ok(report);
        }
        if report.reference == ReferenceKind::Interpreter {
            let rounded = self.on(&Interpreter, seeded)?.cases.into_iter();
            let label = |case: &CaseReport| format!("{}, each result rounded", case.label);
            report.cases.extend(rounded.map(|case| CaseReport { label: label(&case), ..case }));
        } else {
            let reason = "the model is not held against the reference interpreter, which alone rounds each result";
            let label = "the artifact with each result rounded".to_owned();
            report.skipped.push(Skipped { label, reason: reason.to_owned(), instead: None });
        }
        Ok(report)
    }

    /// The report on the artifact on a runtime.
    fn on(&self, runtime: &dyn Runtime, seeded: Seeded) -> Result<Report> {
        let Seeded { seed, max_length } = seeded;
        let max_length = max_length.map(usize::try_from).transpose()?;
        let longest = self.source.max_positions.into_iter().chain(max_length).min();
        let tolerances = Tolerances::of(self.source, &self.manifest.precision);
        let parts = &self.source.parts;
        let mut pairs = parts.iter().map(|part| self.pair(part, runtime)).collect::<Result<Vec<_>>>()?;
        match (pairs.as_mut_slice(), parts.as_slice()) {
            ([pair], [part]) => verify(pair, &part.graph, longest, seed, tolerances),
            (pairs, _) => verify_parts(pairs, longest, seed, tolerances),
        }
    }

    fn pair(&self, part: &planish_models::Part, runtime: &dyn Runtime) -> Result<Pair> {
        let described = self.manifest.parts.iter().find(|p| p.name == part.name).with_context(|| {
            format!("{} has no {}: compile the model again", self.folder.join(MANIFEST).display(), part.name)
        })?;
        let file = part_path(self.folder, self.manifest, described)?;
        let options = SessionOptions { threads: self.threads.unwrap_or(0).into(), ..SessionOptions::compiled() };
        let candidate: Box<dyn Session> = runtime.load(Model::Onnx(&file), &options)?;
        note_elsewhere(candidate.as_ref());
        Ok(Pair {
            name: part.name.to_owned(),
            specs: input_specs(candidate.inputs(), described, self.manifest.pad_token_id)?,
            reference: self.reference(&part.graph, &options)?,
            candidate,
            vocabulary: described.padded_logits().cloned(),
        })
    }

    /// What says what is right. Quantized operators round where other kernels of them need not, so those of ONNX
    /// Runtime are held against its own.
    fn reference(&self, graph: &Graph, options: &SessionOptions) -> Result<Reference> {
        let options = SessionOptions { limits: reference_limits(graph), ..options.clone() };
        let interpreter = || Interpreter.load(Model::Graph(graph), &options);
        let Some(file) = &self.onnx_file else { return Ok(Reference::interpreter(interpreter()?)) };
        if is_quantized(self.source) {
            match Reference::onnx_file(interpreter()?, graph, file) {
                Err(error) if !is_unavailable(&error) => {}
                reference => return reference,
            }
        }
        Ok(Reference::interpreter_or(interpreter()?, graph, file.clone()))
    }
}

/// What stands in the inputs of a part of a model; `pad` is the id that pads short sequences.
pub(super) fn input_specs(ports: &[planish_runtimes::Port], part: &Part, pad: Option<i64>) -> Result<Vec<InputSpec>> {
    let values = |input: &Input| {
        let values = match (input.port.name.as_str(), input.end) {
            ("attention_mask" | "encoder_attention_mask", _) => Values::Mask,
            ("position_ids", _) => Values::Positions,
            ("token_type_ids", Some(count)) => Values::Segments { count },
            (_, Some(end)) => Values::Ids { range: 0..end, pad },
            (_, None) => Values::Noise,
        };
        (input.port.name.clone(), values)
    };
    let known: BTreeMap<String, Values> = part.inputs.iter().map(values).collect();
    Ok(specs(ports, &known)?)
}

/// The checkpoint that an artifact was compiled from, and where it is: the one among those that were
/// named, or where none was the one of the recorded name.
pub(super) fn reference(named: &[PathBuf], artifact: &Path, manifest: &Manifest) -> Result<(PathBuf, Loaded)> {
    let (path, model) = source(named, artifact, manifest)?;
    Ok((path, loaded(&model, manifest)?))
}

fn source(named: &[PathBuf], artifact: &Path, manifest: &Manifest) -> Result<(PathBuf, SourceModel)> {
    match named {
        [] => find(artifact, manifest),
        named => among(named, artifact, manifest),
    }
}

/// The model for the task that an artifact of it is for.
fn loaded(model: &SourceModel, manifest: &Manifest) -> Result<Loaded> {
    let task = manifest.task.as_ref().map(|task| task.parse().map_err(anyhow::Error::msg)).transpose()?;
    model.load(LoadOptions { task, strict: false })
}

/// The first checkpoint that is the source among those that were named.
fn among(named: &[PathBuf], artifact: &Path, manifest: &Manifest) -> Result<(PathBuf, SourceModel)> {
    let mut others = Vec::new();
    for path in named {
        let checkpoint = SourceModel::open_with(path, &manifest.source.import)?;
        match difference(&checkpoint, manifest)? {
            None => return Ok((path.to_owned(), checkpoint)),
            Some(file) => others.push(file.display().to_string()),
        }
    }
    bail!(
        "{} is not what the artifact {} was compiled from; name the right checkpoint with --reference",
        others.join(" or "),
        artifact.display()
    )
}

/// The first checkpoint that is the source among the places where it may be: where it was when the artifact was
/// compiled, in the folder that holds the artifact, beside it under the recorded name, there or under that name in the
/// current folder, or in the artifact itself (linked weights).
fn find(artifact: &Path, manifest: &Manifest) -> Result<(PathBuf, SourceModel)> {
    let name = &manifest.source.name;
    let absolute = artifact.canonicalize().unwrap_or_else(|_| artifact.to_owned());
    let parent = absolute.parent().unwrap_or(&absolute);
    let recorded = manifest.source.path.as_ref().and_then(|way| resolved(&absolute.join(way))).filter(|p| p.exists());
    let places = [parent.to_owned(), parent.join(name), PathBuf::from("."), PathBuf::from(name), absolute.clone()];
    let mut found: Vec<(PathBuf, String)> = Vec::new();
    // What is not there, or the same place by another name, is passed over.
    let others = places.iter().filter_map(|place| place.canonicalize().ok());
    for place in recorded.clone().into_iter().chain(others) {
        if found.iter().any(|(path, _)| *path == place) {
            continue;
        }
        // An ONNX graph goes by the name of its file, which is recorded first.
        let file = match manifest.source.files.first() {
            Some(file) if place.is_dir() && file.name.ends_with(".onnx") => place.join(&file.name),
            _ => place.clone(),
        };
        let problem = match SourceModel::open_with(&file, &manifest.source.import) {
            Ok(checkpoint) => match difference(&checkpoint, manifest)? {
                None => return Ok((file, checkpoint)),
                Some(other) if recorded.as_ref() == Some(&place) => {
                    format!("{} has changed since the artifact was compiled from it", other.display())
                }
                Some(other) => format!("{} is not what the artifact was compiled from", other.display()),
            },
            Err(error) => format!("{error:#}"),
        };
        found.push((place, problem));
    }
    let looked: String = found.iter().map(|(_, problem)| format!("\n  {problem}")).collect();
    bail!(
        "the checkpoint `{name}` that {} was compiled from is neither where it was, nor beside the artifact or in the \
         current folder; name it with --reference; looked at:{looked}",
        artifact.display()
    )
}

/// The first file in which a checkpoint is not what was compiled. Of weights that were linked only
/// the size is recorded.
fn difference(model: &SourceModel, manifest: &Manifest) -> Result<Option<PathBuf>> {
    let recorded = &manifest.source.files;
    let sources = model.files()?;
    for source in &sources {
        let name = source.path.file_name().unwrap_or_default().to_string_lossy();
        let Some(file) = recorded.iter().find(|file| file.name == name && file.bytes == source.bytes) else {
            return Ok(Some(source.path.clone()));
        };
        if file.blake3.is_some() && file.blake3 != Some(digest(&source.path)?) {
            return Ok(Some(source.path.clone()));
        }
    }
    // Each is recorded, but some of what is recorded is not there.
    Ok((sources.len() != recorded.len()).then(|| model.folder()))
}

/// Whether something failed for want of a runtime.
fn is_unavailable(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref::<RuntimeError>(), Some(RuntimeError::Unavailable(_))))
}
