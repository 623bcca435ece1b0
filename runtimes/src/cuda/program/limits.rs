//! The limits by which kernels are chosen, which a measurement can set.

use super::Target;

/// The environment variable that sets limits in place of those of the device, e.g. `split_rows=0,blocks=1000`: a sweep measures
/// other choices with it (docs/gpu.md).
pub(crate) const VARIABLE: &str = "PLANISH_CUDA_LIMITS";

/// A target with the limits that the environment sets.
///
/// # Errors
/// When the environment sets what is no limit.
pub(super) fn of_environment(target: Target) -> Result<Target, String> {
    match std::env::var(VARIABLE) {
        Ok(text) => set(target, &text),
        Err(_) => Ok(target),
    }
}

fn set(mut target: Target, text: &str) -> Result<Target, String> {
    for entry in text.split(',').filter(|entry| !entry.is_empty()) {
        let attention = &mut target.attention;
        let known = [
            ("largest_head", &mut attention.largest_head),
            ("split_rows", &mut attention.split_rows),
            ("blocks", &mut attention.blocks),
            ("scores", &mut attention.scores),
            ("float_scores", &mut attention.float_scores),
            ("few_rows", &mut target.few_rows),
            ("code_rows", &mut target.code_rows),
        ];
        let names = known.each_ref().map(|(name, _)| *name).join(", ");
        let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
        let limit = known.into_iter().find(|(known, _)| *known == name).map(|(_, limit)| limit);
        match (limit, value.parse()) {
            (Some(limit), Ok(value)) => *limit = value,
            _ => return Err(format!("{VARIABLE} has `{entry}`; each entry is NAME=NUMBER with one of {names}")),
        }
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::super::Style;
    use super::*;

    #[test]
    fn limits_are_set_by_their_names() {
        let device = Target::usual(Style::Fused);
        assert_eq!(set(device, ""), Ok(device));
        let set_two = set(device, "split_rows=0,few_rows=2").unwrap();
        assert_eq!((set_two.attention.split_rows, set_two.few_rows), (0, 2));
        assert_eq!(set_two.attention.blocks, device.attention.blocks);
        for wrong in ["tiles=1", "blocks", "blocks=-1", "blocks=many"] {
            let error = set(device, wrong).unwrap_err();
            assert!(error.contains(wrong) && error.contains("largest_head, split_rows, blocks"), "{error}");
        }
    }
}
