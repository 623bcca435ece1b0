//! The choice between forms of attention by sizes, element type and memory.

use std::fmt;

use crate::DType;

/// The sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionSizes {
    /// Rows of the batch.
    pub batch: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Queries of each row.
    pub queries: usize,
    /// Keys of each row, those of the past included.
    pub keys: usize,
    /// Features of a head of queries and keys.
    pub size: usize,
    /// Features of a head of values.
    pub value_size: usize,
}

impl AttentionSizes {
    /// The bytes of all scores, with elements of so many bytes.
    #[must_use]
    pub fn scores(&self, element: usize) -> usize {
        [self.batch, self.heads, self.queries, self.keys].iter().fold(element, |n, size| n.saturating_mul(*size))
    }
}

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionForm {
    /// Two products with all scores in memory between them.
    Math,
    /// The same for some queries after others.
    Chunked {
        /// The queries whose scores are in memory at the same time.
        queries: usize,
    },
    /// One kernel that never stores scores (FlashAttention-2, Dao 2023, arXiv:2307.08691).
    Flash,
    /// One kernel whose blocks share the keys, and one that combines what they give: for few queries (Flash-Decoding, Dao
    /// et al. 2023).
    Split {
        /// The parts of the keys.
        parts: usize,
    },
}

/// What a runtime has for attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionKernels {
    /// The largest head of the kernels that never store scores; 0 where there are none.
    pub largest_head: usize,
    /// The most rows of queries that share keys in the kernel for few queries; 0 where there is none.
    pub split_rows: usize,
    /// The blocks that keep the device busy.
    pub blocks: usize,
    /// The most bytes of scores that are in memory at the same time.
    pub scores: usize,
    /// Scores of float32 of at most this many bytes are computed by matrix products, which are faster there than the
    /// kernels that never store scores: these use no tensor cores for float32.
    pub float_scores: usize,
}

/// A form, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttentionChoice {
    /// The form.
    pub form: AttentionForm,
    /// Why: part of a sentence.
    pub reason: String,
}

impl fmt::Display for AttentionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            AttentionForm::Math => f.write_str("math")?,
            AttentionForm::Chunked { queries } => write!(f, "chunks of {queries} queries")?,
            AttentionForm::Flash => f.write_str("flash")?,
            AttentionForm::Split { parts: 1 } => f.write_str("keys in 1 part")?,
            AttentionForm::Split { parts } => write!(f, "keys in {parts} parts")?,
        }
        write!(f, ": {}", self.reason)
    }
}

/// The fewest keys of a part.
const PART: usize = 64;
/// The most parts.
const PARTS: usize = 64;

/// Chooses the form for attention on a runtime.
#[must_use]
pub fn choose_attention(sizes: &AttentionSizes, dtype: DType, kernels: &AttentionKernels) -> AttentionChoice {
    let choice = |form, reason| AttentionChoice { form, reason };
    // Scores are in float32, whatever the element type is.
    let scores = sizes.scores(DType::F32.size());
    let size = sizes.size.max(sizes.value_size);
    let rows = sizes.queries.saturating_mul(sizes.heads / sizes.kv_heads.max(1));
    if size > kernels.largest_head {
        let reason = match kernels.largest_head {
            0 => "no kernel computes attention without its scores in memory".to_owned(),
            most => format!("heads have {size} features, and the kernels without scores in memory take {most}"),
        };
        if scores <= kernels.scores {
            return choice(AttentionForm::Math, format!("{reason}; the scores take {}", Bytes(scores)));
        }
        let each = (scores / sizes.queries.max(1)).max(1);
        let queries = (kernels.scores / each).max(1);
        let reason = format!("{reason}; the scores take {}, and {} is the limit", Bytes(scores), Bytes(kernels.scores));
        return choice(AttentionForm::Chunked { queries }, reason);
    }
    if rows <= kernels.split_rows && sizes.keys >= PART {
        let heads = sizes.batch.saturating_mul(sizes.kv_heads).max(1);
        let parts = kernels.blocks.div_ceil(heads).min(sizes.keys.div_ceil(PART)).clamp(1, PARTS);
        let reason = format!(
            "{rows} rows of queries share the keys of a head, and {} blocks keep the device busy",
            kernels.blocks
        );
        return choice(AttentionForm::Split { parts }, reason);
    }
    if dtype == DType::F32 && scores <= kernels.float_scores {
        let reason = format!("scores of {} in float32, which the kernel without scores computes slower", Bytes(scores));
        return choice(AttentionForm::Math, reason);
    }
    choice(AttentionForm::Flash, format!("the scores would take {}", Bytes(scores)))
}

/// A number of bytes in messages.
struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes < 1 << 10 => write!(f, "{bytes} bytes"),
            bytes if bytes < 1 << 20 => write!(f, "{:.1} KiB", bytes as f64 / 1024.0),
            bytes => write!(f, "{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: AttentionKernels =
        AttentionKernels { largest_head: 256, split_rows: 16, blocks: 264, scores: 1 << 28, float_scores: 1 << 26 };

    fn sizes(batch: usize, heads: usize, kv_heads: usize, queries: usize, keys: usize, size: usize) -> AttentionSizes {
        AttentionSizes { batch, heads, kv_heads, queries, keys, size, value_size: size }
    }

    fn chosen(sizes: AttentionSizes, dtype: DType) -> AttentionForm {
        choose_attention(&sizes, dtype, &GPU).form
    }

    #[test]
    fn half_types_never_store_scores_where_a_kernel_takes_the_head() {
        assert_eq!(chosen(sizes(32, 12, 12, 128, 128, 64), DType::F16), AttentionForm::Flash);
        assert_eq!(chosen(sizes(1, 8, 8, 100, 100, 512), DType::F16), AttentionForm::Math);
        assert_eq!(chosen(sizes(1, 16, 16, 4096, 4096, 512), DType::F16), AttentionForm::Chunked { queries: 1024 });
    }

    #[test]
    fn few_queries_share_the_keys_among_blocks() {
        assert_eq!(chosen(sizes(1, 32, 8, 1, 2048, 128), DType::Bf16), AttentionForm::Split { parts: 32 });
        assert_eq!(chosen(sizes(32, 32, 8, 1, 2048, 128), DType::Bf16), AttentionForm::Split { parts: 2 });
        assert_eq!(chosen(sizes(1, 32, 8, 5, 2048, 128), DType::Bf16), AttentionForm::Flash);
        assert_eq!(chosen(sizes(1, 12, 12, 1, 40, 64), DType::F16), AttentionForm::Flash);
    }

    #[test]
    fn float32_takes_products_up_to_a_size() {
        assert_eq!(chosen(sizes(1, 12, 12, 128, 128, 64), DType::F32), AttentionForm::Math);
        let long = choose_attention(&sizes(8, 12, 12, 1024, 1024, 64), DType::F32, &GPU);
        assert_eq!(long.to_string(), "flash: the scores would take 384.0 MiB");
    }

    #[test]
    fn without_kernels_memory_decides() {
        let none = AttentionKernels { largest_head: 0, split_rows: 0, ..GPU };
        let choice = choose_attention(&sizes(1, 12, 12, 8192, 8192, 64), DType::F16, &none);
        assert_eq!(choice.form, AttentionForm::Chunked { queries: 682 });
        let expected = "chunks of 682 queries: no kernel computes attention without its scores in memory; the scores take \
                        3072.0 MiB, and 256.0 MiB is the limit";
        assert_eq!(choice.to_string(), expected);
    }
}
