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
            Some((key, value)) => set_word(&mut members, key, value)?,
            None => {
                let path = Path::new(text);
                let (read, has_data) = file(path)?;
                calibrated = has_data.then(|| path.to_owned()).or(calibrated);
                for (key, value) in read {
                    set(&mut members, &key, value).with_context(|| format!("cannot follow {}", path.display()))?;
                    if let Some(Value::String(plan)) = members.get_mut("plan").filter(|_| key == "plan") {
                        *plan = beside(path, plan);
                    }
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

/// A path that a file has: relative to the folder of the file.
fn beside(file: &Path, path: &str) -> String {
    let folder = file.parent().unwrap_or(Path::new(""));
    folder.join(path).to_string_lossy().into_owned()
}

/// Sets a member to what a word of the command line says.
fn set_word(members: &mut Map<String, Value>, key: &str, text: &str) -> Result<(), RecipeError> {
    match key.strip_prefix("engine.") {
        Some(key) => {
            let value = serde_json::from_str(text).unwrap_or_else(|_| text.into());
            let engine = Map::from_iter([(key.replace('-', "_"), value)]);
            set(members, "engine", engine.into())
        }
        None => set(members, key, text.into()),
    }
}

/// Sets a member, or adds to it, if a recipe may have it: in the first of its forms that the member has.
fn set(members: &mut Map<String, Value>, key: &str, value: Value) -> Result<(), RecipeError> {
    let key = key.replace('-', "_");
    let mut refused: Option<String> = None;
    for form in forms(&key, value) {
        let Some(error) = wrong(&key, &form) else {
            put(members, &key, form);
            return Ok(());
        };
        // What is wrong about the value as it stands says most, unless it is of another type.
        if refused.as_ref().is_none_or(|known| known.starts_with(OTHER_TYPE) && !error.starts_with(OTHER_TYPE)) {
            refused = Some(error);
        }
    }
    refused.map_or(Ok(()), |error| refuse(explained(&key, &error)))
}

/// The forms of a value: a text is also a number and a list with commas, and a list is also such a text.
fn forms(key: &str, value: Value) -> Vec<Value> {
    let word = |item: &Value| match item {
        Value::String(word) => Some(word.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let other = match &value {
        Value::String(text) => {
            // A pattern of `keep` may have commas.
            let words: Vec<&str> = if key == "keep" { vec![text] } else { text.split(',').collect() };
            [serde_json::from_str(text).ok(), Some(words.into())]
        }
        Value::Array(items) => {
            let words: Option<Vec<String>> = items.iter().map(word).collect();
            [words.map(|words| words.join(",").into()), None]
        }
        _ => [None, None],
    };
    std::iter::once(value).chain(other.into_iter().flatten()).collect()
}

/// Why a recipe may not have a member, in the words of serde.
fn wrong(key: &str, value: &Value) -> Option<String> {
    let alone = Map::from_iter([(key.to_owned(), value.clone())]);
    serde_json::from_value::<Recipe>(alone.into()).err().map(|error| error.to_string())
}

fn put(members: &mut Map<String, Value>, key: &str, value: Value) {
    match (members.get_mut(key), value) {
        (Some(Value::Array(known)), Value::Array(more)) if key == "keep" => known.extend(more),
        (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
        (_, value) => drop(members.insert(key.to_owned(), value)),
    }
}

/// How serde begins what it says of a value of another type.
const OTHER_TYPE: &str = "invalid type: ";

/// What serde says of a member, without the names of Rust's types.
fn explained(key: &str, error: &str) -> String {
    const WORDS: &[(&str, &str)] = &[
        ("f64", "a number"),
        ("usize", "a whole number from 0 on"),
        ("a boolean", "true or false"),
        ("a sequence", "a list"),
        ("a map", "an object of options"),
    ];
    let Some((given, wanted)) = error.strip_prefix(OTHER_TYPE).and_then(|rest| rest.split_once(", expected ")) else {
        return format!("`{key}` of the recipe: {error}");
    };
    let wanted = WORDS.iter().find(|(word, _)| *word == wanted).map_or(wanted, |(_, plain)| plain);
    let given = given.find(['`', '"']).map_or("this value", |at| &given[at..]);
    format!("`{key}` of the recipe: {given} is not {wanted}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_types_are_said_without_the_names_of_rust() {
        let error = |text: &str| read(&[text.to_owned()]).unwrap_err().to_string();
        assert_eq!(error("attention-fp32=yes"), "`attention_fp32` of the recipe: \"yes\" is not true or false");
        assert_eq!(error("max-layer-loss=nan"), "`max_layer_loss` of the recipe: \"nan\" is not a number");
        assert_eq!(
            error("split-columns=few"),
            "`split_columns` of the recipe: \"few\" is not a whole number from 0 on"
        );
        assert!(error("smooth=2").ends_with("expected off, auto, or a number from 0 to 1"), "{}", error("smooth=2"));
        assert!(error("keep=").contains("an empty pattern"), "{}", error("keep="));
    }

    /// The recipe of a file in a folder.
    fn of_file(folder: &Path, text: &str) -> Recipe {
        let path = folder.join("recipe.json");
        std::fs::write(&path, text).unwrap();
        read(&[path.to_string_lossy().into_owned()]).unwrap()
    }

    #[test]
    fn lists_and_texts_are_one() {
        let folder = tempfile::tempdir().unwrap();
        let texts = r#"{"precision": "fp16,int4", "keep": "a{1,2}=fp32", "logits": "last,padded", "block-size": 64}"#;
        let lists = r#"{"precision": ["fp16", "int4"], "keep": ["a{1,2}=fp32"], "logits": ["last", "padded"], "block_size": ["64"]}"#;
        let recipe = of_file(folder.path(), texts);
        assert_eq!((recipe.precision.len(), recipe.keep.len(), recipe.logits.len()), (2, 1, 2));
        assert_eq!(of_file(folder.path(), lists), recipe);
    }

    #[test]
    fn a_plan_is_beside_the_file_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let plan = |text: &str| of_file(folder.path(), text).plan.unwrap();
        assert_eq!(plan(r#"{"plan": "other/planish.json"}"#), folder.path().join("other/planish.json"));
        assert_eq!(plan(r#"{"plan": "/other/planish.json"}"#), Path::new("/other/planish.json"));
        // On the command line it is where the command runs.
        let word = read(&["plan=other/planish.json".to_owned()]).unwrap();
        assert_eq!(word.plan.unwrap(), Path::new("other/planish.json"));
    }
}
