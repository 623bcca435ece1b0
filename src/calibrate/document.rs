//! A calibration as a file: the model, the data, and the range of each value.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_models::Task;
use planish_passes::{CalibrationTable, Range};
use serde::{Deserialize, Serialize};

use super::observed_values;
use crate::artifact::manifest::{File, Manifest, SourceManifest};
use crate::files::{self, digest};
use crate::source::SourceModel;

/// What such a file says it is.
const FORMAT: &str = "planish-calibration";

/// The version of this format.
const SCHEMA: u32 = 1;

/// How ranges are made of what was seen: from the least to the largest element.
const METHOD: &str = "minmax";

/// Where a model's values lie on a data set. Nothing in it depends on when or where it was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    format: String,
    schema: u32,
    producer: String,
    /// The model that ran.
    pub source: SourceManifest,
    /// What its outputs were for, where that is known.
    pub task: Option<String>,
    /// The data set.
    pub data: File,
    /// How many samples of it were run.
    pub samples: usize,
    method: String,
    /// By part and by value, as in a [`CalibrationTable`].
    parts: BTreeMap<String, BTreeMap<String, Extremes>>,
}

/// A range. JSON has no infinities: they are texts.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Extremes {
    #[serde(with = "number")]
    min: f64,
    #[serde(with = "number")]
    max: f64,
}

/// Whether a file is a table by its name, and not data.
#[must_use]
pub fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "json")
}

impl Calibration {
    pub(super) fn new(model: &SourceModel, task: Option<Task>, data: &Path, table: &CalibrationTable) -> Result<Self> {
        let files = model.files()?;
        let paths: Vec<&Path> = files.iter().map(|source| source.path.as_path()).collect();
        let range = |(value, range): (&String, &Range)| (value.clone(), Extremes { min: range.min, max: range.max });
        let part =
            |(part, values): (&str, &BTreeMap<String, Range>)| (part.to_owned(), values.iter().map(range).collect());
        Ok(Self {
            format: FORMAT.to_owned(),
            schema: SCHEMA,
            producer: Manifest::producer(),
            source: SourceManifest {
                name: model.name(),
                path: None,
                files: paths.into_iter().map(described).collect::<Result<_>>()?,
                import: model.import_options(),
            },
            task: task.map(|task| task.to_string()),
            data: described(data)?,
            samples: table.samples(),
            method: METHOD.to_owned(),
            parts: table.parts().map(part).collect(),
        })
    }

    /// Reads a table that has to be one of a model for a task.
    ///
    /// # Errors
    /// When it cannot be read, or is a table of another model.
    pub fn of(model: &SourceModel, path: &Path, task: Option<Task>) -> Result<Self> {
        let calibration = Self::read(path)?;
        calibration.check(model, task).with_context(|| format!("{} does not fit", path.display()))?;
        Ok(calibration)
    }

    /// Reads a table.
    ///
    /// # Errors
    /// When the file cannot be read or is no such table.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let wrong =
            || format!("{} is not a calibration table of this version; `planish calibrate` makes one", path.display());
        let calibration: Self = serde_json::from_str(&text).with_context(wrong)?;
        let Self { format, schema, method, .. } = &calibration;
        if (format.as_str(), *schema, method.as_str()) != (FORMAT, SCHEMA, METHOD) {
            bail!("{}: it is of format {format}, schema {schema}, method {method}", wrong());
        }
        let ranges = || calibration.parts.values().flatten();
        if let Some((value, _)) = ranges().find(|(_, range)| range.min > range.max) {
            bail!("{}: the range of `{value}` is not valid", path.display());
        }
        Ok(calibration)
    }

    /// Writes it.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn write(&self, path: &Path) -> Result<()> {
        files::write(path, (serde_json::to_string_pretty(self)? + "\n").as_bytes())
    }

    /// The ranges.
    #[must_use]
    pub fn table(&self) -> CalibrationTable {
        let mut table = CalibrationTable::default();
        table.add_samples(self.samples);
        for (part, values) in &self.parts {
            for (value, range) in values {
                table.record(part, value, Range { min: range.min, max: range.max });
            }
        }
        table
    }

    /// Checks that it is one of a model, for a task.
    ///
    /// # Errors
    /// When another model ran, another part of it, or one for another task, or when values have other names.
    pub fn check(&self, model: &SourceModel, task: Option<Task>) -> Result<()> {
        let again = "calibrate this model, by `planish calibrate` or with data";
        let files = model.files()?;
        for source in &files {
            let own = described(&source.path)?;
            if !self.source.files.contains(&own) {
                bail!(
                    "the table was made for {}, whose {} differs from {}; {again}",
                    self.source.name,
                    own.name,
                    model.name()
                );
            }
        }
        if files.len() != self.source.files.len() || self.source.import != model.import_options() {
            bail!("the table was made for another part of {}; {again}", self.source.name);
        }
        let loaded = model.load(planish_models::LoadOptions { task, strict: false })?.task;
        if self.task != loaded.map(|task| task.to_string()) {
            bail!(
                "the table was made for {} for {}; {again}",
                self.source.name,
                self.task.as_deref().unwrap_or("no task")
            );
        }
        let known = observed_values(model, task)?;
        for (part, values) in &self.parts {
            let known =
                known.get(part).with_context(|| format!("the table has {part}, but the model does not; {again}"))?;
            if let Some(value) = values.keys().find(|value| !known.contains(*value)) {
                bail!("the table has `{value}` of {part}, which the model does not have; {again}");
            }
        }
        Ok(())
    }
}

fn described(path: &Path) -> Result<File> {
    let bytes = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(File { name, bytes, blake3: Some(digest(path)?) })
}

/// Numbers that may be infinite.
mod number {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Finite(f64),
        Text(String),
    }

    pub(super) fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        match number.is_finite() {
            true => serializer.serialize_f64(*number),
            false => serializer.serialize_str(&number.to_string()),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Number::deserialize(deserializer)? {
            Number::Finite(number) => Ok(number),
            Number::Text(text) if text == "inf" => Ok(f64::INFINITY),
            Number::Text(text) if text == "-inf" => Ok(f64::NEG_INFINITY),
            Number::Text(text) => Err(D::Error::custom(format!("`{text}` is not a number"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinities_are_texts() {
        let range = Extremes { min: f64::NEG_INFINITY, max: 0.5 };
        let text = serde_json::to_string(&range).unwrap();
        assert_eq!(text, r#"{"min":"-inf","max":0.5}"#);
        let read: Extremes = serde_json::from_str(&text).unwrap();
        assert_eq!((read.min, read.max), (range.min, range.max));
        assert!(serde_json::from_str::<Extremes>(r#"{"min":"nan","max":0}"#).is_err());
    }
}
