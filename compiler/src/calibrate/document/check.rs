//! Whether a table is one of a model.

use anyhow::{Context, Result, bail};
use planish_models::LoadOptions;

use super::{Calibration, described, known};
use crate::calibrate::Measure;
use crate::source::SourceModel;

impl Calibration {
    /// Checks that it is one of a model, for a task.
    ///
    /// # Errors
    /// When another model ran, another part of it, or one for another task, or when values have other names.
    pub fn check(&self, model: &SourceModel, what: LoadOptions) -> Result<()> {
        let again = "calibrate this model, by `planish calibrate` or with data";
        let loaded = model.load(what.clone())?.task;
        let files = model.files(loaded)?;
        for source in &files {
            let own = described(source)?;
            if !self.source.files.contains(&own) {
                let other = self.source.files.iter().find(|file| file.name == own.name);
                let digest = |file: Option<&_>| digest_of(file).unwrap_or_else(|| "no such file".to_owned());
                bail!(
                    "the table was made for {}, whose {} differs from {} (BLAKE3 {} in the table, {} in the model); {again}",
                    self.source.name,
                    own.name,
                    model.name(),
                    digest(other),
                    digest(Some(&own))
                );
            }
        }
        if files.len() != self.source.files.len() || self.source.import != model.import_options() {
            bail!("the table was made for another part of {}; {again}", self.source.name);
        }
        if self.task != loaded.map(|task| task.to_string()) {
            bail!(
                "the table was made for {} for {}; {again}",
                self.source.name,
                self.task.as_deref().unwrap_or("no task")
            );
        }
        let known = known(model, what)?;
        let ranges = self.table.parts().flat_map(|(part, values)| values.keys().map(move |value| (part, value, false)));
        let inputs = self.table.inputs().flat_map(|(part, values)| values.keys().map(move |value| (part, value, true)));
        for (part, value, is_input) in ranges.chain(inputs) {
            let known =
                known.get(part).with_context(|| format!("the table has {part}, but the model does not; {again}"))?;
            let names = if is_input { &known.inputs } else { &known.ranges };
            if !names.contains(value) {
                bail!("the table has `{value}` of {part}, which the model does not have; {again}");
            }
        }
        for (part, results) in self.table.experts() {
            let known = known.get(part).map(|known| &known.experts);
            let other = results.iter().find(|(result, counts)| {
                known.and_then(|known| known.get(result.as_str())).is_none_or(|experts| *experts != counts.len())
            });
            if let Some((result, counts)) = other {
                bail!(
                    "the table has {} experts of `{result}` of {part}, which the model does not have; {again}",
                    counts.len()
                );
            }
        }
        Ok(())
    }
}

impl Calibration {
    /// Checks that something was measured.
    ///
    /// # Errors
    /// When it was not.
    pub fn check_measured(&self, wanted: Measure) -> Result<()> {
        let name = |measure: Measure| match measure {
            Measure::Ranges => "ranges",
            Measure::Inputs => "inputs",
            Measure::All => "all",
        };
        if self.measured != Measure::All && self.measured != wanted {
            bail!(
                "it was made with `--measure {}`; make it with `planish calibrate --measure {}`",
                name(self.measured),
                name(wanted)
            );
        }
        Ok(())
    }
}

/// The beginning of a file's digest.
fn digest_of(file: Option<&planish_artifact::manifest::File>) -> Option<String> {
    Some(file?.blake3.as_deref()?.chars().take(12).collect())
}
