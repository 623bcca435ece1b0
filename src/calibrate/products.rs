//! Sums of the outer products of the rows of inputs, which GPTQ takes.

use std::collections::HashSet;

use anyhow::{Context, Result, bail};
use planish_passes::calibration::Gram;

use super::run::{Captured, Seen, Sink};
use super::sessions::Wanted;
use super::{CalibrateOptions, CalibrationObserver, Prepared};
use crate::source::SourceModel;

/// How many bytes the matrices of the inputs that are summed at once may have. One matrix that has more is summed
/// alone.
const GROUP_BYTES: usize = 256 << 20;

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
/// each group of inputs whose matrices have 256 MB together. The same arguments give the same bits on any number of
/// threads.
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
    let prepared = Prepared::new(model, data, options, observer)?;
    let mut rest = wanted.inputs;
    while !rest.is_empty() {
        let group = prepared.leading(model, rest, GROUP_BYTES)?;
        let names: HashSet<(&str, &str)> = rest[..group.len()].iter().map(|(p, v)| (p.as_str(), v.as_str())).collect();
        let mut sums = Sums { sums: group, transform: wanted.transform };
        let observed = Wanted { ranges: false, inputs: &|part, value| names.contains(&(part, value)) };
        prepared.run(model, options, observed, observer, &mut sums, &mut |_| {})?;
        rest = &rest[sums.sums.len()..];
        for (part, value, gram) in sums.sums {
            visit(&part, &value, gram)?;
        }
    }
    Ok(())
}

impl Prepared<'_> {
    /// The first inputs whose matrices fit, each with its sum of no rows.
    fn leading(&self, model: &SourceModel, inputs: &[InputName], bytes: usize) -> Result<Vec<(String, String, Gram)>> {
        let mut group = Vec::new();
        let mut sum = 0;
        for (part, value) in inputs {
            let columns = self.columns(model, part, value)?.with_context(|| {
                format!("`{value}` of {part} is not an input of a linear layer with a fixed number of columns")
            })?;
            sum += Gram::bytes(columns);
            if sum > bytes && !group.is_empty() {
                break;
            }
            group.push((part.clone(), value.clone(), Gram::new(columns)));
        }
        Ok(group)
    }
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
