//! The jobs of a plan.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use planish_artifact::files::{self, unfinished::PROCESS};
use planish_files::Kind;
use serde::{Deserialize, Serialize};

use super::Plan;
use super::inputs::Digests;
use super::plan::{Data, Form, Named, Shape};

/// What stands in a command for the folder that the job compiles into.
const ARTIFACT: &str = "{artifact}";

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// It compiles a form of a model, and verifies it.
    Compile,
    /// It compiles a form, and evaluates it on data.
    Evaluate,
    /// It compiles a form, and measures it at a shape.
    Bench,
}

impl JobKind {
    /// How it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Compile => "compile",
            Self::Evaluate => "evaluate",
            Self::Bench => "bench",
        }
    }
}

/// Something that a job reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Where it is, relative to the folder of the plan.
    pub path: PathBuf,
    /// Its digest.
    pub blake3: String,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The beginning of the digest of all that decides its figures: the version of planish, its inputs and its commands.
    pub id: String,
    /// What it does.
    pub kind: JobKind,
    /// The name of the model.
    pub model: String,
    /// The name of the form.
    pub form: String,
    /// The name of the data, or the shape.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub on: Option<String>,
    /// What it reads, by the name that stands for it in the commands in braces.
    pub inputs: BTreeMap<String, Input>,
    /// Arguments of `planish`, one run after the other.
    pub commands: Vec<Vec<String>>,
}

impl Job {
    /// Arguments of `planish` with the paths in their places.
    #[must_use]
    pub(super) fn arguments(&self, artifact: &Path) -> Vec<Vec<String>> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let place = |word: &String| match word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) {
            _ if word == ARTIFACT => text(artifact),
            Some(name) => self.inputs.get(name).map_or_else(|| word.clone(), |input| text(&input.path)),
            None => word.clone(),
        };
        self.commands.iter().map(|command| command.iter().map(place).collect()).collect()
    }

    /// How a person calls it.
    #[must_use]
    pub fn title(&self) -> String {
        let on = self.on.iter().map(|on| format!(", {on}")).collect::<String>();
        format!("{} {} {}{on}", self.kind.name(), self.model, self.form)
    }

    fn identified(mut self) -> Self {
        let digests: BTreeMap<&str, &str> =
            self.inputs.iter().map(|(name, input)| (name.as_str(), input.blake3.as_str())).collect();
        let decides = (VERSION, &self.kind, (&self.model, &self.form, &self.on), digests, &self.commands);
        // Text and maps of text are always JSON.
        let text = serde_json::to_vec(&decides).unwrap_or_default();
        self.id = blake3::hash(&text).to_hex()[..16].to_owned();
        self
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The jobs of a plan, in its order: `jobs.json` of the output folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jobs {
    /// The version of the form, 1.
    pub schema: u32,
    /// The version of planish.
    pub planish: String,
    /// The digest of the plan.
    pub plan: String,
    /// Threads of a job.
    pub threads: u16,
    /// The jobs.
    pub jobs: Vec<Job>,
}

impl Jobs {
    /// The name of the file.
    pub const FILE: &str = "jobs.json";

    /// The jobs of a plan: those that the output folder has of it, or else its inputs are digested.
    ///
    /// # Errors
    /// When the plan or one of its inputs cannot be read, or is not right.
    pub fn of(path: &Path, output: Option<&Path>) -> Result<Self> {
        let (plan, digest) = Plan::read(path)?;
        let known = output.map(Self::read).transpose().unwrap_or_default();
        match known.filter(|known| known.plan == digest && known.planish == VERSION) {
            Some(known) => Ok(known),
            None => Self::planned(&plan, digest, folder(path)),
        }
    }

    /// The jobs that an output folder has.
    ///
    /// # Errors
    /// When there are none, or they are those of another version of the form.
    pub fn read(output: &Path) -> Result<Self> {
        let path = output.join(Self::FILE);
        let text = planish_files::read(&path, &Kind::SWEEP)
            .context("there is no sweep; `planish sweep PLAN -o FOLDER` makes one")?;
        serde_json::from_slice(&text).with_context(|| format!("{} is not a list of jobs; remove it", path.display()))
    }

    /// Writes the file, where another one or none is there.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn write(&self, output: &Path) -> Result<()> {
        if Self::read(output).is_ok_and(|there| there == *self) {
            return Ok(());
        }
        std::fs::create_dir_all(output).with_context(|| format!("cannot make the folder {}", output.display()))?;
        files::write(&output.join(Self::FILE), (serde_json::to_string_pretty(self)? + "\n").as_bytes())?;
        PROCESS.goes_on();
        Ok(())
    }

    fn planned(plan: &Plan, digest: String, folder: &Path) -> Result<Self> {
        let grid = Grid { plan, folder, digests: Digests::of_user() };
        let mut jobs = Vec::new();
        for model in &plan.models {
            for form in &plan.forms {
                jobs.push(grid.compile(model, form)?);
                let has = |data: &&Data| data.models.as_ref().is_none_or(|names| names.contains(&model.name));
                for data in plan.data.iter().filter(has) {
                    jobs.push(grid.evaluate(model, form, data)?);
                }
                for shape in &plan.shapes {
                    jobs.push(grid.bench(model, form, *shape)?);
                }
            }
        }
        Ok(Self { schema: 1, planish: VERSION.to_owned(), plan: digest, threads: plan.threads, jobs })
    }
}

