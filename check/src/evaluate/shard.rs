//! A shard of an evaluation as a file: what it belongs to, and what was seen of each of its batches.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use planish_artifact::Artifact;
use planish_artifact::evaluation::{Evaluation, Unit};
use planish_artifact::files::{self, digest};
use planish_artifact::manifest::{File, Manifest};
use planish_compiler::source::{Compared, SourceModel};
use planish_data::{Shard, Shards, differences};
use planish_files::Kind;
use planish_models::Task;
use serde::{Deserialize, Serialize};

use super::report::Basis;
use super::seen::Seen;
use super::{EvaluateOptions, EvaluationObserver, Reference, compared, run};

/// What such a file says it is.
const FORMAT: &str = "planish-evaluation-shard";

/// The version of this format.
const SCHEMA: u32 = 1;

/// What was seen of some shards of a data set. The shards of all of it make its evaluation, which is bit for bit that of one
/// process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationShard {
    format: String,
    schema: u32,
    producer: String,
    /// Where the model is that the artifact was compared with.
    source: String,
    /// The files of the artifact.
    artifact: Vec<File>,
    /// The files of the model that it was compared with.
    reference: Vec<File>,
    options: Reading,
    shards: Shards,
    basis: Basis,
    batches: Vec<Numbered>,
    /// The BLAKE3 digest of the file as it is with this text empty.
    blake3: String,
}

/// The options that decide what was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reading {
    field: Option<String>,
    label: Option<String>,
    unit: Option<Unit>,
    skip_bad: bool,
    samples: usize,
    batch: Option<usize>,
    max_length: Option<usize>,
    tokens: Option<usize>,
    window: Option<usize>,
    stride: Option<usize>,
}

/// What was seen of a batch, with its number in the data from 0 on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbered {
    number: usize,
    seen: Seen,
}

/// What a file of any version says of itself.
#[derive(Deserialize)]
struct Header {
    format: String,
    schema: u32,
}

/// Runs a shard of the batches that [`evaluate_artifact`](super::evaluate_artifact) runs. The shards of a data set make its evaluation.
///
/// # Errors
/// As [`evaluate_artifact`](super::evaluate_artifact); also when several recordings are to be written down side by side.
pub fn evaluate_shard(
    artifact: &Artifact,
    named: &[PathBuf],
    data: &Path,
    (options, shard): (&EvaluateOptions, Shard),
    observer: &dyn EvaluationObserver,
) -> Result<EvaluationShard> {
    let Compared { path, model, loaded, .. } = compared(artifact, named, observer)?;
    let (mut reference, mut batches) = (Reference::default(), Vec::new());
    let mut keep = |number, seen| batches.push((number, seen));
    let which = (options, Some(shard));
    let basis = run(artifact, (&model, &loaded), &mut reference, data, which, observer, &mut keep)?;
    EvaluationShard::new(artifact, (&path, &model, loaded.task), (options, shard), basis, batches)
}

