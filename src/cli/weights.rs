//! How weights alone were quantized, for people.

use planish_passes::quantize::{PlannedWeight, WeightForm, WeightPlan};

/// A table of the weights of a part.
pub(super) fn explained(part: &str, plan: &WeightPlan) -> String {
    format!("{part}: {}\n{}", summary(plan), table(&plan.weights))
}

/// A table of weights.
pub(super) fn table(weights: &[PlannedWeight]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["weight", "elements", "used by", "quantized"]);
    for PlannedWeight { weight, used_by, elements, form } in weights {
        table.add_row([weight.clone(), elements.to_string(), used_by.len().to_string(), form.to_string()]);
    }
    format!("{table}\n")
}

/// How many weights are quantized, and to what.
pub(super) fn summary(plan: &WeightPlan) -> String {
    let of =
        |bits: usize| plan.weights.iter().filter(move |w| w.form.codes().is_some_and(|codes| codes.bits() == bits));
    let elements: usize = plan.weights.iter().map(|w| w.elements).sum();
    let coded: usize = [4, 8].into_iter().flat_map(of).map(|w| w.elements).sum();
    let counts = [(4, of(4).count()), (8, of(8).count())];
    let counts: Vec<String> =
        counts.iter().filter(|(_, n)| *n > 0).map(|(bits, n)| format!("{n} of {bits} bits")).collect();
    let floats = plan.weights.iter().filter(|w| matches!(w.form, WeightForm::Float { .. })).count();
    let kept = if floats > 0 { format!(", {floats} float") } else { String::new() };
    let share = 100.0 * coded as f64 / elements.max(1) as f64;
    let counts = if counts.is_empty() { "none of codes".to_owned() } else { counts.join(", ") };
    format!("weights: {counts}{kept}; {share:.1} % of their elements are codes")
}
