//! Lists in a configuration: numbers, and the stages of a backbone.

use serde_json::Value;

use super::Config;
use crate::ModelError;

impl Config<'_> {
    /// The stages of a backbone that another model takes, of so many layers: by number, of which 0 is what the first layer takes,
    /// in ascending order (`BackboneConfigMixin` of the transformers library). The last one, where nothing says which.
    ///
    /// # Errors
    /// When `out_indices` and `out_features` do not name stages in order, or other ones each.
    pub(crate) fn stages(&self, layers: usize) -> Result<Vec<usize>, ModelError> {
        const INDICES: &str = "out_indices";
        const FEATURES: &str = "out_features";
        let listed = |key: &'static str, stage: &dyn Fn(&Value) -> Option<usize>| -> Result<Option<Vec<usize>>, _> {
            let Some(value) = self.get(key) else { return Ok(None) };
            let stages = value.as_array().and_then(|list| list.iter().map(stage).collect::<Option<Vec<usize>>>());
            let ordered = stages.filter(|stages| !stages.is_empty() && stages.windows(2).all(|pair| pair[0] < pair[1]));
            let expected = || format!("a list of stages up to {layers} in ascending order");
            ordered.map(Some).ok_or_else(|| self.unexpected(key, value, &expected()))
        };
        let by_number = listed(INDICES, &|value| {
            let number = value.as_i64()?;
            let count = i64::try_from(layers).ok()?.checked_add(1)?;
            let number = if number < 0 { number.checked_add(count)? } else { number };
            usize::try_from(number).ok().filter(|number| *number <= layers)
        })?;
        let by_name = listed(FEATURES, &|value| match value.as_str()? {
            "stem" => Some(0),
            name => name.strip_prefix("stage")?.parse().ok().filter(|number| (1..=layers).contains(number)),
        })?;
        match (by_number, by_name) {
            (Some(numbers), Some(names)) if numbers != names => {
                Err(self.error(format!("`{INDICES}` and `{FEATURES}` name different stages; set one of them to null")))
            }
            (Some(stages), _) | (None, Some(stages)) => Ok(stages),
            (None, None) => Ok(vec![layers]),
        }
    }

    /// A list of numbers; the default where it is missing.
    pub(crate) fn numbers(&self, key: &'static str, default: &[f64]) -> Result<Vec<f64>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(default.to_vec()) };
        let numbers = value.as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
        numbers.ok_or_else(|| self.unexpected(key, value, "a list of numbers"))
    }
}
