//! The workload of texts of different lengths: the texts of a data set in padded batches, in the order in which they come and in
//! the order of their lengths.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use planish_artifact::backend::RuntimeSettings;
use planish_artifact::chain::Chain;
use planish_artifact::draft::Draft;
use planish_artifact::manifest::PartManifest;
use planish_data::inputs::tensor_file;
use planish_data::{DataOptions, Dataset};
use planish_eval::Tensor;
use planish_ir::{Graph, InputRole};
use planish_models::Loaded;
use planish_runtimes::{Runtime, RuntimeError, SessionOptions};

use super::contestant::{Load, Place};
use super::document::{Cell, CellOptions, CellShape, ModelId, Throughput, Workload};
use super::figures::{Batches, Padding, Work};
use super::groups::each_loaded;
use super::sweep::BenchObserver;
use super::trials::{Trial, measure};
use super::work::work_of_rows;
use super::{BenchOptions, Entrant};
use crate::apart::{Apart, Calls, Inputs, Start, run_all};
use crate::inspect::weight_bytes;

/// An entrant that is loaded.
struct Contestant<'a> {
    entrant: &'a Entrant,
    runtime: &'static str,
    part: &'a PartManifest,
    place: Place,
    load: Load,
    graph: Option<Graph>,
}

/// The batches of a cell.
struct Arranged {
    batches: Vec<Inputs>,
    /// The same in files, for other processes; none where there are no such processes.
    files: Vec<PathBuf>,
    padding: Padding,
}

