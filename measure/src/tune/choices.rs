//! The choices that a search varies, in one place: what has to be added for a new one is a row of [`CHOICES`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::Result;
use planish_artifact::manifest::Manifest;
use planish_artifact::recipe::{HEAD, Precision, Recipe, read};
use planish_artifact::tuning::RunSettings;
use planish_models::Task;
use planish_passes::{QuantizedForm, Target};
use serde_json::Value;

/// What a search is about, by which a choice says whether it can matter.
pub struct Subject<'a> {
    /// What was asked for.
    pub recipe: &'a Recipe,
    /// What the default form became.
    pub manifest: &'a Manifest,
    /// The target.
    pub target: &'static Target,
    /// The cores that the process may use.
    pub cores: usize,
    /// The product that runs the target.
    pub runtime: &'a str,
    /// The other targets whose runtimes are here.
    pub others: &'a [&'static Target],
    /// What the user or the command says of how it runs.
    pub run: RunSettings,
    /// The shares of the operations; absent where these cannot be counted.
    pub shares: Option<Shares>,
    /// Whether operators are fused.
    pub fusion: bool,
}

/// Shares of the operations of a model, from 0 to 1, each at the shape where it is the largest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    /// That of attention without a cache.
    pub attention: f64,
    /// Those of operators, by the names of their results.
    pub operators: BTreeMap<String, f64>,
}

