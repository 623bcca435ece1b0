//! Sums of the outer products of the rows of inputs, which GPTQ takes.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;

use anyhow::{Context, Result, bail};
use planish_artifact::backend::available_memory;
use planish_passes::calibration::{ExpertUse, Gram};
use planish_passes::observe::linear_inputs;
use planish_passes::quantize::Gptq;

use super::experts::of_counts;
use super::run::{Broken, Captured, Choices, Seen, Sink};
use super::sessions::{Wanted, canonical};
use super::{CalibrateOptions, CalibrationObserver, Prepared, few};
use crate::source::SourceModel;

/// How many bytes the inputs that are summed at once may take at least, and at most. One that takes more is summed alone.
const GROUP_BYTES: RangeInclusive<u64> = 256 << 20..=16 << 30;

/// An input of linear layers: the part, and the value in its canonical graph.
pub type InputName = (String, String);

/// Changes the rows of an input before they are summed: the part, the value, and the rows that count, [rows, columns],
/// row-major, with the number of columns. It sees a run of a part at a time.
pub type Transform<'a> = &'a dyn Fn(&str, &str, &mut [f32], usize);

/// What products are summed of.
pub struct ProductOptions<'a> {
    /// The inputs.
    pub inputs: &'a [InputName],
    /// What is done to rows before they are summed.
    pub transform: Transform<'a>,
    /// The mixtures of experts whose use is counted: the part, and the values that a mixture gives and takes.
    pub experts: &'a [(String, String, String)],
}

/// What tokens showed of mixtures of experts, by the part and what the mixture gives.
pub type UseOfExperts = BTreeMap<InputName, ExpertUse>;

/// Runs a model on data as [`calibrate`](super::calibrate) does, and hands over H = sum of x x' over the rows x of
/// inputs of linear layers that are no padding, one after the other in the order of `inputs`. The data is run once for
/// each group of inputs whose matrices fit in half of the memory that is free, together with what `visit` takes, which is no
/// more than [`Gptq::bytes`]. Returns what tokens showed of mixtures of experts. The observer sees the samples of all groups. The same arguments give the same bits on any number of
/// threads and with any memory.
///
/// # Errors
/// As [`calibrate`](super::calibrate); also when an input is not one of the model, or `visit` fails.
pub fn products(
    model: &SourceModel,
    data: &std::path::Path,
    options: &CalibrateOptions,
    wanted: &ProductOptions<'_>,
    observer: &dyn CalibrationObserver,
    visit: &mut dyn FnMut(&str, &str, Gram) -> Result<()>,
) -> Result<UseOfExperts> {
    let mut uses = UseOfExperts::new();
    if wanted.inputs.is_empty() && wanted.experts.is_empty() {
        return Ok(uses);
    }
    let prepared = Prepared::new(model, data, options, observer)?;
    let inputs = prepared.sized(model, wanted.inputs)?;
    let of_experts = wanted.experts.iter().map(|(part, _, x)| (part.as_str(), x.as_str()));
    let names: HashSet<(&str, &str)> =
        wanted.inputs.iter().map(|(p, v)| (p.as_str(), v.as_str())).chain(of_experts).collect();
    // One session for all groups: a run gives what all of them sum.
    let experts = !wanted.experts.is_empty();
    let observed = Wanted { ranges: false, inputs: &|part, value| names.contains(&(part, value)), experts };
    let mut runner = prepared.runner(model, options, observed)?;
    let mut groups = grouped(inputs, room(available_memory()));
    if groups.is_empty() {
        groups.push(Vec::new());
    }
    let mut passed = Passed { observer, before: 0, left: groups.len(), samples: Cell::new(None) };
    for group in groups {
        let group = group.into_iter().map(|((part, value), columns)| (part, value, Gram::new(columns))).collect();
        // The first run has all tokens.
        let used = (experts && passed.before == 0).then_some(&mut uses);
        let mut sums = Sums { sums: group, transform: wanted.transform, uses: used };
        prepared.run_on(&mut runner, model, options, &passed, &mut sums, &mut |_| {})?;
        if passed.before == 0 {
            passed.samples.get().and_then(few).iter().for_each(|warning| observer.warning(warning));
        }
        for (part, value, gram) in sums.sums {
            visit(&part, &value, gram)?;
        }
        passed.next();
    }
    let counts = uses.iter().map(|((_, result), own)| (result.as_str(), own.counts()));
    of_counts(counts).iter().for_each(|warning| observer.warning(warning));
    Ok(uses)
}

