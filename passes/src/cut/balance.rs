//! Which of the places a graph is cut at.

use super::points::Point;

/// The places between `count` stages: the most expensive stage is as cheap as it can be, and then the others are as equal as they
/// can be, by the sum of the squares of their costs. There are at least `count - 1` places.
pub(super) fn choose(points: &[Point], count: usize) -> Vec<Point> {
    let all = points.first().map_or(0, |point| point.all);
    // The costs before each place, the beginning and the end included.
    let before: Vec<u64> = std::iter::once(0).chain(points.iter().map(|point| point.before)).chain([all]).collect();
    let max = |most: f64, cost: f64| most.max(cost);
    let Some((bound, _)) = best(&before, count, f64::INFINITY, max) else { return Vec::new() };
    let squares = |sum: f64, cost: f64| sum + cost * cost;
    let chosen = best(&before, count, bound, squares).map(|(_, chosen)| chosen).unwrap_or_default();
    chosen.into_iter().map(|at| points[at - 1]).collect()
}

/// The ends of all stages but the last one for which the joined costs are smallest, and these, where no stage costs more than a
/// bound; none where there is no such choice.
fn best(before: &[u64], count: usize, bound: f64, join: fn(f64, f64) -> f64) -> Option<(f64, Vec<usize>)> {
    let last = before.len() - 1;
    let cost = |from: usize, to: usize| before[to].saturating_sub(before[from]) as f64;
    // Of the stages so far, by where they end: what is best, and where the last of them begins.
    let mut rows: Vec<Vec<Option<(f64, usize)>>> = vec![vec![None; before.len()]];
    rows[0][0] = Some((0.0, 0));
    for stage in 1..=count {
        let earlier = &rows[stage - 1];
        let row = (0..before.len()).map(|to| {
            let begin = (0..to).rev().take_while(|from| cost(*from, to) <= bound);
            let joined = begin.filter_map(|from| Some((join(earlier[from]?.0, cost(from, to)), from)));
            joined.min_by(|(a, _), (b, _)| a.total_cmp(b))
        });
        let row = row.collect();
        rows.push(row);
    }
    let (joined, _) = rows[count][last]?;
    let mut ends = Vec::new();
    let mut end = last;
    for stage in (1..=count).rev() {
        end = rows[stage][end]?.1;
        ends.push(end);
    }
    // The first stage begins at the beginning.
    ends.pop();
    ends.reverse();
    Some((joined, ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_expensive_stage_is_as_cheap_as_it_can_be() {
        let ends = |before: &[u64], count: usize| best(before, count, f64::INFINITY, f64::max).map(|(most, _)| most);
        // Costs 5, 1, 1, 1, 6.
        let before = [0, 5, 6, 7, 8, 14];
        assert_eq!(ends(&before, 1), Some(14.0));
        assert_eq!(ends(&before, 2), Some(7.0));
        assert_eq!(ends(&before, 3), Some(6.0));
        assert_eq!(ends(&before, 6), None);
        // Within that bound the others are equal: 5 and 1, 1, 1 and 6 rather than 6 and 1, 1 and 6.
        let (_, even) = best(&before, 3, 6.0, |sum, cost| sum + cost * cost).unwrap();
        assert_eq!(even, [1, 4]);
    }
}