impl EvaluationShard {
    pub(super) fn new(
        artifact: &Artifact,
        (source, model, task): (&Path, &SourceModel, Option<Task>),
        (options, shard): (&EvaluateOptions, Shard),
        basis: Basis,
        batches: Vec<(usize, Seen)>,
    ) -> Result<Self> {
        let reference = model.files(task)?;
        let described = reference
            .iter()
            .map(|of| Ok(File { name: of.name.clone(), bytes: of.bytes, blake3: Some(digest(&of.path)?) }));
        Ok(Self {
            format: FORMAT.to_owned(),
            schema: SCHEMA,
            producer: Manifest::producer(),
            source: source.display().to_string(),
            artifact: artifact.manifest.files.clone(),
            reference: described.collect::<Result<_>>()?,
            options: Reading::of(options),
            shards: shard.into(),
            basis,
            batches: batches.into_iter().map(|(number, seen)| Numbered { number, seen }).collect(),
            blake3: String::new(),
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or is no such file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = planish_files::read_text(path, &Kind::EVALUATION)?;
        let wrong = || {
            format!(
                "{} is not a shard of an evaluation of this version; `planish evaluate --shard K/N` writes one",
                path.display()
            )
        };
        let Header { format, schema } = serde_json::from_str(&text).with_context(wrong)?;
        if (format.as_str(), schema) != (FORMAT, SCHEMA) {
            bail!("{}: it is of format {format}, schema {schema}, and this planish reads schema {SCHEMA}", wrong());
        }
        let read: Self = serde_json::from_str(&text).with_context(wrong)?;
        let open = text.replacen(&member(&read.blake3), &member(""), 1);
        ensure!(
            read.blake3 == digest_of(&open),
            "{} is damaged: its digest is not that of its contents",
            path.display()
        );
        read.check().with_context(wrong)?;
        Ok(read)
    }

    /// Checks that what was read belongs together.
    fn check(&self) -> Result<()> {
        self.shards.check().map_err(anyhow::Error::msg)?;
        let mut numbers: Vec<usize> = self.batches.iter().map(|batch| batch.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        ensure!(numbers.len() == self.batches.len(), "a batch is there twice");
        let is_own = |number: &usize| self.shards.present.contains(&(number % self.shards.of + 1));
        ensure!(numbers.iter().all(is_own), "a batch is of another shard");
        self.batches.iter().try_for_each(|batch| batch.seen.check())
    }

    /// Writes it.
    ///
    /// # Errors
    /// When that is impossible, and where outputs are not finite, which JSON cannot say.
    pub fn write(&self, path: &Path) -> Result<()> {
        let open = serde_json::to_string(&Self { blake3: String::new(), ..self.clone() })? + "\n";
        let text = open.replacen(&member(""), &member(&digest_of(&open)), 1);
        serde_json::from_str::<Self>(&text)
            .context("outputs are not finite, which a shard cannot have; evaluate the whole data in one process")?;
        files::write(path, text.as_bytes())
    }

    /// Which shards it has.
    #[must_use]
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// The name of the data.
    #[must_use]
    pub fn data(&self) -> &str {
        &self.basis.data.name
    }

    /// How many batches it has.
    #[must_use]
    pub fn batches(&self) -> usize {
        self.batches.len()
    }

    /// Where the model is that the artifact was compared with.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The shards of both.
    ///
    /// # Errors
    /// When they are of other versions of planish, artifacts, models, data, options or runtimes, or when a shard is in both.
    pub fn merge(mut self, other: Self) -> Result<Self> {
        let differs = |what: &str, own: String, its: String| -> Result<()> {
            bail!("the shards are of different {what}: {own} and {its}")
        };
        if self.producer != other.producer {
            differs("versions of planish", self.producer.clone(), other.producer.clone())?;
        }
        if self.artifact != other.artifact {
            differs("artifacts", named(&self.artifact), named(&other.artifact))?;
        }
        if self.reference != other.reference {
            differs("models", named(&self.reference), named(&other.reference))?;
        }
        if self.basis.data != other.basis.data {
            let data = |of: &Self| named(std::slice::from_ref(&of.basis.data));
            differs("data", data(&self), data(&other))?;
        }
        if self.options != other.options {
            bail!("the shards are of different options: {}", differences(&self.options, &other.options)?);
        }
        let runtime = |of: &Self| format!("{} ({})", of.basis.runtime, of.basis.product);
        if runtime(&self) != runtime(&other) {
            differs("runtimes", runtime(&self), runtime(&other))?;
        }
        // The settings beside the model, which say how it is read, are not among its files.
        if self.basis != other.basis {
            bail!("the shards are of different readings of the data: {}", differences(&self.basis, &other.basis)?);
        }
        self.shards.join(&other.shards, "files")?;
        self.batches.extend(other.batches);
        Ok(self)
    }

    /// The evaluation.
    ///
    /// # Errors
    /// When shards are missing, or batches of those that are there.
    pub fn evaluation(mut self) -> Result<Evaluation> {
        if let Err(missing) = self.shards.check_complete() {
            bail!("{missing}; `planish evaluate --shard K/{}` writes them", self.shards.of);
        }
        self.batches.sort_by_key(|batch| batch.number);
        let gap = self.batches.iter().enumerate().find(|(at, batch)| *at != batch.number);
        if let Some((number, _)) = gap {
            bail!("the shards have no batch {}: shard {} is damaged", number + 1, number % self.shards.of + 1);
        }
        let mut all = Seen::default();
        self.batches.into_iter().for_each(|batch| all.fold(batch.seen));
        Ok(self.basis.report(&all))
    }
}

/// The digest of a file whose own digest is empty.
fn digest_of(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// The member with a digest.
fn member(blake3: &str) -> String {
    format!("\"blake3\":\"{blake3}\"")
}

impl Reading {
    fn of(options: &EvaluateOptions) -> Self {
        let data = &options.data;
        Self {
            field: data.field.clone(),
            label: data.label.clone(),
            unit: data.unit,
            skip_bad: data.skip_bad,
            samples: data.samples.get(),
            batch: data.batch.map(usize::from),
            max_length: data.max_length.map(usize::from),
            tokens: data.tokens.map(usize::from),
            window: options.window.map(usize::from),
            stride: options.stride.map(usize::from),
        }
    }
}

/// Files by their names and the beginnings of their digests.
fn named(files: &[File]) -> String {
    let one = |file: &File| {
        let digest: String = file.blake3.iter().flat_map(|digest| digest.chars()).take(12).collect();
        format!("{} (BLAKE3 {digest})", file.name)
    };
    files.iter().map(one).collect::<Vec<_>>().join(", ")
}
