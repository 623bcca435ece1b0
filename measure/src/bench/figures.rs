//! Figures of a cell that are computed from what was measured.

use std::iter::Sum;

use serde::{Deserialize, Serialize};

/// What a machine can do at most, as measured by a product of matrices and by a copy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    /// Floating-point operations a second of a product of large float32 matrices, in units of 10^12.
    pub tflops: f64,
    /// The same of a linear layer of the same sizes in INT8, with the scales of its input computed in each run.
    pub int8_tops: f64,
    /// Bytes read and written a second by a copy that no cache holds, in units of 10^9.
    pub gb_s: f64,
    /// The threads of both.
    pub threads: usize,
    /// The most operations a second of a cell that is not INT8, in units of 10^12, where that is more than `tflops`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reached_tflops: Option<f64>,
    /// The same of a cell in INT8, where that is more than `int8_tops`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reached_int8_tops: Option<f64>,
}

impl Peaks {
    /// The most operations a second that are known, of the product and of cells, in units of 10^12.
    #[must_use]
    pub fn most(&self, int8: bool) -> f64 {
        match int8 {
            true => self.reached_int8_tops.unwrap_or(0.0).max(self.int8_tops),
            false => self.reached_tflops.unwrap_or(0.0).max(self.tflops),
        }
    }

    /// Takes note of what a cell reached.
    pub(super) fn reach(&mut self, tops: f64, int8: bool) {
        if tops > self.most(int8) {
            *(if int8 { &mut self.reached_int8_tops } else { &mut self.reached_tflops }) = Some(tops);
        }
    }

    /// The better figures of two measurements of a machine, by products and copies.
    #[must_use]
    pub fn better(self, other: &Self) -> Self {
        Self {
            tflops: self.tflops.max(other.tflops),
            int8_tops: self.int8_tops.max(other.int8_tops),
            gb_s: self.gb_s.max(other.gb_s),
            threads: self.threads,
            reached_tflops: None,
            reached_int8_tops: None,
        }
    }
}

/// What a run computes and reads, counted on graphs; of several calls the sum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Operations of products: linear layers, attention, convolutions. A multiplication with its addition counts as two.
    pub flops: u64,
    /// The bytes that a run reads at least: weights as they are stored, inputs and the cache; and writes: the outputs.
    pub bytes: u64,
}

impl Sum for Work {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self { flops: 0, bytes: 0 }, |sum, one| Self {
            flops: sum.flops.saturating_add(one.flops),
            bytes: sum.bytes.saturating_add(one.bytes),
        })
    }
}

/// What limits a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Its operations take longer than its bytes.
    Compute,
    /// Its bytes take longer.
    Memory,
}

/// How much of what a machine can do a run comes to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Roofline {
    /// Operations a second, in units of 10^12.
    pub tflops: f64,
    /// That as a share of the peak: model FLOPs utilization, from 0 to 1.
    pub mfu: f64,
    /// Bytes a second, in units of 10^9.
    pub gb_s: f64,
    /// Operations for each byte.
    pub intensity: f64,
    /// The least time that the peaks allow, as a share of the time that the run took.
    pub share: f64,
    /// What the least time is of.
    pub bound: Bound,
}

impl Roofline {
    /// The figures of a run that took so many milliseconds, of INT8 products or others.
    #[must_use]
    pub fn of(work: Work, ms: f64, peaks: Peaks, int8: bool) -> Self {
        let (flops, bytes, seconds) = (work.flops as f64, work.bytes as f64, ms / 1e3);
        let peak = peaks.most(int8);
        let (compute, memory) = (flops / (peak * 1e12), bytes / (peaks.gb_s * 1e9));
        Self {
            tflops: flops / seconds / 1e12,
            mfu: compute / seconds,
            gb_s: bytes / seconds / 1e9,
            intensity: flops / bytes.max(1.0),
            share: compute.max(memory) / seconds,
            bound: if compute >= memory { Bound::Compute } else { Bound::Memory },
        }
    }
}

/// What generating tokens comes to. Times are medians, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generation {
    /// New tokens of each row.
    pub new_tokens: usize,
    /// Whether keys and values are cached; without a cache each step runs all tokens.
    pub cache: bool,
    /// The time to the first new token.
    pub ttft_ms: f64,
    /// The time for each token after the first.
    pub tpot_ms: f64,
    /// New tokens a second, of all rows and of the whole run.
    pub tok_s: f64,
}

/// The padding of batches of texts of different lengths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Padding {
    /// How the texts are put into batches.
    pub batches: Batches,
    /// How many batches the texts make.
    pub count: usize,
    /// Tokens of texts.
    pub real: usize,
    /// Tokens of batches: those of texts and padding.
    pub padded: usize,
}

/// How texts are put into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Batches {
    /// In the order in which they come, each batch padded to its longest text.
    Arrival,
    /// In the order of their lengths, so that texts of a batch are about as long.
    Buckets,
}

/// The energy of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// Joules of a run of the batch.
    pub joules: f64,
    /// What counted it.
    pub meter: Meter,
}

/// What counts energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meter {
    /// The processor's packages, by RAPL.
    Rapl,
    /// The whole GPU, by its own counter.
    Nvml,
}
