//! The model card of an artifact: a README.md of the form that the Hugging Face hub reads. It says what `planish.json` says, and
//! how libraries load the artifact.

mod examples;
mod front;
mod optimum;
#[cfg(test)]
mod tests;
mod transformers_js;
mod values;

use anyhow::Result;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use planish_artifact::evaluation::Evaluation;
use planish_artifact::manifest::{HubSource, Manifest, SourceManifest};
use planish_artifact::variants::VariantName;
use planish_artifact::verification::Report;
use planish_artifact::{Artifact, CARD};
use serde::Serialize;

use examples::Example;

/// The card and the code in it, by the names of the templates.
const TEMPLATES: [(&str, &str); 6] = [
    ("card.md", include_str!("templates/card.md")),
    (examples::ONNX_RUNTIME, include_str!("templates/onnxruntime.py")),
    (examples::OPTIMUM, include_str!("templates/optimum.py")),
    (examples::SENTENCE_TRANSFORMERS, include_str!("templates/sentence_transformers.py")),
    (examples::TRANSFORMERS_JS, include_str!("templates/transformers.js")),
    (examples::GENAI, include_str!("templates/genai.py")),
];

/// What the template of the card shows.
#[derive(Serialize)]
struct Page<'a> {
    front: String,
    title: String,
    hub: Option<&'a str>,
    producer: &'a str,
    target: &'static str,
    facts: Vec<(&'static str, String)>,
    examples: Vec<Example>,
    notes: Vec<String>,
    files: Vec<(String, u64)>,
    companions: Vec<String>,
    verification: Option<String>,
    evaluation: Option<String>,
}

/// What was measured of an artifact or of one of its variants.
struct Measured<'a> {
    verification: Option<&'a Report>,
    evaluation: Option<&'a Evaluation>,
}

/// Writes the card into the folder of an artifact that is to have one, unless one is there that somebody changed.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(artifact: &mut Artifact) -> Result<()> {
    if !has_card(&artifact.manifest) || artifact.folder.join(CARD).exists() {
        return Ok(());
    }
    let text = text(artifact)?;
    artifact.manifest.write_card(&artifact.folder, &text)
}

/// Whether the card of an artifact is as planish wrote it: then it is written anew where the artifact changes.
pub(crate) fn is_as_written(artifact: &Artifact) -> bool {
    has_card(&artifact.manifest) && !artifact.manifest.has_changed_card(&artifact.folder)
}

fn has_card(manifest: &Manifest) -> bool {
    manifest.companions.iter().any(|name| name == CARD)
}

/// The card of an artifact.
fn text(artifact: &Artifact) -> Result<String> {
    let manifest = &artifact.manifest;
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    for (name, template) in TEMPLATES {
        environment.add_template(name, template)?;
    }
    let hub = hub(&manifest.source);
    let files = manifest.files.iter().chain(manifest.variants.iter().flat_map(|variant| &variant.files));
    let others = manifest.linked.iter().chain(&manifest.companions);
    let page = Page {
        front: front::text(manifest),
        title: plain(&manifest.source.name),
        hub: hub.map(|hub| hub.name.as_str()),
        producer: &manifest.producer,
        target: artifact.backend.target.name,
        facts: facts(manifest, hub),
        examples: examples::of(artifact, &environment)?,
        notes: examples::notes(artifact)?,
        files: files.map(|file| (code(&file.name), file.bytes)).collect(),
        companions: others.filter(|name| *name != CARD).map(|name| code(name)).collect(),
        verification: reports(manifest, |of| Some(of.verification?.to_string())),
        evaluation: reports(manifest, |of| Some(of.evaluation?.to_string())),
    };
    let text = environment.get_template("card.md")?.render(Serde(page))?;
    Ok(text.trim_end().to_owned() + "\n")
}

