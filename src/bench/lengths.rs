//! The workload of texts of different lengths: the texts of a data set in padded batches, in the order in which they come and in
//! the order of their lengths.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use planish_eval::Tensor;
use planish_models::Loaded;
use planish_runtimes::{Runtime, SessionOptions};

use super::contestant::Load;
use super::document::{Cell, CellOptions, CellShape, ModelId, Throughput, Workload};
use super::figures::{Batches, Padding};
use super::sweep::BenchObserver;
use super::trials::{Trial, measure};
use super::{BenchOptions, Entrant};
use crate::chain::Chain;
use crate::data::{DataOptions, Dataset};
use crate::verify::named;

/// The tensors of a text or of a batch, by the names of inputs.
type Inputs = Vec<(String, Tensor)>;

/// Measures entrants of one model, of one part, on the texts of a data set.
///
/// # Errors
/// When the data cannot be read, is not of texts, or the model does not take it.
pub(super) fn lengths(
    group: &[(&Entrant, &dyn Runtime)],
    (folder, loaded): (&Path, &Loaded),
    (data, how): (&Path, &DataOptions),
    options: &BenchOptions,
    observer: &mut dyn BenchObserver,
) -> Result<Vec<Cell>> {
    let Some((first, _)) = group.first() else { return Ok(Vec::new()) };
    let parts = &first.artifact.manifest.parts;
    let [_] = parts.as_slice() else {
        bail!("--workload lengths is for models of one part; this one has {}", parts.len())
    };
    let chain = Chain::of(parts);
    let how = DataOptions { batch: Some(std::num::NonZeroUsize::MIN), ..how.clone() };
    let dataset = Dataset::open(data, &how)?;
    let batches = dataset.batches(&chain, loaded, folder, &how)?;
    let texts = batches.map(|batch| batch.map(|batch| batch.inputs)).collect::<Result<Vec<Inputs>>>()?;
    if texts.iter().flatten().all(|(name, _)| name != "attention_mask") {
        bail!("--workload lengths is for models with an attention_mask, which tells padding from tokens");
    }
    let pad = first.artifact.manifest.pad_token_id.unwrap_or(0);
    let mut sessions = Vec::new();
    for (entrant, runtime) in group {
        let part = entrant.artifact.manifest.parts.first().context("the artifact has no part")?;
        let start = Instant::now();
        let session = entrant.artifact.load(part, *runtime, SessionOptions { threads: options.threads })?;
        let load = Load { ms: start.elapsed().as_secs_f64() * 1e3, ..Load::default() };
        sessions.push((*entrant, runtime.name(), part, Rc::new(RefCell::new((session, load)))));
    }
    let mut trials = Vec::new();
    for &rows in &options.batch {
        for arrangement in [Batches::Arrival, Batches::Buckets] {
            let (batches, padding) = arranged(&texts, rows, arrangement, pad)?;
            let batches = Rc::new(batches);
            for (entrant, runtime, part, loaded) in &sessions {
                let of = if arrangement == Batches::Arrival { "texts as they come" } else { "texts by length" };
                let shape = CellShape { batch: rows, seq: None, part: Some(of.to_owned()), tokens: None, past: 0 };
                let bytes = entrant.artifact.bytes(part);
                let model = ModelId { id: entrant.label.clone(), file_bytes: Some(bytes) };
                let mut cell = Cell {
                    options: CellOptions { threads: options.threads, spin: options.spin },
                    padding: Some(padding),
                    ..Cell::new(model, runtime, &entrant.precision, Workload::Lengths, shape)
                };
                cell.memory.weights = entrant.weight_bytes();
                let (batches, loaded) = (Rc::clone(&batches), Rc::clone(loaded));
                trials.push(Trial::new(cell, move || {
                    let (session, load) = &mut *loaded.borrow_mut();
                    for inputs in batches.iter() {
                        let start = Instant::now();
                        session.run(&named(session.as_ref(), inputs))?;
                        load.first_ms.get_or_insert_with(|| start.elapsed().as_secs_f64() * 1e3);
                    }
                    Ok(*load)
                }));
            }
        }
    }
    let count = texts.len();
    measure(&mut trials, options, observer, |cell, latency, loads| {
        cell.load = loads.first().copied().unwrap_or_default();
        let seconds = latency.p50 / 1e3;
        let real = cell.padding.map_or(0, |padding| padding.real);
        cell.throughput = Some(Throughput { inf_s: count as f64 / seconds, tok_s: Some(real as f64 / seconds) });
    });
    Ok(trials.into_iter().map(|trial| trial.cell).collect())
}

