//! The report of a comparison.

use std::fmt;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use serde::{Deserialize, Serialize};

use super::{Basis, Tolerances};

/// The reference of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReferenceKind {
    /// The model before any pass, on the reference interpreter.
    #[default]
    Interpreter,
    /// The ONNX file that was compiled, on ONNX Runtime without graph optimization.
    SourceOnOnnxRuntime,
    /// The imported part of an ONNX file, written without raising, on ONNX Runtime without graph optimization.
    ImportedOnOnnxRuntime,
}

impl ReferenceKind {
    /// Its name in a report.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Interpreter => "the model on the reference interpreter",
            Self::SourceOnOnnxRuntime => "the source on ONNX Runtime without optimization",
            Self::ImportedOnOnnxRuntime => "the imported graph on ONNX Runtime without optimization",
        }
    }
}

/// How a candidate compares with a reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The reference that the candidate was compared with.
    #[serde(default)]
    pub reference: ReferenceKind,
    /// The tolerances.
    pub tolerances: Tolerances,
    /// One for each set of inputs.
    pub cases: Vec<CaseReport>,
    /// The sets of inputs that were not run.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub skipped: Vec<Skipped>,
}

/// A set of inputs that the reference cannot run, or that takes more memory than it may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The label of the case.
    pub label: String,
    /// The reason.
    pub reason: String,
    /// The label of the case that was run in its place, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub instead: Option<String>,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instead = self.instead.as_ref().map_or_else(String::new, |label| format!(", {label} instead"));
        write!(f, "{} was not run{instead}: {}", self.label, self.reason)
    }
}

/// The outputs of one set of inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseReport {
    /// The label of the case.
    pub label: String,
    /// One for each output of the reference.
    pub outputs: Vec<OutputReport>,
}

/// How one output compares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputReport {
    /// The output's name.
    pub output: String,
    /// Whether it is what a cache keeps for the next step.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_cache: bool,
    /// The figures, where the two could be compared.
    pub figures: Option<Figures>,
    /// The reason why the output is out of tolerance, if it is.
    pub miss: Option<String>,
}

/// How two tensors differ where both are finite.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The largest absolute error.
    pub max_abs: f64,
    /// The same relative to the largest magnitude of the reference (at least 1).
    pub max_rel: f64,
    /// The cosine of the angle between the two.
    pub cosine: f64,
    /// The share of rows along the last dimension whose largest element is at the same place.
    pub top1: f64,
}

impl Figures {
    /// What is out of tolerance, in words.
    #[must_use]
    pub fn miss(&self, tolerances: Tolerances) -> Option<String> {
        let Tolerances { max_relative, cosine, top1, .. } = tolerances;
        if self.max_rel > max_relative {
            return Some(format!("max relative error {:.1e}, at most {max_relative:.1e} allowed", self.max_rel));
        }
        if self.cosine < cosine {
            return Some(format!("cosine {:.6}, at least {cosine} required", self.cosine));
        }
        (self.top1 < top1).then(|| format!("top-1 {:.2}%, at least {}% required", self.top1 * 100.0, top1 * 100.0))
    }
}

impl Report {
    /// Whether every output of every case is within the tolerances. A report without a
    /// comparison has proved nothing and does not pass.
    #[must_use]
    pub fn passed(&self) -> bool {
        let mut outputs = self.cases.iter().flat_map(|case| &case.outputs).peekable();
        outputs.peek().is_some() && outputs.all(|output| output.miss.is_none())
    }

    /// The worst figures of a report that passed, in a line, and what was not run.
    #[must_use]
    pub fn summary(&self) -> String {
        let figures = || self.cases.iter().flat_map(|c| &c.outputs).filter_map(|o| o.figures.as_ref());
        let worst = figures().map(|f| f.max_rel).fold(0.0, f64::max);
        let cosine = figures().map(|f| f.cosine).fold(1.0, f64::min);
        let Tolerances { basis, max_relative: allowed, .. } = self.tolerances;
        let against = match self.reference {
            ReferenceKind::Interpreter => String::new(),
            other => format!(" against {}", other.description()),
        };
        let why = if basis == Basis::Quantized { format!(" for {}", basis.reason()) } else { String::new() };
        let skipped: String = self.skipped.iter().map(|skipped| format!("\n    {skipped}")).collect();
        format!(
            "{}{against}, worst relative error {worst:.1e} of {allowed:.0e} allowed{why}, cosine {cosine:.7}{skipped}",
            if self.cases.len() == 1 { "1 case".to_owned() } else { format!("{} cases", self.cases.len()) }
        )
    }

    /// The outputs that miss: `label: output: why`.
    #[must_use]
    pub fn misses(&self) -> Vec<String> {
        let of_case = |case: &CaseReport| {
            let label = case.label.clone();
            let misses = case.outputs.iter().filter_map(|output| Some((&output.output, output.miss.as_ref()?)));
            misses.map(|(output, miss)| format!("{label}: {output}: {miss}")).collect::<Vec<_>>()
        };
        self.cases.iter().flat_map(of_case).collect()
    }
}

