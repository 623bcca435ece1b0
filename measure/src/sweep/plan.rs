//! What is to be run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use planish_files::Kind;
use serde::Deserialize;

/// A plan is not right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlanError(pub(super) String);

/// A grid of models, forms, data and shapes. Paths are relative to the folder of the plan.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The version of the form, 1.
    pub schema: u32,
    /// The models.
    pub models: Vec<Named>,
    /// How each of them is compiled.
    pub forms: Vec<Form>,
    /// What each form is evaluated on.
    #[serde(default)]
    pub data: Vec<Data>,
    /// The shapes at which each form is measured.
    #[serde(default)]
    pub shapes: Vec<Shape>,
    /// Further options of `planish bench`.
    #[serde(default)]
    pub bench: Vec<String>,
    /// Threads of a job.
    #[serde(default = "one")]
    pub threads: u16,
}

fn one() -> u16 {
    1
}

/// A model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// How rows of the table call it.
    pub name: String,
    /// A checkpoint, a `.gguf` or an `.onnx` file.
    pub path: PathBuf,
}

/// A form.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// How rows of the table call it.
    pub name: String,
    /// Options of `planish compile`.
    #[serde(default)]
    pub options: Vec<String>,
    /// The data or the table of `--calibrate`.
    #[serde(default)]
    pub calibrate: Option<PathBuf>,
    /// The file of `--recipe`.
    #[serde(default)]
    pub recipe: Option<PathBuf>,
}

/// A data set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// How rows of the table call it.
    pub name: String,
    /// The data, of the kinds that `planish evaluate` takes.
    pub path: PathBuf,
    /// Further options of `planish evaluate`.
    #[serde(default)]
    pub options: Vec<String>,
    /// The names of the models that it is for; all of them where absent.
    #[serde(default)]
    pub models: Option<Vec<String>>,
}

/// A shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Rows.
    pub batch: u32,
    /// Tokens of a row; absent for models that take no sequences.
    #[serde(default)]
    pub seq: Option<u32>,
}

/// Options that a plan cannot have: the sweep gives them.
const OWN: [&str; 5] = ["-o", "--output", "--json", "--threads", "--verify"];

/// Options that `bench` of a plan cannot have: a job measures one form at one shape of the plan.
const OF_BENCH: [&str; 3] = ["--batch", "--precision", "--seq"];

/// Options that a plan cannot have: they name files, whose digests no job would have or which all jobs would write; several contestants,
/// whose figures would have one name; a part of the data; or a search, which finds one thing or another.
const UNKNOWN: [&str; 14] = [
    "--adapter",
    "--calibrate",
    "--compare",
    "--csv",
    "--data",
    "--evaluate",
    "--html",
    "--inputs",
    "--merge",
    "--reference",
    "--shard",
    "--tune",
    "--tune-time",
    "--variants",
];

/// Keys of options whose values name files, and those of a search and of a part.
const UNKNOWN_KEYS: [(&str, &str); 7] = [
    ("--recipe", "plan"),
    ("--runtime-option", "openvino-lib"),
    ("--runtime-option", "ort-lib"),
    ("--runtime-option", "trt-lib"),
    ("--set", "calibrate"),
    ("--set", "shard"),
    ("--set", "tune"),
];

/// The values of an option among words: of `NAME VALUE` and of `NAME=VALUE`.
fn values<'a>(words: &'a [String], name: &str) -> impl Iterator<Item = &'a str> {
    let next = words.iter().skip(1).map(Some).chain([None]);
    words.iter().zip(next).filter_map(move |(word, next)| match word.strip_prefix(name) {
        Some("") => next.map(String::as_str),
        Some(more) => more.strip_prefix('='),
        None => None,
    })
}

impl Plan {
    /// Reads a plan; returns the digest of its file too.
    ///
    /// # Errors
    /// When it cannot be read; [`PlanError`] when it is not right.
    pub fn read(path: &Path) -> Result<(Self, String)> {
        let text = planish_files::read(path, &Kind::SWEEP)?;
        let plan = Self::parse(&text).with_context(|| path.display().to_string())?;
        Ok((plan, blake3::hash(&text).to_hex().to_string()))
    }

    fn parse(text: &[u8]) -> Result<Self, PlanError> {
        let wrong = |error: serde_json::Error| PlanError(format!("this is not a plan of planish sweep: {error}"));
        let plan: Self = serde_json::from_slice(text).map_err(wrong)?;
        plan.check().map(|()| plan)
    }

