//! What `planish inspect` says of engines.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use planish_compiler::engine::{BuildRecord, PartProfile};
use planish_measure::inspect::EngineInspection;
use planish_runtimes::tensorrt::{Layer, Layers};
use serde::Serialize;

use super::{bytes_text, print, print_json};

/// How many nodes of a layer a table names.
const NODES: usize = 2;
/// The most characters of a table for the name of a layer and of a node.
const NAME: usize = 32;
const NODE: usize = 36;

#[derive(Serialize)]
struct Document<'a> {
    engines: &'a [EngineInspection],
}

pub(super) fn show(path: &Path, engines: &[EngineInspection], json: bool) -> Result<()> {
    if json {
        return print_json(&Document { engines });
    }
    let mut text = format!("{}\n", path.display());
    engines.iter().for_each(|engine| text += &one(engine));
    print(&text)
}

fn one(engine: &EngineInspection) -> String {
    let EngineInspection { file, product, version, capabilities, bytes, weights, profiles, build } = engine;
    let mut text = format!("{file}\n");
    let mut line = |label: &str, what: &str| text += &format!("  {label:9}  {what}\n");
    line("built by", &format!("{product} {version}"));
    line("runs on", &capabilities.join(", "));
    line("size", &format!("{}, of which weights {}", bytes_text(*bytes), bytes_text(*weights)));
    match profiles {
        Some(profiles) => profiles.iter().enumerate().for_each(|(n, profile)| line("profile", &sizes(n, profile))),
        None => line("profiles", "not known: profiles.json is not beside the engine"),
    }
    match build {
        None => line("layers", "not known: the record of the build is not beside the engine"),
        Some(BuildRecord { seconds, peak_memory, layers }) => {
            let peak = peak_memory
                .map(|peak| format!("; peak memory of the process {}", bytes_text(peak)))
                .unwrap_or_default();
            line("build", &format!("{seconds:.2} s{peak}"));
            let attentions = layers.attentions().count();
            let regions = layers.regions();
            line("layers", &format!("{}; regions: {regions}; fused attentions: {attentions}", layers.0.len()));
            // A table has no errors to write with.
            let _ = writeln!(text, "{}", table(layers, profiles.as_ref().map_or(0, Vec::len)));
        }
    }
    text
}

/// The ranges of a profile's symbols.
fn sizes(index: usize, profile: &PartProfile) -> String {
    format!("{index}: {}", profile.symbols.to_string().replace(',', ", "))
}

/// The layers of an engine with so many profiles, and of several the profile that each is for.
fn table(layers: &Layers, profiles: usize) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let first = (profiles > 1).then_some("profile");
    table.set_header(first.into_iter().chain(["layer", "kind", "types", "nodes of the ONNX graph"]));
    for layer in &layers.0 {
        let Layer { name, kind, inputs, outputs, nodes, .. } = layer;
        let types = match inputs.is_empty() && outputs.is_empty() {
            true => String::new(),
            false => format!("{} -> {}", types(inputs), types(outputs)),
        };
        let profile = layers.profile(layer, profiles).map(|profile| profile.to_string()).unwrap_or_default();
        let name = shortened(name, NAME);
        let more = nodes.len().saturating_sub(NODES);
        let mut named = nodes.iter().take(NODES).map(|node| shortened(node, NODE)).collect::<Vec<_>>().join(", ");
        if more > 0 {
            named += &format!(" and {more} more");
        }
        let profile = first.map(|_| profile.as_str());
        table.add_row(profile.into_iter().chain([name.as_str(), kind, &types, &named]));
    }
    table.to_string()
}

/// A text with its middle left out where it is longer. What ends names tells them apart.
fn shortened(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let tail = most / 2;
    let head: String = text.chars().take(most - tail - 1).collect();
    head + "…" + &text.chars().skip(length - tail).collect::<String>()
}

/// Element types, equal ones that follow each other counted.
fn types(all: &[String]) -> String {
    let runs = all.chunk_by(|a, b| a == b);
    let run = |run: &[String]| match run {
        [one] => one.clone(),
        _ => format!("{} {}", run.len(), run[0]),
    };
    runs.map(run).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(shortened("_gemm_mha_v2_myl0_7", 32), "_gemm_mha_v2_myl0_7");
        assert_eq!(shortened("abcdefghij", 9), "abcd…ghij");
        assert_eq!(shortened("äöüäöüäöü", 5), "äö…öü");
    }

    #[test]
    fn equal_types_are_counted() {
        let names = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(types(&names("Half Half Float Half")), "2 Half, Float, Half");
        assert_eq!(types(&[]), "");
    }
}
