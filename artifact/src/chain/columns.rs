//! Tokens of some positions: columns of a matrix.

use planish_eval::Tensor;

/// The columns of positions of several coordinates, [coordinates, rows, width], from one on, up to another.
pub fn columns_of_coordinates(tensor: &Tensor, from: usize, to: usize) -> Tensor {
    let &[coordinates, rows, width] = tensor.shape() else { return columns(tensor, from, to) };
    let reshaped = |tensor: &Tensor, shape: Vec<usize>| Tensor::from_bytes(tensor.dtype(), shape, &tensor.to_bytes());
    let cut = reshaped(tensor, vec![coordinates * rows, width]).map(|all| columns(&all, from, to));
    let cut = cut.and_then(|cut| reshaped(&cut, vec![coordinates, rows, cut.shape()[1]]));
    cut.unwrap_or_else(|| tensor.clone())
}

/// The columns of a matrix, or of one of vectors, from one on, up to another.
pub fn columns(tensor: &Tensor, from: usize, to: usize) -> Tensor {
    let (rows, width, features) = match *tensor.shape() {
        [rows, width] => (rows, width, None),
        [rows, width, features] => (rows, width, Some(features)),
        _ => return tensor.clone(),
    };
    let (to, size) = (to.min(width), tensor.dtype().size() * features.unwrap_or(1));
    let bytes = tensor.to_bytes();
    let kept: Vec<u8> =
        (0..rows).flat_map(|row| &bytes[(row * width + from) * size..(row * width + to) * size]).copied().collect();
    let shape = [rows, to - from].into_iter().chain(features).collect();
    Tensor::from_bytes(tensor.dtype(), shape, &kept).unwrap_or_else(|| tensor.clone())
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
        let coordinates = Tensor::new(vec![3, 1, 2], vec![1i64, 2, 3, 4, 5, 6]).unwrap();
        let cut = columns_of_coordinates(&coordinates, 1, usize::MAX);
        assert_eq!(cut, Tensor::new(vec![3, 1, 1], vec![2i64, 4, 6]).unwrap());
        let vectors = Tensor::new(vec![1, 3, 2], vec![1i64, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(columns(&vectors, 1, 2), Tensor::new(vec![1, 1, 2], vec![3i64, 4]).unwrap());
    }
}