/// The folder of a plan, which its paths are relative to.
pub(super) fn folder(plan: &Path) -> &Path {
    plan.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A plan whose inputs are digested.
struct Grid<'a> {
    plan: &'a Plan,
    folder: &'a Path,
    digests: Digests,
}

impl Grid<'_> {
    fn job(&self, kind: JobKind, model: &Named, form: &Form, on: Option<String>) -> Result<Job> {
        let mut inputs = BTreeMap::from([("model".to_owned(), self.input(&model.path, true)?)]);
        let files = [("calibrate", &form.calibrate), ("recipe", &form.recipe)];
        for (name, path) in files {
            if let Some(path) = path {
                inputs.insert(name.to_owned(), self.input(path, false)?);
            }
        }
        let (model, form) = (model.name.clone(), form.name.clone());
        Ok(Job { id: String::new(), kind, model, form, on, inputs, commands: Vec::new() })
    }

    fn input(&self, path: &Path, is_model: bool) -> Result<Input> {
        let blake3 = self.digests.of(&self.folder.join(path), is_model)?;
        Ok(Input { path: path.to_owned(), blake3 })
    }

    /// The arguments that compile a form. A verification holds a part of the data for calibration out, so that a form with such data
    /// is verified in all of its jobs: their artifacts are the same.
    fn compiling(&self, form: &Form, kind: JobKind) -> Vec<String> {
        let mut words = vec!["compile", "{model}", "--output", ARTIFACT];
        words.extend(form.calibrate.iter().flat_map(|_| ["--calibrate", "{calibrate}"]));
        words.extend(form.recipe.iter().flat_map(|_| ["--recipe", "{recipe}"]));
        words.extend(form.options.iter().map(String::as_str));
        words.extend((kind == JobKind::Compile || form.calibrate.is_some()).then_some("--verify"));
        self.threaded(&words)
    }

    fn threaded(&self, words: &[&str]) -> Vec<String> {
        let threads = self.plan.threads.to_string();
        words.iter().chain(&["--threads", &threads, "--json"]).map(ToString::to_string).collect()
    }

    fn compile(&self, model: &Named, form: &Form) -> Result<Job> {
        let mut job = self.job(JobKind::Compile, model, form, None)?;
        job.commands.push(self.compiling(form, JobKind::Compile));
        Ok(job.identified())
    }

    fn evaluate(&self, model: &Named, form: &Form, data: &Data) -> Result<Job> {
        let mut job = self.job(JobKind::Evaluate, model, form, Some(data.name.clone()))?;
        job.inputs.insert("data".to_owned(), self.input(&data.path, false)?);
        let mut words = vec!["evaluate", ARTIFACT, "--data", "{data}", "--reference", "{model}"];
        words.extend(data.options.iter().map(String::as_str));
        job.commands.extend([self.compiling(form, JobKind::Evaluate), self.threaded(&words)]);
        Ok(job.identified())
    }

    fn bench(&self, model: &Named, form: &Form, Shape { batch, seq }: Shape) -> Result<Job> {
        let on = seq.map_or_else(|| format!("batch of {batch}"), |seq| format!("{batch} x {seq}"));
        let mut job = self.job(JobKind::Bench, model, form, Some(on))?;
        let (batch, seq) = (batch.to_string(), seq.map(|seq| seq.to_string()));
        let mut words = vec!["bench", ARTIFACT, "--reference", "{model}", "--batch", &batch];
        words.extend(seq.iter().flat_map(|seq| ["--seq", seq.as_str()]));
        words.extend(self.plan.bench.iter().map(String::as_str));
        job.commands.extend([self.compiling(form, JobKind::Bench), self.threaded(&words)]);
        Ok(job.identified())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;

    const PLAN: &str = r#"{
        "schema": 1,
        "models": [{"name": "a", "path": "a"}, {"name": "b", "path": "b"}],
        "forms": [{"name": "f32"}, {"name": "int8", "options": ["--int8"], "calibrate": "texts"}],
        "data": [{"name": "texts", "path": "texts", "models": ["a"], "options": ["--samples", "4"]}],
        "shapes": [{"batch": 1, "seq": 8}, {"batch": 2}],
        "bench": ["--set", "runs=3"]
    }"#;

    pub(in super::super) fn planned() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        for model in ["a", "b"] {
            fs::create_dir(place.path().join(model)).unwrap();
            fs::write(place.path().join(model).join("config.json"), model).unwrap();
        }
        fs::write(place.path().join("texts"), "one\ntwo\n").unwrap();
        let plan = place.path().join("plan.json");
        fs::write(&plan, PLAN).unwrap();
        (place, plan)
    }

    #[test]
    fn a_grid_is_a_job_for_each_cell() {
        let (_place, plan) = planned();
        let jobs = Jobs::of(&plan, None).unwrap().jobs;
        let titles: Vec<String> = jobs.iter().map(Job::title).collect();
        let a = |form: &str| {
            ["compile a FORM", "evaluate a FORM, texts", "bench a FORM, 1 x 8", "bench a FORM, batch of 2"]
                .map(|title| title.replace("FORM", form))
        };
        assert_eq!(titles[..8], [a("f32"), a("int8")].concat());
        assert_eq!(titles[8..11], ["compile b f32", "bench b f32, 1 x 8", "bench b f32, batch of 2"]);
        assert_eq!(jobs.len(), 14);
        let ids: std::collections::BTreeSet<&str> = jobs.iter().map(|job| job.id.as_str()).collect();
        assert_eq!(ids.len(), jobs.len());
        let [compile, evaluate] = jobs[5].arguments(Path::new("/tmp/x")).try_into().unwrap();
        assert_eq!(compile.join(" "), "compile a --output /tmp/x --calibrate texts --int8 --verify --threads 1 --json");
        assert_eq!(evaluate.join(" "), "evaluate /tmp/x --data texts --reference a --samples 4 --threads 1 --json");
    }

    #[test]
    fn an_id_depends_on_what_decides_the_figures() {
        let (place, plan) = planned();
        let ids = || Jobs::of(&plan, None).unwrap().jobs.into_iter().map(|job| job.id).collect::<Vec<_>>();
        let first = ids();
        assert_eq!(first, ids());
        fs::write(place.path().join("b/config.json"), "changed").unwrap();
        let second = ids();
        assert_eq!((&first[..8], second.len()), (&second[..8], first.len()));
        assert!(first[8..].iter().zip(&second[8..]).all(|(a, b)| a != b));
    }

    #[test]
    fn jobs_of_the_same_plan_are_kept() {
        let (place, plan) = planned();
        let output = place.path().join("out");
        let jobs = Jobs::of(&plan, Some(&output)).unwrap();
        jobs.write(&output).unwrap();
        fs::write(place.path().join("b/config.json"), "changed").unwrap();
        assert_eq!(Jobs::of(&plan, Some(&output)).unwrap(), jobs, "each job checks its inputs itself");
        fs::write(&plan, PLAN.replace("\"batch\": 2", "\"batch\": 3")).unwrap();
        assert_ne!(Jobs::of(&plan, Some(&output)).unwrap().jobs[0..8], jobs.jobs[0..8]);
    }
}
