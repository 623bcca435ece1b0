//! However the data is divided, and in whatever order the statistics are merged, they are the same.

use proptest::prelude::*;

use super::*;

const COLUMNS: usize = 3;

/// Statistics of some of the tokens, a run each.
fn statistics(tokens: &[(u64, [f32; COLUMNS])]) -> InputStatistics {
    let mut all = InputStatistics::new(COLUMNS);
    for (token, row) in tokens {
        let ids = [Some(RowId { sample: token / 5, token: token % 5 })];
        all.add(TokenRows { elements: row, columns: COLUMNS, ids: &ids }).unwrap();
    }
    all
}

/// Elements of all magnitudes, zeros of both signs among them.
fn element() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => (-1.0f32..1.0, -20i32..30).prop_map(|(x, power)| x * 2f32.powi(power)),
        1 => prop::sample::select(vec![0.0, -0.0, 1e-44, -1e-44, 1.0, 2.0, -4.0, 1.8e19, -1.8e19, 1.3e8, 1.4e8]),
    ]
}

fn merged(parts: &[&InputStatistics]) -> InputStatistics {
    parts.iter().fold(InputStatistics::new(COLUMNS), |mut all, part| {
        all.merge(part).unwrap();
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn merging_is_exact_associative_and_commutative(
        rows in prop::collection::vec((prop::array::uniform3(element()), 0usize..3), 0..250),
    ) {
        let tokens: Vec<_> = rows.iter().enumerate().map(|(i, (row, _))| (i as u64, *row)).collect();
        let whole = statistics(&tokens);
        let part = |wanted: usize| {
            let own = tokens.iter().zip(&rows).filter(|(_, (_, part))| *part == wanted);
            statistics(&own.map(|(token, _)| *token).collect::<Vec<_>>())
        };
        let (a, b, c) = (part(0), part(1), part(2));
        for order in [[&a, &b, &c], [&c, &b, &a], [&b, &a, &c]] {
            prop_assert_eq!(&merged(&order), &whole);
        }
        prop_assert_eq!(&merged(&[&a, &merged(&[&b, &c])]), &whole);
        prop_assert_eq!(&merged(&[&merged(&[&a, &b]), &c]), &whole);
        let together: Vec<f32> = tokens.iter().flat_map(|(_, row)| *row).collect();
        let ids: Vec<_> = tokens.iter().map(|(t, _)| Some(RowId { sample: t / 5, token: t % 5 })).collect();
        let mut at_once = InputStatistics::new(COLUMNS);
        at_once.add(TokenRows { elements: &together, columns: COLUMNS, ids: &ids }).unwrap();
        prop_assert_eq!(&at_once, &whole);
        let bits = |s: &InputStatistics| s.columns.iter().map(|c| (c.min.to_bits(), c.max.to_bits())).collect::<Vec<_>>();
        prop_assert_eq!(bits(&at_once), bits(&merged(&[&c, &a, &b])), "zeros have one sign");
    }
}
