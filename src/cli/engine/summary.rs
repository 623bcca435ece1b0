//! What a summary says of engines.

use planish_artifact::engine::EngineManifest;
use planish_artifact::manifest::{File, Manifest};
use planish_compiler::engine::EngineReport;

use crate::cli::bytes_text;

/// The line of a summary about an engine: `model.engine 2.5 MB` and what it is.
fn line(engine: &EngineManifest, report: Option<&EngineReport>) -> String {
    let EngineManifest { file, bytes, product, version, capabilities, profiles, layers, .. } = engine;
    let mut text = format!(
        "  {file} {}, by {product} {version} for {}\n    profiles: {profiles}; layers: {}; regions: {}; fused attentions: \
         {}\n",
        bytes_text(*bytes),
        capabilities.join(", "),
        layers.count,
        layers.regions,
        layers.attentions,
    );
    if let Some(EngineReport { seconds, .. }) = report {
        text += &format!("    built in {seconds:.2} s\n");
    }
    text
}

/// The lines of a summary about the files of an artifact.
pub(in crate::cli) fn files(manifest: &Manifest, reports: &[EngineReport]) -> String {
    let one = |file: &File| {
        let part = manifest
            .parts
            .iter()
            .find_map(|part| Some((part, part.engine.as_ref()?)).filter(|(_, e)| e.file == file.name));
        match part {
            Some((part, engine)) => line(engine, reports.iter().find(|report| report.part == part.name)),
            None => format!("  {} {}\n", file.name, bytes_text(file.bytes)),
        }
    };
    let mut text: String = manifest.files.iter().map(one).collect();
    if let Some(peak) = reports.iter().filter_map(|report| report.peak_memory).max() {
        text += &format!("  peak memory of the process {}\n", bytes_text(peak));
    }
    text
}