/// How many bytes a group may take where so many are free.
fn room(free: Option<u64>) -> usize {
    let (least, most) = GROUP_BYTES.into_inner();
    let bytes = free.map_or(least, |free| (free / 2).clamp(least, most));
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Inputs whose matrices fit in so many bytes together with what a visit of one of them takes, in their order.
fn grouped(inputs: Vec<(InputName, usize)>, room: usize) -> Vec<Vec<(InputName, usize)>> {
    let mut groups: Vec<Vec<(InputName, usize)>> = Vec::new();
    let (mut bytes, mut visit) = (0, 0);
    for input in inputs {
        let (own, visited) = (Gram::bytes(input.1), Gptq::bytes(input.1));
        (bytes, visit) = (bytes + own, visited.max(visit));
        match groups.last_mut().filter(|_| bytes + visit <= room) {
            Some(group) => group.push(input),
            None => {
                (bytes, visit) = (own, visited);
                groups.push(vec![input]);
            }
        }
    }
    groups
}

/// Says of the run of a group how many samples were run in all, and how many all groups have at most.
struct Passed<'a> {
    observer: &'a dyn CalibrationObserver,
    /// The samples of the groups before.
    before: usize,
    /// How many groups are not done.
    left: usize,
    /// The samples of a group, from the end of the first one on.
    samples: Cell<Option<usize>>,
}

impl Passed<'_> {
    /// Goes on to the next group.
    fn next(&mut self) {
        self.before += self.samples.get().unwrap_or(0);
        self.left = self.left.saturating_sub(1);
    }
}

impl CalibrationObserver for Passed<'_> {
    fn warning(&self, text: &str) {
        self.observer.warning(text);
    }

    fn progress(&self, done: usize, most: usize) {
        if done == most {
            self.samples.set(Some(done));
        }
        self.observer.progress(self.before + done, self.before + self.samples.get().unwrap_or(most) * self.left);
    }
}

impl Prepared {
    /// Inputs with their numbers of columns.
    fn sized(&self, model: &SourceModel, inputs: &[InputName]) -> Result<Vec<(InputName, usize)>> {
        let mut columns = BTreeMap::new();
        for part in &self.source.parts {
            columns.insert(part.name, columns_of(part, model.default_opset())?);
        }
        let one = |name: &InputName| {
            let (part, value) = name;
            let columns = columns.get(part.as_str()).and_then(|columns| columns.get(value)).with_context(|| {
                format!("`{value}` of {part} is not an input of a linear layer with a fixed number of columns")
            })?;
            Ok((name.clone(), *columns))
        };
        inputs.iter().map(one).collect()
    }
}

/// The numbers of columns of the inputs of linear layers of a part, by the names of the inputs.
fn columns_of(part: &planish_models::Part, opset: u32) -> Result<BTreeMap<String, usize>> {
    let graph = canonical(&part.graph, opset)?;
    let columns = |input| {
        let columns = graph.ty(input).shape.last()?.as_constant()?;
        Some((graph.value(input).name.clone(), usize::try_from(columns).ok()?))
    };
    Ok(linear_inputs(&graph).into_iter().filter_map(columns).collect())
}

/// The sums of a group.
struct Sums<'a> {
    sums: Vec<(String, String, Gram)>,
    transform: Transform<'a>,
    /// What is known of mixtures of experts, where this run counts their use.
    uses: Option<&'a mut UseOfExperts>,
}

