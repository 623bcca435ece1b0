mod merging;
mod methods;

use super::*;

/// Statistics of one column with these elements, a token each.
fn column(elements: &[f32]) -> InputStatistics {
    let ids: Vec<_> = (0..elements.len() as u64).map(|token| Some(RowId { sample: 0, token })).collect();
    let mut statistics = InputStatistics::new(1);
    statistics.add(TokenRows { elements, columns: 1, ids: &ids }).unwrap();
    statistics
}

#[test]
fn rows_of_padding_do_not_count() {
    let elements = [1.0, 2.0, f32::NAN, 1e30, -3.0, 4.0];
    let id = |token| Some(RowId { sample: 7, token });
    let mut statistics = InputStatistics::new(2);
    statistics.add(TokenRows { elements: &elements, columns: 2, ids: &[id(0), None, id(2)] }).unwrap();
    assert_eq!((statistics.tokens, statistics.extremes()), (2, Range { min: -3.0, max: 4.0 }));
    assert_eq!(statistics.means(), [-1.0, 3.0]);
    assert_eq!((statistics.histogram.total(), statistics.rows.len()), (4, 2));
    assert_eq!(statistics.columns[0].range(), Range { min: -3.0, max: 1.0 });
}

#[test]
fn elements_that_are_not_finite_are_named() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2.0 * LARGEST] {
        let elements = [1.0, 2.0, 3.0, bad];
        let id = |token| Some(RowId { sample: 7, token });
        let mut statistics = InputStatistics::new(2);
        let rows = TokenRows { elements: &elements, columns: 2, ids: &[id(0), id(1)] };
        let message = statistics.add(rows).unwrap_err().to_string();
        assert_eq!(message, format!("column 1 is {bad} at token 1 of sample 7"));
        assert_eq!(statistics, InputStatistics::new(2), "nothing was added");
    }
    let other = TokenRows { elements: &[1.0; 3], columns: 3, ids: &[None] };
    let error = InputStatistics::new(2).add(other).unwrap_err();
    assert_eq!(error, StatisticsError::Columns { expected: 2, found: 3 });
}
