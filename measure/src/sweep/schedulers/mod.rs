//! Programs that hand the jobs of a sweep to a scheduler: text, which the user may change.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::PlanError;

/// What runs jobs on several machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// A program of Python for Ray: a task for each job.
    Ray,
    /// A batch script for Slurm: an array of tasks.
    Slurm,
    /// A Job of Kubernetes with indexed completion, as YAML.
    Kubernetes,
}

/// What a scheduler is handed.
#[derive(Clone, Debug)]
pub struct Handed<'a> {
    /// The plan.
    pub plan: &'a Path,
    /// The output folder.
    pub output: &'a Path,
    /// Threads of a job.
    pub threads: u16,
    /// How many tasks the jobs are dealt out to; Ray has one for each job.
    pub tasks: usize,
    /// What jobs read, relative to the folder of the plan.
    pub inputs: Vec<&'a Path>,
}

const RAY: &str = include_str!("sweep_ray.py");
const SLURM: &str = include_str!("sweep.sbatch");
const KUBERNETES: &str = include_str!("sweep.yaml");

impl Scheduler {
    /// The program.
    ///
    /// # Errors
    /// When a path is not UTF-8, or Kubernetes cannot reach the output folder or an input.
    pub fn program(self, handed: &Handed<'_>) -> Result<String> {
        let (template, quote): (&str, fn(&str) -> String) = match self {
            Self::Ray => (RAY, double),
            Self::Slurm => (SLURM, single),
            Self::Kubernetes => (KUBERNETES, double),
        };
        let (plan, output) = match self {
            Self::Kubernetes => claimed(handed)?,
            Self::Ray | Self::Slurm => (absolute(handed.plan)?, absolute(handed.output)?),
        };
        let Handed { threads, tasks, .. } = handed;
        Ok([
            ("@PLAN@", quote(&plan)),
            ("@OUTPUT@", quote(&output)),
            ("@THREADS@", threads.to_string()),
            ("@TASKS@", tasks.to_string()),
        ]
        .iter()
        .fold(template.to_owned(), |text, (name, value)| text.replace(name, value)))
    }
}

/// A text in double quotes, as JSON, YAML and Python read it.
fn double(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A text in single quotes, as a shell reads it.
fn single(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn absolute(path: &Path) -> Result<String> {
    let path = std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))?;
    text(path)
}

fn text(path: PathBuf) -> Result<String> {
    match path.into_os_string().into_string() {
        Ok(text) if !text.contains(['\n', '\r']) => Ok(text),
        Ok(text) => bail!(PlanError(format!("{text:?} has a line break, which no script can name; rename it"))),
        Err(path) => bail!(PlanError(format!("{} is not UTF-8; rename it", path.display()))),
    }
}

/// The plan and the output folder where the claim is mounted.
fn claimed(handed: &Handed<'_>) -> Result<(String, String)> {
    let [plan, output] = [handed.plan, handed.output].map(absolute);
    let (plan, output) = (PathBuf::from(plan?), PathBuf::from(output?));
    let folder = plan.parent().unwrap_or(Path::new("/"));
    let Ok(below) = output.strip_prefix(folder) else {
        bail!(PlanError(format!(
            "{} is not in the folder of the plan, {}, which is what Kubernetes mounts; choose a folder in it with -o",
            output.display(),
            folder.display()
        )))
    };
    let is_outside = |path: &&Path| path.is_absolute() || path.components().any(|part| part == Component::ParentDir);
    if let Some(path) = handed.inputs.iter().copied().find(|path| is_outside(path)) {
        bail!(PlanError(format!(
            "{} is not in the folder of the plan, {}, which is what Kubernetes mounts; move it there",
            path.display(),
            folder.display()
        )))
    }
    let mount = Path::new("/sweep");
    Ok((text(mount.join(plan.file_name().unwrap_or_default()))?, text(mount.join(below))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed(output: &'static str) -> Handed<'static> {
        Handed {
            plan: Path::new("/models/it's/plan.json"),
            output: Path::new(output),
            threads: 4,
            tasks: 200,
            inputs: vec![Path::new("models/a")],
        }
    }

    #[test]
    fn programs_have_no_gaps_and_quote_paths() {
        let of = |scheduler: Scheduler| scheduler.program(&handed("/models/it's/out")).unwrap();
        let (ray, slurm, kubernetes) = (of(Scheduler::Ray), of(Scheduler::Slurm), of(Scheduler::Kubernetes));
        for text in [&ray, &slurm, &kubernetes] {
            assert!(!text.contains('@') || text.contains("@ray.remote") && text.matches('@').count() == 1, "{text}");
        }
        assert!(ray.contains("PLAN = \"/models/it's/plan.json\"") && ray.contains("THREADS = 4"), "{ray}");
        assert!(slurm.contains("#SBATCH --array=1-200\n") && slurm.contains(r"'/models/it'\''s/plan.json'"), "{slurm}");
        assert!(kubernetes.contains("\"/sweep/plan.json\", \"-o\", \"/sweep/out\""), "{kubernetes}");
        assert!(kubernetes.contains("completions: 200\n"), "{kubernetes}");
    }

    #[test]
    fn kubernetes_needs_all_files_below_the_plan() {
        for path in ["/elsewhere/a", "../a"] {
            let handed = Handed { inputs: vec![Path::new(path)], ..handed("/models/it's/out") };
            let error = Scheduler::Kubernetes.program(&handed).unwrap_err().to_string();
            assert!(error.starts_with(path) && error.contains("move it there"), "{error}");
            Scheduler::Slurm.program(&handed).unwrap();
        }
        let error = Scheduler::Kubernetes.program(&handed("/elsewhere")).unwrap_err().to_string();
        assert!(error.contains("is not in the folder of the plan"), "{error}");
        Scheduler::Slurm.program(&handed("/elsewhere")).unwrap();
    }
}
