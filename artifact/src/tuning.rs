//! What was found by measuring forms of a model on a machine: the record in `planish.json`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::backend::{RuntimeSettings, Spin};
use crate::text;

/// What a search found, where, and by how much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// The processor that it was measured on.
    pub processor: Processor,
    /// The product that ran the candidates.
    pub runtime: String,
    /// Its version.
    pub version: String,
    /// The cores that the process could use.
    pub cores: usize,
    /// The shapes, such as `8x128`: rows and tokens.
    pub shapes: Vec<String>,
    /// The seconds that the search was given.
    pub seconds: u64,
    /// The values that won, by the names of their choices; empty where the default form won.
    pub choices: BTreeMap<String, String>,
    /// How the runtime uses the machine.
    #[serde(skip_serializing_if = "RunSettings::is_default", default)]
    pub run: RunSettings,
    /// How long a run takes relative to the default form: the geometric mean over the shapes.
    pub ratio: f64,
    /// The 95% interval of that; absent where the default form won.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio_ci95: Option<[f64; 2]>,
    /// The cosines on data of the form that won and of the default one; absent where no form was evaluated that rounds other numbers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cosines: Option<[f64; 2]>,
    /// How many candidates were measured.
    pub candidates: usize,
    /// What the ratio is relative to.
    pub against: String,
}

/// A processor as far as it decides which form is the fastest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// Its name; empty where the system does not tell.
    pub model: String,
    /// Which of the instruction sets that matter it has.
    pub flags: Vec<String>,
}

/// How a runtime uses the machine, where a search chose it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSettings {
    /// The number of threads.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub threads: Option<u16>,
    /// How idle threads wait.
    #[serde(skip_serializing_if = "Option::is_none", default, with = "text::optional")]
    pub spin: Option<Spin>,
}

impl RunSettings {
    /// Whether nothing was chosen.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The settings of a runtime with these.
    #[must_use]
    pub fn applied(&self, settings: &RuntimeSettings) -> RuntimeSettings {
        let settings = settings.clone();
        self.spin.map_or(settings.clone(), |spin| spin.applied(settings))
    }
}

impl Tuning {
    /// Why the choice may be another one here, if it may be.
    #[must_use]
    pub fn elsewhere(&self, processor: &Processor, version: Option<&str>) -> Option<String> {
        let place =
            |of: &Processor| if of.model.is_empty() { "an unnamed processor".to_owned() } else { of.model.clone() };
        if self.processor != *processor {
            let flags = if self.processor.model == processor.model { " with other instruction sets" } else { "" };
            return Some(format!(
                "it was tuned on {}{flags}, and this is {}",
                place(&self.processor),
                place(processor)
            ));
        }
        let version = version.filter(|version| *version != self.version)?;
        Some(format!("it was tuned on {} {}, and this is {version}", self.runtime, self.version))
    }
}

impl fmt::Display for RunSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.threads.map(|threads| format!("threads={threads}"));
        let spin = self.spin.map(|spin| format!("spin={spin}"));
        f.write_str(&threads.into_iter().chain(spin).collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { choices, ratio, ratio_ci95, candidates, shapes, runtime, version, .. } = self;
        match choices.is_empty() {
            true => write!(f, "the default form")?,
            false => {
                let words: Vec<String> = choices.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "{}, {ratio:.3} times the default's time", words.join(" "))?;
            }
        }
        if let Some([low, high]) = ratio_ci95 {
            write!(f, " [{low:.3}, {high:.3}]")?;
        }
        write!(f, " at {}; {candidates} candidates, {runtime} {version}", shapes.join(", "))?;
        match self.processor.model.as_str() {
            "" => Ok(()),
            model => write!(f, ", {model}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processor(model: &str, flags: &[&str]) -> Processor {
        Processor { model: model.to_owned(), flags: flags.iter().map(ToString::to_string).collect() }
    }

    fn tuning() -> Tuning {
        Tuning {
            processor: processor("A", &["avx2"]),
            runtime: "onnxruntime".to_owned(),
            version: "1.31.1".to_owned(),
            cores: 2,
            shapes: vec!["1x128".to_owned()],
            seconds: 60,
            choices: [("attention", "operator"), ("spin", "true")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            run: RunSettings { threads: None, spin: Some(Spin::Usual) },
            ratio: 0.9,
            ratio_ci95: Some([0.88, 0.92]),
            cosines: None,
            candidates: 7,
            against: "default".to_owned(),
        }
    }

    #[test]
    fn another_machine_or_version_is_elsewhere() {
        let tuning = tuning();
        assert_eq!(tuning.elsewhere(&processor("A", &["avx2"]), Some("1.31.1")), None);
        assert_eq!(tuning.elsewhere(&processor("A", &["avx2"]), None), None);
        let why = |processor: &Processor, version: &str| tuning.elsewhere(processor, Some(version)).unwrap();
        assert_eq!(why(&processor("B", &["avx2"]), "1.31.1"), "it was tuned on A, and this is B");
        assert!(why(&processor("A", &[]), "1.31.1").contains("A with other instruction sets"));
        assert_eq!(why(&processor("A", &["avx2"]), "1.32.0"), "it was tuned on onnxruntime 1.31.1, and this is 1.32.0");
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let text = serde_json::to_string(&tuning()).unwrap();
        assert!(text.contains(r#""run":{"spin":"true"}"#), "{text}");
        assert_eq!(serde_json::from_str::<Tuning>(&text).unwrap(), tuning());
        let shown = tuning().to_string();
        assert!(
            shown.starts_with("attention=operator spin=true, 0.900 times the default's time [0.880, 0.920] at 1x128")
        );
    }
}
