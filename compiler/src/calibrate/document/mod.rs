//! A calibration as a file: the model, the data, and what was measured.

mod check;
mod encoding;
mod merge;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_artifact::files::{self, digest};
use planish_artifact::manifest::{File, Manifest, SourceManifest};
use planish_artifact::split::Split;
use planish_data::Shards;
use planish_files::Kind;
use planish_models::{LoadOptions, SourceFile, Task};
use planish_passes::{CalibrationTable, Range};
use serde::{Deserialize, Serialize};

use super::{CalibrateOptions, Measure, known};
use crate::source::SourceModel;
use encoding::{Encoded, Extremes};

/// What such a file says it is.
const FORMAT: &str = "planish-calibration";

/// The version of this format.
const SCHEMA: u32 = 2;

/// What a model's values are on a data set. Nothing in it depends on when or where it was made, or in how many shards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Document", into = "Document")]
pub struct Calibration {
    /// The model that ran.
    pub source: SourceManifest,
    /// What its outputs were for, where that is known.
    pub task: Option<String>,
    /// The data set.
    pub data: File,
    /// How the data set was read.
    pub reading: Reading,
    /// What was measured.
    pub measured: Measure,
    /// Which shards of the data were run; absent where all of it was.
    pub shards: Option<Shards>,
    /// How many samples were run.
    pub samples: usize,
    /// How many bad records of the data were left out.
    pub skipped: usize,
    table: CalibrationTable,
}

/// How a data set was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// The member or column with the text, where it was named.
    pub field: Option<String>,
    /// How many samples were taken at most.
    pub samples: usize,
    /// How many samples a batch had, where that was given.
    pub batch: Option<usize>,
    /// How many tokens a text was cut to, where that was given.
    pub max_length: Option<usize>,
    /// Whether bad records were left out.
    pub skip_bad: bool,
    /// Which of the samples were run.
    #[serde(skip_serializing_if = "Split::is_all", default)]
    pub split: Split,
}

/// The file.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    schema: u32,
    producer: String,
    source: SourceManifest,
    task: Option<String>,
    data: File,
    reading: Reading,
    measured: Measure,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    shards: Option<Shards>,
    samples: usize,
    skipped: usize,
    /// By part and by value, as in a [`CalibrationTable`].
    parts: BTreeMap<String, BTreeMap<String, Extremes>>,
    /// The same for the inputs of linear layers.
    inputs: BTreeMap<String, BTreeMap<String, Encoded>>,
    /// How often tokens took each expert, by part and by the result of the mixture.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    experts: BTreeMap<String, BTreeMap<String, Vec<u64>>>,
}

/// What a file of any version says of itself.
#[derive(Deserialize)]
struct Header {
    format: String,
    schema: u32,
}

/// Whether a file is a table by its name, and not data.
#[must_use]
pub fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "json")
}

impl Calibration {
    pub(super) fn new(
        model: &SourceModel,
        task: Option<Task>,
        dataset: &Path,
        options: &CalibrateOptions,
        skipped: usize,
        table: CalibrationTable,
    ) -> Result<Self> {
        let files = model.files(task)?;
        let reading = &options.data;
        Ok(Self {
            source: SourceManifest {
                name: model.name(),
                path: None,
                hub: None,
                files: files.iter().map(described).collect::<Result<_>>()?,
                import: model.import_options(),
                adapters: Vec::new(),
                artifact: None,
                card: None,
            },
            task: task.map(|task| task.to_string()),
            data: planish_data::described(dataset)?,
            reading: Reading {
                field: reading.field.clone(),
                samples: reading.samples.get(),
                batch: reading.batch.map(usize::from),
                max_length: reading.max_length.map(usize::from),
                skip_bad: reading.skip_bad,
                split: reading.split,
            },
            measured: options.measure,
            shards: options.shard.filter(|shard| shard.count > 1).map(Shards::from),
            samples: table.samples(),
            skipped,
            table,
        })
    }

