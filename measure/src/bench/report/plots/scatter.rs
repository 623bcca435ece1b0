//! Marks on linear axes, with a line through those that no other is better than.

use super::super::axes::Axes;
use super::super::scale::Scale;
use super::super::svg::Svg;
use super::{Name, Point, SMALL, words};

/// The pixels of the plot.
const SIZE: [f64; 2] = [SMALL[0], 290.0];

/// What is right of another is better. What is above is better too, or with `less` what is below. The vertical axis has at
/// least these values. `None` without a point.
pub(in super::super) fn scatter(
    name: &Name<'_>,
    (x, y): (&str, &str),
    less: bool,
    least: [f64; 2],
    points: &[Point],
) -> Option<String> {
    if points.is_empty() {
        return None;
    }
    let axes = Axes::new(
        SIZE,
        Scale::linear(points.iter().map(|p| p.x).chain([0.0])),
        Scale::linear(points.iter().map(|p| p.y).chain(least)),
    );
    let mut svg = Svg::new(SIZE[0], SIZE[1]);
    axes.draw(&mut svg, x, y);
    let best: Vec<[f64; 2]> = frontier(points, less).iter().map(|p| axes.at(p.x, p.y)).collect();
    svg.polyline("frontier", &best);
    for point in points {
        svg.mark(point.shape, point.colour, axes.at(point.x, point.y), &point.text, &point.tip);
    }
    Some(svg.finish(name.id, "scatter", name.title, &words(points.iter().map(|p| p.tip.as_str()))))
}

/// The points that no other is at least as good as in both, the fastest first.
fn frontier(points: &[Point], less: bool) -> Vec<&Point> {
    let mut sorted: Vec<&Point> = points.iter().collect();
    let better = |a: f64, b: f64| if less { a < b } else { a > b };
    sorted.sort_by(|a, b| b.x.total_cmp(&a.x).then(if less { a.y.total_cmp(&b.y) } else { b.y.total_cmp(&a.y) }));
    let mut best: Vec<&Point> = Vec::new();
    for point in sorted {
        if best.last().is_none_or(|last| better(point.y, last.y)) {
            best.push(point);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NAME, check, point};
    use super::*;

    #[test]
    fn the_best_are_joined() {
        let points = [point(1.0, 1.0), point(2.0, 0.9), point(1.5, 0.8), point(2.0, 0.7)];
        let best = |less| frontier(&points, less).iter().map(|p| (p.x, p.y)).collect::<Vec<_>>();
        assert_eq!(best(false), [(2.0, 0.9), (1.0, 1.0)]);
        assert_eq!(best(true), [(2.0, 0.7)]);
        let svg = scatter(&NAME, ("x", "y"), false, [0.5, 1.0], &points).unwrap();
        check(&svg, 4);
        assert!(svg.contains("frontier"), "{svg}");
        assert!(scatter(&NAME, ("x", "y"), false, [0.5, 1.0], &[]).is_none());
        check(&scatter(&NAME, ("x", "y"), true, [0.5, 1.0], &[point(1.0, 1.0)]).unwrap(), 1);
    }
}
