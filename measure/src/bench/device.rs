//! The times of a device, with the names and definitions of trtexec.

use std::time::Duration;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use planish_runtimes::DeviceTimes;
use serde::{Deserialize, Serialize};

use super::document::Cell;
use super::table::significant;

/// The share of the GPU's time beyond which starting a run may be what limits the throughput.
const ENQUEUE_SHARE: f64 = 0.8;
/// The coefficient of variation beyond which the GPU's time is unstable.
const UNSTABLE: f64 = 0.025;

/// What a set of runs on a device says. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceLatency {
    /// The time of the device between the first and the last kernel.
    pub gpu_compute: Metric,
    /// The time of the host to start a run.
    pub enqueue: Metric,
    /// The time of the device to take the inputs; absent where they were copied before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub h2d: Option<Metric>,
    /// The time of the device to give the outputs; absent where they stay there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub d2h: Option<Metric>,
    /// The time of the device for transfers and kernels of a run.
    pub latency: Metric,
    /// Runs a second: their number by the time of the host for all of them.
    pub throughput: f64,
    /// Whether runs copied inputs and outputs.
    pub transfers: bool,
    /// Whether each run was one launch of a CUDA graph.
    pub cuda_graph: bool,
}

/// The statistics of a time, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// The median; of an even number of samples the mean of the two in the middle.
    pub median: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The standard deviation as a share of the mean.
    pub variation: f64,
}

impl DeviceLatency {
    /// The statistics of runs that took so much time of the host together; `None` for no runs.
    #[must_use]
    pub fn of(runs: &[DeviceTimes], walltime: Duration) -> Option<Self> {
        let of = |time: &dyn Fn(&DeviceTimes) -> Option<Duration>| {
            Metric::of(
                runs.iter().map(|run| time(run).map(|time| time.as_secs_f64() * 1e3)).collect::<Option<Vec<_>>>()?,
            )
        };
        let latency =
            |run: &DeviceTimes| Some(run.to_device.unwrap_or_default() + run.compute + run.to_host.unwrap_or_default());
        let (h2d, d2h) = (of(&|run| run.to_device), of(&|run| run.to_host));
        Some(Self {
            gpu_compute: of(&|run| Some(run.compute))?,
            enqueue: of(&|run| Some(run.enqueue))?,
            transfers: h2d.is_some() || d2h.is_some(),
            h2d,
            d2h,
            latency: of(&latency)?,
            throughput: runs.len() as f64 / walltime.as_secs_f64().max(f64::MIN_POSITIVE),
            cuda_graph: runs.iter().all(|run| run.graph),
        })
    }

    /// What makes the figures less certain, as trtexec warns. `records` says whether the runtime records CUDA graphs unless it is
    /// told not to.
    #[must_use]
    pub fn warnings(&self, records: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        let compute = self.gpu_compute.median;
        if self.enqueue.median > ENQUEUE_SHARE * compute {
            let remedy = if self.cuda_graph || !records { "" } else { "; leave out --runtime-option cuda-graph=false" };
            warnings.push(format!(
                "the host takes {} ms to start a run that the GPU computes in {} ms, so the GPU may wait for the host{remedy}",
                significant(self.enqueue.median),
                significant(compute),
            ));
        }
        for (name, metric) in [("inputs", self.h2d), ("outputs", self.d2h)] {
            if let Some(metric) = metric.filter(|metric| metric.median >= compute) {
                warnings.push(format!(
                    "copying the {name} takes {} ms, and the GPU computes for {} ms",
                    significant(metric.median),
                    significant(compute),
                ));
            }
        }
        if self.gpu_compute.variation > UNSTABLE {
            warnings.push(format!(
                "the time of the GPU is unstable: its coefficient of variation is {:.1}%",
                self.gpu_compute.variation * 100.0
            ));
        }
        warnings
    }
}

impl Metric {
    /// The statistics of samples; `None` for no samples.
    fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let n = samples.len();
        let (min, max) = (*samples.first()?, *samples.last()?);
        let mean = samples.iter().sum::<f64>() / n as f64;
        let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / n as f64;
        let middle = samples[n / 2];
        let median = if n % 2 == 1 { middle } else { f64::midpoint(samples[n / 2 - 1], middle) };
        let percentile = |percent: f32| samples[percentile_index(n, percent)];
        Some(Self {
            min,
            max,
            mean,
            median,
            p90: percentile(90.0),
            p95: percentile(95.0),
            p99: percentile(99.0),
            variation: if mean > 0.0 { variance.sqrt() / mean } else { 0.0 },
        })
    }
}

/// The place of a percentile among `n` samples in ascending order. trtexec counts the samples beyond it in binary32, and
/// so does this: of 100 samples the 99th percentile is the last.
fn percentile_index(n: usize, percent: f32) -> usize {
    let beyond = ((1.0 - percent / 100.0) * n as f32) as usize;
    n.saturating_sub(1).saturating_sub(beyond)
}