    /// Reads a table that has to be one of a model for a task, of all data.
    ///
    /// # Errors
    /// When it cannot be read, is a table of another model, or misses shards.
    pub fn of(model: &SourceModel, path: &Path, what: LoadOptions) -> Result<Self> {
        let calibration = Self::read(path)?;
        let checked = calibration.check(model, what).and_then(|()| calibration.check_complete());
        checked.with_context(|| format!("{} does not fit", path.display()))?;
        Ok(calibration)
    }

    /// Reads a table.
    ///
    /// # Errors
    /// When the file cannot be read or is no such table.
    pub fn read(path: &Path) -> Result<Self> {
        let text = planish_files::read_text(path, &Kind::CALIBRATION)?;
        let wrong =
            || format!("{} is not a calibration table of this version; `planish calibrate` makes one", path.display());
        let Header { format, schema } = serde_json::from_str(&text).with_context(wrong)?;
        if (format.as_str(), schema) != (FORMAT, SCHEMA) {
            bail!("{}: it is of format {format}, schema {schema}, and this planish reads schema {SCHEMA}", wrong());
        }
        serde_json::from_str(&text).with_context(wrong)
    }

    /// Writes it.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn write(&self, path: &Path) -> Result<()> {
        files::write(path, (serde_json::to_string_pretty(self)? + "\n").as_bytes())
    }

    /// What was measured.
    #[must_use]
    pub fn table(&self) -> &CalibrationTable {
        &self.table
    }
}

impl From<Calibration> for Document {
    fn from(calibration: Calibration) -> Self {
        let Calibration { source, task, data, reading, measured, shards, samples, skipped, table } = calibration;
        let range = |(value, range): (&String, &Range)| (value.clone(), Extremes::from(*range));
        let parts = table.parts().map(|(part, values)| (part.to_owned(), values.iter().map(range).collect()));
        let encoded = |(value, input): (&String, &_)| (value.clone(), Encoded::of(input));
        let inputs = table.inputs().map(|(part, values)| (part.to_owned(), values.iter().map(encoded).collect()));
        let (parts, inputs) = (parts.collect(), inputs.collect());
        let experts = table.experts().map(|(part, results)| (part.to_owned(), results.clone())).collect();
        let (format, producer) = (FORMAT.to_owned(), Manifest::producer());
        Self {
            format,
            schema: SCHEMA,
            producer,
            source,
            task,
            data,
            reading,
            measured,
            shards,
            samples,
            skipped,
            parts,
            inputs,
            experts,
        }
    }
}

impl TryFrom<Document> for Calibration {
    type Error = String;

    fn try_from(document: Document) -> Result<Self, String> {
        let Document {
            source, task, data, reading, measured, shards, samples, skipped, parts, inputs, experts, ..
        } = document;
        if let Some(shards) = &shards {
            shards.check()?;
        }
        let mut table = CalibrationTable::default();
        table.add_samples(samples);
        for (part, values) in parts {
            for (value, range) in values {
                let range = range.range().ok_or_else(|| format!("the range of `{value}` is not valid"))?;
                table.record(&part, &value, range);
            }
        }
        for (part, values) in inputs {
            for (value, encoded) in values {
                let invalid = || format!("the statistics of `{value}` are not valid");
                let statistics = encoded.statistics().ok_or_else(invalid)?;
                table.record_input(&part, &value, statistics).map_err(|error| error.to_string())?;
            }
        }
        for (part, results) in experts {
            for (result, counts) in results {
                table.record_choices(&part, &result, &counts).map_err(|error| error.to_string())?;
            }
        }
        Ok(Self { source, task, data, reading, measured, shards, samples, skipped, table })
    }
}

fn described(source: &SourceFile) -> Result<File> {
    Ok(File { name: source.name.clone(), bytes: source.bytes, blake3: Some(digest(&source.path)?) })
}