/// Texts, [1, tokens] each, in batches of so many rows, padded on the right.
fn arranged(texts: &[Inputs], rows: usize, arrangement: Batches, pad: i64) -> Result<(Vec<Inputs>, Padding)> {
    let length = |text: &Inputs| text.first().and_then(|(_, tensor)| tensor.shape().get(1).copied()).unwrap_or(0);
    let mut order: Vec<&Inputs> = texts.iter().collect();
    if arrangement == Batches::Buckets {
        order.sort_by_key(|text| length(text));
    }
    let mut batches = Vec::new();
    let (mut real, mut padded) = (0, 0);
    for chunk in order.chunks(rows) {
        let longest = chunk.iter().map(|text| length(text)).max().unwrap_or(0);
        real += chunk.iter().map(|text| length(text)).sum::<usize>();
        padded += chunk.len() * longest;
        batches.push(batch(chunk, longest, pad)?);
    }
    Ok((batches, Padding { batches: arrangement, count: order.chunks(rows).len(), real, padded }))
}

/// Texts below one another, each filled to `longest` tokens: ids by the id of padding, all else by zeros.
fn batch(texts: &[&Inputs], longest: usize, pad: i64) -> Result<Inputs> {
    let names =
        texts.first().map(|text| text.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()).unwrap_or_default();
    let column = |(at, name): (usize, String)| {
        let fill = if name == "input_ids" { pad } else { 0 };
        let mut all = Vec::with_capacity(texts.len() * longest);
        for text in texts {
            let (_, tensor) = text.get(at).context("texts have the same inputs")?;
            let values = tensor.as_i64().with_context(|| format!("the input `{name}` is not of tokens"))?;
            all.extend_from_slice(values);
            all.extend(std::iter::repeat_n(fill, longest - values.len()));
        }
        let tensor = Tensor::new(vec![texts.len(), longest], all).context("a batch has a row for each text")?;
        Ok((name, tensor))
    };
    names.into_iter().enumerate().map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(length: i64) -> Inputs {
        let ids = Tensor::new(vec![1, length as usize], (1..=length).collect::<Vec<_>>()).unwrap();
        let mask = Tensor::new(vec![1, length as usize], vec![1i64; length as usize]).unwrap();
        vec![("input_ids".to_owned(), ids), ("attention_mask".to_owned(), mask)]
    }

    #[test]
    fn batches_are_padded_to_their_longest_text() {
        let texts = [text(1), text(4), text(2), text(4), text(3)];
        let (batches, padding) = arranged(&texts, 2, Batches::Arrival, 9).unwrap();
        assert_eq!(padding, Padding { batches: Batches::Arrival, count: 3, real: 14, padded: 8 + 8 + 3 });
        assert_eq!(batches[0][0].1.as_i64().unwrap(), [1, 9, 9, 9, 1, 2, 3, 4]);
        assert_eq!(batches[0][1].1.as_i64().unwrap(), [1, 0, 0, 0, 1, 1, 1, 1]);
        let (batches, padding) = arranged(&texts, 2, Batches::Buckets, 9).unwrap();
        assert_eq!((padding.real, padding.padded), (14, 4 + 8 + 4));
        assert_eq!(batches[0][0].1.as_i64().unwrap(), [1, 9, 1, 2]);
        assert_eq!(batches[2][0].1.shape(), [1, 4]);
    }
}
