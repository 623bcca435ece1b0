//! The search for the scale and the zero point of each block. Sixteen blocks are searched side by side, one in each lane of
//! vectors.

use super::codes::code_range;
use super::{BlockFit, Search, vectors};

/// How many blocks are searched side by side.
const LANES: usize = 16;

/// A number for each of the blocks.
type Lanes = [f32; LANES];

/// The scale and the zero point of a block: element `x` is `(code - zero) * scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Block {
    pub(super) scale: f32,
    pub(super) zero: f32,
}

/// Adding and subtracting this rounds a number of a magnitude below 2^22 to nearest even.
pub(super) const ROUND: f32 = 12_582_912.0;

/// How many ranges are tried, each this much smaller than the one before.
const RANGES: usize = 6;
const RANGE_STEP: f32 = 0.06;

/// How often half-quadratic quantization updates the scale and the zero point.
const UPDATES: usize = 20;

/// The weight of the quadratic term of half-quadratic quantization: at first, for errors in units of the scale, and its
/// growth by update.
const PENALTY: f32 = 2.0;
const PENALTY_GROWTH: f32 = 1.05;

/// What is fitted to the blocks of rows of finite numbers, with the importance of their columns.
pub(super) fn fit(fit: BlockFit, rows: &[f32], columns: usize, importance: Option<&[f32]>) -> Vec<Block> {
    let size = fit.size.max(1);
    let blocks: Vec<(usize, &[f32])> = rows
        .chunks(columns.max(1))
        .flat_map(|row| row.chunks(size).enumerate().map(move |(at, block)| (at * size, block)))
        .collect();
    let mut out = Vec::with_capacity(blocks.len());
    let mut group = Group::new(fit);
    for blocks in blocks.chunks(LANES) {
        group.fill(blocks, importance);
        // The same arithmetic whatever the vectors are, without fused products: the bits are the same everywhere.
        let (scale, zero) = vectors::widest(
            #[inline(always)]
            || group.fitted(),
        );
        out.extend((0..blocks.len()).map(|lane| Block { scale: scale[lane], zero: zero[lane] }));
    }
    out
}

/// Blocks side by side.
struct Group {
    fit: BlockFit,
    low: f32,
    high: f32,
    /// The elements of the blocks by their places; 0 after the end of a block.
    x: Vec<Lanes>,
    /// How much each counts; empty where all count the same.
    weights: Vec<Lanes>,
}

#[inline(always)]
fn lanes(f: impl Fn(usize) -> f32) -> Lanes {
    let mut out = [0.0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        *out = f(lane);
    }
    out
}

/// A scale that can be divided by.
#[inline(always)]
fn normal(scale: f32) -> f32 {
    if scale.abs() < f32::MIN_POSITIVE { f32::MIN_POSITIVE.copysign(scale) } else { scale }
}

#[inline(always)]
fn rounded(x: f32) -> f32 {
    (x + ROUND) - ROUND
}

/// A number within bounds; the least one for what is not a number.
#[inline(always)]
fn within(x: f32, low: f32, high: f32) -> f32 {
    let x = if x > low { x } else { low };
    if x < high { x } else { high }
}

/// Scales and zero points.
type Fit = (Lanes, Lanes);

impl Group {
    fn new(fit: BlockFit) -> Self {
        let (low, high) = code_range(fit.codes).unwrap_or((0, 0));
        Self { fit, low: low as f32, high: high as f32, x: Vec::new(), weights: Vec::new() }
    }

    /// Takes blocks, each with its first column.
    fn fill(&mut self, blocks: &[(usize, &[f32])], importance: Option<&[f32]>) {
        let size = blocks.iter().map(|(_, block)| block.len()).max().unwrap_or(0);
        self.x.clear();
        self.x.resize(size, [0.0; LANES]);
        for (lane, (_, block)) in blocks.iter().enumerate() {
            self.x.iter_mut().zip(*block).for_each(|(x, element)| x[lane] = *element);
        }
        self.weights.clear();
        if let Some(importance) = importance {
            self.weights.resize(size, [0.0; LANES]);
            for (lane, (column, block)) in blocks.iter().enumerate() {
                let own = &importance[*column..*column + block.len()];
                self.weights.iter_mut().zip(own).for_each(|(weights, weight)| weights[lane] = *weight);
            }
        }
    }