/// The model of the hub that a source is, or that the artifact was made from that the source is; none where its name or its commit,
/// which are in links, are not of the form that the hub has.
fn hub(source: &SourceManifest) -> Option<&HubSource> {
    let found = source.hub.as_ref().or_else(|| hub(&source.artifact.as_ref()?.source));
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    found.filter(|hub| {
        let named = !hub.name.is_empty() && hub.name.chars().all(is_plain);
        named && !hub.commit.is_empty() && hub.commit.chars().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// The rows of the table of what was compiled.
fn facts(manifest: &Manifest, hub: Option<&HubSource>) -> Vec<(&'static str, String)> {
    let types = match (manifest.precision_name(), manifest.precision.to_string()) {
        (codes, rest) if codes == rest || rest == "f32" => codes,
        (codes, half) => format!("{codes}, else {half}"),
    };
    let further = manifest.variants.iter().map(|variant| variant.name);
    let variants: Vec<&str> = manifest.variant.into_iter().chain(further).map(VariantName::name).collect();
    let adapters = &manifest.source.adapters;
    let on_data = |data: &planish_artifact::manifest::CalibratedOn| {
        format!("{} samples of {}{}", data.samples, plain(&data.data.name), data.split)
    };
    let facts = [
        ("Model type", Some(manifest.architecture.clone())),
        ("Task", manifest.task.map(|task| task.to_string())),
        ("Parameters", Some(manifest.parameters.to_string())),
        ("Longest text", manifest.max_sequence_length.map(|tokens| format!("{tokens} tokens"))),
        ("Adapters", (!adapters.is_empty()).then(|| adapters.len().to_string())),
        ("Target", Some(manifest.target.clone())),
        ("Precision", Some(types)),
        ("Variants", (!variants.is_empty()).then(|| variants.join(", "))),
        ("Calibrated on", manifest.calibration.as_ref().map(on_data)),
        ("ONNX opset", Some(manifest.opset.to_string())),
        ("Commit of the source", hub.map(|hub| format!("`{}`", hub.commit))),
        ("Compiler", Some(manifest.producer.clone())),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The reports of an artifact and of its variants as Markdown; absent where there is none.
fn reports(manifest: &Manifest, of: fn(Measured<'_>) -> Option<String>) -> Option<String> {
    let own = Measured { verification: manifest.verification.as_ref(), evaluation: manifest.evaluation.as_ref() };
    let variants = manifest.variants.iter().map(|variant| {
        let (verification, evaluation) = (variant.verification.as_ref(), variant.evaluation.as_ref());
        (Some(variant.name), Measured { verification, evaluation })
    });
    let reports = [(manifest.variant, own)].into_iter().chain(variants).filter_map(|(name, measured)| {
        let report = markdown(&of(measured)?);
        Some(name.map(|name| format!("Variant {name}:\n\n{report}")).unwrap_or(report))
    });
    let reports: Vec<String> = reports.collect();
    (!reports.is_empty()).then(|| reports.join("\n\n"))
}

/// A report as Markdown: its lines as a list, and tables as they are.
fn markdown(report: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut was_table = false;
    for line in report.lines().filter(|line| !line.trim().is_empty()) {
        let is_table = line.starts_with('|');
        if is_table != was_table && !lines.is_empty() {
            lines.push(String::new());
        }
        let line = line.replace('<', "&lt;");
        lines.push(if is_table { line } else { format!("- {}", line.trim()) });
        was_table = is_table;
    }
    lines.join("\n")
}

/// A name of a file as code of Markdown, where it can be that.
fn code(name: &str) -> String {
    match name.contains(['`', '|']) || name.chars().any(char::is_control) {
        true => plain(name),
        false => format!("`{name}`"),
    }
}

/// A name from elsewhere as text of Markdown: what Markdown or a table would read otherwise has a backslash before it.
fn plain(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        match letter {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '&' | '!' => text.extend(['\\', letter]),
            letter if letter.is_control() => text.push('\u{fffd}'),
            letter => text.push(letter),
        }
    }
    text
}
