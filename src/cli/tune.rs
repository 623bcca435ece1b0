//! `planish compile --tune`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use planish_artifact::Artifact;
use planish_artifact::backend::{BACKENDS, Backend, Device, RuntimeSettings};
use planish_artifact::draft::Draft;
use planish_artifact::recipe::Recipe;
use planish_artifact::tuning::RunSettings;
use planish_check::gate::Gate;
use planish_compiler::compile::{CompileOptions, Compiled, compile};
use planish_compiler::quantize::Quantizations;
use planish_compiler::request::{Prepared, Request};
use planish_measure::tune::{Former, Model, TuneOptions, Tuned, processor, tune};
use planish_onnx::Placement;
use planish_passes::Target;

use super::Usage;
use super::bench_console::{Console, Preparing};
use super::gate::{Judging, refuse};
use super::terminal::{say, warn};

/// The search for the fastest form.
#[derive(clap::Args)]
#[command(next_help_heading = "Tuning")]
pub(super) struct TuneArguments {
    /// Measure forms of the graph, threads and polling here, and write the fastest; SHAPES: rows x tokens [default: 1x128]
    #[arg(long, value_name = "SHAPES", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = Shapes::parse)]
    tune: Option<Shapes>,
    /// How long --tune may take, such as 5m [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "tune")]
    tune_time: Option<Duration>,
}

/// The value of `--tune`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shapes(Vec<(usize, usize)>);

/// The most rows and tokens of a shape.
const MOST: usize = 1 << 20;

impl Shapes {
    fn parse(text: &str) -> Result<Self, String> {
        let size = |text: &str| text.parse::<usize>().ok().filter(|size| (1..=MOST).contains(size));
        let shape = |word: &str| {
            let pair = word.split_once('x').and_then(|(rows, tokens)| Some((size(rows)?, size(tokens)?)));
            pair.ok_or_else(|| format!("`{word}` is no shape; expected ROWSxTOKENS, such as 1x128,8x128"))
        };
        text.split(',').filter(|_| !text.is_empty()).map(shape).collect::<Result<_, _>>().map(Self)
    }
}

/// The longest search.
const LONGEST: u64 = 24 * 60 * 60;

/// A time with its unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a number of seconds or minutes from 1s to 1440m, such as 90s or 5m".to_owned();
    let (number, unit) = match (text.strip_suffix('s'), text.strip_suffix('m')) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 60),
        (None, None) => return Err(wrong()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    seconds.filter(|seconds| (1..=LONGEST).contains(seconds)).map(Duration::from_secs).ok_or_else(wrong)
}

/// How long a search takes unless the user says otherwise.
const USUAL: Duration = Duration::from_secs(60);

impl TuneArguments {
    /// Whether a search is asked for.
    pub(super) fn is_given(&self) -> bool {
        self.tune.is_some()
    }

    /// Refuses what a search is not for: several forms at once, and targets whose engines or kernels choose among themselves.
    ///
    /// # Errors
    /// When it is asked for such a thing.
    pub(super) fn check(&self, backend: &Backend, variants: usize) -> Result<(), Usage> {
        if self.is_given() && variants > 0 {
            return Err(Usage(
                "--tune is for one form, and --variants asks for several; leave one of both out".to_owned(),
            ));
        }
        if self.is_given() && backend.target.forms.is_empty() {
            let target = backend.target;
            let those = Target::names(|target| !target.forms.is_empty());
            return Err(Usage(format!(
                "--tune is for targets {those}; target {target} chooses its kernels by itself: leave --tune out"
            )));
        }
        Ok(())
    }

    /// Searches for the fastest form of what was requested, if that is asked for. `run` is what the user says of how it runs.
    pub(super) fn chosen(
        &self,
        prepared: &Prepared,
        request: &Request,
        gate: Option<&Gate>,
        run: RunSettings,
        json: bool,
    ) -> Result<Option<Chosen>> {
        let Some(Shapes(shapes)) = &self.tune else { return Ok(None) };
        let options = TuneOptions {
            shapes: shapes.iter().map(|(rows, tokens)| (*rows, Some(*tokens))).collect(),
            time: self.tune_time.unwrap_or(USUAL),
            settings: request.settings.clone(),
            others: others(request),
            run,
        };
        let mut former = Forms { prepared, request, quantizations: None, preparing: Preparing::new() };
        if let Some(gate) = gate.filter(|gate| gate.max_loss().is_some()) {
            former.quantizations = former.within(gate, json)?;
        }
        let model = Model {
            source: &prepared.source,
            backend: request.backend,
            recipe: &request.recipe,
            fusion: request.fusion,
            gate,
            is_within_limits: former.quantizations.is_some(),
        };
        let mut console = Console::new();
        let tuned = tune(&model, &former, &options, &mut console)?;
        console.bar.finish_and_clear();
        match &tuned.found {
            Some(found) => say(&format!("{found}\n")),
            None => say(&format!("tuned before, and taken from the folder of caches: {}\n", tuned.tuning)),
        }
        Ok(Some(Chosen { tuned, quantizations: former.quantizations }))
    }
}

