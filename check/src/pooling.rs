//! How token embeddings become the embedding of a text.

use planish_artifact::evaluation::Pooling;
use planish_eval::Tensor;

use super::positions::{Positions, floats};

/// One embedding for each row of token embeddings [batch, tokens, features], or of embeddings [batch, features].
pub(crate) fn pool(pooling: Pooling, tokens: &Tensor, positions: Option<&Positions>) -> Vec<Vec<f32>> {
    let (numbers, shape) = (floats(tokens), tokens.shape());
    let (length, size) = match *shape {
        [_, length, size] => (length, size),
        _ => (1, shape.last().copied().unwrap_or(1)),
    };
    let row = |(row, numbers): (usize, &[f32])| {
        let holds = |at: usize| positions.is_none_or(|positions| length == 1 || positions.hold(row, at, length));
        let mut kept = numbers.chunks_exact(size.max(1)).enumerate().filter(|(at, _)| holds(*at)).map(|(_, v)| v);
        match pooling {
            Pooling::Cls | Pooling::Model => kept.next().map_or_else(|| vec![0.0; size], <[f32]>::to_vec),
            Pooling::Max => {
                let larger = |most: Vec<f32>, v: &[f32]| most.iter().zip(v).map(|(a, b)| a.max(*b)).collect();
                kept.fold(vec![f32::NEG_INFINITY; size], larger)
            }
            Pooling::Mean => {
                let (mut sum, mut count) = (vec![0f64; size], 0u32);
                for vector in kept {
                    sum.iter_mut().zip(vector).for_each(|(sum, v)| *sum += f64::from(*v));
                    count += 1;
                }
                sum.into_iter().map(|v| (v / f64::from(count.max(1))) as f32).collect()
            }
        }
    };
    numbers.chunks_exact((length * size).max(1)).enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(elements: &[i64]) -> Positions {
        let mask = Tensor::new(vec![1, elements.len()], elements.to_vec()).unwrap();
        Positions::of_mask(&mask).unwrap()
    }

    #[test]
    fn padding_has_no_part_in_an_embedding() {
        let tokens = Tensor::new(vec![1, 4, 2], vec![9f32, 9.0, 1.0, -2.0, 3.0, -4.0, 9.0, 9.0]).unwrap();
        let pooled = |pooling: Pooling| pool(pooling, &tokens, Some(&positions(&[0, 1, 1, 0])));
        assert_eq!(pooled(Pooling::Mean), [[2.0, -3.0]]);
        assert_eq!(pooled(Pooling::Cls), [[1.0, -2.0]]);
        assert_eq!(pooled(Pooling::Max), [[3.0, -2.0]]);
        assert_eq!(pool(Pooling::Mean, &tokens, None), [[5.5, 3.0]]);
        let one = Tensor::new(vec![2, 2], vec![1f32, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(pool(Pooling::Model, &one, Some(&positions(&[0, 1]))), [[1.0, 2.0], [3.0, 4.0]]);
    }
}
