//! Parts of work that is divided between processes, and how a process finds out which part is its own.

use std::fmt;

/// One of several equal parts, such as those of the batches of a data set: every Nth one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which one, from 0 on.
    pub index: usize,
    /// How many there are; not 0.
    pub count: usize,
}

/// It is not known which part is to be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// The text is none.
    #[error("expected K/N, such as 3/8 (a number from 1 to N, and the number of shards N), or auto")]
    Text,
    /// No variable says it.
    #[error(
        "auto found none of the variables that say which shard this is: PLANISH_SHARD (K/N), SLURM_ARRAY_TASK_ID (a Slurm array), \
         JOB_COMPLETION_INDEX (Kubernetes) or AWS_BATCH_JOB_ARRAY_INDEX, both with the number of shards in PLANISH_SHARDS, or RANK with \
         WORLD_SIZE (torchrun), those of Open MPI (OMPI_COMM_WORLD_RANK) and of MPICH (PMI_RANK), or SLURM_PROCID; set PLANISH_SHARD, or \
         give K/N"
    )]
    NotFound,
    /// A variable is missing that another one needs, or has another value than it may.
    #[error("{name} {problem}; set PLANISH_SHARD=K/N, or give K/N")]
    Variable {
        /// Its name.
        name: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl Shard {
    /// Whether it has a part, by the number of the part.
    #[must_use]
    pub fn has(self, number: usize) -> bool {
        number % self.count == self.index
    }

    /// The shard of a text: `K/N`, or `auto` for what the environment of this process says.
    ///
    /// # Errors
    /// When the text is neither, or the environment does not say it.
    pub fn parse(text: &str) -> Result<Self, ShardError> {
        match text {
            "auto" => Self::of_environment(&|name| std::env::var(name).ok()),
            _ => Self::of_text(text).ok_or(ShardError::Text),
        }
    }

    fn of_text(text: &str) -> Option<Self> {
        let (k, count) = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)))?;
        (1..=count).contains(&k).then(|| Self { index: k - 1, count })
    }

    /// What variables say, the first of those that are there: `PLANISH_SHARD`, those of a Slurm array, of an indexed Job of
    /// Kubernetes, of an array of AWS Batch, of Open MPI, of MPICH and Intel MPI, of torchrun, and of a step of Slurm.
    fn of_environment(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, ShardError> {
        let number = |name: &'static str| -> Result<Option<usize>, ShardError> {
            let Some(text) = variable(name) else { return Ok(None) };
            let problem = || format!("is `{text}`, which is no number");
            text.trim().parse().map(Some).map_err(|_| ShardError::Variable { name, problem: problem() })
        };
        let needed = |name: &'static str, of: &str| {
            let problem = format!("is not set, which the number of shards is taken from beside {of}");
            number(name)?.ok_or(ShardError::Variable { name, problem })
        };
        if let Some(text) = variable("PLANISH_SHARD") {
            let problem = format!("is `{text}`, and not K/N such as 3/8");
            return Self::of_text(&text).ok_or(ShardError::Variable { name: "PLANISH_SHARD", problem });
        }
        if let Some(id) = number("SLURM_ARRAY_TASK_ID")? {
            return Self::of_slurm(id, &number, &|name| needed(name, "SLURM_ARRAY_TASK_ID"));
        }
        for (name, of_count) in [
            ("JOB_COMPLETION_INDEX", "PLANISH_SHARDS"),
            ("AWS_BATCH_JOB_ARRAY_INDEX", "PLANISH_SHARDS"),
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            ("PMI_RANK", "PMI_SIZE"),
            ("RANK", "WORLD_SIZE"),
            // The tasks of a step of srun, which also the shell of a job has as its only one.
            ("SLURM_PROCID", "SLURM_NTASKS"),
        ] {
            if let Some(index) = number(name)? {
                return Self::checked(name, index, needed(of_count, name)?);
            }
        }
        Err(ShardError::NotFound)
    }

    /// The task of an array, whose numbers may begin anywhere and have a step, but no other gaps.
    fn of_slurm(
        id: usize,
        number: &dyn Fn(&'static str) -> Result<Option<usize>, ShardError>,
        needed: &dyn Fn(&'static str) -> Result<usize, ShardError>,
    ) -> Result<Self, ShardError> {
        let count = needed("SLURM_ARRAY_TASK_COUNT")?;
        let first = number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(1);
        let step = number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
        let place = |id: usize| id.checked_sub(first).filter(|far| far % step == 0).map(|far| far / step);
        let last = number("SLURM_ARRAY_TASK_MAX")?;
        let has_gaps = last.is_some_and(|last| place(last).is_none_or(|place| place + 1 != count));
        match place(id).filter(|_| !has_gaps) {
            Some(index) => Self::checked("SLURM_ARRAY_TASK_ID", index, count),
            None => Err(ShardError::Variable {
                name: "SLURM_ARRAY_TASK_ID",
                problem: format!(
                    "is {id} of an array of {count} tasks with gaps, which does not say how many shards there are"
                ),
            }),
        }
    }

    fn checked(name: &'static str, index: usize, count: usize) -> Result<Self, ShardError> {
        if index < count {
            return Ok(Self { index, count });
        }
        Err(ShardError::Variable { name, problem: format!("is that of part {} of {count}", index + 1) })
    }
}

impl fmt::Display for Shard {
    /// As the text that it is read from: `K/N`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<String, String> {
        let of = |name: &str| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
        Shard::of_environment(&of).map(|shard| shard.to_string()).map_err(|error| error.to_string())
    }

    fn slurm(id: &str, [first, last, step, count]: [&str; 4]) -> Result<String, String> {
        found(&[
            ("SLURM_ARRAY_TASK_ID", id),
            ("SLURM_ARRAY_TASK_MIN", first),
            ("SLURM_ARRAY_TASK_MAX", last),
            ("SLURM_ARRAY_TASK_STEP", step),
            ("SLURM_ARRAY_TASK_COUNT", count),
        ])
    }

    #[test]
    fn a_shard_is_k_of_n() {
        assert_eq!(Shard::parse("3/8"), Ok(Shard { index: 2, count: 8 }));
        for text in ["0/8", "9/8", "3", "3/8/1", "a/8", "", "1/0"] {
            assert_eq!(Shard::parse(text), Err(ShardError::Text), "{text}");
        }
    }

    #[test]
    fn the_environment_says_the_shard_in_an_order() {
        let all = [
            ("PLANISH_SHARD", "2/3"),
            ("SLURM_ARRAY_TASK_ID", "4"),
            ("SLURM_ARRAY_TASK_COUNT", "5"),
            ("JOB_COMPLETION_INDEX", "5"),
            ("PLANISH_SHARDS", "6"),
            ("AWS_BATCH_JOB_ARRAY_INDEX", "0"),
            ("RANK", "7"),
            ("WORLD_SIZE", "8"),
        ];
        let from = |first: usize| found(&all[first..]).unwrap();
        assert_eq!([from(0), from(1), from(3)], ["2/3", "4/5", "6/6"]);
        assert_eq!(found(&[all[4], all[5], all[6], all[7]]).unwrap(), "1/6");
        assert_eq!(from(6), "8/8");
    }

    #[test]
    fn an_array_may_begin_anywhere_and_have_a_step() {
        assert_eq!(slurm("0", ["0", "7", "1", "8"]).unwrap(), "1/8");
        assert_eq!(slurm("15", ["1", "15", "2", "8"]).unwrap(), "8/8");
        for (id, array) in [("7", ["3", "12", "1", "3"]), ("4", ["1", "15", "2", "8"])] {
            let error = slurm(id, array).unwrap_err();
            assert!(error.contains("with gaps") && error.ends_with("set PLANISH_SHARD=K/N, or give K/N"), "{error}");
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let none = found(&[]).unwrap_err();
        for name in
            ["PLANISH_SHARD ", "SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "AWS_BATCH_JOB_ARRAY_INDEX", "WORLD_SIZE"]
        {
            assert!(none.contains(name), "{none}");
        }
        for (variables, expected) in [
            (&[("PLANISH_SHARD", "4/3")][..], "PLANISH_SHARD is `4/3`, and not K/N"),
            (&[("JOB_COMPLETION_INDEX", "1")], "PLANISH_SHARDS is not set"),
            (&[("SLURM_ARRAY_TASK_ID", "1")], "SLURM_ARRAY_TASK_COUNT is not set"),
            (&[("RANK", "x")], "RANK is `x`, which is no number"),
            (&[("RANK", "3"), ("WORLD_SIZE", "3")], "RANK is that of part 4 of 3"),
        ] {
            let error = found(variables).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