    /// Calls `f` on the elements at each place and how much they count.
    #[inline(always)]
    fn each(&self, mut f: impl FnMut(&Lanes, &Lanes)) {
        if self.weights.is_empty() {
            self.x.iter().for_each(|x| f(x, &[1.0; LANES]));
        } else {
            self.x.iter().zip(&self.weights).for_each(|(x, weights)| f(x, weights));
        }
    }

    #[inline(always)]
    fn fitted(&self) -> Fit {
        let (mut least, mut largest) = ([0f32; LANES], [0f32; LANES]);
        for x in &self.x {
            for lane in 0..LANES {
                least[lane] = if x[lane] < least[lane] { x[lane] } else { least[lane] };
                largest[lane] = if x[lane] > largest[lane] { x[lane] } else { largest[lane] };
            }
        }
        let is_zero = lanes(|lane| f32::from(least[lane] == 0.0 && largest[lane] == 0.0));
        let start = self.of_range(&least, &largest, 1.0);
        let found = match self.fit.search {
            Search::Range => start,
            Search::LeastSquares => self.least_squares(&least, &largest),
            Search::HalfQuadratic => self.half_quadratic(start),
        };
        let middle = if self.fit.has_zero_points() { ((self.high + 1.0) / 2.0).floor() } else { 0.0 };
        // Sums of squares of large elements leave float32: then the range gives the scale.
        let is_found = lanes(|lane| f32::from(found.0[lane].abs() < f32::INFINITY));
        let choose = |lane: usize, zero: f32, start: f32, found: f32| match (is_zero[lane] > 0.0, is_found[lane] > 0.0)
        {
            (true, _) => zero,
            (_, true) => found,
            _ => start,
        };
        let scale = lanes(|lane| choose(lane, 1.0, start.0[lane], found.0[lane]));
        (scale, lanes(|lane| choose(lane, middle, start.1[lane], found.1[lane])))
    }

    /// The scales and zero points with which codes span a part of the range of the elements.
    #[inline(always)]
    fn of_range(&self, least: &Lanes, largest: &Lanes, part: f32) -> Fit {
        if self.fit.has_zero_points() {
            let scale = lanes(|lane| normal((largest[lane] - least[lane]) * part / self.high));
            let zero = |lane: usize| rounded(within(-least[lane] * part / scale[lane], self.low, self.high));
            return (scale, lanes(zero));
        }
        let scale = |lane: usize| {
            let (least, largest) = (least[lane], largest[lane]);
            let extreme = if -least > largest { least } else { largest };
            let (a, b) = (least / self.low, largest / self.high);
            normal(part * if self.fit.negative { extreme / self.low } else { a.max(b) })
        };
        (lanes(scale), [0.0; LANES])
    }

    /// The best of smaller ranges, each with the scale that has the least square error for its codes.
    #[inline(always)]
    fn least_squares(&self, least: &Lanes, largest: &Lanes) -> Fit {
        // The range stays where no element counts.
        let mut best = Best { found: self.of_range(least, largest, 1.0), gain: [f32::NEG_INFINITY; LANES] };
        for step in 0..RANGES {
            let (scale, zero) = self.of_range(least, largest, 1.0 - step as f32 * RANGE_STEP);
            self.offer(&mut best, &scale, &zero);
            if self.fit.has_zero_points() {
                for beside in [-1.0, 1.0] {
                    self.offer(&mut best, &scale, &lanes(|lane| within(zero[lane] + beside, self.low, self.high)));
                }
            } else if self.fit.negative {
                self.offer(&mut best, &lanes(|lane| -scale[lane]), &zero);
            }
        }
        // Codes and scale are fitted to each other once more.
        let (scale, zero) = best.found;
        self.offer(&mut best, &scale, &zero);
        best.found
    }

    /// Tries the codes that scales and zero points give, with the scales that are best for these codes.
    #[inline(always)]
    fn offer(&self, best: &mut Best, scale: &Lanes, zero: &Lanes) {
        let inverse = lanes(|lane| 1.0 / scale[lane]);
        let (low, high) = (lanes(|lane| self.low - zero[lane]), lanes(|lane| self.high - zero[lane]));
        let (mut products, mut squares) = ([0f32; LANES], [0f32; LANES]);
        self.each(
            #[inline(always)]
            |x, weights| {
                for lane in 0..LANES {
                    let q = rounded(within(x[lane] * inverse[lane], low[lane], high[lane]));
                    let wq = weights[lane] * q;
                    products[lane] += wq * x[lane];
                    squares[lane] += wq * q;
                }
            },
        );
        for lane in 0..LANES {
            let fitted = products[lane] / squares[lane];
            // How much of the sum of squares of the elements the codes take away; not a number without codes.
            let gain = products[lane] * fitted;
            let better = gain > best.gain[lane];
            best.gain[lane] = if better { gain } else { best.gain[lane] };
            best.found.0[lane] = if better { normal(fitted) } else { best.found.0[lane] };
            best.found.1[lane] = if better { zero[lane] } else { best.found.1[lane] };
        }
    }

