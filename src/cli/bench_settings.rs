//! The rarer settings of `planish bench`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use planish_measure::bench::{BenchOptions, SAMPLES};

use super::keys::{Key, KeyArguments, Keyed, put, switch};
use super::numbers::{share, whole};
use super::shard::shard;
use super::tune::duration;

/// `--set` of `planish bench`.
pub(super) type BenchArguments = KeyArguments<BenchSettings>;

/// What `--set` sets, with the defaults.
#[derive(Clone, Debug)]
pub(super) struct BenchSettings {
    /// How long cells are measured, and what else is measured.
    pub(super) options: BenchOptions,
    /// The data or the table that the scales of int8 follow from.
    pub(super) calibrate: Option<PathBuf>,
    /// The largest number of samples of `--data`; absent where it is not chosen.
    pub(super) samples: Option<NonZeroUsize>,
    /// The member of each object of the data that is the text.
    pub(super) field: Option<String>,
    /// Whether the table has all columns.
    pub(super) wide: bool,
    /// How long the search for the fastest form takes; absent without one.
    pub(super) tune: Option<Duration>,
}

impl Default for BenchSettings {
    fn default() -> Self {
        let options = BenchOptions { peaks: true, ..BenchOptions::default() };
        Self { options, calibrate: None, samples: None, field: None, wide: false, tune: None }
    }
}

/// The largest number of runs, tokens or samples.
const MOST: usize = u32::MAX as usize;

impl Keyed for BenchSettings {
    const OPTION: &'static str = "set";
    const HELP: &'static str = "Rarer settings, with their defaults in brackets. The keys are";
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "time",
            value: "SECONDS",
            help: "after this time a cell is done [5]; a cell whose least runs take longer ends after 60 s, or this time if that is longer",
            set: |it, _, text| seconds(text).map(|time| it.options.time = time),
        },
        Key {
            name: "interval",
            value: "SHARE",
            help: "a cell is done when the 95% interval of its median is ± this share of it [1%]; 0: after time",
            set: |it, _, text| {
                share(text, 0.0..1.0, "from 0 to less than 1").map(|interval| it.options.interval = interval)
            },
        },
        Key {
            name: "iterations",
            value: "N",
            help: "the least number of runs of a cell [10]; of generation and of lengths 5 at most",
            set: |it, _, text| whole(text, 0, MOST).map(|iterations| it.options.iterations = iterations),
        },
        Key {
            name: "warmup",
            value: "SECONDS",
            help: "the least time that a cell runs untimed first [0.2]; it goes on until the times settle, for ten times as long at most",
            set: |it, _, text| seconds(text).map(|warmup| it.options.warmup = warmup),
        },
        Key {
            name: "seed",
            value: "N",
            help: "what the inputs and the order of the cells follow from [0]",
            set: |it, _, text| whole(text, 0, u64::MAX).map(|seed| it.options.seed = seed),
        },
        Key {
            name: "isolate",
            value: "",
            help: "measure each contestant in a process of its own, so that none has an effect on another one, and measure the peak memory of a fresh process for each cell",
            set: |it, _, text| switch(text).map(|isolate| it.options.isolate = isolate),
        },
        Key {
            name: "operators",
            value: "",
            help: "measure the time of each operator too, and name the provider of each node, for --json and --html",
            set: |it, _, text| switch(text).map(|operators| it.options.operators = operators),
        },
        Key {
            name: "transfers",
            value: "",
            help: "measure the copies of inputs to the GPU and of outputs to the host too, on trt, cuda, cuda-baseline and ort-cuda",
            set: |it, _, text| switch(text).map(|transfers| it.options.transfers = transfers),
        },
        Key {
            name: "peaks",
            value: "false",
            help: "leave out what the machine can do at most, and so the columns TFLOP/s, MFU and roof",
            set: |it, _, text| switch(text).map(|peaks| it.options.peaks = peaks),
        },
        Key {
            name: "new-tokens",
            value: "N",
            help: "how many tokens the workload generate adds to each prompt [32]",
            set: |it, _, text| {
                let least = "the time for a token is that of the tokens after the first";
                let tokens = whole(text, 2, MOST).map_err(|why| format!("{why}: {least}"))?;
                it.options.new_tokens = NonZeroUsize::MIN.saturating_add(tokens - 1);
                Ok(())
            },
        },
        Key {
            name: "shard",
            value: "K/N|auto",
            help: "measure shard K of N only: every Nth shape of the grid of --batch and --seq, from shape K on, with all artifacts; \
                   auto takes K and N from variables of Slurm, Kubernetes, AWS Batch or MPI; bench merge joins the files of --json",
            set: |it, _, text| shard(text).map(|shard| it.options.shard = Some(shard)),
        },
        Key {
            name: "tune",
            value: "TIME",
            help: "with --compare, also measure what compile --tune finds in this time, such as 60s, for float32 on ONNX Runtime [none]",
            set: |it, _, text| duration(text).map(|time| it.tune = Some(time)),
        },
        Key {
            name: "uncached",
            value: "",
            help: "measure generation without the cache of keys and values too: each token takes a run on all tokens before it",
            set: |it, _, text| switch(text).map(|uncached| it.options.uncached = uncached),
        },
        Key {
            name: "calibrate",
            value: "FILE",
            help: "the data or the table that scales of int8 follow from [--data, of which every fifth sample is held out for the \
                   comparison; for --compare of a model for text generation none]",
            set: |it, _, text| put(&mut it.calibrate, text),
        },
        Key {
            name: "samples",
            value: "N",
            help: "the largest number of samples of --data to compare on [200]",
            set: |it, _, text| {
                it.samples = NonZeroUsize::new(whole(text, 1, MOST)?);
                Ok(())
            },
        },
        Key {
            name: "field",
            value: "NAME",
            help: "the member of each object of a .jsonl file, or the column of a .csv or .parquet file, that is the text [text]",
            set: |it, _, text| put(&mut it.field, text),
        },
        Key {
            name: "wide",
            value: "",
            help: "show all columns of the table, however wide it is",
            set: |it, _, text| switch(text).map(|wide| it.wide = wide),
        },
    ];
}

