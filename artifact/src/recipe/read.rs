//! A recipe as text: a file of JSON, the `recipe` of a `planish.json`, and `KEY=VALUE`.

use std::path::Path;

use anyhow::{Context, Result};
use planish_files::Kind;
use serde_json::{Map, Value};

use super::{Recipe, RecipeError, refuse};

/// Reads what `--recipe` takes: files and `KEY=VALUE`, in order. The last value of a member counts; those of `keep` and `engine`
/// are added.
///
/// # Errors
/// When a file cannot be read, or a member is unknown or has a wrong value.
pub fn read(texts: &[String]) -> Result<Recipe> {
    let mut members = Map::new();
    let mut calibrated = None;
    for text in texts {
        match assignment(text) {
            Some((key, value)) => set(&mut members, key, value)?,
            None => {
                let path = Path::new(text);
                let (read, has_data) = file(path)?;
                calibrated = has_data.then(|| path.to_owned()).or(calibrated);
                for (key, value) in read {
                    set_value(&mut members, &key, value)
                        .with_context(|| format!("cannot follow {}", path.display()))?;
                }
            }
        }
    }
    let recipe: Recipe = serde_json::from_value(Value::Object(members))?;
    Ok(Recipe { calibrated, ..recipe })
}

/// The two sides of `KEY=VALUE`, of a text that names no file.
fn assignment(text: &str) -> Option<(&str, &str)> {
    let (key, value) = text.split_once('=')?;
    let is_key = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (key.chars().all(is_key) && !Path::new(text).exists()).then_some((key, value))
}

/// The members that a file has, and whether it is of an artifact that was calibrated.
fn file(path: &Path) -> Result<(Map<String, Value>, bool)> {
    let text = planish_files::read_text(path, &Kind::RECIPE)?;
    let wrong =
        || format!("{} is no recipe, which is a JSON object such as {{\"precision\": [\"int8\"]}}", path.display());
    let mut members: Map<String, Value> = serde_json::from_str(&text).with_context(wrong)?;
    if !members.contains_key("producer") {
        return Ok((members, false));
    }
    let calibrated = members.get("calibration").is_some_and(Value::is_object);
    match members.remove("recipe") {
        Some(Value::Object(recipe)) => Ok((recipe, calibrated)),
        _ => {
            let why = format!("{} records no recipe; a version before recipes wrote it", path.display());
            Err(RecipeError(why).into())
        }
    }
}

/// Sets a member to what a word of the command line says.
fn set(members: &mut Map<String, Value>, key: &str, text: &str) -> Result<(), RecipeError> {
    if let Some(key) = key.strip_prefix("engine.") {
        let value = serde_json::from_str(text).unwrap_or_else(|_| text.into());
        let engine = Map::from_iter([(key.replace('-', "_"), value)]);
        return set_value(members, "engine", engine.into());
    }
    let key = key.replace('-', "_");
    let plain = Value::from(text);
    // A pattern of `keep` may have commas.
    let words: Vec<&str> = if key == "keep" { vec![text] } else { text.split(',').collect() };
    let list = words.into();
    let parsed = serde_json::from_str::<Value>(text).ok();
    // A number is a text of some members, and a text without commas a list of others.
    let mut refused: Option<RecipeError> = None;
    for value in [Some(plain), parsed, Some(list)].into_iter().flatten() {
        match set_value(members, &key, value) {
            Ok(()) => return Ok(()),
            // That a text is of another type says less than that it is a wrong one.
            Err(error) if refused.as_ref().is_none_or(|known| known.0.contains("invalid type")) => {
                refused = Some(error)
            }
            Err(_) => {}
        }
    }
    refused.map_or(Ok(()), Err)
}

/// Sets a member, or adds to it, if a recipe may have it.
fn set_value(members: &mut Map<String, Value>, key: &str, value: Value) -> Result<(), RecipeError> {
    let alone = Map::from_iter([(key.to_owned(), value.clone())]);
    if let Err(error) = serde_json::from_value::<Recipe>(alone.into()) {
        return refuse(format!("`{key}` of the recipe: {error}"));
    }
    match (members.get_mut(key), value) {
        (Some(Value::Array(known)), Value::Array(more)) if key == "keep" => known.extend(more),
        (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
        (_, value) => drop(members.insert(key.to_owned(), value)),
    }
    Ok(())
}
