//! Tokens of some positions: columns of a matrix.

use planish_eval::Tensor;

/// The columns of a matrix from one on, up to another.
pub fn columns(tensor: &Tensor, from: usize, to: usize) -> Tensor {
    let &[rows, width] = tensor.shape() else { return tensor.clone() };
    let (to, size) = (to.min(width), tensor.dtype().size());
    let bytes = tensor.to_bytes();
    let kept: Vec<u8> =
        (0..rows).flat_map(|row| &bytes[(row * width + from) * size..(row * width + to) * size]).copied().collect();
    Tensor::from_bytes(tensor.dtype(), vec![rows, to - from], &kept).unwrap_or_else(|| tensor.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_of_each_row() {
        let matrix = Tensor::new(vec![2, 3], vec![1i64, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(columns(&matrix, 1, 2), Tensor::new(vec![2, 1], vec![2i64, 5]).unwrap());
        assert_eq!(columns(&matrix, 1, usize::MAX), Tensor::new(vec![2, 2], vec![2i64, 3, 5, 6]).unwrap());
        assert_eq!(columns(&matrix, 3, 9).shape(), [2, 0]);
    }
}
