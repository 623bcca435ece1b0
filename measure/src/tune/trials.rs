//! Candidates as contestants of `bench`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use planish_artifact::evaluation::{Evaluation, Figure};
use planish_artifact::recipe::Recipe;
use planish_artifact::tuning::RunSettings;
use planish_check::evaluate::Reference;
use planish_check::gate::Gate;
use planish_compiler::compile::Compiled;

use super::judge::{Silent, refusal};
use super::search::{Outcome, Trials};
use super::{Candidate, Former, Model, TuneOptions};
use crate::bench::{BenchObserver, BenchOptions, Cell, Contest, Entrant, Measured, Ratio, Status};

/// The bounds of the time of a cell. A race also loads and compares its candidates.
const CELL: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(10)];

/// The least time of the runs before the timed ones.
const WARM_UP: Duration = Duration::from_millis(100);

/// The least number of timed runs of a cell.
const LEAST_RUNS: usize = 4;

/// A cell ends when half of the interval of its median is below this share of it.
const INTERVAL: f64 = 0.005;

pub(super) struct ContestTrials<'a, 'b> {
    model: &'a Model<'b>,
    former: &'a dyn Former,
    folder: PathBuf,
    shapes: Vec<(usize, usize)>,
    options: &'a TuneOptions,
    /// How a candidate runs that does not say it.
    usual: RunSettings,
    observer: &'a mut dyn BenchObserver,
    started: Instant,
    /// The forms that are compiled, or why they are not, by their recipes.
    forms: BTreeMap<String, Result<Compiled, String>>,
    /// How many were compiled.
    compiled: usize,
    /// The longest that compiling one took.
    longest: Duration,
    /// The longest that evaluating one took.
    longest_evaluation: Duration,
    /// The model in float32, which forms are evaluated with.
    reference: Reference,
    /// The evaluations of forms, by their recipes.
    evaluations: BTreeMap<String, Evaluation>,
}

impl<'a, 'b> ContestTrials<'a, 'b> {
    /// A search that begins now, with the default form, and how long compiling that took.
    pub(super) fn new(
        model: &'a Model<'b>,
        former: &'a dyn Former,
        (folder, shapes): (&std::path::Path, &[(usize, usize)]),
        (options, usual): (&'a TuneOptions, RunSettings),
        observer: &'a mut dyn BenchObserver,
        (default, took): (Compiled, Duration),
    ) -> Self {
        let forms = serde_json::to_string(model.recipe).map(|recipe| (recipe, Ok(default))).into_iter().collect();
        let (folder, shapes) = (folder.to_owned(), shapes.to_vec());
        Self {
            model,
            former,
            folder,
            shapes,
            options,
            usual,
            observer,
            started: Instant::now(),
            forms,
            compiled: 1,
            longest: took,
            longest_evaluation: Duration::ZERO,
            reference: Reference::of_several(),
            evaluations: BTreeMap::new(),
        }
    }

    /// The candidate as a contestant, or why it is none.
    fn entrant(&mut self, candidate: &Candidate) -> Result<Result<Entrant, String>> {
        let recipe: Recipe = candidate.recipe(self.model.recipe)?;
        let key = self.key(candidate)?;
        if !self.forms.contains_key(&key) {
            self.observer.step(&format!("compiling {candidate}"));
            let place = self.folder.join(self.compiled.to_string());
            self.compiled += 1;
            let start = Instant::now();
            let compiled = self.former.compile(&recipe, &place).map_err(|error| format!("{error:#}"));
            self.longest = self.longest.max(start.elapsed());
            self.forms.insert(key.clone(), compiled);
        }
        let compiled = self.forms.get(&key).context("a form that was compiled")?;
        Ok(compiled.as_ref().map_err(String::clone).map(|compiled| {
            let run = candidate.run();
            let run = RunSettings { threads: run.threads.or(self.usual.threads), spin: run.spin.or(self.usual.spin) };
            Entrant::of_form(candidate.to_string(), compiled.artifact.clone(), self.model.source.path(), run)
        }))
    }

    /// The cosines on the data of a form and of the default one; `None` where the form rounds as the default one does.
    pub(super) fn cosines(&mut self, candidate: &Candidate) -> Option<[f64; 2]> {
        let gate = self.model.gate.filter(|_| candidate.rounds())?;
        let mut cosine = |of: &Candidate| self.evaluation(gate, of).ok()?.figure(Figure::Cosine);
        Some([cosine(candidate)?, cosine(&Candidate::default())?])
    }

    /// What tells forms apart.
    fn key(&self, candidate: &Candidate) -> Result<String> {
        Ok(serde_json::to_string(&candidate.recipe(self.model.recipe)?)?)
    }

    /// The evaluation of a form that is compiled.
    fn evaluation(&mut self, gate: &Gate, candidate: &Candidate) -> Result<Evaluation> {
        let key = self.key(candidate)?;
        if let Some(known) = self.evaluations.get(&key) {
            return Ok(known.clone());
        }
        self.observer.step(&format!("evaluating {candidate}"));
        let compiled = self.forms.get(&key).and_then(|form| form.as_ref().ok()).context("a form that was compiled")?;
        let start = Instant::now();
        let evaluation = gate.evaluate(compiled, self.model.source, &mut self.reference, Box::new(Silent))?;
        self.longest_evaluation = self.longest_evaluation.max(start.elapsed());
        self.evaluations.insert(key, evaluation.clone());
        Ok(evaluation)
    }

    /// Removes the files of all forms but these and the default one.
    fn keep(&mut self, candidates: &[&Candidate]) -> Result<()> {
        let default = Candidate::default();
        let kept =
            candidates.iter().copied().chain([&default]).map(|of| self.key(of)).collect::<Result<Vec<String>>>()?;
        self.forms.retain(|recipe, form| {
            let is_kept = kept.contains(recipe);
            if let (false, Ok(lost)) = (is_kept, form) {
                // What stays goes with the folder of the search.
                let _ = fs::remove_dir_all(&lost.artifact.folder);
            }
            is_kept
        });
        Ok(())
    }

    /// The cells of a race, at all shapes.
    fn measured(&mut self, entrants: Vec<Entrant>, time: Duration) -> Result<Vec<Cell>> {
        let cells = u32::try_from(entrants.len() * self.shapes.len()).unwrap_or(u32::MAX).max(1);
        let mut batch: Vec<usize> = self.shapes.iter().map(|(rows, _)| *rows).collect();
        let mut sequence: Vec<usize> = self.shapes.iter().map(|(_, tokens)| *tokens).collect();
        for sizes in [&mut batch, &mut sequence] {
            sizes.sort_unstable();
            sizes.dedup();
        }
        let options = BenchOptions {
            batch,
            sequence,
            shapes: self.shapes.clone(),
            interval: INTERVAL,
            // Half of the time goes to loading, comparing and warming up.
            time: (time / cells / 2).clamp(CELL[0], CELL[1]),
            races: true,
            iterations: LEAST_RUNS,
            warmup: WARM_UP,
            ..BenchOptions::default()
        };
        let contest = Contest {
            entrants,
            references: Vec::new(),
            runtimes: Vec::new(),
            settings: self.options.settings.clone(),
            inputs: None,
            data: None,
            limits: None,
        };
        let ends = self.started + self.options.time + self.options.time / 10;
        Ok(contest.bench(&options, &mut Racing { observer: self.observer, ends })?.cells)
    }
}

impl Trials for ContestTrials<'_, '_> {
    fn spent(&self) -> Duration {
        self.started.elapsed()
    }

