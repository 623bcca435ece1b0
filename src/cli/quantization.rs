//! How a model was quantized, for people.

use planish_artifact::coverage::{Coverage, Extent};
use planish_artifact::manifest::Manifest;
use planish_passes::quantize::{Activation, Plan, PlannedAttention};

use super::terminal::say;
use super::weights;

/// Prints how the parts of an artifact are quantized.
pub(super) fn explain(manifest: &Manifest) {
    let plans = manifest.parts.iter().filter_map(|part| Some((part.name.as_str(), part.quantization.as_ref()?)));
    let weights = manifest.parts.iter().filter_map(|part| Some((part.name.as_str(), part.weights.as_ref()?)));
    let inputs = plans.map(|(part, plan)| explained(part, plan));
    let text: String = inputs.chain(weights.map(|(part, plan)| weights::explained(part, plan))).collect();
    // Beside the command's own output.
    say(&text);
}

/// A table of the inputs of a part.
fn explained(part: &str, plan: &Plan) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["input", "layers", "loss", "quantized"]);
    for input in plan.inputs.iter().chain(&plan.maps) {
        let loss = input.layer_loss.map_or_else(|| "-".to_owned(), |loss| format!("{loss:.2e}"));
        table.add_row([input.value.clone(), input.layers.len().to_string(), loss, input.activation.to_string()]);
    }
    for PlannedAttention { attention, score_loss, queries, keys } in &plan.attention {
        let loss = score_loss.map_or_else(|| "-".to_owned(), |loss| format!("{loss:.2e}"));
        table.add_row([format!("{attention}: queries"), String::new(), loss, queries.to_string()]);
        table.add_row([format!("{attention}: keys"), String::new(), String::new(), keys.to_string()]);
    }
    let weights = if plan.weights.is_empty() { String::new() } else { weights::table(&plan.weights) };
    format!("{part}: {}\n{table}\n{weights}", summary(plan))
}

/// The inputs that stay floats, by the reasons.
pub(super) fn floats(plan: &Plan) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    let inputs = plan.inputs.iter().chain(&plan.maps).map(|input| (input.value.clone(), &input.activation));
    let scores = plan.attention.iter().map(|a| (format!("scores of {}", a.attention), &a.queries));
    let layers = inputs.chain(scores).filter_map(|(name, activation)| Some((name, activation.reason()?)));
    let weights = plan.weights.iter().filter(|planned| planned.form.codes().is_none());
    let weights = weights.filter_map(|planned| Some((planned.weight.clone(), planned.form.reason()?)));
    for (name, reason) in layers.chain(weights) {
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, inputs)) => inputs.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    // The figures of --max-loss come in their order.
    reasons.sort_unstable();
    let line = |(reason, inputs): &(&str, Vec<String>)| {
        let more = inputs.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("    float: {}{more}: {reason}\n", inputs[..inputs.len().min(NAMED)].join(", "))
    };
    reasons.iter().map(line).collect()
}

/// A warning about what an option that asks for codes did not do, where that is not little.
pub(super) fn left(coverage: &Coverage, option: &str) -> Option<String> {
    let kept = match coverage.kept_weights {
        0 => None,
        1 => Some("1 weight has codes already, and stays as it is".to_owned()),
        kept => Some(format!("{kept} weights have codes already, and stay as they are")),
    };
    let kept = kept.map(|kept| kept + "; --recipe requantize=true rounds the numbers that they stand for");
    let reasons = coverage.reasons();
    let what = match coverage.extent() {
        Extent::Most => return kept,
        Extent::Nothing => format!("{option} quantized nothing"),
        Extent::Part => {
            let quantized = 100.0 * coverage.share();
            format!(
                "{option} left most of the model in float: {quantized:.1} % of the elements of its weights are codes"
            )
        }
    };
    let because: Vec<String> = kept.into_iter().chain(reasons).collect();
    let because = if because.is_empty() { "no operator has a large weight".to_owned() } else { because.join("; ") };
    Some(format!("{what}; {because}"))
}

/// How many inputs of one reason are named.
const NAMED: usize = 4;

/// How many inputs are quantized, and how.
pub(super) fn summary(plan: &Plan) -> String {
    let quantized = || plan.inputs.iter().filter(|input| input.activation.codes().is_some());
    let count = |what: &dyn Fn(&Activation) -> bool| quantized().filter(|input| what(&input.activation)).count();
    let dynamic = count(&|activation| matches!(activation, Activation::Dynamic { .. }));
    let mut parts = vec![format!("{} of {} inputs of linear layers quantized", quantized().count(), plan.inputs.len())];
    for (count, what) in [
        (dynamic, "with scales that each run computes"),
        (count(&|activation| !activation.smooth().is_empty()), "smoothed"),
        (count(&|activation| !activation.split().is_empty()), "with columns split"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    let attentions = plan.attention.iter().filter(|attention| attention.queries.codes().is_some()).count();
    if attentions > 0 {
        parts.push(format!("scores of {attentions} attentions from codes"));
    }
    let convolutions = || plan.maps.iter().filter(|map| !map.layers.is_empty());
    let coded = convolutions().filter(|map| map.activation.codes().is_some()).count();
    if !plan.maps.is_empty() {
        parts.push(format!("{coded} of {} inputs of convolutions", convolutions().count()));
    }
    let coded = plan.weights.iter().filter(|planned| planned.form.codes().is_some()).count();
    if !plan.weights.is_empty() {
        parts.push(format!("{coded} of {} other weights", plan.weights.len()));
    }
    parts.join(", ")
}
