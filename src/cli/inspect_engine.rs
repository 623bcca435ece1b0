//! What `planish inspect` says of engines.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use planish_runtimes::tensorrt::Layer;
use serde::Serialize;

use super::{bytes_text, print, print_json};
use crate::engine::{BuildRecord, PartProfile};
use crate::inspect::EngineInspection;

/// How many nodes of a layer a table names.
const NODES: usize = 3;

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
            let peak = peak_memory.map(|peak| format!(", {} peak memory", bytes_text(peak))).unwrap_or_default();
            line("build", &format!("{seconds:.2} s{peak}"));
            let attentions = layers.attentions().count();
            let regions = layers.regions();
            line("layers", &format!("{}; regions: {regions}; kernels of attention: {attentions}", layers.0.len()));
            // A table has no errors to write with.
            let _ = writeln!(text, "{}", table(&layers.0));
        }
    }
    text
}

/// The ranges of a profile's symbols.
fn sizes(index: usize, profile: &PartProfile) -> String {
    format!("{index}: {}", profile.symbols.to_string().replace(',', ", "))
}

fn table(layers: &[Layer]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["layer", "kind", "types", "tactic", "nodes of the ONNX graph"]);
    for Layer { name, kind, tactic, inputs, outputs, nodes } in layers {
        let types = format!("{} -> {}", inputs.join(", "), outputs.join(", "));
        let more = nodes.len().saturating_sub(NODES);
        let mut named = nodes.iter().take(NODES).map(String::as_str).collect::<Vec<_>>().join(", ");
        if more > 0 {
            named += &format!(" and {more} more");
        }
        table.add_row([name, kind, &types, tactic, &named]);
    }
    table.to_string()
}