impl BenchSettings {
    /// The largest number of samples of `--data`.
    pub(super) fn most_samples(&self) -> usize {
        self.samples.map_or(SAMPLES, NonZeroUsize::get)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|number| Duration::try_from_secs_f64(number).ok());
    time.ok_or_else(|| "expected seconds from 0 on".to_owned())
}

#[cfg(test)]
mod tests {
    use planish_data::Shard;

    use super::*;

    fn read(text: &str) -> Result<BenchSettings, String> {
        BenchSettings::read([text])
    }

    #[test]
    fn each_key_sets_its_own_setting() {
        let text = "time=1.5,interval=2%,iterations=3,warmup=0,seed=9,isolate,operators,transfers,peaks=false,new-tokens=4,uncached,\
                    calibrate=a,b.jsonl,samples=7,field=body,wide,shard=2/3";
        let BenchSettings { options, calibrate, samples, field, wide, tune } = read(text).unwrap();
        assert_eq!((tune, options.shard), (None, Some(Shard { index: 1, count: 3 })));
        assert_eq!((options.time, options.warmup), (Duration::from_millis(1500), Duration::ZERO));
        assert_eq!((options.interval, options.iterations, options.seed), (0.02, 3, 9));
        assert!(
            options.isolate && options.operators && options.transfers && options.uncached && wide && !options.peaks
        );
        assert_eq!((options.new_tokens.get(), samples.map(NonZeroUsize::get)), (4, Some(7)));
        assert_eq!((calibrate, field), (Some("a,b.jsonl".into()), Some("body".to_owned())));
    }

    /// The help has the defaults.
    #[test]
    fn what_is_not_set_has_the_value_of_the_help() {
        let usual = BenchSettings::default();
        let options = &usual.options;
        let all = [
            ("time", options.time.as_secs_f64().to_string()),
            ("interval", format!("{}%", options.interval * 100.0)),
            ("iterations", options.iterations.to_string()),
            ("warmup", options.warmup.as_secs_f64().to_string()),
            ("seed", options.seed.to_string()),
            ("new-tokens", options.new_tokens.to_string()),
            ("samples", usual.most_samples().to_string()),
        ];
        for (name, value) in all {
            let help = BenchSettings::key(name).unwrap().help;
            assert!(help.contains(&format!("[{value}]")), "{name} is {value}, and not as in `{help}`");
        }
        assert!(options.peaks && !options.isolate && !options.operators && !options.transfers && !options.uncached);
    }

    #[test]
    fn wrong_values_are_refused() {
        for (text, part) in [
            ("time=-1", "--set time=-1: expected seconds from 0 on"),
            ("time=soon", "expected seconds from 0 on"),
            ("interval=200%", "expected a share"),
            ("iterations=-1", "expected a whole number from 0"),
            ("iterations=4294967296", "to 4294967295"),
            ("new-tokens=1", "from 2 to 4294967295: the time for a token"),
            ("samples=0", "--set samples=0: expected a whole number from 1"),
            ("seed=x", "expected a whole number from 0"),
            ("isolate=1", "expected true or false"),
            ("seed=1,seed=2", "has `seed` twice"),
            ("batch=2", "has no key `batch`; its keys are time=SECONDS, interval=SHARE"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
