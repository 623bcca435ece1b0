//! What this machine can do at most: the products of matrices that ONNX Runtime computes in the best of several runs, and copies
//! of memory. The best figures of earlier benchmarks on the same machine are kept in the user's folder of caches.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use planish_artifact::backend::{LOCAL, RuntimeSettings, TemporaryFiles};
use planish_artifact::files::write_cached;
use planish_eval::Tensor;
use planish_files::Kind;
use planish_ir::{Graph, text};
use planish_onnx::DEFAULT_OPSET;
use planish_passes::quantize::{Plan, Quantization, Settings};
use planish_passes::{Options, Pipeline};
use planish_runtimes::{Format, Model, SessionOptions, cache_folder};

use super::BenchOptions;
use super::document::{Cell, Document};
use super::entrant::QUANTIZED;
use super::figures::{Peaks, Roofline};
use super::sweep::BenchObserver;

/// Rows, inner size and columns of the product.
const PRODUCT: [usize; 3] = [512, 1024, 4096];

/// The time that each product runs.
const TIME: Duration = Duration::from_millis(400);

/// The bytes that each thread copies: beyond its share of the caches.
const COPY: usize = 96 << 20;

/// How often the copy is made.
const COPIES: usize = 4;

/// Whether products are of integers of 8 bits, by the name of a precision. Those of ONNX files with quantized operators are.
fn is_int8(precision: &str) -> bool {
    ["int8", QUANTIZED].contains(&precision)
}

/// Measures what the machine can do at most, and holds the cells that ran on its processor against that.
pub(super) fn add_rooflines(
    document: &mut Document,
    options: &BenchOptions,
    settings: &RuntimeSettings,
    observer: &mut dyn BenchObserver,
) {
    let cpu = &document.env.cpu;
    let machine = format!("{}, {}", cpu.model, cpu.flags.join(" "));
    let mut peaks = match peaks(options.threads, settings, &machine) {
        Ok(peaks) => peaks,
        Err(error) => return observer.note(&format!("the peaks of this machine were not measured: {error:#}")),
    };
    let on_cpu = LOCAL.runtime(settings).name();
    let measured = |cell: &&mut Cell| cell.backend == on_cpu && cell.latency_ms.is_some();
    for cell in document.cells.iter_mut().filter(measured) {
        if let (Some(work), Some(latency)) = (cell.work, &cell.latency_ms) {
            // What a cell reaches the machine can do, though the product was slower when it was measured.
            let int8 = is_int8(&cell.precision);
            peaks.reach(Roofline::of(work, latency.p50, peaks, int8).tflops, int8);
        }
    }
    for cell in document.cells.iter_mut().filter(measured) {
        if let (Some(work), Some(latency)) = (cell.work, &cell.latency_ms) {
            cell.roofline = Some(Roofline::of(work, latency.p50, peaks, is_int8(&cell.precision)));
        }
    }
    document.peaks = Some(peaks);
}

/// Measures what the machine can do with so many threads (0: one for each core), and takes better figures of earlier
/// benchmarks. `machine` tells it from others.
///
/// # Errors
/// When ONNX Runtime is not there, or does not run the products.
fn peaks(threads: usize, settings: &RuntimeSettings, machine: &str) -> Result<Peaks> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let count = if threads == 0 { cores } else { threads.min(cores) };
    let own = Peaks {
        tflops: product(threads, settings, false)?,
        int8_tops: product(threads, settings, true)?,
        gb_s: copied(count),
        threads: count,
        reached_tflops: None,
        reached_int8_tops: None,
    };
    Ok(kept(own, &format!("{machine}, {count} threads")))
}

/// Operations a second, in units of 10^12, of a linear layer in float32 or INT8.
fn product(threads: usize, settings: &RuntimeSettings, int8: bool) -> Result<f64> {
    let [rows, inner, columns] = PRODUCT;
    let graph = format!(
        "graph \"product\" {{\n  input %x: f32[{rows}, {inner}]\n  weight @w = uniform(1) : f32[{columns}, {inner}]\n  \
         %y = linear(%x, @w) : f32[{rows}, {columns}]\n  output y = %y\n}}"
    );
    let graph = lowered(text::parse(&graph, &text::no_files).context("the graph of a product")?, int8)?;
    let files = TemporaryFiles::create("planish-peaks")?;
    let file = files.emit(LOCAL, &graph, "product", DEFAULT_OPSET)?;
    let runtime = LOCAL.runtime(settings);
    let mut session = runtime.load(Model::file(Format::ONNX, &file), SessionOptions { threads })?;
    let x = (0..rows * inner).map(|at| (at % 251) as f32 / 251.0 - 0.5).collect::<Vec<_>>();
    let x = Tensor::new(vec![rows, inner], x).context("the operand of a product")?;
    session.bind(&[("x", x)])?;
    let (start, mut best) = (Instant::now(), Duration::MAX);
    while start.elapsed() < TIME {
        let run = Instant::now();
        session.run_bound()?;
        best = best.min(run.elapsed());
    }
    Ok(2.0 * (rows * inner * columns) as f64 / best.as_secs_f64() / 1e12)
}

