//! `planish verify`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_models::{LoadOptions, Loaded};
use planish_runtimes::ort::Provider;
use planish_runtimes::{Model, Reference, Runtime, Session, SessionOptions};

use super::{RuntimeArguments, VerificationFailed, compile::summary, note_elsewhere, print, print_json};
use crate::artifact::{MANIFEST, part_path};
use crate::compile::Compiled;
use crate::files::digest;
use crate::inputs::{InputSpec, Values, specs};
use crate::manifest::{Input, Manifest, Part};
use crate::source::SourceModel;
use crate::verify::{CaseReport, Pair, Report, Tolerances, cases, verify, verify_parts};

/// Run an artifact and compare it with its source on the reference interpreter; exit 3 on a miss
///
/// The inputs are made from a seed: several shapes from one token to the longest sequence (512
/// tokens at most where there is a cache), with padding and without; some continue from a cache. Weights that they do not reach, such as embeddings of other tokens, are
/// not seen. Of linked weights, which the checkpoint shares, only the size is recorded: what was
/// changed in place has changed in both.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The artifact's folder
    artifact: PathBuf,
    /// The checkpoint it was compiled from [default: the one in the artifact or in its folder,
    /// beside it under its recorded name, or in the current folder, whichever it is]
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
    let (reference, source) = reference(arguments.reference.as_slice(), &arguments.artifact, &manifest)?;
    let inputs = Seeded { seed: arguments.seed, max_length: arguments.max_length };
    let report = report(&source, &arguments.artifact, &manifest, inputs, runtime.as_ref(), arguments.threads)?;
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
pub(super) fn draft(compiled: &Compiled, runtime: &RuntimeArguments, threads: Option<u16>) -> Result<Report> {
    let inputs = Seeded { seed: 0, max_length: None };
    let runtime = runtime.runtime(&compiled.manifest);
    report(&compiled.source, compiled.draft.folder(), &compiled.manifest, inputs, runtime.as_ref(), threads)
}

/// Which inputs are made.
struct Seeded {
    seed: u64,
    /// The most tokens in a row, if not as many as the model takes.
    max_length: Option<u32>,
}

fn report(
    source: &Loaded,
    folder: &Path,
    manifest: &Manifest,
    inputs: Seeded,
    runtime: &dyn Runtime,
    threads: Option<u16>,
) -> Result<Report> {
    let Seeded { seed, max_length } = inputs;
    let max_length = max_length.map(usize::try_from).transpose()?;
    let tolerances = Tolerances::of(source, &manifest.precision);
    let longest = source.max_positions.into_iter().chain(max_length).min();
    let options = SessionOptions { threads: threads.unwrap_or(0).into(), ..SessionOptions::compiled() };
    let pair = |part: &planish_models::Part, runtime: &dyn Runtime| -> Result<Pair> {
        let described = manifest.parts.iter().find(|p| p.name == part.name).with_context(|| {
            format!("{} has no {}: compile the model again", folder.join(MANIFEST).display(), part.name)
        })?;
        let file = part_path(folder, manifest, described)?;
        let candidate: Box<dyn Session> = runtime.load(Model::Onnx(&file), &options)?;
        note_elsewhere(candidate.as_ref());
        Ok(Pair {
            name: part.name.to_owned(),
            specs: input_specs(candidate.inputs(), described, manifest.pad_token_id)?,
            reference: Reference.load(Model::Graph(&part.graph), &options)?,
            candidate,
            vocabulary: described.padded_logits().cloned(),
        })
    };
    let on = |runtime: &dyn Runtime| {
        let mut pairs = source.parts.iter().map(|part| pair(part, runtime)).collect::<Result<Vec<_>>>()?;
        match pairs.as_mut_slice() {
            [Pair { specs, reference, candidate, vocabulary, .. }] => {
                let cases = cases(specs, longest, seed)?;
                Ok(verify(reference.as_mut(), candidate.as_mut(), &cases, vocabulary.as_ref(), tolerances)?)
            }
            pairs => verify_parts(pairs, longest, seed, tolerances),
        }
    };
    let mut report = on(runtime)?;
    // ONNX Runtime's CPU provider computes float16 in float32 and rounds some results only.
    if manifest.computes_in_half() && runtime.name() == Provider::Cpu.runtime() {
        let rounded = on(&Reference)?.cases.into_iter();
        report
            .cases
            .extend(rounded.map(|case| CaseReport { label: format!("{}, each result rounded", case.label), ..case }));
    }
    Ok(report)
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
    let (path, checkpoint) = match named {
        [] => find(artifact, manifest)?,
        named => among(named, artifact, manifest)?,
    };
    let task = manifest.task.as_ref().map(|task| task.parse().map_err(anyhow::Error::msg)).transpose()?;
    let source = checkpoint.load(LoadOptions { task, strict: false })?;
    Ok((path, source))
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

/// The first checkpoint that is the source among the places where people keep them: in the folder
/// that holds the artifact, beside it under the recorded name, there or under that name in the
/// current folder, or in the artifact itself (linked weights).
fn find(artifact: &Path, manifest: &Manifest) -> Result<(PathBuf, SourceModel)> {
    let name = &manifest.source.name;
    let absolute = artifact.canonicalize().unwrap_or_else(|_| artifact.to_owned());
    let parent = absolute.parent().unwrap_or(&absolute);
    let places = [parent.to_owned(), parent.join(name), PathBuf::from("."), PathBuf::from(name), absolute.clone()];
    let mut found: Vec<(PathBuf, String)> = Vec::new();
    // What is not there, or the same place by another name, is passed over.
    for place in places.iter().filter_map(|place| place.canonicalize().ok()) {
        if found.iter().any(|(path, _)| *path == place) {
            continue;
        }
        // An ONNX graph goes by the name of its file, which is recorded first.
        let place = match manifest.source.files.first().map(|file| place.join(&file.name)) {
            Some(file) if file.extension().is_some_and(|e| e == "onnx") => file,
            _ => place,
        };
        let problem = match SourceModel::open_with(&place, &manifest.source.import) {
            Ok(checkpoint) => match difference(&checkpoint, manifest)? {
                None => return Ok((place, checkpoint)),
                Some(file) => format!("{} is not what the artifact was compiled from", file.display()),
            },
            Err(error) => format!("{error:#}"),
        };
        found.push((place, problem));
    }
    let looked: String = found.iter().map(|(_, problem)| format!("\n  {problem}")).collect();
    bail!(
        "the checkpoint `{name}` that {} was compiled from is neither beside it nor in the current folder; name it with \
         --reference; looked at:{looked}",
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
