//! What tokens show of a mixture of experts.

use super::StatisticsError;

/// How often tokens took each expert, and the squares of what they gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertUse {
    columns: usize,
    counts: Vec<u64>,
    /// [experts, columns].
    squares: Vec<f64>,
}

impl ExpertUse {
    /// Of so many experts that take so many columns; no token yet.
    #[must_use]
    pub fn new(experts: usize, columns: usize) -> Self {
        Self { columns, counts: vec![0; experts], squares: vec![0.0; experts * columns] }
    }

    /// Adds a token, `[columns]`, and the experts that it took.
    ///
    /// # Errors
    /// When the token has other columns.
    pub fn add(&mut self, token: &[f32], chosen: impl Iterator<Item = usize>) -> Result<(), StatisticsError> {
        if token.len() != self.columns {
            return Err(StatisticsError::Columns { expected: self.columns, found: token.len() });
        }
        for expert in chosen {
            let Some(count) = self.counts.get_mut(expert) else { continue };
            *count += 1;
            let squares = &mut self.squares[expert * self.columns..][..self.columns];
            squares.iter_mut().zip(token).for_each(|(sum, x)| *sum += f64::from(*x).powi(2));
        }
        Ok(())
    }

    /// How often tokens took each expert: `[experts]`.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// How much the square error of each column of each expert's weights counts: the mean square of what the expert was
    /// given, [experts, columns], and 1 for all columns of experts that no token took.
    #[must_use]
    pub fn importance(&self) -> Vec<f32> {
        let rows = self.squares.chunks(self.columns.max(1)).zip(&self.counts);
        rows.flat_map(|(squares, count)| squares.iter().map(|sum| if *count == 0 { 1.0 } else { sum / *count as f64 }))
            .map(|x| x as f32)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_an_expert_weigh_as_the_tokens_that_it_took() {
        let mut own = ExpertUse::new(3, 2);
        own.add(&[1.0, 2.0], [0, 2].into_iter()).unwrap();
        own.add(&[3.0, 0.0], [2].into_iter()).unwrap();
        assert_eq!(own.counts(), [1, 0, 2]);
        assert_eq!(own.importance(), [1.0, 4.0, 1.0, 1.0, 5.0, 2.0]);
        let error = own.add(&[1.0], [0].into_iter()).unwrap_err();
        assert_eq!(error, StatisticsError::Columns { expected: 2, found: 1 });
    }
}