    /// Half-quadratic quantization from a start: the errors are split into a part that the shrinkage of square roots takes
    /// and a part whose squares the scale and the zero point minimize.
    #[inline(always)]
    fn half_quadratic(&self, start: Fit) -> Fit {
        let (mut at, mut best, mut least) = (start, start, self.roots(&start));
        let mut penalty = PENALTY;
        for _ in 0..UPDATES {
            at = self.updated(&at, penalty);
            let found = self.roots(&at);
            for lane in 0..LANES {
                let better = found[lane] < least[lane];
                least[lane] = if better { found[lane] } else { least[lane] };
                best.0[lane] = if better { at.0[lane] } else { best.0[lane] };
                best.1[lane] = if better { at.1[lane] } else { best.1[lane] };
            }
            penalty *= PENALTY_GROWTH;
        }
        best
    }

    /// The element in units of the scale, and its code less the zero point.
    #[inline(always)]
    fn coded(&self, x: f32, scale: f32, zero: f32) -> (f32, f32) {
        let t = x / scale;
        (t, rounded(within(t, self.low - zero, self.high - zero)))
    }

    /// The sum of the square roots of errors.
    #[inline(always)]
    fn roots(&self, (scale, zero): &Fit) -> Lanes {
        let mut sums = [0f32; LANES];
        self.each(
            #[inline(always)]
            |x, weights| {
                for lane in 0..LANES {
                    let (t, q) = self.coded(x[lane], scale[lane], zero[lane]);
                    sums[lane] += weights[lane] * (t - q).abs().sqrt();
                }
            },
        );
        lanes(|lane| sums[lane] * scale[lane].abs().sqrt())
    }

    /// One update of scales and zero points, with the codes and errors of both as they are.
    #[inline(always)]
    fn updated(&self, (scale, zero): &Fit, penalty: f32) -> Fit {
        let (mut total, mut shift) = ([0f32; LANES], [0f32; LANES]);
        let (mut codes, mut targets) = ([0f32; LANES], [0f32; LANES]);
        let (mut squares, mut products) = ([0f32; LANES], [0f32; LANES]);
        self.each(
            #[inline(always)]
            |x, weights| {
                for lane in 0..LANES {
                    let (t, q) = self.coded(x[lane], scale[lane], zero[lane]);
                    let error = t - q;
                    let size = error.abs();
                    let shrunk = size - 1.0 / (2.0 * penalty * size.sqrt());
                    // Not a number without an error.
                    let shrunk = if shrunk > 0.0 { shrunk } else { 0.0 };
                    // The element without the part of its error that shrinkage takes.
                    let target = t - shrunk.copysign(error);
                    let (w, code) = (weights[lane], q + zero[lane]);
                    total[lane] += w;
                    shift[lane] += w * (code - target);
                    codes[lane] += w * code;
                    targets[lane] += w * target;
                    squares[lane] += w * code * code;
                    products[lane] += w * code * target;
                }
            },
        );
        let has_zeros = self.fit.has_zero_points();
        let next_zero = lanes(|lane| {
            let mean = shift[lane] / total[lane];
            if has_zeros && mean.abs() < f32::INFINITY {
                rounded(within(mean, self.low, self.high))
            } else {
                zero[lane]
            }
        });
        let next_scale = lanes(|lane| {
            // The sums of codes less the zero point.
            let z = next_zero[lane];
            let squares = squares[lane] - 2.0 * z * codes[lane] + z * z * total[lane];
            let factor = (products[lane] - z * targets[lane]) / squares;
            if squares > 0.0 && factor.abs() < f32::INFINITY { normal(scale[lane] * factor) } else { scale[lane] }
        });
        (next_scale, next_zero)
    }
}

/// The scales and zero points with the least square errors of those that were tried.
struct Best {
    found: Fit,
    gain: Lanes,
}