/// The times of the cells that ran on a device as a table; `None` where there is no such cell.
#[must_use]
pub fn device_table(cells: &[Cell]) -> Option<String> {
    let measured: Vec<(&Cell, &DeviceLatency)> =
        cells.iter().filter_map(|cell| Some((cell, cell.device.as_ref()?))).collect();
    let (_, first) = measured.first()?;
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let header = [
        "artifact",
        "cell",
        "GPU compute ms",
        "p90",
        "p99",
        "enqueue ms",
        "H2D ms",
        "D2H ms",
        "latency ms",
        "queries/s",
    ];
    table.set_header(header);
    for (cell, device) in &measured {
        let time = |metric: Option<Metric>| metric.map_or_else(|| "-".to_owned(), |metric| significant(metric.median));
        table.add_row([
            cell.model.id.replace('|', "\\|"),
            cell.shape.to_string(),
            significant(device.gpu_compute.median),
            significant(device.gpu_compute.p90),
            significant(device.gpu_compute.p99),
            significant(device.enqueue.median),
            time(device.h2d),
            time(device.d2h),
            significant(device.latency.median),
            significant(device.throughput),
        ]);
    }
    table.column_iter_mut().skip(2).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    let transfers = if first.transfers { "with transfers" } else { "without transfers" };
    let graph = if measured.iter().all(|(_, device)| device.cuda_graph) { "CUDA graphs" } else { "no CUDA graphs" };
    Some(format!("Times by CUDA events, medians, {transfers}, {graph}:\n{table}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(compute: u64, enqueue: u64, copies: Option<[u64; 2]>) -> DeviceTimes {
        let us = Duration::from_micros;
        DeviceTimes {
            enqueue: us(enqueue),
            compute: us(compute),
            to_device: copies.map(|[to_device, _]| us(to_device)),
            to_host: copies.map(|[_, to_host]| us(to_host)),
            graph: true,
        }
    }

    #[test]
    fn percentiles_have_the_places_of_trtexec() {
        // Of ten samples the 90th percentile is the ninth, and of 200 the 99th is the 199th.
        let places = [(1, 99.0), (10, 90.0), (10, 95.0), (10, 99.0), (100, 99.0), (200, 99.0), (1000, 95.0), (3, 0.0)];
        assert_eq!(places.map(|(n, percent)| percentile_index(n, percent)), [0, 8, 9, 9, 99, 198, 949, 0]);
    }

    #[test]
    fn known_answers() {
        let metric = Metric::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((metric.min, metric.max, metric.mean, metric.median), (1.0, 4.0, 2.5, 2.5));
        assert_eq!((metric.p90, metric.p99), (4.0, 4.0));
        assert!((metric.variation - 1.25f64.sqrt() / 2.5).abs() < 1e-12);
        assert_eq!(Metric::of(vec![3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Metric::of(Vec::new()), None);
    }

    #[test]
    fn latency_is_the_sum_of_copies_and_kernels() {
        let runs = [run(1000, 100, Some([200, 50])), run(1010, 100, Some([200, 50])), run(990, 100, Some([200, 50]))];
        let device = DeviceLatency::of(&runs, Duration::from_millis(6)).unwrap();
        assert_eq!((device.latency.median, device.gpu_compute.median, device.throughput), (1.25, 1.0, 500.0));
        assert_eq!((device.h2d.unwrap().median, device.d2h.unwrap().median, device.transfers), (0.2, 0.05, true));
        assert_eq!(device.warnings(true), [""; 0]);
        let device = DeviceLatency::of(&[run(1000, 100, None)], Duration::from_millis(2)).unwrap();
        assert_eq!((device.latency, device.h2d, device.transfers), (device.gpu_compute, None, false));
        assert_eq!(DeviceLatency::of(&[], Duration::from_secs(1)), None);
    }

    #[test]
    fn warnings_are_those_of_trtexec() {
        let warnings = |runs: &[DeviceTimes]| DeviceLatency::of(runs, Duration::from_secs(1)).unwrap().warnings(true);
        assert_eq!(warnings(&[run(1000, 800, None)]), [""; 0]);
        let [slow] = &warnings(&[run(1000, 801, None)])[..] else { panic!("one warning") };
        assert_eq!(
            slow,
            "the host takes 0.801 ms to start a run that the GPU computes in 1.00 ms, so the GPU may wait for the host"
        );
        let without = DeviceTimes { graph: false, ..run(1000, 900, None) };
        assert!(warnings(&[without])[0].ends_with("; leave out --runtime-option cuda-graph=false"));
        let copies = warnings(&[run(1000, 1, Some([1000, 999]))]);
        assert_eq!(copies, ["copying the inputs takes 1.00 ms, and the GPU computes for 1.00 ms"]);
        // Two samples d apart from their mean m have a coefficient of variation of d / m.
        assert_eq!(warnings(&[run(1024, 1, None), run(976, 1, None)]), [""; 0]);
        let unstable = warnings(&[run(1026, 1, None), run(974, 1, None)]);
        assert_eq!(unstable, ["the time of the GPU is unstable: its coefficient of variation is 2.6%"]);
    }
}
