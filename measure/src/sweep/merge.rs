//! The results of all jobs.

use std::path::Path;

use super::{Job, JobResult, Jobs, Status, TryAgain};

/// What is known of a job.
#[derive(Debug)]
pub enum State {
    /// Its result.
    Ended(Box<JobResult>),
    /// There is none.
    Missing,
    /// There is one that cannot be used, and why.
    Damaged(String),
}

impl State {
    /// How it is called.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ended(result) => result.status.name(),
            Self::Missing => "missing",
            Self::Damaged(_) => "damaged",
        }
    }

    /// Whether the job does not have to run any more.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(self, Self::Ended(result) if result.status != Status::Retry)
    }
}

/// What is known of each job.
#[must_use]
pub fn states(jobs: &Jobs, output: &Path) -> Vec<State> {
    let state = |job: &Job| match JobResult::read(output, job) {
        Ok(Some(result)) => State::Ended(Box::new(result)),
        Ok(None) => State::Missing,
        Err(error) => State::Damaged(format!("{error:#}")),
    };
    jobs.jobs.iter().map(state).collect()
}

/// The results of all jobs, in the order of the plan.
#[derive(Debug)]
pub struct Merged(pub(super) Vec<JobResult>);

impl Merged {
    /// The results of a sweep.
    ///
    /// # Errors
    /// [`TryAgain`] when jobs have no result, with the tasks of an array of so many that these jobs are dealt out to.
    pub fn of(jobs: &Jobs, output: &Path, tasks: usize) -> Result<Self, TryAgain> {
        let states = states(jobs, output);
        let (mut missing, mut lines) = (Vec::new(), Vec::new());
        for (at, (job, state)) in jobs.jobs.iter().zip(&states).enumerate() {
            if state.is_settled() {
                continue;
            }
            missing.push(at);
            let why = match state {
                State::Ended(result) => result.error.clone().unwrap_or_default(),
                State::Missing => String::new(),
                State::Damaged(why) => why.clone(),
            };
            lines.push(format!("{} {}: {}", job.id, job.title(), format!("{} {why}", state.name()).trim()));
        }
        if missing.is_empty() {
            let ended = |state| if let State::Ended(result) = state { Some(*result) } else { None };
            return Ok(Self(states.into_iter().filter_map(ended).collect()));
        }
        const MOST: usize = 20;
        let more = lines.len().saturating_sub(MOST);
        lines.truncate(MOST);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        Err(TryAgain(format!(
            "{} of {} jobs are not done:\n  {}\nrun `planish sweep` with the same plan and output folder again; of an array of {tasks} tasks: \
             --array={}",
            missing.len(),
            jobs.jobs.len(),
            lines.join("\n  "),
            array(missing.iter().map(|at| at % tasks + 1)),
        )))
    }

    /// How many jobs failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.0.iter().filter(|result| result.status == Status::Failed).count()
    }
}

/// Numbers as Slurm's `--array` takes them: 3,7,12-14.
#[must_use]
pub fn array(numbers: impl IntoIterator<Item = usize>) -> String {
    let sorted: std::collections::BTreeSet<usize> = numbers.into_iter().collect();
    let mut runs: Vec<[usize; 2]> = Vec::new();
    for number in sorted {
        match runs.last_mut() {
            Some(run) if run[1] + 1 == number => run[1] = number,
            _ => runs.push([number, number]),
        }
    }
    let text = |[first, last]: &[usize; 2]| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::jobs::tests::planned;
    use super::super::result::tests::result;
    use super::*;

    #[test]
    fn numbers_are_written_in_runs() {
        assert_eq!(array([14, 3, 13, 7, 12, 3]), "3,7,12-14");
        assert_eq!(array([1, 2]), "1,2");
        assert_eq!(array([]), "");
    }

    #[test]
    fn gaps_are_named() {
        let (place, plan) = planned();
        let jobs = Jobs::of(&plan, None).unwrap();
        fs::create_dir(place.path().join("results")).unwrap();
        let missing = [2, 6, 7];
        for (at, job) in jobs.jobs.iter().enumerate().filter(|(at, _)| !missing.contains(at)) {
            let status = if at == 4 { Status::Failed } else { Status::Done };
            result(job, status).write(place.path()).unwrap();
        }
        result(&jobs.jobs[6], Status::Retry).write(place.path()).unwrap();
        let error = Merged::of(&jobs, place.path(), jobs.jobs.len()).unwrap_err().to_string();
        assert!(error.starts_with("3 of 14 jobs are not done:") && error.ends_with("--array=3,7,8"), "{error}");
        assert!(error.contains(&format!("{} {}: missing\n", jobs.jobs[2].id, jobs.jobs[2].title())), "{error}");
        let error = Merged::of(&jobs, place.path(), 4).unwrap_err().to_string();
        assert!(error.ends_with("--array=3,4"), "{error}");
        for at in missing {
            result(&jobs.jobs[at], Status::Done).write(place.path()).unwrap();
        }
        let merged = Merged::of(&jobs, place.path(), 4).unwrap();
        assert_eq!((merged.0.len(), merged.failed()), (14, 1));
    }
}