    fn check(&self) -> Result<(), PlanError> {
        let wrong = |text: String| Err(PlanError(text));
        if self.schema != 1 {
            return wrong(format!("the plan has schema {}, and this planish reads schema 1", self.schema));
        }
        if self.threads == 0 || self.shapes.iter().any(|shape| shape.batch == 0 || shape.seq == Some(0)) {
            return wrong("`threads`, `batch` and `seq` are 1 at least".to_owned());
        }
        let models: Vec<&str> = self.models.iter().map(|of| of.name.as_str()).collect();
        let forms: Vec<&str> = self.forms.iter().map(|of| of.name.as_str()).collect();
        let data: Vec<&str> = self.data.iter().map(|of| of.name.as_str()).collect();
        for (member, names) in [("models", &models), ("forms", &forms), ("data", &data)] {
            if names.is_empty() && member != "data" {
                return wrong(format!("`{member}` is empty: a plan has at least one"));
            }
            let mut seen = BTreeSet::new();
            if let Some(name) = names.iter().find(|name| name.is_empty() || !seen.insert(**name)) {
                return wrong(format!("`{member}` has the name `{name}` twice, or it is empty: each needs its own"));
            }
        }
        if let Some(shape) = self.shapes.iter().enumerate().find(|(at, shape)| self.shapes[..*at].contains(shape)) {
            return wrong(format!("`shapes` has {} rows and the same tokens twice", shape.1.batch));
        }
        for of in &self.data {
            if let Some(name) = of.models.iter().flatten().find(|name| !models.contains(&name.as_str())) {
                return wrong(format!(
                    "`models` of the data `{}` names `{name}`, which is no model of the plan",
                    of.name
                ));
            }
        }
        let options = self.forms.iter().flat_map(|of| &of.options).chain(self.data.iter().flat_map(|of| &of.options));
        let is_one = |option: &str, names: &[&str]| {
            names
                .iter()
                .any(|name| option.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
        };
        if let Some(option) = self.bench.iter().find(|option| is_one(option, &OF_BENCH)) {
            return wrong(format!(
                "`{option}` is no option of `bench`: `shapes` and `forms` of the plan say what is measured; leave it out"
            ));
        }
        let mut all = options.chain(&self.bench);
        if let Some(option) = all.clone().find(|option| is_one(option, &OWN)) {
            return wrong(format!("the sweep itself gives `{option}`; leave it out of the options"));
        }
        if let Some(option) = all.find(|option| is_one(option, &UNKNOWN)) {
            return wrong(format!(
                "`{option}` is no option of a plan: what it names has no digest or no row of its own. Forms have `calibrate` and \
                 `recipe`, and the plan has `data`"
            ));
        }
        let words = self.forms.iter().map(|of| &of.options).chain(self.data.iter().map(|of| &of.options));
        let has_key = |words: &Vec<String>| {
            let mut keys = UNKNOWN_KEYS.iter();
            keys.find(|(option, key)| {
                values(words, option)
                    .flat_map(|value| value.split(','))
                    .any(|pair| pair.split_once('=').is_some_and(|(own, _)| own == *key))
            })
        };
        if let Some((option, key)) = words.clone().chain([&self.bench]).find_map(has_key) {
            return wrong(format!(
                "`{option} {key}=` is no option of a plan: what it names has no digest, or no row of its own"
            ));
        }
        let file = |words| values(words, "--recipe").find(|value| !value.contains('='));
        if let Some(file) = words.chain([&self.bench]).find_map(|words| file(words)) {
            return wrong(format!(
                "`--recipe {file}` names a file, whose digest no job has; give it as `recipe` of the form"
            ));
        }
        match values(&self.bench, "--runtime").find(|value| value.contains(',')) {
            Some(value) => {
                wrong(format!("`--runtime {value}` names several runtimes, and a job measures one; give one"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"{"schema": 1, "models": [{"name": "a", "path": "a"}], "forms": [{"name": "f32"}]}"#;

    #[test]
    fn a_plan_has_defaults() {
        let plan = Plan::parse(SMALL.as_bytes()).unwrap();
        assert_eq!((plan.threads, plan.data.len(), plan.shapes.len()), (1, 0, 0));
        assert_eq!(plan.forms[0].options, Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_with_a_plan_is_said() {
        let cases = [
            ("{", "this is not a plan of planish sweep: EOF"),
            (&SMALL.replace("\"schema\": 1", "\"schema\": 2"), "schema 2, and this planish reads schema 1"),
            (&SMALL.replace("\"forms\"", "\"shape\""), "unknown field `shape`"),
            (&SMALL.replace("{\"name\": \"f32\"}", ""), "`forms` is empty"),
            (&SMALL.replace("{\"name\": \"f32\"}", "{\"name\": \"\"}"), "or it is empty"),
            (
                &SMALL.replace("{\"name\": \"f32\"}", "{\"name\": \"f\"}, {\"name\": \"f\"}"),
                "`forms` has the name `f` twice",
            ),
            (
                &SMALL.replace("\"f32\"", "\"f32\", \"options\": [\"--output=x\"]"),
                "the sweep itself gives `--output=x`",
            ),
            (
                &SMALL.replace("\"f32\"", "\"f32\", \"options\": [\"--recipe\", \"x.json\"]"),
                "`--recipe x.json` names a file",
            ),
            (
                &SMALL.replace("\"f32\"", "\"f32\", \"options\": [\"--calibrate=x\"]"),
                "`--calibrate=x` is no option of a plan",
            ),
            (
                &SMALL.replace("\"f32\"", "\"f32\", \"options\": [\"--recipe\", \"logits=last,plan=x.json\"]"),
                "`--recipe plan=` is no option of a plan",
            ),
            (
                &SMALL.replace("\"f32\"", "\"f32\", \"options\": [\"--tune-time=9s\"]"),
                "`--tune-time=9s` is no option of a plan",
            ),
            (&SMALL.replace("}]}", "}], \"bench\": [\"--set=shard=1/2\"]}"), "`--set shard=` is no option of a plan"),
            (&SMALL.replace("}]}", "}], \"bench\": [\"--runtime\", \"ort,reference\"]}"), "names several runtimes"),
            (&SMALL.replace("}]}", "}], \"bench\": [\"--compare\", \"x\"]}"), "`--compare` is no option of a plan"),
            (
                &SMALL.replace("}]}", "}], \"shapes\": [{\"batch\": 2}, {\"batch\": 2}]}"),
                "has 2 rows and the same tokens twice",
            ),
            (&SMALL.replace("}]}", "}], \"threads\": 0}"), "are 1 at least"),
            (&SMALL.replace("}]}", "}], \"shapes\": [{\"batch\": 0}]}"), "are 1 at least"),
            (
                &SMALL.replace("}]}", "}], \"data\": [{\"name\": \"d\", \"path\": \"d\", \"models\": [\"b\"]}]}"),
                "names `b`, which is no model",
            ),
        ];
        for (text, expected) in cases {
            let error = Plan::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