impl Sink for Sums<'_> {
    fn ranges(&mut self, _: &str, _: Vec<Seen>) {}

    fn inputs(&mut self, part: &str, inputs: &[Captured], choices: &[Choices]) -> Result<()> {
        for chosen in choices {
            let (Some(uses), Some(x)) = (&mut self.uses, inputs.iter().find(|input| input.value == chosen.x)) else {
                continue;
            };
            let (rows, name) = (x.rows()?, (part.to_owned(), chosen.result.clone()));
            let own = uses.entry(name).or_insert_with(|| ExpertUse::new(chosen.experts, rows.columns));
            for ((_, row), experts) in rows.kept().zip(chosen.kept()) {
                own.add(row, experts.iter().copied())?;
            }
        }
        for input in inputs {
            let rows = input.rows()?;
            let sum = self.sums.iter_mut().find(|(p, value, _)| (p.as_str(), value) == (part, &input.value));
            let Some((_, value, gram)) = sum else { continue };
            if rows.columns != gram.columns() {
                bail!(
                    "`{value}` of {part} has {} columns in one run, and {} in its graph",
                    rows.columns,
                    gram.columns()
                );
            }
            let mut kept: Vec<f32> = rows.kept().flat_map(|(_, row)| row.iter().copied()).collect();
            (self.transform)(part, value, &mut kept, rows.columns);
            if let Some(odd) = kept.iter().find(|x| !x.is_finite()) {
                let reason = format!("`{value}` of {part} has an element that is {odd} on this data");
                return Err(Broken(format!("{reason}: the data or the model is wrong")).into());
            }
            gram.add(&kept);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_group_takes_half_of_what_is_free_within_bounds() {
        let gib = 1 << 30;
        assert_eq!(room(Some(4 * gib)), 2 << 30);
        assert_eq!([None, Some(0), Some(256 << 20)].map(room), [256 << 20; 3]);
        assert_eq!(room(Some(1000 * gib)), 16 << 30);
    }

    struct Told(RefCell<Vec<(usize, usize)>>);

    impl CalibrationObserver for Told {
        fn warning(&self, _: &str) {}

        fn progress(&self, done: usize, total: usize) {
            self.0.borrow_mut().push((done, total));
        }
    }

    /// The data may have fewer samples than are asked for, which the end of the first run tells.
    #[test]
    fn progress_counts_the_samples_of_all_groups() {
        let told = Told(RefCell::default());
        let mut passed = Passed { observer: &told, before: 0, left: 2, samples: Cell::new(None) };
        for _ in 0..2 {
            for (done, most) in [(0, 100), (3, 100), (5, 100), (5, 5)] {
                passed.progress(done, most);
            }
            passed.next();
        }
        let expected = [(0, 200), (3, 200), (5, 200), (5, 10), (5, 10), (8, 10), (10, 10), (10, 10)];
        assert_eq!(*told.0.borrow(), expected);
    }

    #[test]
    fn a_group_fits_or_is_one_input() {
        let inputs = |columns: &[usize]| -> Vec<(InputName, usize)> {
            columns.iter().map(|n| (("model".to_owned(), n.to_string()), *n)).collect()
        };
        let sizes = |columns: &[usize], room: usize| -> Vec<Vec<usize>> {
            grouped(inputs(columns), room).iter().map(|group| group.iter().map(|(_, n)| *n).collect()).collect()
        };
        let two = 2 * Gram::bytes(128) + Gptq::bytes(128);
        assert_eq!(sizes(&[128, 128, 128, 128, 128], two), [vec![128, 128], vec![128, 128], vec![128]]);
        assert_eq!(sizes(&[128, 128], two - 1), [vec![128], vec![128]]);
        assert_eq!(sizes(&[128, 1024, 128, 128], two), [vec![128], vec![1024], vec![128, 128]]);
        assert_eq!(sizes(&[1024], 1), [vec![1024]]);
        assert!(sizes(&[], two).is_empty());
        // Small matrices before and after a large one leave room for its visit.
        let large = Gram::bytes(1024) + Gptq::bytes(1024);
        assert_eq!(sizes(&[128, 1024, 128], large + Gram::bytes(128)), [vec![128, 1024], vec![128]]);
    }
}
