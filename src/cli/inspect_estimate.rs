//! `--estimate` of `planish inspect`: what is estimated beside the cost of a run.

use std::ops::Bound;
use std::path::Path;

use anyhow::Result;
use planish_artifact::backend::RuntimeSettings;
use planish_data::inputs::Sizes;
use planish_measure::inspect::{Asked, ModelCost, Opened, TrainingOptions, confirm};
use planish_measure::profile::{Process, ProfileOptions, loaded_apart};
use planish_runtimes::tensorrt::bytes_of;

use super::Usage;
use super::keys::{Key, KeyArguments, Keyed, switch};
use super::numbers::share;

/// `--estimate` of `planish inspect`.
pub(super) type EstimateArguments = KeyArguments<Estimates>;

/// What is estimated beside the cost of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Estimates {
    /// The bytes that the largest batch is looked for.
    memory: Option<u64>,
    confirm: Option<bool>,
    training: bool,
    tokens: Option<f64>,
    machine_flops: Option<f64>,
    utilization: Option<f64>,
}

/// The share of the peak of a machine that training reaches, where nothing says it.
const UTILIZATION: f64 = 0.4;

impl Keyed for Estimates {
    const OPTION: &'static str = "estimate";
    const HELP: &'static str = "Estimate more, beside --show cost; defaults are in brackets. The keys are";
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "memory",
            value: "SIZE",
            help: "the memory of a process that loads the model and runs --batch rows once, and the largest batch that fits in a memory, \
                   e.g. 16G or 16GiB (both 2^34 bytes), or 16GB. The model is loaded to measure what the \
                   runtime keeps. --show memory has the plan of the buffers of a run",
            set: |it, _, text| memory_size(text).map(|size| it.memory = Some(size)),
        },
        Key {
            name: "confirm",
            value: "",
            help: "run that batch once on its runtime, ort or reference, and a smaller one where that takes more memory than there is; \
                   a large batch takes minutes",
            set: |it, _, text| switch(text).map(|confirm| it.confirm = Some(confirm)),
        },
        Key {
            name: "training",
            value: "",
            help: "what training takes: floating-point operations (6 for each parameter and token), bytes of weights, gradients and Adam \
                   in mixed precision, bytes of activations for --batch rows of --seq tokens",
            set: |it, _, text| switch(text).map(|training| it.training = training),
        },
        Key {
            name: "tokens",
            value: "N",
            help: "the tokens to train on, e.g. 300G [20 for each parameter]",
            set: |it, _, text| quantity(text).map(|tokens| it.tokens = Some(tokens)),
        },
        Key {
            name: "machine-flops",
            value: "N",
            help: "the peak of the machine to train on in floating-point operations a second, e.g. 312T, to estimate the days",
            set: |it, _, text| quantity(text).map(|flops| it.machine_flops = Some(flops)),
        },
        Key {
            name: "utilization",
            value: "SHARE",
            help: "the share of that peak that training reaches, more than 0 and at most 1 [0.4]",
            set: |it, _, text| {
                let range = (Bound::Excluded(0.0), Bound::Included(1.0));
                share(text, range, "more than 0 and at most 1").map(|share| it.utilization = Some(share))
            },
        },
    ];
}

/// The value of `memory`.
fn memory_size(text: &str) -> Result<u64, String> {
    let size = bytes_of(text).filter(|size| *size > 0);
    size.ok_or_else(|| "expected a size, e.g. 16G, 512M or a number of bytes".to_owned())
}

/// A positive number with a unit: k, M, G, T, P or E, powers of 1000.
fn quantity(text: &str) -> Result<f64, String> {
    const UNITS: [(char, f64); 6] = [('k', 1e3), ('M', 1e6), ('G', 1e9), ('T', 1e12), ('P', 1e15), ('E', 1e18)];
    let unit = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(*unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1.0));
    let number = number.parse::<f64>().ok().map(|number| number * factor);
    let number = number.filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number more than 0, e.g. 300G, 312T or 1e12".to_owned())
}