fn lowered(mut graph: Graph, int8: bool) -> Result<Graph> {
    let target = LOCAL.target;
    let mut options = Options::new(target, DEFAULT_OPSET);
    if int8 {
        let plan = Plan::new(&graph, &Settings { dynamic: true, ..Settings::int8(target) }, None)?;
        options.quantization = Some(Arc::new(Quantization { plan, ..Quantization::default() }));
    }
    Pipeline::new(options).run(&mut graph, &mut |_, _| {})?;
    Ok(graph)
}

/// Bytes read and written a second, in units of 10^9, by so many threads that copy.
fn copied(threads: usize) -> f64 {
    let together = Barrier::new(threads);
    let copy = || {
        let (from, mut to) = (vec![1u8; COPY], vec![0u8; COPY]);
        let mut times = Vec::new();
        for _ in 0..COPIES {
            together.wait();
            let start = Instant::now();
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&to);
            times.push(start.elapsed());
        }
        times.into_iter().min().unwrap_or(Duration::MAX)
    };
    let slowest = thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(copy)).collect();
        all.into_iter().filter_map(|thread| thread.join().ok()).max().unwrap_or(Duration::MAX)
    });
    2.0 * (COPY * threads) as f64 / slowest.as_secs_f64() / 1e9
}

/// The better of these figures and those that are kept for a machine, which are then kept.
fn kept(own: Peaks, machine: &str) -> Peaks {
    let Some(path) = cache_folder::of_user().map(|folder| folder.join("peaks.json")) else { return own };
    kept_in(&path, own, machine)
}

fn kept_in(path: &Path, own: Peaks, machine: &str) -> Peaks {
    let file = planish_files::read(path, &Kind::SETTINGS).unwrap_or_default();
    let mut known: BTreeMap<String, Peaks> = serde_json::from_slice(&file).unwrap_or_default();
    let best = known.get(machine).map_or(own, |known| own.better(known));
    known.insert(machine.to_owned(), best);
    // A benchmark does without a file.
    if let (Some(folder), Ok(text)) = (path.parent(), serde_json::to_vec(&known)) {
        let _ = fs::create_dir_all(folder).and_then(|()| write_cached(path, &text));
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_figures_are_kept_for_each_machine() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("caches/peaks.json");
        let peaks = |tflops, gb_s| Peaks {
            tflops,
            int8_tops: 1.0,
            gb_s,
            threads: 2,
            reached_tflops: None,
            reached_int8_tops: None,
        };
        assert_eq!(kept_in(&path, peaks(0.2, 10.0), "a"), peaks(0.2, 10.0));
        assert_eq!(kept_in(&path, peaks(0.1, 12.0), "a"), peaks(0.2, 12.0));
        assert_eq!(kept_in(&path, peaks(0.1, 9.0), "b"), peaks(0.1, 9.0));
        fs::write(&path, "cut").unwrap();
        assert_eq!(kept_in(&path, peaks(0.1, 9.0), "a"), peaks(0.1, 9.0));
    }

    #[test]
    fn what_a_cell_reaches_stands_beside_the_product() {
        use crate::bench::Work;
        let mut peaks = Peaks {
            tflops: 0.2,
            int8_tops: 0.4,
            gb_s: 10.0,
            threads: 2,
            reached_tflops: None,
            reached_int8_tops: None,
        };
        peaks.reach(0.1, false);
        assert_eq!((peaks.reached_tflops, peaks.most(false)), (None, 0.2));
        // 0.25 and 0.5 TFLOP/s.
        let work = Work { flops: 250_000_000, bytes: 1000 };
        for (ms, int8, reached) in [(1.0, false, 0.25), (0.5, true, 0.5)] {
            peaks.reach(Roofline::of(work, ms, peaks, int8).tflops, int8);
            assert!((peaks.most(int8) - reached).abs() < 1e-9);
            assert!((Roofline::of(work, ms, peaks, int8).mfu - 1.0).abs() < 1e-9);
        }
        assert_eq!((peaks.tflops, peaks.int8_tops), (0.2, 0.4));
        // What is kept for later benchmarks is of products.
        assert_eq!(peaks.better(&peaks).reached_tflops, None);
    }

    #[test]
    fn this_machine_computes_and_copies() {
        let settings = RuntimeSettings::default();
        let [float, integers] = [false, true].map(|int8| product(1, &settings, int8).unwrap());
        // One core does between a thousand and a million million operations a second.
        assert!((0.001..10.0).contains(&float) && (0.001..10.0).contains(&integers), "{float} {integers}");
        assert!((0.1..10_000.0).contains(&copied(1)));
    }
}
