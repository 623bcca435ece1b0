//! Sums of the outer products of the rows of inputs, which GPTQ takes.

use std::collections::{BTreeMap, HashSet};

use anyhow::{Context, Result, bail};
use planish_passes::calibration::Gram;
use planish_passes::observe::linear_inputs;

use super::run::{Captured, Seen, Sink};
use super::sessions::{Wanted, canonical};
use super::{CalibrateOptions, CalibrationObserver, Prepared, few};
use crate::chain::Chain;
use crate::profile::available_memory;
use crate::source::SourceModel;

/// How many bytes the matrices of the inputs that are summed at once may have at least. One matrix that has more is summed
/// alone.
const GROUP_BYTES: u64 = 256 << 20;

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
}

/// Runs a model on data as [`calibrate`](super::calibrate) does, and hands over H = sum of x x' over the rows x of
/// inputs of linear layers that are no padding, one after the other in the order of `inputs`. The data is run once for
/// each group of inputs whose matrices fit in half of the memory that is free. The observer sees the samples of all groups. The
/// same arguments give the same bits on any number of threads and with any memory.
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
) -> Result<()> {
    if wanted.inputs.is_empty() {
        return Ok(());
    }
    let prepared = Prepared::new(model, data, options, observer)?;
    let inputs = prepared.sized(model, wanted.inputs)?;
    let names: HashSet<(&str, &str)> = wanted.inputs.iter().map(|(p, v)| (p.as_str(), v.as_str())).collect();
    let samples = prepared.samples(model, options)?;
    few(samples).iter().for_each(|warning| observer.warning(warning));
    // One session for all groups: a run gives what all of them sum.
    let observed = Wanted { ranges: false, inputs: &|part, value| names.contains(&(part, value)) };
    let mut runner = prepared.runner(model, options, observed)?;
    let room = available_memory().map_or(GROUP_BYTES, |bytes| (bytes / 2).max(GROUP_BYTES));
    let groups = grouped(inputs, usize::try_from(room).unwrap_or(usize::MAX));
    let total = samples * groups.len();
    for (at, group) in groups.into_iter().enumerate() {
        let group = group.into_iter().map(|((part, value), columns)| (part, value, Gram::new(columns))).collect();
        let mut sums = Sums { sums: group, transform: wanted.transform };
        let passed = Passed { observer, before: at * samples, total };
        prepared.run_on(&mut runner, model, options, &passed, &mut sums, &mut |_| {})?;
        for (part, value, gram) in sums.sums {
            visit(&part, &value, gram)?;
        }
    }
    Ok(())
}

/// Inputs whose matrices fit in so many bytes together, in their order.
fn grouped(inputs: Vec<(InputName, usize)>, room: usize) -> Vec<Vec<(InputName, usize)>> {
    let mut groups: Vec<Vec<(InputName, usize)>> = Vec::new();
    let mut bytes = 0;
    for input in inputs {
        bytes += Gram::bytes(input.1);
        match groups.last_mut().filter(|_| bytes <= room) {
            Some(group) => group.push(input),
            None => {
                bytes = Gram::bytes(input.1);
                groups.push(vec![input]);
            }
        }
    }
    groups
}

/// Says of each run how many samples were run in all.
struct Passed<'a> {
    observer: &'a dyn CalibrationObserver,
    before: usize,
    total: usize,
}

impl CalibrationObserver for Passed<'_> {
    fn warning(&self, text: &str) {
        self.observer.warning(text);
    }

    fn progress(&self, done: usize, _: usize) {
        self.observer.progress(self.before + done, self.total);
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

    /// How many samples a run has.
    fn samples(&self, model: &SourceModel, options: &CalibrateOptions) -> Result<usize> {
        let chain = Chain::of(&self.parts);
        let folder = model.companion_folder()?;
        let mut batches = self.dataset.batches(&chain, &self.source, &folder, &options.data)?.of(options.shard);
        let mut last = 0;
        while let Some(batch) = batches.next().transpose()? {
            last = batch.samples.end;
        }
        Ok(last)
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
}

impl Sink for Sums<'_> {
    fn ranges(&mut self, _: &str, _: Vec<Seen>) {}

    fn inputs(&mut self, part: &str, inputs: &[Captured]) -> Result<()> {
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
                bail!("`{value}` of {part} has an element that is {odd} on this data: the data or the model is wrong");
            }
            gram.add(&kept);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_fits_or_is_one_input() {
        let inputs = |columns: &[usize]| -> Vec<(InputName, usize)> {
            columns.iter().map(|n| (("model".to_owned(), n.to_string()), *n)).collect()
        };
        let sizes = |columns: &[usize], room: usize| -> Vec<Vec<usize>> {
            grouped(inputs(columns), room).iter().map(|group| group.iter().map(|(_, n)| *n).collect()).collect()
        };
        let two = 2 * Gram::bytes(128);
        assert_eq!(sizes(&[128, 128, 128, 128, 128], two), [vec![128, 128], vec![128, 128], vec![128]]);
        assert_eq!(sizes(&[128, 1024, 128, 128], two), [vec![128], vec![1024], vec![128, 128]]);
        assert_eq!(sizes(&[1024], 1), [vec![1024]]);
        assert!(sizes(&[], two).is_empty());
    }
}
