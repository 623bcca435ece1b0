//! What is said of the model as a whole.

use planish_artifact::manifest::Manifest;
use planish_artifact::units::{bytes_text, count_text, flops_text};
use planish_artifact::verification::{Figures, Report};
use serde::Serialize;

use crate::inspect::{ModelCost, Opened};

/// A figure that stands out.
#[derive(Serialize)]
pub(super) struct Fact {
    name: &'static str,
    value: String,
    /// What it is of.
    of: String,
    /// Whether it is a problem.
    bad: bool,
}

/// The figures that stand out.
pub(super) fn of(opened: &Opened, cost: &ModelCost) -> Vec<Fact> {
    let manifest = opened.manifest.as_deref();
    let parameters =
        manifest.map_or_else(|| cost.parts.iter().map(|part| part.parameters).sum(), |manifest| manifest.parameters);
    let weights: u64 = cost.parts.iter().map(|part| part.weight_bytes).sum();
    let nodes: usize = opened.graphs.iter().map(|(_, graph)| graph.nodes().len()).sum();
    let flops: u64 = cost.parts.iter().map(|part| part.total.flops).fold(0, u64::saturating_add);
    let of_parts = if cost.parts.len() > 1 { format!(" of {} parts", cost.parts.len()) } else { String::new() };
    let verified = manifest.and_then(|manifest| manifest.verification.as_ref()).map(|report| Fact {
        name: "Verified",
        value: if report.passed() { "yes" } else { "no" }.to_owned(),
        of: format!("{} cases{}", report.cases.len(), skipped(report)),
        bad: !report.passed(),
    });
    let fact = |name, value, of| Fact { name, value, of, bad: false };
    let all = [
        fact("Parameters", count_text(parameters), opened.architecture.clone()),
        fact("Weights", bytes_text(weights), manifest.map_or_else(String::new, Manifest::precision_name) + &of_parts),
        fact("Operations of a run", flops_text(flops), run(cost)),
        fact("Nodes", nodes.to_string(), opened.opset.map_or_else(String::new, |opset| format!("opset {opset}"))),
    ];
    all.into_iter().chain(verified).collect()
}

fn skipped(report: &Report) -> String {
    if report.skipped.is_empty() { String::new() } else { format!(", {} not run", report.skipped.len()) }
}

/// The sizes of a run in words.
fn run(cost: &ModelCost) -> String {
    let sizes =
        [(cost.batch, "row", "rows"), (cost.sequence, "token", "tokens"), (cost.past, "cached token", "cached tokens")];
    let words = sizes.into_iter().filter_map(|(size, one, many)| {
        let size = size.filter(|size| many != "cached tokens" || *size > 0)?;
        Some(format!("{size} {}", if size == 1 { one } else { many }))
    });
    words.collect::<Vec<String>>().join(", ")
}

/// Names and values of what the model is.
pub(super) fn model(opened: &Opened, cost: &ModelCost) -> Vec<(&'static str, String)> {
    let manifest = opened.manifest.as_deref();
    let of = |value: fn(&Manifest) -> Option<String>| manifest.and_then(value);
    let memory = cost.parts.iter().map(|part| Some(part.activations?.planned as u64)).collect::<Option<Vec<u64>>>();
    let cache: u64 = cost.parts.iter().filter_map(|part| part.cache_bytes_per_token).sum();
    let types: Vec<String> = cost.parts.iter().map(|part| types(cost, part)).collect();
    let rows = [
        ("Model type", Some(opened.architecture.clone())),
        ("Task", opened.task.clone()),
        ("Source", of(|manifest| Some(source(manifest)))),
        ("License", of(|manifest| manifest.source.card.as_ref()?.license.clone())),
        ("Target", of(|manifest| Some(manifest.target.clone()))),
        ("Precision", of(|manifest| Some(manifest.precision_name()))),
        ("Types of weights", Some(types.join("; "))),
        ("Longest text", opened.longest.map(|tokens| format!("{tokens} tokens"))),
        (
            "Memory of a run",
            memory.map(|bytes| {
                format!("{} for results of nodes, beside weights", bytes_text(bytes.into_iter().max().unwrap_or(0)))
            }),
        ),
        ("Cache", (cache > 0).then(|| format!("{} for each token of a row", bytes_text(cache)))),
        ("Files", of(|manifest| Some(files(manifest)))),
        ("Compiled by", of(|manifest| Some(manifest.producer.clone()))),
    ];
    rows.into_iter().filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?))).collect()
}

