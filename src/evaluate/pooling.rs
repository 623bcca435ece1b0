//! How token embeddings become the embedding of a text: as the sentence-transformers library describes it beside a model.

use std::path::Path;

use anyhow::{Context, Result};
use planish_eval::Tensor;
use planish_files::Kind;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::positions::{Positions, floats};

/// The file of that library, in the model's folder.
const CONFIG: &str = "1_Pooling/config.json";

/// How token embeddings become one embedding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// The mean over the real tokens.
    #[default]
    Mean,
    /// The first real token.
    Cls,
    /// The largest of each feature over the real tokens.
    Max,
    /// The model has an output with one embedding for each text.
    Model,
}

impl Pooling {
    /// What the model's folder says; the mean where it says nothing, or, with the reason, where it names another way.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub(super) fn read(folder: &Path, warn: &mut dyn FnMut(&str)) -> Result<Self> {
        let path = folder.join(CONFIG);
        if !path.is_file() {
            return Ok(Self::Mean);
        }
        let text = planish_files::read_text(&path, &Kind::SETTINGS)?;
        let config: Value = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
        let modes = [
            ("pooling_mode_mean_tokens", Self::Mean),
            ("pooling_mode_cls_token", Self::Cls),
            ("pooling_mode_max_tokens", Self::Max),
        ];
        let members = config.as_object().into_iter().flatten();
        let on: Vec<&str> = members.filter(|(_, value)| **value == true).map(|(name, _)| name.as_str()).collect();
        let on: Vec<&str> = on.into_iter().filter(|name| name.starts_with("pooling_mode_")).collect();
        let known = modes.iter().find(|(name, _)| on == [*name]).map(|(_, mode)| *mode);
        if known.is_none() {
            let on = if on.is_empty() { "no mode".to_owned() } else { on.join(" and ") };
            warn(&format!("{} names {on}; the evaluation uses the mean over tokens", path.display()));
        }
        Ok(known.unwrap_or_default())
    }

    /// One embedding for each row of token embeddings [batch, tokens, features], or of embeddings [batch, features].
    pub(super) fn pool(self, tokens: &Tensor, positions: Option<&Positions>) -> Vec<Vec<f32>> {
        let (numbers, shape) = (floats(tokens), tokens.shape());
        let (length, size) = match *shape {
            [_, length, size] => (length, size),
            _ => (1, shape.last().copied().unwrap_or(1)),
        };
        let row = |(row, numbers): (usize, &[f32])| {
            let holds = |at: usize| positions.is_none_or(|positions| length == 1 || positions.hold(row, at, length));
            let mut kept = numbers.chunks_exact(size.max(1)).enumerate().filter(|(at, _)| holds(*at)).map(|(_, v)| v);
            match self {
                Self::Cls | Self::Model => kept.next().unwrap_or(&vec![0.0; size]).to_vec(),
                Self::Max => {
                    let larger = |most: Vec<f32>, v: &[f32]| most.iter().zip(v).map(|(a, b)| a.max(*b)).collect();
                    kept.fold(vec![f32::NEG_INFINITY; size], larger)
                }
                Self::Mean => {
                    let (mut sum, mut count) = (vec![0f64; size], 0u32);
                    for vector in kept {
                        sum.iter_mut().zip(vector).for_each(|(sum, v)| *sum += f64::from(*v));
                        count += 1;
                    }
                    sum.into_iter().map(|v| (v / f64::from(count.max(1))) as f32).collect()
                }
            }
        };
        numbers.chunks_exact((length * size).max(1)).enumerate().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn positions(elements: &[i64]) -> Positions {
        let mask = Tensor::new(vec![1, elements.len()], elements.to_vec()).unwrap();
        Positions::of_mask(&mask).unwrap()
    }

    #[test]
    fn padding_has_no_part_in_an_embedding() {
        let tokens = Tensor::new(vec![1, 4, 2], vec![9f32, 9.0, 1.0, -2.0, 3.0, -4.0, 9.0, 9.0]).unwrap();
        let pool = |pooling: Pooling| pooling.pool(&tokens, Some(&positions(&[0, 1, 1, 0])));
        assert_eq!(pool(Pooling::Mean), [[2.0, -3.0]]);
        assert_eq!(pool(Pooling::Cls), [[1.0, -2.0]]);
        assert_eq!(pool(Pooling::Max), [[3.0, -2.0]]);
        assert_eq!(Pooling::Mean.pool(&tokens, None), [[5.5, 3.0]]);
        let one = Tensor::new(vec![2, 2], vec![1f32, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(Pooling::Model.pool(&one, Some(&positions(&[0, 1]))), [[1.0, 2.0], [3.0, 4.0]]);
    }

    #[test]
    fn the_mode_is_what_the_library_s_file_says() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: Option<&str>| {
            if let Some(text) = text {
                fs::create_dir_all(folder.path().join("1_Pooling")).unwrap();
                fs::write(folder.path().join(CONFIG), text).unwrap();
            }
            let mut warnings = Vec::new();
            let pooling = Pooling::read(folder.path(), &mut |text| warnings.push(text.to_owned()));
            (pooling.map_err(|error| error.to_string()), warnings.join(""))
        };
        assert_eq!(read(None), (Ok(Pooling::Mean), String::new()));
        let cls =
            r#"{"word_embedding_dimension": 2, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#;
        assert_eq!(read(Some(cls)), (Ok(Pooling::Cls), String::new()));
        assert_eq!(read(Some(r#"{"pooling_mode_max_tokens": true}"#)).0, Ok(Pooling::Max));
        let (pooling, warning) = read(Some(r#"{"pooling_mode_lasttoken": true, "include_prompt": true}"#));
        assert_eq!(pooling, Ok(Pooling::Mean));
        assert!(warning.contains("names pooling_mode_lasttoken; the evaluation uses the mean"), "{warning}");
        assert!(read(Some("{")).0.unwrap_err().ends_with("is not JSON"));
    }
}