/// Measures entrants of one model, of one part, on the texts of a data set.
///
/// # Errors
/// When the data cannot be read, is not of texts, or the model does not take it.
pub(super) fn lengths(
    group: &[(&Entrant, &dyn Runtime)],
    (folder, loaded): (&Path, &Loaded),
    (data, how): (&Path, &DataOptions),
    settings: &RuntimeSettings,
    options: &BenchOptions,
    observer: &mut dyn BenchObserver,
) -> Result<Vec<Cell>> {
    let Some((first, _)) = group.first() else { return Ok(Vec::new()) };
    let parts = &first.artifact.manifest.parts;
    let [part] = parts.as_slice() else {
        bail!("--workload lengths is for models of one part; this one has {}", parts.len())
    };
    let chain = Chain::of(parts);
    let how = DataOptions { batch: Some(std::num::NonZeroUsize::MIN), ..how.clone() };
    let dataset = Dataset::open(data, &how)?;
    let batches = dataset.batches(&chain, loaded, folder, &how)?;
    let texts = batches.map(|batch| batch.map(|batch| batch.inputs)).collect::<Result<Vec<Inputs>>>()?;
    let [ids, mask] = [InputRole::TokenIds, InputRole::Mask].map(|role| part.input_of(role).map(|of| &*of.value.name));
    if texts.iter().flatten().all(|(name, _)| Some(name.as_str()) != mask) {
        bail!("--workload lengths is for models with an attention_mask, which tells padding from tokens");
    }
    let pad = first.artifact.manifest.pad_token_id.unwrap_or(0);
    let load = |entrant, runtime: &dyn Runtime| {
        let contestant = Contestant::load(entrant, runtime, settings, options)?;
        Ok(Rc::new(RefCell::new(contestant)))
    };
    let (contestants, failed) = each_loaded(group, options, load)?;
    let model = loaded.parts.first().map(|part| &part.graph);
    let drafts = Draft::temporary("planish-batches")?;
    let mut trials = Vec::new();
    for &rows in &options.batch {
        for arrangement in [Batches::Arrival, Batches::Buckets] {
            let (batches, padding) = arranged(&texts, rows, arrangement, (ids.unwrap_or_default(), pad))?;
            let files = match options.isolate {
                true => written(&batches, &drafts.folder().join(format!("{rows}-{}", arrangement as usize)))?,
                false => Vec::new(),
            };
            let arranged = Rc::new(Arranged { batches, files, padding });
            for contestant in &contestants {
                let cell = contestant.borrow().cell(&arranged, rows, model, options);
                trials.push(trial(cell, Rc::clone(contestant), Rc::clone(&arranged)));
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
    Ok(trials.into_iter().map(|trial| trial.cell).chain(failed).collect())
}

impl<'a> Contestant<'a> {
    fn load(
        entrant: &'a Entrant,
        runtime: &dyn Runtime,
        settings: &RuntimeSettings,
        options: &BenchOptions,
    ) -> Result<Self> {
        let artifact = &entrant.artifact;
        let part = artifact.manifest.parts.first().context("the artifact has no part")?;
        let graph = entrant.graph(part);
        let (place, load) = match options.isolate {
            true => {
                let (format, file) = artifact.file_for(part, runtime)?;
                let start = Start::new(runtime, format, &file, options.threads, &artifact.settings(settings));
                let apart = Apart::start(start, runtime.name())?;
                let load = apart.load;
                (Place::Apart(Box::new(apart)), load)
            }
            false => {
                let start = Instant::now();
                let session = artifact.load(part, runtime, SessionOptions { threads: options.threads })?;
                let ms = start.elapsed().as_secs_f64() * 1e3;
                (Place::Here(session), Load { ms, ..Load::default() })
            }
        };
        Ok(Self { entrant, runtime: runtime.name(), part, place, load, graph })
    }

    /// A cell of which nothing is known but what it is to be.
    fn cell(&self, arranged: &Arranged, rows: usize, model: Option<&Graph>, options: &BenchOptions) -> Cell {
        let of = match arranged.padding.batches {
            Batches::Arrival => "texts as they come",
            Batches::Buckets => "texts by length",
        };
        let shape = CellShape { batch: rows, seq: None, part: Some(of.to_owned()), tokens: None, past: 0 };
        let bytes = self.entrant.artifact.bytes(self.part);
        let id = ModelId { id: self.entrant.label.clone(), file_bytes: Some(bytes) };
        let mut cell = Cell::new(id, self.runtime, &self.entrant.precision, Workload::Lengths, shape);
        cell.options = CellOptions { threads: options.threads, spin: options.spin };
        cell.padding = Some(arranged.padding);
        cell.memory.weights = self.graph.as_ref().map(weight_bytes);
        cell.memory.load_rss = match &self.place {
            Place::Apart(apart) => apart.resident,
            Place::Here(_) => None,
        };
        cell.work = model.zip(self.graph.as_ref()).and_then(|(model, graph)| {
            let work = |inputs: &Inputs| match inputs.first()?.1.shape() {
                [rows, tokens] => work_of_rows(model, graph, *rows, *tokens, 0),
                _ => None,
            };
            arranged.batches.iter().map(work).sum::<Option<Work>>()
        });
        cell
    }

    /// Runs all batches.
    fn run(&mut self, arranged: &Arranged) -> Result<Calls, RuntimeError> {
        let calls = match &mut self.place {
            Place::Here(session) => run_all(session.as_mut(), &arranged.batches),
            Place::Apart(apart) => apart.run_all(&arranged.files),
        }?;
        self.load.first_ms.get_or_insert(calls.first.as_secs_f64() * 1e3);
        Ok(calls)
    }
}

fn trial<'a>(cell: Cell, contestant: Rc<RefCell<Contestant<'a>>>, arranged: Rc<Arranged>) -> Trial<'a, Load> {
    let (of_peaks, batches) = (Rc::clone(&contestant), Rc::clone(&arranged));
    let peaks = move || match &of_peaks.borrow().place {
        Place::Apart(apart) => apart.peaks(|fresh| fresh.run_all(&batches.files).map(drop)),
        Place::Here(_) => Ok([None; 2]),
    };
    let run = move || {
        let contestant = &mut *contestant.borrow_mut();
        let calls = contestant.run(&arranged)?;
        Ok((calls.total, contestant.load))
    };
    Trial::new(cell, run).metered(peaks)
}

/// Writes each batch to a file in a folder that is made.
fn written(batches: &[Inputs], folder: &Path) -> Result<Vec<PathBuf>> {
    std::fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let write = |(at, batch): (usize, &Inputs)| {
        let path = folder.join(format!("{at}.safetensors"));
        std::fs::write(&path, tensor_file::serialized(batch)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    };
    batches.iter().enumerate().map(write).collect()
}

/// Texts, [1, tokens] each, in batches of so many rows, padded on the right: token ids by the name of their input and the id of
/// padding.
fn arranged(
    texts: &[Inputs],
    rows: usize,
    arrangement: Batches,
    of_pad: (&str, i64),
) -> Result<(Vec<Inputs>, Padding)> {
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
        batches.push(batch(chunk, longest, of_pad)?);
    }
    Ok((batches, Padding { batches: arrangement, count: order.chunks(rows).len(), real, padded }))
}

/// Texts below one another, each filled to `longest` tokens: ids by the id of padding, all else by zeros.
fn batch(texts: &[&Inputs], longest: usize, (ids, pad): (&str, i64)) -> Result<Inputs> {
    let names =
        texts.first().map(|text| text.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()).unwrap_or_default();
    let column = |(at, name): (usize, String)| {
        let fill = if name == ids { pad } else { 0 };
        let mut all = Vec::with_capacity(texts.len() * longest);
        let own = texts.first().and_then(|text| text.get(at)).context("texts have the same inputs")?;
        // A cache of nothing, which a decoder begins with.
        if let (true, [_, sizes @ ..]) = (own.1.bytes() == 0, own.1.shape()) {
            let shape = [texts.len()].into_iter().chain(sizes.iter().copied()).collect();
            let empty = Tensor::from_bytes(own.1.dtype(), shape, &[]);
            return Ok((name, empty.context("a cache without tokens has no elements")?));
        }
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
        let (batches, padding) = arranged(&texts, 2, Batches::Arrival, ("input_ids", 9)).unwrap();
        assert_eq!(padding, Padding { batches: Batches::Arrival, count: 3, real: 14, padded: 8 + 8 + 3 });
        assert_eq!(batches[0][0].1.as_i64().unwrap(), [1, 9, 9, 9, 1, 2, 3, 4]);
        assert_eq!(batches[0][1].1.as_i64().unwrap(), [1, 0, 0, 0, 1, 1, 1, 1]);
        let (batches, padding) = arranged(&texts, 2, Batches::Buckets, ("input_ids", 9)).unwrap();
        assert_eq!((padding.real, padding.padded), (14, 4 + 8 + 4));
        assert_eq!(batches[0][0].1.as_i64().unwrap(), [1, 9, 1, 2]);
        assert_eq!(batches[2][0].1.shape(), [1, 4]);
    }
}