/// A choice: a member of a recipe, or a setting of the runtime.
pub struct Choice {
    /// Its name in a recipe, or in [`RunSettings`].
    pub name: &'static str,
    /// Whether its values round other numbers than the default does, so that data has to say what they cost.
    pub rounds: bool,
    /// The values beside the default, or the rule by which none of them can be faster.
    pub values: fn(&Subject<'_>) -> Result<Vec<String>, String>,
}

/// All choices, in the order in which a search varies them: those that need data come last.
pub const CHOICES: &[Choice] = &[
    Choice { name: "attention", rounds: false, values: |of| of_attention(of, "attention", "operator") },
    Choice { name: "token_order", rounds: false, values: |of| of_attention(of, "token_order", "batch-major") },
    Choice { name: "projections", rounds: false, values: projections },
    Choice { name: "biases", rounds: false, values: biases },
    Choice { name: "cache", rounds: false, values: cache },
    Choice { name: "accuracy_level", rounds: false, values: accuracy_level },
    Choice { name: "threads", rounds: false, values: threads },
    Choice { name: "spin", rounds: false, values: spin },
    Choice { name: "dynamic", rounds: true, values: dynamic },
    Choice { name: "split_columns", rounds: true, values: split_columns },
    Choice { name: "max_layer_loss", rounds: true, values: max_layer_loss },
    Choice { name: "block_size", rounds: true, values: block_size },
    Choice { name: "keep", rounds: true, values: keep },
    Choice { name: TARGET, rounds: false, values: targets },
];

/// The product whose idle threads poll as long as the command says.
const ONNX_RUNTIME: &str = "onnxruntime";

/// The choice that is the user's: what runs the artifact.
pub(super) const TARGET: &str = "target";

/// The choices that are settings of the runtime.
const RUN: [&str; 2] = ["threads", "spin"];

/// The least share of the operations that an operator has whose form is varied.
const LEAST_SHARE: f64 = 0.002;

/// The share of the operations above which those of layers with codes count as found.
const LEAST_COUNTED: f64 = 0.1;

/// The most roles of layers that are kept in float one by one.
const MOST_ROLES: usize = 6;

/// One value, where the target leaves the member to the recipe, and the user did not say it.
fn form(of: &Subject<'_>, member: &str, value: &str) -> Result<Vec<String>, String> {
    if of.recipe.has(member) {
        return Err("the recipe says it".to_owned());
    }
    if !of.fusion || !of.target.forms.contains(&member) {
        return Err(format!("target {} has one form", of.target));
    }
    Ok(vec![value.to_owned()])
}

/// How many operators of a name the model has.
fn count(of: &Subject<'_>, operator: &str) -> usize {
    of.manifest.parts.iter().filter_map(|part| part.raised.get(operator)).sum()
}

/// Whether all attention of the model has a cache.
fn has_cache(of: &Subject<'_>) -> bool {
    of.manifest.parts.iter().flat_map(|part| &part.inputs).any(|input| input.role.cache().is_some())
}

fn of_attention(of: &Subject<'_>, member: &str, value: &str) -> Result<Vec<String>, String> {
    let values = form(of, member, value)?;
    match of.shares.as_ref().map(|shares| shares.attention) {
        _ if count(of, "attention") == 0 => Err("there is no attention".to_owned()),
        _ if has_cache(of) && of.manifest.parts.len() == 1 => Err("all attention has a cache".to_owned()),
        // The operators of an ONNX graph are attention only once they are raised.
        Some(share) if share > 0.0 && share < LEAST_SHARE => {
            Err(format!("attention is {:.2} % of the operations, less than noise", 100.0 * share))
        }
        _ => Ok(values),
    }
}

fn projections(of: &Subject<'_>) -> Result<Vec<String>, String> {
    // Layers that become MatMulNBits are joined by default.
    let is_blocks = of.recipe.blocks().is_some();
    let values = form(of, "projections", if is_blocks { "apart" } else { "joined" })?;
    if count(of, "attention") == 0 { Err("no layers share an operand".to_owned()) } else { Ok(values) }
}

fn biases(of: &Subject<'_>) -> Result<Vec<String>, String> {
    let usual = of.target.absorbs_biases;
    let values = form(of, "biases", if usual { "kept" } else { "absorbed" })?;
    if count(of, "layer_norm") == 0 { Err("no norm has a bias".to_owned()) } else { Ok(values) }
}

fn cache(of: &Subject<'_>) -> Result<Vec<String>, String> {
    match of.recipe.has("cache") {
        true => Err("the recipe says it".to_owned()),
        false if of.manifest.cache_in_place => Err("it is appended to in place already".to_owned()),
        false if !has_cache(of) => Err("there is no cache".to_owned()),
        false if !of.fusion || !of.target.appends_in_place => Err(format!("target {} copies it", of.target)),
        false => Ok(vec!["in-place".to_owned()]),
    }
}

fn accuracy_level(of: &Subject<'_>) -> Result<Vec<String>, String> {
    match of.recipe.has("accuracy_level") {
        true => Err("the recipe says it".to_owned()),
        false if of.recipe.blocks().is_none() => Err("no weights have a scale for each block".to_owned()),
        false if !of.target.rounds_block_inputs() => Err(format!("target {} has one form", of.target)),
        false => Ok(vec!["float".to_owned()]),
    }
}

/// Refuses what data of calibration decides, where the recipe says it or there is no such data.
fn calibrated(of: &Subject<'_>, member: &str) -> Result<(), String> {
    let why = match of.recipe.codes() {
        Some(Precision::Int8) if of.recipe.has(member) => "the recipe says it",
        Some(Precision::Int8) if of.recipe.plan.is_some() => "the recipe has plans of inputs",
        Some(Precision::Int8) if of.manifest.calibration.is_some() => return Ok(()),
        Some(Precision::Int8) => "no data calibrated it",
        _ => "it is for --int8",
    };
    Err(why.to_owned())
}

fn dynamic(of: &Subject<'_>) -> Result<Vec<String>, String> {
    calibrated(of, "dynamic")?;
    match of.target.quantized {
        QuantizedForm::IntegerProducts => Ok(vec!["true".to_owned()]),
        _ => Err(format!("target {} needs fixed scales", of.target)),
    }
}

fn split_columns(of: &Subject<'_>) -> Result<Vec<String>, String> {
    calibrated(of, "split_columns")?;
    match of.target.quantized {
        QuantizedForm::Codes => Err(format!("target {} splits no columns", of.target)),
        _ => Ok(vec!["0".to_owned()]),
    }
}

fn max_layer_loss(of: &Subject<'_>) -> Result<Vec<String>, String> {
    calibrated(of, "max_layer_loss")?;
    // Columns are split only where the loss is larger.
    match of.target.quantized {
        QuantizedForm::Codes => Err(format!("target {} splits no columns", of.target)),
        _ => Ok(vec!["0.01".to_owned()]),
    }
}

fn block_size(of: &Subject<'_>) -> Result<Vec<String>, String> {
    match of.recipe.has("block_size") {
        true => Err("the recipe says it".to_owned()),
        false if of.recipe.blocks().is_none() => Err("no weights have a scale for each block".to_owned()),
        false => Ok(vec!["64".to_owned(), "128".to_owned()]),
    }
}

fn keep(of: &Subject<'_>) -> Result<Vec<String>, String> {
    match of.recipe.quantized() {
        Some(Precision::Int4) => bits_of_head(of),
        Some(Precision::Int8) => layers_in_float(of),
        _ => Err("it is for --int8 and --int4".to_owned()),
    }
}

fn bits_of_head(of: &Subject<'_>) -> Result<Vec<String>, String> {
    match of.manifest.task {
        _ if of.recipe.keep.iter().any(|keep| keep.pattern.as_str() == HEAD) => {
            Err(format!("the recipe says it of {HEAD}"))
        }
        Some(Task::TextGeneration) => Ok(vec![format!("{HEAD}=int4")]),
        _ => Err("no head scores tokens".to_owned()),
    }
}

/// Layers of one role, whose names differ in numbers only: those with the most operations first.
fn layers_in_float(of: &Subject<'_>) -> Result<Vec<String>, String> {
    if of.recipe.plan.is_some() {
        return Err("the recipe has plans of inputs".to_owned());
    }
    let plans = of.manifest.parts.iter().filter_map(|part| part.quantization.as_ref());
    let inputs = plans.flat_map(|plan| &plan.inputs).filter(|input| input.activation.codes().is_some());
    let is_said = |layer: &str| of.recipe.keep.iter().any(|keep| keep.is_pattern() && keep.pattern.is_match(layer));
    let share = |layer: &String| of.shares.as_ref().and_then(|shares| shares.operators.get(layer)).unwrap_or(&0.0);
    let (mut roles, mut said) = (BTreeMap::<String, f64>::new(), false);
    for input in inputs {
        match input.layers.first() {
            Some(layer) if is_said(layer) => said = true,
            Some(layer) => *roles.entry(role(layer)).or_default() += input.layers.iter().map(share).sum::<f64>(),
            None => {}
        }
    }
    if roles.is_empty() {
        return Err(if said { "the recipe says it" } else { "no inputs of layers have 8 bits" }.to_owned());
    }
    // Layers of an ONNX graph have other names once they are raised, and none of their operations is found.
    let is_counted = roles.values().sum::<f64>() > LEAST_COUNTED;
    let mut roles: Vec<(String, f64)> =
        roles.into_iter().filter(|(_, share)| !is_counted || *share >= LEAST_SHARE).collect();
    roles.sort_by(|one, other| other.1.total_cmp(&one.1));
    let values: Vec<String> = roles.into_iter().take(MOST_ROLES).map(|(role, _)| format!("{role}=float")).collect();
    match values.is_empty() {
        true => Err(format!("no role of layers has {:.1} % of the operations", 100.0 * LEAST_SHARE)),
        false => Ok(values),
    }
}

/// The pattern of a name and of those that differ from it in numbers only.
fn role(name: &str) -> String {
    let mut pattern = String::from("^");
    let mut rest = name;
    while let Some(next) = rest.chars().next() {
        let is_number = next.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != is_number).unwrap_or(rest.len());
        let (own, others) = rest.split_at(end);
        pattern += &if is_number { "[0-9]+".to_owned() } else { regex::escape(own) };
        rest = others;
    }
    pattern + "$"
}

