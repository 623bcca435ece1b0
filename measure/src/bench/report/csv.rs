//! The cells of documents as a table of comma-separated values. docs/bench.md describes the columns.

use planish_artifact::evaluation::Figure;

use super::view::{Entry, View};
use crate::bench::document::{Cell, Document};
use crate::bench::stats::Latency;

/// A column: its name and its value, which is empty where there is none.
type Column = (&'static str, fn(&View<'_>, &Entry<'_>) -> Option<String>);

/// One row for each cell; the first row has the names of the columns. A document is named in the first column.
///
/// # Errors
/// When there is no memory for it.
pub fn csv(documents: &[(&str, &Document)]) -> Result<Vec<u8>, csv::Error> {
    let view = View::new(documents);
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS.iter().map(|(name, _)| name))?;
    for entry in &view.entries {
        writer.write_record(COLUMNS.iter().map(|(_, value)| harmless(value(&view, entry).unwrap_or_default())))?;
    }
    writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))
}

/// A field that programs for tables show and do not compute: text that would begin a formula there has an apostrophe in front.
fn harmless(field: String) -> String {
    let computes = field.starts_with(['=', '+', '-', '@', '\t', '\r']) && field.parse::<f64>().is_err();
    if computes { format!("'{field}") } else { field }
}

/// The shortest text that has the number.
fn number(value: f64) -> Option<String> {
    value.is_finite().then(|| value.to_string())
}

/// The name of a value in JSON.
fn name(value: impl serde::Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_owned)
}

fn latency(entry: &Entry<'_>, figure: impl Fn(&Latency) -> Option<f64>) -> Option<String> {
    figure(entry.cell.latency_ms.as_ref()?).and_then(number)
}

fn evaluated(cell: &Cell, figure: Figure) -> Option<String> {
    cell.evaluation.as_ref()?.figure(figure).and_then(number)
}

