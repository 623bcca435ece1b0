//! Inputs made from a seed, for verification, benchmarks and calibration without data.

mod sizes;
pub(crate) mod tensor_file;

use std::collections::BTreeMap;
use std::ops::Range;

use planish_eval::{Data, Tensor};
use planish_ir::{DType, Dim, Type};
use planish_runtimes::Port;

pub(crate) use sizes::is_of_sequence;
pub use sizes::{Sizes, has_cache, has_sequence, shapes};

use sizes::too_large;

/// The most bytes that the inputs of one run have together.
pub const MAX_BYTES: u64 = 1 << 30;

/// An input of a model and what may stand in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSpec {
    /// Name, element type and dimensions.
    pub port: Port,
    /// What its elements are.
    pub values: Values,
}

/// What the elements of an input are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Identifiers, drawn evenly from the range. Padded positions hold `pad`, which is drawn
    /// nowhere else, so that models that count from it see the mask's padding.
    Ids {
        /// The valid ones, e.g. `0..vocab_size`.
        range: Range<i64>,
        /// The one that stands for no token.
        pad: Option<i64>,
    },
    /// 1 where there is a token, 0 where there is padding.
    Mask,
    /// 0 for the first half of the tokens and the last segment for the rest; padding is 0.
    Segments {
        /// How many segments the model knows.
        count: i64,
    },
    /// 0, 1, 2, ... from each row's first token on; 0 before it.
    Positions,
    /// Real numbers drawn evenly from -1 to 1; for booleans and integers 0 or 1; for texts words, as bytes in one
    /// dimension more.
    Noise,
}

/// Why no inputs were made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// An input of identifiers whose range nobody gave.
    #[error("the valid values of the integers in the input `{input}` are not known: it picks no rows of a table")]
    NoRange {
        /// The input.
        input: String,
    },
    /// A range without a value to draw.
    #[error("the input `{input}` has no valid value in {range:?}")]
    EmptyRange {
        /// The input.
        input: String,
        /// Its range.
        range: Range<i64>,
    },
    /// A dimension that neither the model nor the request fixes.
    #[error(
        "the size of the dimension `{dimension}` of the input `{input}` is not known: compile with --shapes {input}=..."
    )]
    Dimension {
        /// The input.
        input: String,
        /// The dimension.
        dimension: Dim,
    },
    /// An input that is no tensor of a known number of dimensions.
    #[error("no values are made for the input `{input}`, {ty}: compile with --shapes {input}=... where it is a tensor")]
    Type {
        /// The input.
        input: String,
        /// Its type.
        ty: Type,
    },
    /// More elements than inputs are made of.
    #[error(
        "inputs are made of {limit} bytes at most for one run, and with `{input}`, {dtype}{shape:?}, they would have more{advice}",
        limit = MAX_BYTES,
        advice = if *is_open { ": choose smaller sizes, of an ONNX graph with --shapes" } else { "" }
    )]
    TooLarge {
        /// The input.
        input: String,
        /// Its element type.
        dtype: DType,
        /// Its sizes.
        shape: Vec<usize>,
        /// Whether the model leaves some of them open.
        is_open: bool,
    },
}

/// The inputs of a model with what stands in them by their standard names; `ids` has the values of
/// the others that are integers, by name.
///
/// # Errors
/// When an integer input is neither standard nor in `ids`.
pub fn specs(ports: &[Port], ids: &BTreeMap<String, Values>) -> Result<Vec<InputSpec>, InputError> {
    let spec = |port: &Port| {
        let values = match (ids.get(&port.name), port.name.as_str()) {
            (Some(values), _) => values.clone(),
            (None, name) if name.ends_with("attention_mask") => Values::Mask,
            (None, "position_ids") => Values::Positions,
            (None, "token_type_ids") => Values::Segments { count: 1 },
            (None, _) if port.ty.dtype.is_integer() => return Err(InputError::NoRange { input: port.name.clone() }),
            (None, _) => Values::Noise,
        };
        Ok(InputSpec { port: port.clone(), values })
    };
    ports.iter().map(spec).collect()
}

