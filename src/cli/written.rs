//! The summary that `planish compile` prints.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use planish_artifact::Artifact;
use planish_artifact::manifest::{Manifest, PartManifest};
use planish_artifact::variants::VariantManifest;
use planish_compiler::compile::Compiled;
use planish_compiler::engine::EngineReport;
use planish_measure::tune::Tried;
use planish_passes::raise::Explanation;
use serde::Serialize;

use super::engine::files;
use super::terminal::say;
use super::{bytes_text, count_text, explain::Explained, precision, print, print_json, short};

/// What a command prints on standard output when it is done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shown {
    Summary,
    /// With what was tried for --tune.
    Json(Option<Vec<Tried>>),
}

/// What `--json` prints.
#[derive(Serialize)]
pub(super) struct Written<'a> {
    /// Absent where nothing was written.
    artifact: Option<&'a Path>,
    manifest: &'a Manifest,
    /// By part; absent where nobody asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fusion: Vec<Explained<'a>>,
    /// What came of the builds of engines; absent where there were none.
    #[serde(skip_serializing_if = "<[EngineReport]>::is_empty")]
    engines: &'a [EngineReport],
    /// What was tried for --tune; absent without a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    tried: Option<Vec<Tried>>,
}

impl<'a> Written<'a> {
    pub(super) fn new(
        artifact: Option<&'a Path>,
        manifest: &'a Manifest,
        fusion: &'a [(&'static str, Explanation)],
    ) -> Self {
        let fusion = fusion.iter().map(|(part, found)| Explained::new(part, found)).collect();
        Self { artifact, manifest, fusion, engines: &[], tried: None }
    }

    /// With what came of the builds of engines.
    pub(super) fn with_engines(self, engines: &'a [EngineReport]) -> Self {
        Self { engines, ..self }
    }
}

pub(super) fn finish(mut compiled: Compiled, engines: &[EngineReport], shown: Shown, took: Duration) -> Result<()> {
    let in_half = compiled.artifact.computes_in_half();
    let explanations = std::mem::take(&mut compiled.explanations);
    let replaced = Manifest::read(compiled.draft.target()).ok();
    let Artifact { folder, manifest, .. } = compiled.publish()?;
    if let Shown::Json(tried) = shown {
        let written = Written::new(Some(&folder), &manifest, &explanations).with_engines(engines);
        return print_json(&Written { tried, ..written });
    }
    // Beside the command's own output.
    let explained = explanations.iter().map(|(part, found)| Explained::new(part, found).to_string());
    say(&explained.collect::<String>());
    let of_variants: u64 = manifest.variants.iter().map(VariantManifest::bytes).sum();
    let size = manifest.files.iter().map(|f| f.bytes).sum::<u64>() + of_variants;
    let mut text = format!(
        "{}: {}{}, {} parameters, target {}, opset {}\n",
        short(&folder).display(),
        manifest.architecture,
        purpose(&manifest),
        count_text(manifest.parameters),
        manifest.target,
        manifest.opset,
    );
    text += &files(&manifest, engines);
    for (part, halved) in manifest.parts.iter().filter_map(|part| Some((part, part.precision.as_ref()?))) {
        let of = if manifest.parts.len() > 1 { format!(" of {}", part.name) } else { String::new() };
        let lines = precision::lines(halved, in_half);
        text += &format!("  {}{of}: {}\n", manifest.precision, lines.join("\n  "));
    }
    for (part, plan) in manifest.parts.iter().filter_map(|part| Some((part, part.quantization.as_ref()?))) {
        let of = if manifest.parts.len() > 1 { format!(" of {}", part.name) } else { String::new() };
        text += &format!("  {}{of}: {}\n", manifest.precision_name(), super::quantization::summary(plan));
        text += &super::quantization::floats(plan);
        text += &coverage(part);
    }
    for (part, plan) in manifest.parts.iter().filter_map(|part| Some((part, part.weights.as_ref()?))) {
        let of = if manifest.parts.len() > 1 { format!(" of {}", part.name) } else { String::new() };
        text += &format!("  {}{of}: {}\n", manifest.precision_name(), super::weights::summary(plan));
        text += &coverage(part);
    }
    if let Some(calibration) = &manifest.calibration {
        let (samples, split) = (calibration.samples, calibration.split);
        let word = if samples == 1 { "sample" } else { "samples" };
        text += &format!("  calibrated on {samples} {word} of {}{split}\n", calibration.data.name);
    }
    let vocabulary = manifest.parts.iter().find_map(|part| part.vocabulary.as_ref());
    if let Some(vocabulary) = vocabulary.filter(|vocabulary| vocabulary.padded > vocabulary.size) {
        text += &format!("  vocabulary of {} padded to {}\n", vocabulary.size, vocabulary.padded);
    }
    for linked in &manifest.linked {
        text += &format!("  {linked} linked\n");
    }
    for variant in &manifest.variants {
        let names: Vec<&str> = variant.files.iter().map(|file| file.name.as_str()).collect();
        text += &format!("  variant {}: {} {}\n", variant.name, names.join(", "), bytes_text(variant.bytes()));
        if let Some(report) = &variant.verification {
            text += &format!("    verified: {}\n", report.summary());
        }
        if let Some(evaluation) = &variant.evaluation {
            text += &format!("    evaluated on {evaluation}\n");
        }
    }
    text += &format!("  {} written in {:.2} s\n", bytes_text(size), took.as_secs_f64());
    if let Some(old) = replaced {
        text += &format!(
            "  replaced an artifact of {}: {}{}, target {}, opset {}\n",
            old.source.name,
            old.architecture,
            purpose(&old),
            old.target,
            old.opset
        );
    }
    if let Some(tuning) = &manifest.tuning {
        text += &format!("  tuned: {tuning}\n");
    }
    if let Some(report) = &manifest.verification {
        text += &format!("  verified: {}\n", report.summary());
    }
    if let Some(evaluation) = &manifest.evaluation {
        text += &format!("evaluated on {evaluation}\n");
    }
    print(&text)
}

/// How much of the weights of a part are codes, and what is left.
fn coverage(part: &PartManifest) -> String {
    let Some(coverage) = &part.coverage else { return String::new() };
    let left = coverage.reasons().map(|reasons| format!("; left: {reasons}")).unwrap_or_default();
    format!("    {:.1} % of the elements of its matrices are codes{left}\n", 100.0 * coverage.share())
}

/// What a model is for, where that is known.
fn purpose(manifest: &Manifest) -> String {
    manifest.task.as_ref().map(|task| format!(" for {task}")).unwrap_or_default()
}