const COLUMNS: &[Column] = &[
    ("document", |view, of| Some(view.documents[of.document].0.to_owned())),
    ("time", |view, of| Some(view.documents[of.document].1.env.time.to_string())),
    ("model", |_, of| Some(of.cell.model.id.clone())),
    ("file_bytes", |_, of| of.cell.model.file_bytes.map(|v| v.to_string())),
    ("runtime", |_, of| Some(of.cell.backend.clone())),
    ("precision", |_, of| Some(of.cell.precision.clone())),
    ("workload", |_, of| name(of.cell.workload)),
    ("part", |_, of| of.cell.shape.part.clone()),
    ("batch", |_, of| Some(of.cell.shape.batch.to_string())),
    ("seq", |_, of| of.cell.shape.seq.map(|v| v.to_string())),
    ("tokens", |_, of| of.cell.shape.tokens.map(|v| v.to_string())),
    ("past", |_, of| Some(of.cell.shape.past.to_string())),
    ("threads", |_, of| Some(of.cell.options.threads.to_string())),
    ("spin", |_, of| Some(of.cell.options.spin.to_string())),
    ("status", |_, of| name(of.cell.status)),
    ("failure", |_, of| of.cell.failure.clone()),
    ("warmup_runs", |_, of| Some(of.cell.warmup.n.to_string())),
    ("warmup_ms", |_, of| number(of.cell.warmup.ms)),
    ("runs", |_, of| Some(of.cell.latency_ms.as_ref()?.n.to_string())),
    ("min_ms", |_, of| latency(of, |l| Some(l.min))),
    ("mean_ms", |_, of| latency(of, |l| Some(l.mean))),
    ("sd_ms", |_, of| latency(of, |l| l.sd)),
    ("median_ms", |_, of| latency(of, |l| Some(l.p50))),
    ("median_low_ms", |_, of| latency(of, |l| Some(l.ci95?[0]))),
    ("median_high_ms", |_, of| latency(of, |l| Some(l.ci95?[1]))),
    ("p90_ms", |_, of| latency(of, |l| l.p90)),
    ("p95_ms", |_, of| latency(of, |l| l.p95)),
    ("p99_ms", |_, of| latency(of, |l| l.p99)),
    ("speedup", |view, of| number(view.speedup(of)?.value)),
    ("speedup_low", |view, of| number(view.speedup(of)?.ci95?[0])),
    ("speedup_high", |view, of| number(view.speedup(of)?.ci95?[1])),
    ("inferences_per_s", |_, of| number(of.cell.throughput?.inf_s)),
    ("tokens_per_s", |_, of| number(of.cell.throughput?.tok_s?)),
    ("gpu_compute_ms", |_, of| number(of.cell.device.as_ref()?.gpu_compute.median)),
    ("enqueue_ms", |_, of| number(of.cell.device.as_ref()?.enqueue.median)),
    ("h2d_ms", |_, of| number(of.cell.device.as_ref()?.h2d?.median)),
    ("d2h_ms", |_, of| number(of.cell.device.as_ref()?.d2h?.median)),
    ("device_latency_ms", |_, of| number(of.cell.device.as_ref()?.latency.median)),
    ("device_queries_per_s", |_, of| number(of.cell.device.as_ref()?.throughput)),
    ("load_ms", |_, of| number(of.cell.load.ms)),
    ("first_run_ms", |_, of| number(of.cell.load.first_ms?)),
    ("load_rss_bytes", |_, of| of.cell.memory.load_rss.map(|v| v.to_string())),
    ("peak_rss_bytes", |_, of| of.cell.memory.peak_rss.map(|v| v.to_string())),
    ("weights_bytes", |_, of| of.cell.memory.weights.map(|v| v.to_string())),
    ("flops", |_, of| Some(of.cell.work?.flops.to_string())),
    ("moved_bytes", |_, of| Some(of.cell.work?.bytes.to_string())),
    ("tflop_per_s", |_, of| number(of.cell.roofline?.tflops)),
    ("mfu", |_, of| number(of.cell.roofline?.mfu)),
    ("gb_per_s", |_, of| number(of.cell.roofline?.gb_s)),
    ("intensity", |_, of| number(of.cell.roofline?.intensity)),
    ("roofline_share", |_, of| number(of.cell.roofline?.share)),
    ("bound", |_, of| name(of.cell.roofline?.bound)),
    ("new_tokens", |_, of| Some(of.cell.generation?.new_tokens.to_string())),
    ("cache", |_, of| Some(of.cell.generation?.cache.to_string())),
    ("ttft_ms", |_, of| number(of.cell.generation?.ttft_ms)),
    ("tpot_ms", |_, of| number(of.cell.generation?.tpot_ms)),
    ("new_tokens_per_s", |_, of| number(of.cell.generation?.tok_s)),
    ("batching", |_, of| name(of.cell.padding?.batches)),
    ("batches", |_, of| Some(of.cell.padding?.count.to_string())),
    ("real_tokens", |_, of| Some(of.cell.padding?.real.to_string())),
    ("padded_tokens", |_, of| Some(of.cell.padding?.padded.to_string())),
    ("joules", |_, of| number(of.cell.energy?.joules)),
    ("meter", |_, of| name(of.cell.energy?.meter)),
    ("max_abs_error", |_, of| number(of.cell.accuracy?.max_abs)),
    ("max_rel_error", |_, of| number(of.cell.accuracy?.max_rel)),
    ("cosine", |_, of| number(of.cell.accuracy?.cos)),
    ("top1", |_, of| number(of.cell.accuracy?.top1)),
    ("data", |_, of| Some(of.cell.evaluation.as_ref()?.data.name.clone())),
    ("data_samples", |_, of| Some(of.cell.evaluation.as_ref()?.samples.to_string())),
    ("data_cosine", |_, of| evaluated(of.cell, Figure::Cosine)),
    ("data_least_cosine", |_, of| evaluated(of.cell, Figure::LeastCosine)),
    ("data_neighbours_percent", |_, of| evaluated(of.cell, Figure::Neighbours)),
    ("data_top1_percent", |_, of| evaluated(of.cell, Figure::Top1)),
    ("data_kl_nats", |_, of| evaluated(of.cell, Figure::Divergence)),
    ("data_perplexity_ratio", |_, of| evaluated(of.cell, Figure::Perplexity)),
    ("data_error", |_, of| evaluated(of.cell, Figure::Error)),
    ("providers", |_, of| {
        let each = of.cell.providers.as_ref()?.iter().map(|(name, count)| format!("{name}={count}"));
        Some(each.collect::<Vec<_>>().join(";"))
    }),
    ("warnings", |_, of| Some(of.cell.warnings.join("; "))),
    ("read_bytes", |_, of| of.cell.load.read_bytes.map(|v| v.to_string())),
    ("repeated_rss_bytes", |_, of| of.cell.memory.repeated_rss.map(|v| v.to_string())),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_would_be_formulas_are_not() {
        for text in ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\tx"] {
            assert_eq!(harmless(text.to_owned()), format!("'{text}"));
        }
        for text in ["-1.5e-3", "+2", "model=x", ""] {
            assert_eq!(harmless(text.to_owned()), text);
        }
    }
}
