//! The page of a model: one file of HTML with what it is, what its layers take, how it was verified, and its graph, which a script of
//! the page shows layer by layer.

mod facts;
mod graph;
mod layers;

use minijinja::value::Serde;
use planish_artifact::manifest::Manifest;
use planish_artifact::value::ValueInfo;
use planish_data::inputs::Sizes;
use planish_passes::raise::Explanation;
use serde::Serialize;

use super::Opened;
use crate::page::{STYLE, environment};
use facts::{Checks, Fact};
use layers::Layers;

const PAGE: &str = include_str!("templates/inspect.html");
const OWN_STYLE: &str = include_str!("templates/inspect.css");
const SCRIPT: &str = include_str!("templates/inspect.js");

/// The most places where a rule almost matched that the page lists for a part.
const MOST_MISSES: usize = 100;

/// What a page is made for.
#[derive(Clone, Debug)]
pub struct PageOptions {
    /// The title: the name of the model.
    pub title: String,
    /// The sizes of a run, for its operations and memory.
    pub sizes: Sizes,
    /// The cached tokens in front of it.
    pub past: usize,
}

/// What the template shows.
#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    command: &'static str,
    policy: &'static str,
    style: String,
    script: &'static str,
    facts: Vec<Fact>,
    model: Vec<(&'static str, String)>,
    variants: Vec<[String; 4]>,
    parts: Vec<Part>,
    checks: Option<Checks>,
    evaluation: Option<String>,
    warnings: Vec<String>,
    fused: Vec<Fused>,
    graph: String,
}

/// What a part takes and gives, and its layers.
#[derive(Serialize)]
struct Part {
    name: String,
    inputs: Vec<[String; 3]>,
    outputs: Vec<[String; 3]>,
    layers: Layers,
}

/// The high-level operators of a part.
#[derive(Serialize)]
struct Fused {
    part: String,
    /// How many of each operator.
    found: Vec<(String, usize)>,
    /// Where a rule almost matched: the rule, the result of the node, and the reason.
    misses: Vec<[String; 3]>,
    /// How many more such places there are.
    more: usize,
}

/// The page of a model. `found` says what raising finds in each part.
///
/// # Errors
/// When the template cannot be rendered, which no model is a reason for.
pub fn html(
    opened: &Opened,
    found: &[(String, Explanation)],
    options: &PageOptions,
) -> Result<String, minijinja::Error> {
    let cost = opened.cost(options.sizes, options.past);
    let manifest = opened.manifest.as_deref();
    let part = |(name, graph): &(String, planish_ir::Graph)| {
        let named = |info: ValueInfo, role: String| [info.name, info.ty.to_string(), role];
        let role = |text: String| if text == "other" { String::new() } else { text };
        let inputs = graph.inputs().iter().map(|value| {
            let name = &graph.value(*value).name;
            named(super::value_info(graph, name, *value), role(graph.interface.input(name).to_string()))
        });
        let outputs = graph.outputs().iter().map(|output| {
            named(
                super::value_info(graph, &output.name, output.value),
                role(graph.interface.output(&output.name).to_string()),
            )
        });
        let costs = cost.parts.iter().find(|part| part.name == *name);
        Part {
            name: name.clone(),
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            layers: Layers::of(graph, &opened.names(name), costs),
        }
    };
    let page = Page {
        title: &options.title,
        command: "planish inspect",
        policy: "; script-src 'unsafe-inline'",
        style: format!("{STYLE}{OWN_STYLE}"),
        script: SCRIPT,
        facts: facts::of(opened, &cost),
        model: facts::model(opened, &cost),
        variants: manifest.map(facts::variants).unwrap_or_default(),
        parts: opened.graphs.iter().map(part).collect(),
        checks: manifest.and_then(|manifest| manifest.verification.as_ref()).map(Checks::of),
        evaluation: manifest.and_then(|manifest| manifest.evaluation.as_ref()).map(ToString::to_string),
        warnings: manifest.map(facts::warnings).unwrap_or_default(),
        fused: fused(manifest, found),
        graph: graph::json(opened),
    };
    environment(&[("inspect.html", PAGE)])?.get_template("inspect.html")?.render(Serde(page))
}

/// What was fused when an artifact was compiled, and what raising finds in another model; where rules almost match in its graph now.
fn fused(manifest: Option<&Manifest>, found: &[(String, Explanation)]) -> Vec<Fused> {
    let one = |(part, found): &(String, Explanation)| {
        let compiled = manifest.and_then(|manifest| manifest.parts.iter().find(|other| other.name == *part));
        let counted = match compiled {
            Some(compiled) => compiled.raised.clone().into_iter().collect(),
            None => {
                let mut counts = std::collections::BTreeMap::new();
                found.matches.iter().for_each(|matched| *counts.entry(matched.operator.to_owned()).or_insert(0) += 1);
                counts.into_iter().collect()
            }
        };
        let misses = found.misses.iter().take(MOST_MISSES);
        Fused {
            part: part.clone(),
            found: counted,
            misses: misses.map(|miss| [miss.rule.to_owned(), miss.at.clone(), miss.reason.clone()]).collect(),
            more: found.misses.len().saturating_sub(MOST_MISSES),
        }
    };
    found.iter().map(one).collect()
}
