//! From the tokens of a window to pieces of text with times (`_retrieve_segment` of the transformers library).

/// Seconds from one timestamp to the next.
const STEP: f64 = 0.02;
/// Seconds from one frame of features to the next.
const FRAME: f64 = 0.01;
/// Frames from one timestamp to the next.
const FRAMES: i64 = 2;

/// A piece of a window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Piece {
    /// Seconds from the beginning of the recording.
    pub(super) start: f64,
    pub(super) end: f64,
    /// With timestamps.
    pub(super) tokens: Vec<i64>,
}

/// The pieces of the tokens of a window that begins `seek` frames after the beginning and has so many `frames`, and how many frames
/// after its beginning the next one begins. `first` is the first timestamp, where there are any.
pub(super) fn pieces(tokens: &[i64], first: Option<i64>, seek: usize, frames: usize) -> (Vec<Piece>, usize) {
    let offset = seek as f64 * FRAME;
    let time_of = |id: i64| first.filter(|first| id >= *first).map(|first| id - first);
    let is_time = |at: usize| tokens.get(at).is_some_and(|id| time_of(*id).is_some());
    let count = tokens.len();
    let ends_in_one = count >= 2 && is_time(count - 1) && !is_time(count - 2);
    let mut cuts: Vec<usize> = (1..count).filter(|at| is_time(at - 1) && is_time(*at)).collect();
    if cuts.is_empty() {
        // The window is one piece. Its last timestamp, if it is no zero, says where it ends.
        let last = tokens.iter().rev().find_map(|id| time_of(*id)).filter(|time| *time != 0);
        // In single precision, as the library computes it.
        let whole = || f64::from((frames as f32 * FRAME as f32 / STEP as f32).floor());
        let last = last.map_or_else(whole, |time| time as f64);
        return (vec![Piece { start: offset, end: offset + last * STEP, tokens: tokens.to_vec() }], frames);
    }
    match cuts.last_mut() {
        // Nothing is said after the last timestamp.
        _ if ends_in_one => cuts.push(count),
        // The second one of the last pair stays with the last piece.
        Some(last) => *last += 1,
        None => {}
    }
    let mut from = 0;
    let mut found = Vec::new();
    for (i, &to) in cuts.iter().enumerate() {
        let part = &tokens[from..to];
        let is_last = i + 1 == cuts.len();
        let end = if is_last && !ends_in_one { part.len().saturating_sub(2) } else { part.len() - 1 };
        // A piece may begin or end with a word; then the library counts backwards from the first timestamp.
        let time = |id: i64| (id - first.unwrap_or(0)) as f64 * STEP;
        found.push(Piece { start: offset + time(part[0]), end: offset + time(part[end]), tokens: part.to_vec() });
        from = to;
    }
    if ends_in_one {
        return (found, frames);
    }
    // What is after the last pair is cut in the middle: the next window reads it.
    let last = tokens.get(from.saturating_sub(2)).and_then(|id| time_of(*id)).unwrap_or(0);
    (found, usize::try_from(last * FRAMES).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tokens: &[i64]) -> (Vec<(f64, f64, usize)>, usize) {
        let (found, next) = pieces(tokens, Some(100), 1000, 3000);
        let round = |seconds: f64| (seconds * 1e6).round() / 1e6;
        (found.iter().map(|piece| (round(piece.start), round(piece.end), piece.tokens.len())).collect(), next)
    }

    #[test]
    fn a_window_without_a_pair_is_one_piece() {
        assert_eq!(of(&[100, 1, 2]), (vec![(10.0, 40.0, 3)], 3000));
        assert_eq!(of(&[100, 1, 2, 150]), (vec![(10.0, 11.0, 4)], 3000));
        assert_eq!(of(&[]), (vec![(10.0, 40.0, 0)], 3000));
        assert_eq!(pieces(&[100, 1], None, 0, 7).0[0].end, 0.06, "half a step is none");
    }

    #[test]
    fn pairs_cut_and_the_next_window_begins_at_the_last() {
        assert_eq!(of(&[100, 1, 150, 150, 2, 200, 200, 3]), (vec![(10.0, 11.0, 3), (11.0, 12.0, 4)], 200));
        assert_eq!(of(&[100, 1, 150, 150, 2, 200]), (vec![(10.0, 11.0, 3), (11.0, 12.0, 3)], 3000));
    }
}
