//! The best scores of rows, found where the scores are.

use planish_ir::DType;

use super::device::{Buffer, Grid};
use super::source::{Source, TOPK, c_type};
use super::tensor::DeviceTensor;
use crate::BestScores;

/// Columns of a group, whose best are found by one block.
const GROUP: usize = 1024;
/// All scores are read instead where one of so many is wanted.
const PART: usize = 8;
/// Threads of a block.
const THREADS: u32 = 128;
/// The most rows of a launch.
const ROWS: usize = 65_535;

/// The kernels for elements of a type: of groups of columns, and of all groups of a row. `None` for other types than
/// those of models' floats.
pub(super) fn kernels(dtype: DType) -> Option<[Source; 2]> {
    let element = c_type(dtype).filter(|_| matches!(dtype, DType::F32 | DType::F16 | DType::Bf16))?;
    Some(["topk_groups", "topk_merge"].map(|kernel| Source::new(TOPK, kernel).with("ELEMENT", element)))
}

/// What kernels write, and where: each array has an element of a row after those of the row before.
struct Arrays {
    memory: Buffer,
    rows: usize,
    /// Doubles of a row.
    sums: usize,
    /// Floats of a row, and as many integers.
    best: usize,
}

impl Arrays {
    fn bytes(rows: usize, sums: usize, best: usize) -> Option<usize> {
        rows.checked_mul(sums.checked_add(best)?)?.checked_mul(8)
    }

    /// The addresses of sums, values and indices.
    fn addresses(&self) -> [u64; 3] {
        let values = self.memory.address() + (self.rows * self.sums * 8) as u64;
        [self.memory.address(), values, values + (self.rows * self.best * 4) as u64]
    }
}

impl DeviceTensor {
    /// The `k` best of the first `scored` scores of the last column of each row of [rows, columns, scores]. `None` where no
    /// kernel finds them: the elements or the sizes are other ones, or so many are wanted that all may as well be read.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn best(&self, scored: usize, k: usize) -> Result<Option<Vec<BestScores>>, String> {
        let &[rows, columns, width] = &self.shape[..] else { return Ok(None) };
        let scored = scored.min(width);
        let Some(sources) = kernels(self.dtype).filter(|_| self.cache.is_none()) else { return Ok(None) };
        let groups = scored.div_ceil(GROUP);
        let fits = (1..=ROWS).contains(&rows) && columns > 0 && k > 0 && k <= scored / PART;
        let is_int = |n: Option<usize>| n.is_some_and(|n| i32::try_from(n).is_ok());
        if !fits || !is_int(Some(scored)) || !is_int(groups.checked_mul(k)) {
            return Ok(None);
        }
        let array = |sums: usize, best: usize| {
            let bytes = Arrays::bytes(rows, sums, best).ok_or_else(|| format!("{rows} rows of {best} are too many"))?;
            Ok::<_, String>(Arrays { memory: self.device.allocate(bytes)?, rows, sums, best })
        };
        let (of_groups, of_rows) = (array(groups, groups * k)?, array(1, k)?);
        let kernels = self.device.prepare(&sources)?;
        let [sums, values, indices] = of_groups.addresses();
        let [log_sums, best_values, best_indices] = of_rows.addresses();
        let first = self.memory.address() + ((columns - 1) * width * self.dtype.size()) as u64;
        let [stride, columns, groups_of, k_of] = [columns * width, scored, groups, k].map(|n| n as u64);
        let launch = |kernel: usize, blocks: usize, arguments: [u64; 8]| {
            let fit = |n: usize| u32::try_from(n).map_err(|e| e.to_string());
            let grid = Grid { blocks: [fit(blocks)?, fit(rows)?, 1], threads: THREADS, shared: 0 };
            let arguments: Vec<&[u64]> = arguments.iter().map(std::slice::from_ref).collect();
            self.device.launch(kernels[kernel], grid, &arguments)
        };
        launch(0, groups, [values, indices, sums, first, stride, columns, groups_of, k_of])?;
        launch(1, 1, [best_values, best_indices, log_sums, values, indices, sums, groups_of, k_of])?;
        let mut bytes = vec![0; of_rows.memory.bytes()];
        self.device.download(log_sums, &mut bytes)?;
        Ok(Some(parsed(&bytes, rows, k)))
    }
}

/// The results of rows, of `k` scores each.
fn parsed(bytes: &[u8], rows: usize, k: usize) -> Vec<BestScores> {
    let (sums, rest) = bytes.split_at(rows * 8);
    let (values, indices) = rest.split_at(rows * k * 4);
    let sums = sums.chunks_exact(8).map(|chunk| chunk.try_into().map_or(f64::NAN, f64::from_le_bytes));
    let value = |chunk: &[u8]| chunk.try_into().map_or(f32::NAN, f32::from_le_bytes);
    // An index of -1 is of no score.
    let index = |chunk: &[u8]| usize::try_from(chunk.try_into().map_or(-1, i32::from_le_bytes)).ok();
    let row = |(log_sum, (values, indices)): (f64, (&[u8], &[u8]))| {
        let pairs = values.chunks_exact(4).zip(indices.chunks_exact(4));
        BestScores { best: pairs.filter_map(|(v, i)| Some((index(i)?, value(v)))).collect(), log_sum }
    };
    sums.zip(values.chunks_exact(k * 4).zip(indices.chunks_exact(k * 4))).map(row).collect()
}