impl CaseReport {
    /// The outputs that a table shows, by what it calls them: of a cache in which nothing misses
    /// only the worst keys or values.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, &OutputReport)> {
        let (cache, others): (Vec<_>, Vec<_>) = self.outputs.iter().partition(|output| output.is_cache);
        let error = |output: &OutputReport| output.figures.map_or(f64::INFINITY, |figures| figures.max_rel);
        let worst = cache.iter().max_by(|a, b| error(a).total_cmp(&error(b)));
        let all = || self.outputs.iter().map(|output| (output.output.clone(), output)).collect();
        match worst {
            Some(worst) if cache.len() > 1 && cache.iter().all(|output| output.miss.is_none()) => {
                let shown = others.into_iter().map(|output| (output.output.clone(), output));
                shown.chain([(format!("{}, worst of {}", worst.output, cache.len()), *worst)]).collect()
            }
            _ => all(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header(["inputs", "output", "max abs", "max rel", "cosine", "top-1", "verdict"]);
        for case in &self.cases {
            for (name, output) in case.rows() {
                let figure = |show: &dyn Fn(&Figures) -> String| output.figures.as_ref().map_or("-".to_owned(), show);
                table.add_row([
                    case.label.clone(),
                    name,
                    figure(&|figures| format!("{:.1e}", figures.max_abs)),
                    figure(&|figures| format!("{:.1e}", figures.max_rel)),
                    figure(&|figures| format!("{:.6}", figures.cosine)),
                    figure(&|figures| format!("{:.1}%", figures.top1 * 100.0)),
                    output.miss.clone().unwrap_or_else(|| "ok".to_owned()),
                ]);
            }
        }
        let Tolerances { basis, max_relative, cosine, top1 } = self.tolerances;
        write!(f, "{table}\nheld against {}; ", self.reference.description())?;
        write!(f, "{} allows a relative error of {max_relative:.0e}, ", basis.reason())?;
        write!(f, "a cosine of {cosine} and a top-1 of {}%", top1 * 100.0)?;
        self.skipped.iter().try_for_each(|skipped| write!(f, "\n{skipped}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_passes_when_all_outputs_do_and_there_are_some() {
        let case = |max_rel: f64, miss: Option<&str>| {
            let figures = Some(Figures { max_abs: max_rel, max_rel, cosine: 1.0, top1: 1.0 });
            let output =
                OutputReport { output: "y".to_owned(), is_cache: false, figures, miss: miss.map(str::to_owned) };
            CaseReport { label: "1 x 1".to_owned(), outputs: vec![output] }
        };
        let report = |cases| {
            let (reference, skipped) = (ReferenceKind::Interpreter, Vec::new());
            Report { reference, tolerances: Tolerances::F32, cases, skipped }
        };
        assert!(!report(vec![]).passed());
        assert!(report(vec![case(0.0, None), case(1e-6, None)]).passed());
        let failed = report(vec![case(0.0, None), case(0.5, Some("far off"))]);
        assert!(!failed.passed());
        assert_eq!(failed.misses(), ["1 x 1: y: far off"]);
        let lines: Vec<String> = failed.to_string().lines().map(str::to_owned).collect();
        assert!(lines[0].starts_with("| inputs") && lines[1].starts_with("|---"), "{failed}");
        assert!(lines[2].contains("| ok") && lines[3].contains("5.0e-1") && lines[3].contains("far off"), "{failed}");
        let held = "held against the model on the reference interpreter; float32 allows a relative error of 1e-5, \
                    a cosine of 0.99999 and a top-1 of 100%";
        assert_eq!(lines.last().unwrap(), held);
        let json = serde_json::to_value(&failed).unwrap();
        assert_eq!((&json["reference"], &json["tolerances"]["basis"]), (&"interpreter".into(), &"float32".into()));
        assert_eq!(json["cases"][0]["outputs"][0]["figures"]["cosine"], 1.0);
    }
    #[test]
    fn a_cache_is_one_row_unless_it_misses() {
        let output = |name: &str, max_rel: f64, miss: Option<&str>| {
            let figures = Some(Figures { max_abs: max_rel, max_rel, cosine: 1.0, top1: 1.0 });
            let is_cache = name != "logits";
            OutputReport { output: name.to_owned(), is_cache, figures, miss: miss.map(str::to_owned) }
        };
        let shown = |miss: Option<&str>| {
            let cache = [output("present.0.key", 1e-7, None), output("present.0.value", 3e-6, miss)];
            let last = output("present.1.key", 2e-6, None);
            let outputs = [output("logits", 1e-6, None)].into_iter().chain(cache).chain([last]).collect();
            let case = CaseReport { label: "1 x 1".to_owned(), outputs };
            case.rows().into_iter().map(|(name, output)| format!("{name}: {}", output.output)).collect::<Vec<_>>()
        };
        assert_eq!(shown(None), ["logits: logits", "present.0.value, worst of 3: present.0.value"]);
        let all = ["logits", "present.0.key", "present.0.value", "present.1.key"];
        assert_eq!(shown(Some("far off")), all.map(|name| format!("{name}: {name}")));
    }
}