    fn preparing(&self, others: &[Candidate]) -> Duration {
        let is_new = |other: &&Candidate| !self.key(other).is_ok_and(|key| self.forms.contains_key(&key));
        self.longest * u32::try_from(others.iter().filter(is_new).count()).unwrap_or(u32::MAX)
    }

    fn race(&mut self, best: &Candidate, others: &[Candidate], time: Duration) -> Result<Vec<Outcome>> {
        self.keep(&[&[best], &others.iter().collect::<Vec<_>>()[..]].concat())?;
        let first = match self.entrant(best)? {
            Ok(entrant) => entrant,
            Err(why) => bail!("{best}: {why}"),
        };
        let (mut entrants, mut failed) = (vec![first], BTreeMap::new());
        for other in others {
            match self.entrant(other)? {
                Ok(entrant) => entrants.push(entrant),
                Err(why) => drop(failed.insert(other.to_string(), why)),
            }
        }
        let names: Vec<String> = others.iter().map(ToString::to_string).collect();
        self.observer.step(&format!("measuring {} next to {best}", names.join(", ")));
        let cells = if entrants.len() > 1 { self.measured(entrants, time)? } else { Vec::new() };
        let of = |label: &str| cells.iter().filter(|cell| cell.model.id == label).collect::<Vec<&Cell>>();
        let base = of(&best.to_string());
        if let Some(why) = base.iter().find_map(|cell| cell.failure.as_ref().filter(|_| cell.status == Status::Failed))
        {
            bail!("{best}: {why}");
        }
        Ok(names
            .iter()
            .map(|name| failed.remove(name).map_or_else(|| outcome(&base, &of(name)), Outcome::Failed))
            .collect())
    }

    fn judging(&self) -> Duration {
        self.longest_evaluation
    }

    fn judge(&mut self, candidate: &Candidate) -> Option<String> {
        let gate = self.model.gate?;
        let both =
            self.evaluation(gate, candidate).and_then(|own| Ok((own, self.evaluation(gate, &Candidate::default())?)));
        match both {
            Ok((own, default)) => refusal(gate.max_loss(), &own, &default),
            Err(error) => Some(format!("{error:#}")),
        }
    }
}

/// What the cells of a candidate come to, next to those of the best form.
fn outcome(base: &[&Cell], own: &[&Cell]) -> Outcome {
    if let Some(cell) = own.iter().find(|cell| matches!(cell.status, Status::Failed | Status::Unavailable)) {
        let why = cell.failure.as_deref().unwrap_or("it was not measured");
        return Outcome::Failed(format!("{}: {why}", cell.shape));
    }
    let ratio = |cell: &&Cell| Ratio::of_rounds(base.iter().find(|other| other.shape == cell.shape)?, cell);
    let ratios: Option<Vec<Ratio>> = own.iter().map(ratio).collect();
    match ratios.as_deref().and_then(Ratio::geometric_mean) {
        Some(ratio) => Outcome::Measured(ratio),
        None => Outcome::Unfinished,
    }
}

/// Passes on what is to be known, ends a race when the time is up, and keeps the lines of its cells to itself. A signal ends the
/// command, as nothing is written yet.
struct Racing<'a> {
    observer: &'a mut dyn BenchObserver,
    ends: Instant,
}

impl BenchObserver for Racing<'_> {
    fn progress(&mut self, _: f64) {}
    fn measured(&mut self, _: Measured<'_>) {}

    fn is_ended(&self) -> bool {
        Instant::now() >= self.ends
    }

    fn warning(&mut self, text: &str) {
        self.observer.warning(text);
    }

    fn note(&mut self, text: &str) {
        self.observer.note(text);
    }
}