fn source(manifest: &Manifest) -> String {
    match &manifest.source.hub {
        Some(hub) => format!("{} at {}", hub.name, hub.commit),
        None => manifest.source.name.clone(),
    }
}

fn files(manifest: &Manifest) -> String {
    manifest
        .files
        .iter()
        .map(|file| format!("{} ({})", file.name, bytes_text(file.bytes)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The name, the precision, the files and the verification of each variant; empty where an artifact has one form.
pub(super) fn variants(manifest: &Manifest) -> Vec<[String; 4]> {
    if manifest.variants.is_empty() {
        return Vec::new();
    }
    let others: Vec<Manifest> = manifest.variants.iter().map(|variant| variant.alone(manifest)).collect();
    let row = |of: &Manifest| {
        let name = of.variant.map_or_else(String::new, |name| name.to_string());
        [name, of.precision_name(), files(of), of.verification.as_ref().map_or_else(String::new, verdict)]
    };
    std::iter::once(manifest).chain(&others).map(row).collect()
}

/// The worst figures of a report, or what misses.
fn verdict(report: &Report) -> String {
    match report.passed() {
        true => report.summary().lines().next().unwrap_or_default().to_owned(),
        false => format!("failed: {}", report.misses().join(", ")),
    }
}

/// The share of each type in the weights of a part.
fn types(cost: &ModelCost, part: &crate::inspect::PartCost) -> String {
    let name = if cost.parts.len() > 1 { format!("{}: ", part.name) } else { String::new() };
    let shares: Vec<String> = part.types.iter().map(|(name, share)| format!("{name} {:.1} %", share * 100.0)).collect();
    name + &shares.join(", ")
}

/// What was compared with the source.
#[derive(Serialize)]
pub(super) struct Checks {
    text: String,
    rows: Vec<[String; 7]>,
    skipped: Vec<String>,
}

impl Checks {
    pub(super) fn of(report: &Report) -> Self {
        let rows = report.cases.iter().flat_map(|case| {
            case.rows().into_iter().map(|(name, output)| {
                let figure = |show: fn(&Figures) -> String| output.figures.as_ref().map_or("–".to_owned(), show);
                [
                    case.label.clone(),
                    name,
                    figure(|figures| format!("{:.1e}", figures.max_abs)),
                    figure(|figures| format!("{:.1e}", figures.max_rel)),
                    figure(|figures| format!("{:.6}", figures.cosine)),
                    figure(|figures| format!("{:.1} %", figures.top1 * 100.0)),
                    output.miss.clone().unwrap_or_else(|| "ok".to_owned()),
                ]
            })
        });
        let allowed = report.tolerances;
        Self {
            text: format!(
                "Held against {}. Allowed: a relative error of {:.0e}, a cosine of {} and a top-1 of {} %, for {}.",
                report.reference.description(),
                allowed.max_relative,
                allowed.cosine,
                allowed.top1 * 100.0,
                allowed.basis.reason()
            ),
            rows: rows.collect(),
            skipped: report.skipped.iter().map(ToString::to_string).collect(),
        }
    }
}

/// What a user of the artifact has to know.
pub(super) fn warnings(manifest: &Manifest) -> Vec<String> {
    let mut warnings = manifest.verification.as_ref().map(Report::misses).unwrap_or_default();
    for part in &manifest.parts {
        if let Some(reasons) = part.coverage.as_ref().and_then(|coverage| Some((coverage.share(), coverage.reasons()?)))
        {
            warnings.push(format!(
                "{}: {:.1} % of the elements of its matrices are codes; left: {}",
                part.name,
                reasons.0 * 100.0,
                reasons.1
            ));
        }
        if let Some(precision) = &part.precision {
            let lost = precision.losses.iter();
            warnings.extend(lost.map(|loss| {
                format!("{}: {} of {} elements of {} become 0", part.name, loss.underflows, loss.elements, loss.name)
            }));
            let kept = precision.kept.iter();
            warnings.extend(kept.map(|kept| {
                format!("{}: {} {} stays in float32: {}", part.name, kept.operator, kept.name, kept.reason)
            }));
        }
    }
    if let Some(length) = manifest.recompute_at {
        warnings.push(format!("a text that reaches {length} tokens has to be computed again as a whole"));
    }
    warnings
}