fn threads(of: &Subject<'_>) -> Result<Vec<String>, String> {
    // Two threads of a core share its units, so that one for each core may be as fast.
    let values: BTreeSet<usize> = [of.cores / 2, of.cores.saturating_sub(1), 1].into();
    let values: Vec<usize> = values.into_iter().filter(|threads| (1..of.cores).contains(threads)).rev().collect();
    match values.is_empty() {
        _ if of.run.threads.is_some() => Err("the command says it".to_owned()),
        true => Err("there is one core".to_owned()),
        false => Ok(values.iter().map(ToString::to_string).collect()),
    }
}

fn spin(of: &Subject<'_>) -> Result<Vec<String>, String> {
    match of.cores {
        _ if of.run.spin.is_some() => Err("the command says it".to_owned()),
        _ if of.runtime != ONNX_RUNTIME => Err(format!("{} decides how its threads wait", of.runtime)),
        ..=1 => Err("one thread waits for no other".to_owned()),
        _ => Ok(vec!["0".to_owned(), "true".to_owned()]),
    }
}

fn targets(of: &Subject<'_>) -> Result<Vec<String>, String> {
    match of.others {
        _ if of.recipe.has(TARGET) => Err("the recipe says it".to_owned()),
        [] => Err("no runtime of another target is here".to_owned()),
        others => Ok(others.iter().map(|target| target.name.to_owned()).collect()),
    }
}