/// Inputs of `batch` rows of `sequence` tokens; the same arguments give the same tensors.
///
/// With `padding`, each row but the first ends in a number of padded positions that the seed
/// decides, at most all but one; where there is a cache of keys and values it begins with them, as
/// batches of prompts do. Symbols whose names speak of a batch stand for `batch`, those of
/// a past for 0, and other lengths of sequences for `sequence`; where the names say nothing, their places do.
///
/// # Errors
/// When a dimension has no size or a range no value, and when the inputs have more than [`MAX_BYTES`].
pub fn seeded_inputs(
    specs: &[InputSpec],
    batch: usize,
    sequence: usize,
    seed: u64,
    padding: bool,
) -> Result<Vec<(String, Tensor)>, InputError> {
    sized_inputs(specs, Sizes { batch, sequence, side: None }, seed, padding)
}

/// [`seeded_inputs`] of these sizes.
///
/// # Errors
/// Those of [`seeded_inputs`].
pub fn sized_inputs(
    specs: &[InputSpec],
    sizes: Sizes,
    seed: u64,
    padding: bool,
) -> Result<Vec<(String, Tensor)>, InputError> {
    let shapes = shapes(specs, sizes)?;
    let rows = rows(sizes.batch, sizes.sequence, seed, padding, has_cache(specs));
    let make = |(index, (spec, shape)): (usize, (&InputSpec, Vec<usize>))| {
        // Each input has a stream of its own: one more input does not change the others.
        let mut random = fastrand::Rng::with_seed(seed ^ (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        if spec.port.ty.dtype == DType::String {
            return words(spec, shape, &mut random);
        }
        let count = shape.iter().product();
        let data = fill(spec, &shape, count, &rows, &mut random)?;
        let tensor = Tensor::new(shape.clone(), data).ok_or_else(|| too_large(spec, shape))?;
        Ok((spec.port.name.clone(), tensor))
    };
    specs.iter().zip(shapes).enumerate().map(make).collect()
}

/// The positions in each row that are not padding.
fn rows(batch: usize, sequence: usize, seed: u64, padding: bool, left: bool) -> Vec<Range<usize>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let row = |row: usize| {
        let length = match padding && row > 0 && sequence > 1 {
            true => random.usize(1..sequence),
            false => sequence,
        };
        if left { sequence - length..sequence } else { 0..length }
    };
    (0..batch).map(row).collect()
}

fn fill(
    spec: &InputSpec,
    shape: &[usize],
    count: usize,
    rows: &[Range<usize>],
    random: &mut fastrand::Rng,
) -> Result<Data, InputError> {
    let width = shape.last().copied().unwrap_or(1).max(1);
    // A tensor of [batch, sequence] follows the rows; in others every element is real.
    let tokens = |at: usize| match shape {
        [batch, _] if *batch == rows.len() => rows[at / width].start..rows[at / width].end.min(width),
        _ => 0..width,
    };
    let is_token = |at: usize| tokens(at).contains(&(at % width));
    let integers = |value: &mut dyn FnMut(usize) -> i64| (0..count).map(value).collect::<Vec<i64>>();
    let numbers = match &spec.values {
        Values::Ids { range, pad } => {
            // The pad is taken out of the range by drawing one fewer and stepping over it.
            let hole = pad.filter(|pad| range.contains(pad));
            let drawn = range.start..range.end - i64::from(hole.is_some());
            if drawn.is_empty() {
                return Err(InputError::EmptyRange { input: spec.port.name.clone(), range: range.clone() });
            }
            integers(&mut |at| {
                let id = random.i64(drawn.clone());
                let id = id + i64::from(hole.is_some_and(|hole| id >= hole));
                if is_token(at) { id } else { pad.unwrap_or(id) }
            })
        }
        Values::Mask => integers(&mut |at| i64::from(is_token(at))),
        Values::Segments { count } => integers(&mut |at| {
            let tokens = tokens(at);
            let second = at % width >= tokens.start + tokens.len().div_ceil(2);
            if second && is_token(at) { (count - 1).max(0) } else { 0 }
        }),
        Values::Positions => integers(&mut |at| {
            let position = (at % width).saturating_sub(tokens(at).start);
            i64::try_from(position).unwrap_or(i64::MAX)
        }),
        Values::Noise if spec.port.ty.dtype.is_float() => {
            let noise: Vec<f64> = (0..count).map(|_| random.f64() * 2.0 - 1.0).collect();
            return Ok(converted(spec.port.ty.dtype, &noise));
        }
        Values::Noise => integers(&mut |_| i64::from(random.bool())),
    };
    if spec.port.ty.dtype == DType::I64 {
        return Ok(Data::I64(numbers));
    }
    Ok(converted(spec.port.ty.dtype, &numbers.iter().map(|&n| n as f64).collect::<Vec<f64>>()))
}

/// The most letters of a word.
const LETTERS: usize = 8;

/// Words of some letters, as the runtime takes texts.
fn words(spec: &InputSpec, mut shape: Vec<usize>, random: &mut fastrand::Rng) -> Result<(String, Tensor), InputError> {
    let word = |_| {
        let mut word = [0; LETTERS];
        let length = random.usize(1..=LETTERS);
        word[..length].fill_with(|| random.u8(b'a'..=b'z'));
        word
    };
    let bytes: Vec<u8> = (0..shape.iter().product::<usize>()).flat_map(word).collect();
    shape.push(LETTERS);
    let tensor = Tensor::new(shape.clone(), bytes).ok_or_else(|| too_large(spec, shape))?;
    Ok((spec.port.name.clone(), tensor))
}

/// The numbers as elements of a type.
fn converted(dtype: DType, numbers: &[f64]) -> Data {
    let tensor = Tensor::from_f64(dtype, vec![numbers.len()], numbers);
    tensor.map_or_else(|| Vec::<u8>::new().into(), |tensor| tensor.data().clone())
}

#[cfg(test)]
mod tests {
    use planish_ir::{Shape, TensorType};

    use super::*;

    fn port(name: &str, dtype: DType, dims: &[&str]) -> Port {
        let shape = Shape::new(dims.iter().map(|dim| dim.parse().unwrap()));
        Port { name: name.to_owned(), ty: TensorType::new(dtype, shape) }
    }

    fn bert() -> Vec<InputSpec> {
        let tokens = ["batch_size", "sequence_length"];
        let ports = ["input_ids", "attention_mask", "token_type_ids"].map(|name| port(name, DType::I64, &tokens));
        let ids = BTreeMap::from([
            ("input_ids".to_owned(), Values::Ids { range: 0..5, pad: Some(2) }),
            ("token_type_ids".to_owned(), Values::Segments { count: 2 }),
        ]);
        specs(&ports, &ids).unwrap()
    }

    fn find<'a>(inputs: &'a [(String, Tensor)], name: &str) -> &'a [i64] {
        inputs.iter().find(|(n, _)| n == name).unwrap().1.as_i64().unwrap()
    }

    #[test]
    fn the_first_row_is_full_and_the_others_are_padded_on_the_right() {
        let inputs = seeded_inputs(&bert(), 8, 6, 1, true).unwrap();
        let (ids, mask, types) =
            (find(&inputs, "input_ids"), find(&inputs, "attention_mask"), find(&inputs, "token_type_ids"));
        assert_eq!(mask[..6], [1; 6]);
        assert_eq!(types[..6], [0, 0, 0, 1, 1, 1]);
        for row in 0..8 {
            let row = row * 6..row * 6 + 6;
            let length = usize::try_from(mask[row.clone()].iter().sum::<i64>()).unwrap();
            assert!((1..6).contains(&length) || row.start == 0);
            assert!(mask[row.clone()].is_sorted_by(|a, b| a >= b), "padding is on the right");
            for (k, at) in row.enumerate() {
                assert_eq!(ids[at] == 2, k >= length, "only padding holds the pad");
                assert!((0..5).contains(&ids[at]));
                assert_eq!(types[at], i64::from(k >= length.div_ceil(2) && k < length));
            }
        }
        assert!((0..5).filter(|id| ids.contains(id)).count() == 5, "the whole range is drawn");
    }

    #[test]
    fn rows_before_a_cache_are_padded_on_the_left() {
        let tokens = ["batch_size", "sequence_length"];
        let ports = [
            port("input_ids", DType::I64, &tokens),
            port("attention_mask", DType::I64, &["batch_size", "past_sequence_length + sequence_length"]),
            port("position_ids", DType::I64, &tokens),
            port("past_key_values.0.key", DType::F32, &["batch_size", "2", "past_sequence_length", "4"]),
        ];
        let ids = BTreeMap::from([("input_ids".to_owned(), Values::Ids { range: 0..5, pad: Some(2) })]);
        let inputs = seeded_inputs(&specs(&ports, &ids).unwrap(), 8, 6, 1, true).unwrap();
        let (ids, mask, positions) =
            (find(&inputs, "input_ids"), find(&inputs, "attention_mask"), find(&inputs, "position_ids"));
        assert_eq!(inputs[3].1.shape(), [8, 2, 0, 4]);
        assert_eq!(mask[..6], [1; 6]);
        assert!(mask.contains(&0));
        for row in 0..8 {
            let mut next = 0;
            for at in row * 6..row * 6 + 6 {
                assert_eq!((ids[at] == 2, positions[at]), (mask[at] == 0, next));
                next += mask[at];
            }
            assert!(mask[row * 6..row * 6 + 6].is_sorted() && next > 0);
        }
    }

    #[test]
    fn the_seed_decides() {
        let inputs = |seed| seeded_inputs(&bert(), 3, 9, seed, true).unwrap();
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(8));
        assert_eq!(find(&seeded_inputs(&bert(), 3, 9, 7, false).unwrap(), "attention_mask"), [1; 27]);
        assert_eq!(find(&seeded_inputs(&bert(), 2, 1, 7, true).unwrap(), "attention_mask"), [1; 2]);
    }

    #[test]
    fn dimensions_follow_their_names() {
        let ports = [
            port("past_key_values.0.key", DType::F32, &["batch_size", "4", "past_sequence_length", "8"]),
            port("attention_mask", DType::I64, &["batch_size", "past_sequence_length + sequence_length"]),
            port("pixel_values", DType::F16, &["batch_size", "3", "2", "2"]),
            port("use_cache_branch", DType::Bool, &["1"]),
            port("position_ids", DType::I32, &["batch_size", "sequence_length"]),
        ];
        let specs = specs(&ports, &BTreeMap::new()).unwrap();
        let inputs = seeded_inputs(&specs, 2, 5, 3, false).unwrap();
        let shapes: Vec<&[usize]> = inputs.iter().map(|(_, tensor)| tensor.shape()).collect();
        assert_eq!(shapes, [&[2, 4, 0, 8][..], &[2, 5], &[2, 3, 2, 2], &[1], &[2, 5]]);
        assert!(inputs[2].1.to_f64().iter().all(|v| v.abs() <= 1.0) && inputs[2].1.dtype() == DType::F16);
        assert_eq!(inputs[4].1.as_i32().unwrap()[5..], [0, 1, 2, 3, 4]);
    }

    /// Names of other exporters say nothing: `s0`, `unk__5`, `N`.
    #[test]
    fn dimensions_without_speaking_names_follow_their_places() {
        let ports = [
            port("input_ids", DType::I64, &["s0", "s1"]),
            port("attention_mask", DType::I64, &["s0", "unk__5"]),
            port("past_key_values.0.key", DType::F32, &["s0", "4", "s2", "8"]),
            port("x", DType::F32, &["N", "3", "2", "2"]),
        ];
        let ids = BTreeMap::from([("input_ids".to_owned(), Values::Ids { range: 0..5, pad: None })]);
        let specs = specs(&ports, &ids).unwrap();
        let inputs = seeded_inputs(&specs, 2, 5, 3, false).unwrap();
        let shapes: Vec<&[usize]> = inputs.iter().map(|(_, tensor)| tensor.shape()).collect();
        assert_eq!(shapes, [&[2, 5][..], &[2, 5], &[2, 4, 0, 8], &[2, 3, 2, 2]]);
        assert!(has_sequence(&specs) && !has_sequence(&specs[2..]));
    }

    /// Sizes that say what they are, as of images, are no lengths of sequences.
    #[test]
    fn sides_of_images_are_given_on_their_own() {
        let x = port("x", DType::F32, &["batch", "num_channels", "height", "width"]);
        let specs = specs(&[x, port("ids", DType::F32, &["batch", "tokens"])], &BTreeMap::new()).unwrap();
        let sizes = Sizes { batch: 2, sequence: 5, side: Some(16) };
        assert_eq!(shapes(&specs, sizes).unwrap(), [vec![2, 3, 16, 16], vec![2, 5]]);
    }

    #[test]
    fn texts_are_words_in_bytes() {
        let specs = specs(&[port("x", DType::String, &["n", "2"])], &BTreeMap::new()).unwrap();
        let inputs = seeded_inputs(&specs, 3, 1, 0, false).unwrap();
        assert_eq!(inputs[0].1.shape(), [3, 2, LETTERS]);
        let is_word = |word: &[u8]| {
            let length = word.iter().position(|byte| *byte == 0).unwrap_or(LETTERS);
            length > 0 && word[..length].iter().all(u8::is_ascii_lowercase) && word[length..].iter().all(|b| *b == 0)
        };
        assert!(inputs[0].1.as_u8().unwrap().chunks(LETTERS).all(is_word));
    }

    #[test]
    fn inputs_of_terabytes_are_refused_before_they_are_made() {
        let huge = [port("x", DType::F32, &["1099511627776"])];
        let refused = seeded_inputs(&specs(&huge, &BTreeMap::new()).unwrap(), 1, 1, 0, false).unwrap_err().to_string();
        assert!(refused.contains("`x`, f32[1099511627776]") && refused.contains("--shapes"), "{refused}");
        // Each may be small enough alone.
        let several = ["a", "b", "c"].map(|name| port(name, DType::U8, &["400000000"]));
        let refused = shapes(
            &specs(&several, &BTreeMap::from(several.clone().map(|p| (p.name, Values::Noise)))).unwrap(),
            Sizes { batch: 1, sequence: 1, side: None },
        );
        assert!(refused.unwrap_err().to_string().contains("`c`"));
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        let unknown = specs(&[port("labels", DType::I64, &["batch_size"])], &BTreeMap::new()).unwrap_err();
        assert_eq!(unknown, InputError::NoRange { input: "labels".to_owned() });
        let noise = |dims: &[&str]| {
            let specs = specs(&[port("x", DType::F32, dims)], &BTreeMap::new()).unwrap();
            seeded_inputs(&specs, 2, usize::MAX / 2, 0, false).unwrap_err().to_string()
        };
        assert_eq!(
            noise(&["batch", "3", "height", "4"]),
            "the size of the dimension `height` of the input `x` is not known: compile with --shapes x=..."
        );
        assert!(
            noise(&["sequence_length", "batch_size", "8"]).starts_with("inputs are made of 1073741824 bytes at most")
        );
        let mut specs = bert();
        specs[0].values = Values::Ids { range: 2..3, pad: Some(2) };
        let empty = seeded_inputs(&specs, 1, 4, 0, false).unwrap_err();
        assert_eq!(empty, InputError::EmptyRange { input: "input_ids".to_owned(), range: 2..3 });
    }
}
