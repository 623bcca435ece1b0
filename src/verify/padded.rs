//! Logits of a padded vocabulary: more columns than the reference has.

use planish_eval::Tensor;

use crate::artifact::manifest::PaddedVocabulary;

/// The columns that count of a tensor of the candidate where a padded vocabulary makes it wider than
/// the reference's; `None` where it does not.
///
/// # Errors
/// When one of the other columns is above half of the element type's finite minimum, so that its token
/// might be taken for one of the vocabulary.
pub(crate) fn of_tokens(
    expected: &Tensor,
    actual: &Tensor,
    vocabulary: Option<&PaddedVocabulary>,
) -> Result<Option<Tensor>, String> {
    let Some(&PaddedVocabulary { size, padded, .. }) = vocabulary else { return Ok(None) };
    let wider = expected.shape().last() == Some(&size) && actual.shape().last() == Some(&padded);
    let (true, Some(lowest)) = (wider && padded > size, actual.dtype().finite_min()) else { return Ok(None) };
    let numbers = actual.to_f64();
    let above = |number: &&f64| **number > lowest / 2.0 || number.is_nan();
    if let Some(number) = numbers.chunks(padded).flat_map(|row| &row[size..]).find(above) {
        return Err(format!("{number:e} in a column without a token, at most {:e} allowed", lowest / 2.0));
    }
    let kept: Vec<f64> = numbers.chunks(padded).flat_map(|row| &row[..size]).copied().collect();
    let mut shape = actual.shape().to_vec();
    shape.pop();
    shape.push(size);
    Ok(Tensor::from_f64(actual.dtype(), shape, &kept))
}

#[cfg(test)]
mod tests {
    use planish_passes::Logits;

    use super::*;

    #[test]
    fn columns_of_no_token_are_cut_where_they_are_as_low_as_they_should_be() {
        let vocabulary = PaddedVocabulary { size: 2, padded: 3, logits: Some(Logits::Padded) };
        let expected = Tensor::new(vec![2, 2], vec![1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let wide = |last: f32| Tensor::new(vec![2, 3], vec![1.0, 2.0, f32::MIN, 3.0, 4.0, last]).unwrap();
        let cut = |actual: &Tensor| of_tokens(&expected, actual, Some(&vocabulary));
        assert_eq!(cut(&wide(f32::MIN / 2.0)), Ok(Some(expected.clone())));
        assert_eq!(cut(&wide(f32::NEG_INFINITY)), Ok(Some(expected.clone())));
        assert!(cut(&wide(0.0)).unwrap_err().starts_with("0e0 in a column without a token"));
        assert!(cut(&wide(f32::NAN)).is_err());
        assert_eq!(cut(&expected), Ok(None));
        assert_eq!(of_tokens(&expected, &wide(f32::MIN), None), Ok(None), "nothing was padded");
    }
}