/// Values of choices; those that are absent are the default ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate(pub BTreeMap<&'static str, String>);

impl Candidate {
    /// The same with another value of a choice.
    #[must_use]
    pub fn with(&self, name: &'static str, value: &str) -> Self {
        let mut all = self.0.clone();
        all.insert(name, value.to_owned());
        Self(all)
    }

    /// A recipe with the values that are members of one.
    ///
    /// # Errors
    /// When a value is none of the member.
    pub fn recipe(&self, base: &Recipe) -> Result<Recipe> {
        let own = self.0.iter().filter(|(name, _)| !RUN.contains(name));
        let own = read(&own.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>())?;
        let mut members = serde_json::to_value(base)?;
        if let (Value::Object(members), Value::Object(own)) = (&mut members, serde_json::to_value(&own)?) {
            members.extend(own);
        }
        let recipe: Recipe = serde_json::from_value(members)?;
        // What is kept is added.
        let recipe = Recipe { keep: [base.keep.clone(), own.keep].concat(), ..recipe };
        Ok(Recipe { plan: base.plan.clone(), calibrated: base.calibrated.clone(), ..recipe })
    }

    /// Whether it rounds other numbers than the default form does.
    #[must_use]
    pub fn rounds(&self) -> bool {
        CHOICES.iter().any(|choice| choice.rounds && self.0.contains_key(choice.name))
    }

    /// How the runtime uses the machine.
    #[must_use]
    pub fn run(&self) -> RunSettings {
        let threads = self.0.get("threads").and_then(|value| value.parse().ok());
        let spin = self.0.get("spin").and_then(|value| value.parse().ok());
        RunSettings { threads, spin }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("default");
        }
        let words: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use planish_artifact::backend::Spin;
    use planish_artifact::recipe::{AttentionName, Keep, Precision};

    use super::*;

    #[test]
    fn a_candidate_is_a_recipe_and_settings() {
        let base = Recipe { plan: Some("plan.json".into()), ..Recipe::of(Precision::Int8) };
        let candidate = Candidate::default().with("attention", "operator").with("threads", "1").with("spin", "true");
        let recipe = candidate.recipe(&base).unwrap();
        assert_eq!(recipe, Recipe { attention: Some(AttentionName::Operator), ..base.clone() });
        assert_eq!(candidate.run(), RunSettings { threads: Some(1), spin: Some(Spin::Usual) });
        assert_eq!(candidate.to_string(), "attention=operator spin=true threads=1");
        assert_eq!(Candidate::default().recipe(&base).unwrap(), base);
        let candidate =
            Candidate::default().with("dynamic", "true").with("split_columns", "0").with("keep", "@head=int4");
        let base = Recipe { keep: vec!["a".parse().unwrap()], ..base };
        let recipe = candidate.recipe(&base).unwrap();
        assert_eq!((recipe.dynamic, recipe.split_columns), (true, Some(0)));
        assert_eq!(recipe.keep.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a", "@head=int4"]);
        assert!(Candidate::default().with("attention", "none").recipe(&base).is_err());
    }

    #[test]
    fn a_role_is_a_pattern_of_names_that_differ_in_numbers() {
        let keep: Keep = format!("{}=float", role("layer.10.fc1")).parse().unwrap();
        assert_eq!(keep.pattern.as_str(), r"^layer\.[0-9]+\.fc[0-9]+$");
        for (name, is_own) in [("layer.2.fc1", true), ("layer.2.fc", false), ("a.layer.2.fc1", false)] {
            assert_eq!(keep.pattern.is_match(name), is_own, "{name}");
        }
        assert_eq!(role("pooler"), "^pooler$");
    }
}
