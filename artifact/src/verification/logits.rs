//! Logits of another shape than those of the reference: of a padded vocabulary, or of the last tokens.

use std::borrow::Cow;
use std::ops::Range;

use planish_eval::Tensor;
use planish_ir::OutputRole;

use crate::manifest::PaddedVocabulary;

/// How the logits of an artifact differ in shape from those of its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogitsForm {
    /// The vocabulary, where the logits have a column for each of its rows.
    pub padded: Option<PaddedVocabulary>,
    /// Whether only the last token of each row has logits.
    pub last: bool,
}

impl LogitsForm {
    /// What is compared of an output: of the reference the tokens that the candidate has, of the candidate the columns of
    /// tokens.
    ///
    /// # Errors
    /// As [`of_tokens`].
    pub fn aligned<'a>(
        &self,
        role: OutputRole,
        expected: &'a Tensor,
        actual: &'a Tensor,
    ) -> Result<[Cow<'a, Tensor>; 2], FillerError> {
        let last = if self.last && role == OutputRole::Logits { last_tokens(expected) } else { None };
        let expected = last.map_or(Cow::Borrowed(expected), Cow::Owned);
        let cut = of_tokens(&expected, actual, self.padded.as_ref())?;
        Ok([expected, cut.map_or(Cow::Borrowed(actual), Cow::Owned)])
    }
}

/// The last tokens of [batch, tokens, features], as [batch, 1, features].
fn last_tokens(tensor: &Tensor) -> Option<Tensor> {
    let &[batch, tokens, features] = tensor.shape() else { return None };
    let row = features * tensor.dtype().size();
    let bytes = tensor.to_bytes();
    let rows = bytes.chunks((tokens * row).max(1));
    let last: Vec<u8> = rows.flat_map(|tokens| &tokens[tokens.len() - row..]).copied().collect();
    Tensor::from_bytes(tensor.dtype(), vec![batch, 1, features], &last)
}

/// A column of no token is so large that its token might be taken for one of the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{number:e} in a column without a token, at most {allowed:e} allowed")]
pub struct FillerError {
    /// What the column has.
    pub number: f64,
    /// What it may have.
    pub allowed: f64,
}

/// The columns that count of a tensor of the candidate where a padded vocabulary makes it wider than
/// the reference's; `None` where it does not.
///
/// # Errors
/// When one of the other columns is above half of the element type's finite minimum, so that its token
/// might be taken for one of the vocabulary.
pub fn of_tokens(
    expected: &Tensor,
    actual: &Tensor,
    vocabulary: Option<&PaddedVocabulary>,
) -> Result<Option<Tensor>, FillerError> {
    let Some(&PaddedVocabulary { size, padded, .. }) = vocabulary else { return Ok(None) };
    let wider = expected.shape().last() == Some(&size) && actual.shape().last() == Some(&padded);
    let (true, Some(lowest)) = (wider && padded > size, actual.dtype().finite_min()) else { return Ok(None) };
    let (dtype, bytes) = (actual.dtype(), actual.to_bytes());
    let columns = |which: Range<usize>| -> Option<Tensor> {
        let (of_row, of_columns) = (padded * dtype.size(), which.start * dtype.size()..which.end * dtype.size());
        let kept: Vec<u8> = bytes.chunks(of_row).flat_map(|row| &row[of_columns.clone()]).copied().collect();
        let (_, leading) = actual.shape().split_last()?;
        Tensor::from_bytes(dtype, [leading, &[which.len()]].concat(), &kept)
    };
    let fillers = columns(size..padded).map_or_else(Vec::new, |fillers| fillers.to_f64());
    if let Some(number) = fillers.into_iter().find(|number| *number > lowest / 2.0 || number.is_nan()) {
        return Err(FillerError { number, allowed: lowest / 2.0 });
    }
    Ok(columns(0..size))
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
        assert!(cut(&wide(0.0)).unwrap_err().to_string().starts_with("0e0 in a column without a token"));
        assert!(cut(&wide(f32::NAN)).is_err());
        assert_eq!(cut(&expected), Ok(None));
        assert_eq!(of_tokens(&expected, &wide(f32::MIN), None), Ok(None), "nothing was padded");
    }

    #[test]
    fn last_tokens_are_compared_with_last_tokens() {
        let all = Tensor::new(vec![2, 3, 1], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let last = Tensor::new(vec![2, 1, 1], vec![3.0f32, 6.0]).unwrap();
        let form = LogitsForm { last: true, padded: None };
        let compared =
            |form: &LogitsForm, role: OutputRole| form.aligned(role, &all, &last).map(|pair| pair.map(Cow::into_owned));
        assert_eq!(compared(&form, OutputRole::Logits), Ok([last.clone(), last.clone()]));
        assert_eq!(compared(&form, OutputRole::Other), Ok([all.clone(), last.clone()]), "another output");
        assert_eq!(compared(&LogitsForm::default(), OutputRole::Logits), Ok([all.clone(), last.clone()]));
    }
}
