//! Where the tokens of a batch are once its padding is left out.

use planish_eval::Tensor;

/// How many programs a batch of some size has at most: programs are made for a number of tokens, in steps.
const STEPS: usize = 16;
/// The least step: what products of half types like rows to be a multiple of.
const ALIGNMENT: usize = 8;

/// The tokens of each row of a mask [batch, sequence], where packing leaves something out: each row begins with a token,
/// has no token after padding, and one row at least has padding. `None` otherwise.
pub(crate) fn lengths(mask: &Tensor) -> Option<Vec<usize>> {
    let &[_, sequence] = mask.shape() else { return None };
    let elements = mask.to_f64();
    let length = |row: &[f64]| {
        let tokens = row.iter().take_while(|element| **element != 0.0).count();
        (tokens > 0 && row[tokens..].iter().all(|element| *element == 0.0)).then_some(tokens)
    };
    let lengths = elements.chunks(sequence.max(1)).map(length).collect::<Option<Vec<_>>>()?;
    lengths.iter().any(|length| *length < sequence).then_some(lengths)
}

/// The sizes of a packed batch: what its program depends on.
///
/// The tokens of all rows lie one after another, and after them what fills them up to a multiple of a step: the first
/// token again and again, in sequences of its own, which no result has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PackedSizes {
    /// Rows.
    pub(crate) batch: usize,
    /// The longest row that there may be: positions of the mask.
    pub(crate) sequence: usize,
    /// Tokens, with those that fill up.
    pub(crate) tokens: usize,
}

impl PackedSizes {
    /// The sizes for rows of `lengths` tokens out of `sequence`; `None` where kernels cannot count them.
    pub(crate) fn of(lengths: &[usize], sequence: usize) -> Option<Self> {
        let batch = lengths.len();
        let all = batch.checked_mul(sequence).filter(|all| i32::try_from(*all).is_ok())?;
        let tokens: usize = lengths.iter().sum();
        Some(Self { batch, sequence, tokens: tokens.next_multiple_of(step(all)).min(all) })
    }

    /// The sequences of a program: rows, and those of what fills up, of which some may be empty.
    pub(crate) fn sequences(&self) -> usize {
        self.batch + step(self.batch * self.sequence).div_ceil(self.sequence)
    }

    /// Which of [`numbers`](Self::numbers) is the first of the token of each place in the packed batch.
    pub(crate) fn rows(&self) -> usize {
        self.sequences() + 1
    }

    /// Which of them is the first of the place of each token of the batch.
    pub(crate) fn places(&self) -> usize {
        self.rows() + self.tokens
    }

    /// What kernels take: where each sequence starts, and the end; for each place in the packed batch, which token of
    /// [batch * sequence] it has; for each of these tokens its place, or the number of places for padding.
    pub(crate) fn numbers(&self, lengths: &[usize]) -> Vec<i32> {
        let Self { sequence, tokens, .. } = *self;
        let (mut starts, mut rows) = (vec![0], Vec::with_capacity(tokens));
        let mut places = vec![tokens; self.batch * sequence];
        for (row, &length) in lengths.iter().enumerate() {
            let own = row * sequence..row * sequence + length;
            places[own.clone()].iter_mut().zip(rows.len()..).for_each(|(place, at)| *place = at);
            rows.extend(own);
            starts.push(rows.len());
        }
        rows.resize(tokens, 0);
        let mut end = *starts.last().unwrap_or(&0);
        starts.resize_with(self.sequences() + 1, || {
            end = tokens.min(end + sequence);
            end
        });
        // The largest one is the number of all tokens, which fits.
        let numbers = starts.into_iter().chain(rows).chain(places);
        numbers.map(|number| i32::try_from(number).unwrap_or(i32::MAX)).collect()
    }
}

/// The step in which programs are made for a number of tokens out of `all`.
fn step(all: usize) -> usize {
    all.div_ceil(STEPS).next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mask(rows: &[&[i64]]) -> Tensor {
        Tensor::new(vec![rows.len(), rows[0].len()], rows.concat()).unwrap()
    }

    #[test]
    fn only_padding_at_the_ends_of_rows_is_left_out() {
        assert_eq!(lengths(&mask(&[&[1, 1, 1], &[1, 0, 0]])), Some(vec![3, 1]));
        for other in [&[&[1i64, 1, 1][..], &[1, 1, 1]], &[&[1, 1, 1], &[0, 1, 1]], &[&[1, 0, 1], &[1, 1, 0]]] {
            assert_eq!(lengths(&mask(other)), None);
        }
        assert_eq!(lengths(&mask(&[&[1, 1], &[0, 0]])), None, "a row without tokens has results too");
        assert_eq!(lengths(&Tensor::new(vec![2, 0], Vec::<i64>::new()).unwrap()), None);
        assert_eq!(lengths(&Tensor::new(vec![1, 2], vec![true, false]).unwrap()), Some(vec![1]));
    }

    #[test]
    fn few_programs_serve_all_batches_of_a_size() {
        let tokens = |most: usize| {
            let lengths: Vec<usize> = (0..32).map(|row| 1 + most * row / 31).collect();
            PackedSizes::of(&lengths, 128).unwrap().tokens
        };
        let all: std::collections::BTreeSet<usize> = (0..128).map(tokens).collect();
        assert!(all.len() <= STEPS && all.iter().all(|tokens| tokens.is_multiple_of(256)), "{all:?}");
        assert_eq!(PackedSizes::of(&[1, 2], 3).unwrap().tokens, 6, "no more than all");
        assert_eq!(PackedSizes::of(&[1; 1 << 16], 1 << 16), None);
    }

    proptest! {
        #[test]
        fn numbers_say_where_each_token_goes(sequence in 1usize..70, of in prop::collection::vec(0usize..70, 1..9)) {
            let lengths: Vec<usize> = of.iter().map(|length| 1 + length % sequence).collect();
            let sizes = PackedSizes::of(&lengths, sequence).unwrap();
            let numbers: Vec<usize> =
                sizes.numbers(&lengths).into_iter().map(|number| usize::try_from(number).unwrap()).collect();
            prop_assert_eq!(numbers.len(), sizes.places() + lengths.len() * sequence);
            let (starts, rest) = numbers.split_at(sizes.rows());
            let (rows, places) = rest.split_at(sizes.tokens);
            prop_assert_eq!((starts.len(), starts[0], starts[starts.len() - 1]), (sizes.sequences() + 1, 0, sizes.tokens));
            // No sequence is longer than kernels are told, those that fill up too.
            prop_assert!(starts.windows(2).all(|pair| pair[0] <= pair[1] && pair[1] - pair[0] <= sequence));
            let tokens: usize = lengths.iter().sum();
            prop_assert!((tokens..=lengths.len() * sequence).contains(&sizes.tokens));
            // Unpacking what was packed gives each token back, and nothing else.
            let mut seen = 0;
            for (row, length) in lengths.iter().enumerate() {
                prop_assert_eq!(starts[row + 1] - starts[row], *length);
                for (at, &place) in places[row * sequence..][..sequence].iter().enumerate() {
                    if at < *length {
                        prop_assert_eq!((place, rows[place]), (starts[row] + at, row * sequence + at));
                        seen += 1;
                    } else {
                        prop_assert_eq!(place, sizes.tokens);
                    }
                }
            }
            prop_assert_eq!(seen, tokens);
            prop_assert!(rows[tokens..].iter().all(|row| *row == 0));
        }
    }
}