/// The form that a search chose.
pub(super) struct Chosen {
    /// What the search came to.
    pub(super) tuned: Tuned,
    /// How all forms are quantized, where the default one needed more precision for `--max-loss`.
    quantizations: Option<Quantizations>,
}

impl Chosen {
    /// How the model is compiled into that form.
    pub(super) fn options(&self, prepared: &Prepared, request: &Request) -> Result<CompileOptions> {
        let options = prepared.with_recipe(request, &self.tuned.recipe)?;
        Ok(options.with_quantizations(self.quantizations.as_ref()))
    }
}

/// The other targets for the processor, for which the graph could be compiled as well.
fn others(request: &Request) -> Vec<&'static Backend> {
    let is_other = |other: &&&'static Backend| {
        let are_for = [request.backend, other].map(|of| of.device == Some(Device::Cpu));
        are_for == [true; 2] && other.target.name != request.backend.target.name
    };
    BACKENDS.iter().filter(is_other).copied().collect()
}

/// Compiles candidates as the request has it, but for the recipe.
struct Forms<'a> {
    prepared: &'a Prepared,
    request: &'a Request,
    /// How all of them are quantized, where the default one needed more precision for `--max-loss`.
    quantizations: Option<Quantizations>,
    preparing: Preparing,
}

impl Forms<'_> {
    fn options(&self, recipe: &Recipe) -> Result<CompileOptions> {
        let options = self.prepared.with_recipe(self.request, recipe)?;
        if options.passes.opset != self.prepared.options.passes.opset && self.request.opset.is_some() {
            bail!("it needs opset {}, and --opset says another", options.passes.opset);
        }
        // Weights that the artifact links may be on another filesystem than temporary files.
        let options = CompileOptions { placement: Placement::Copy, card: false, ..options };
        Ok(options.with_quantizations(self.quantizations.as_ref()))
    }

    /// How the default form is quantized within the limits of `--max-loss`; `None` where it meets them as it is.
    fn within(&self, gate: &Gate, json: bool) -> Result<Option<Quantizations>> {
        let folder = Draft::temporary("planish-tune")?;
        let options = self.options(&self.request.recipe)?;
        let source = &self.prepared.source;
        let compiled = compile(source, &folder.folder().join("within"), &options, &self.preparing)?;
        let plans = |of: &Compiled| {
            let parts = of.artifact.manifest.parts.iter();
            parts.map(|part| (part.quantization.clone(), part.weights.clone())).collect::<Vec<_>>()
        };
        let before = plans(&compiled);
        let (judged, refused) = gate.pass(compiled, source, options, &Judging)?;
        refuse(refused, &judged, json)?;
        Ok((plans(&judged) != before).then_some(judged.quantizations))
    }
}

impl Former for Forms<'_> {
    fn compile(&self, recipe: &Recipe, folder: &Path) -> Result<Compiled> {
        compile(&self.prepared.source, folder, &self.options(recipe)?, &self.preparing).context("cannot compile it")
    }
}

/// Warns where an artifact was tuned on another processor, or for another version of the runtime.
pub(super) fn warn_elsewhere(artifact: &Artifact, settings: &RuntimeSettings) {
    let Some(tuning) = &artifact.manifest.tuning else { return };
    let version = artifact.runtime(settings).check().ok();
    let version = version.filter(|found| found.product == tuning.runtime).map(|found| found.version);
    if let Some(why) = tuning.elsewhere(&processor(), version.as_deref()) {
        warn(&format!("{}: {why}; another form may be faster here: compile --tune finds it", artifact.label()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_rows_and_tokens() {
        assert_eq!(Shapes::parse("").unwrap(), Shapes(Vec::new()));
        assert_eq!(Shapes::parse("1x128,8x16").unwrap(), Shapes(vec![(1, 128), (8, 16)]));
        for wrong in ["abc", "1x", "0x4", "1x128,", "-1x2", "1x99999999"] {
            assert!(Shapes::parse(wrong).unwrap_err().contains("expected ROWSxTOKENS"), "{wrong}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("5m").unwrap(), Duration::from_secs(300));
        for wrong in ["0", "0s", "60", "1.5m", "-1s", "1441m", "18446744073709551615m", "s", ""] {
            assert!(duration(wrong).unwrap_err().contains("from 1s to 1440m"), "{wrong}");
        }
    }
}