impl Estimates {
    /// Whether anything is asked for.
    pub(super) fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// Refuses what has no effect. `has_cost` says that the cost is shown.
    ///
    /// # Errors
    /// What has none, and what to add.
    pub(super) fn check(&self, has_cost: bool) -> Result<(), String> {
        let needs = [
            (self.is_given(), has_cost, "--estimate adds to the cost of a run; add --show cost"),
            (self.confirm.is_some(), self.memory.is_some(), "--estimate confirm is for a memory; add memory=SIZE"),
            (self.tokens.is_some(), self.training, "--estimate tokens=N is for training; add training"),
            (self.machine_flops.is_some(), self.training, "--estimate machine-flops=N is for training; add training"),
            (
                self.utilization.is_some(),
                self.machine_flops.is_some(),
                "--estimate utilization=SHARE is for the peak of a machine; add machine-flops=N",
            ),
        ];
        let missing = needs.into_iter().find(|(given, met, _)| *given && !met);
        missing.map_or(Ok(()), |(_, _, why)| Err(why.to_owned()))
    }

    /// Adds what is asked for to the cost of a run of these sizes.
    pub(super) fn add(
        &self,
        cost: &mut ModelCost,
        opened: &mut Opened,
        path: &Path,
        (asked, sizes): (Asked, Sizes),
        settings: RuntimeSettings,
    ) -> Result<()> {
        if let Some(memory) = self.memory {
            let past = asked.past.unwrap_or(0);
            let process = process(opened, path, sizes, past, settings.clone());
            let largest = opened.largest_batch(memory, sizes, past, process).map_err(Usage)?;
            if self.confirm == Some(true) {
                cost.confirmed = Some(confirm(opened, path, &largest, asked, settings));
            }
            cost.largest = Some(largest);
        }
        if self.training {
            let (tokens, machine_flops) = (self.tokens, self.machine_flops);
            let utilization = self.utilization.unwrap_or(UTILIZATION);
            // Layers are found by their attention.
            opened.raise()?;
            cost.training = Some(opened.training(sizes, TrainingOptions { tokens, machine_flops, utilization }));
        }
        Ok(())
    }
}

/// What a process has resident that loads the model, or why that is not known.
fn process(
    opened: &Opened,
    path: &Path,
    sizes: Sizes,
    past: usize,
    settings: RuntimeSettings,
) -> Result<Process, String> {
    if opened.is_native {
        return Err("its memory is that of a GPU".to_owned());
    }
    let needs = opened.least_need(sizes, past)?;
    let options = ProfileOptions { runs: 1, settings, ..ProfileOptions::default() };
    loaded_apart(path, needs, &options).map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Estimates, String> {
        Estimates::read([text])
    }

    #[test]
    fn each_key_sets_its_own_estimate() {
        let all = read("memory=16G,confirm,training,tokens=300G,machine-flops=312T,utilization=0.5").unwrap();
        let (tokens, machine_flops) = (Some(300e9), Some(312e12));
        let memory = Some(1 << 34);
        let utilization = Some(0.5);
        assert_eq!(all, Estimates { memory, confirm: Some(true), training: true, tokens, machine_flops, utilization });
        assert_eq!((all.check(true), all.is_given()), (Ok(()), true));
        assert_eq!((Estimates::default().check(false), Estimates::default().is_given()), (Ok(()), false));
        assert!(Estimates::key("utilization").unwrap().help.ends_with(&format!("[{UTILIZATION}]")));
    }

    #[test]
    fn what_has_no_effect_is_refused() {
        let refused = |text: &str, has_cost: bool, part: &str| {
            let error = read(text).unwrap().check(has_cost).unwrap_err();
            assert!(error.ends_with(part), "{error}");
        };
        refused("memory=1G", false, "add --show cost");
        refused("confirm", true, "add memory=SIZE");
        refused("confirm=false", true, "add memory=SIZE");
        refused("tokens=1G", true, "add training");
        refused("machine-flops=1T", true, "add training");
        refused("training,utilization=0.5", true, "add machine-flops=N");
    }

    #[test]
    fn wrong_values_and_keys_are_refused() {
        for (text, part) in [
            ("memory=0", "--estimate memory=0: expected a size"),
            ("tokens=0", "expected a number more than 0"),
            ("machine-flops=fast", "expected a number more than 0"),
            ("utilization=1.5", "expected a share more than 0 and at most 1"),
            ("confirm=1", "expected true or false"),
            ("training,training", "has `training` twice"),
            ("days=3", "has no key `days`; its keys are memory=SIZE, confirm, training, tokens=N"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
