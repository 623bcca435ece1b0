//! Marks on linear axes, with a line through those that no other is better than.

use super::super::axes::Axes;
use super::super::scale::Scale;
use super::super::svg::{COLOURS, Svg, fitted, width};
use super::{Name, Point, SMALL, words};

/// The pixels of the plot.
const SIZE: [f64; 2] = [SMALL[0], 290.0];

/// What is right of another is better. What is above is better too, or with `less` what is below. `None` without a point.
pub(in super::super) fn scatter(name: &Name<'_>, x: &str, y: &str, less: bool, points: &[Point]) -> Option<String> {
    if points.is_empty() {
        return None;
    }
    let axes = Axes::new(
        SIZE,
        Scale::linear(points.iter().map(|p| p.x).chain([0.0])),
        Scale::linear(points.iter().map(|p| p.y)),
    );
    let mut svg = Svg::new(SIZE[0], SIZE[1]);
    axes.draw(&mut svg, x, y);
    let best: Vec<[f64; 2]> = frontier(points, less).iter().map(|p| axes.at(p.x, p.y)).collect();
    svg.polyline("frontier", &best);
    for point in points {
        svg.mark(point.shape, point.colour, axes.at(point.x, point.y), &point.text, &point.tip);
    }
    // The names, where there is room beside the mark: boxes are left, top, right, bottom.
    let mut taken: Vec<[f64; 4]> =
        points.iter().map(|p| axes.at(p.x, p.y)).map(|[x, y]| [x - 10.0, y - 10.0, x + 10.0, y + 10.0]).collect();
    for point in points {
        let [x, y] = axes.at(point.x, point.y);
        let text = fitted(&point.label, 150.0);
        let wide = width(&text);
        let places = [
            ([x + 12.0, y + 4.0], "near", [x + 12.0, y - 6.0, x + 12.0 + wide, y + 6.0]),
            ([x - 12.0, y + 4.0], "near end", [x - 12.0 - wide, y - 6.0, x - 12.0, y + 6.0]),
            ([x, y - 13.0], "near middle", [x - wide / 2.0, y - 23.0, x + wide / 2.0, y - 11.0]),
            ([x, y + 21.0], "near middle", [x - wide / 2.0, y + 11.0, x + wide / 2.0, y + 23.0]),
        ];
        let free = |of: &[f64; 4]| {
            let inside = of[0] >= axes.left && of[1] >= axes.top && of[2] <= SIZE[0] - 2.0 && of[3] <= axes.bottom;
            inside
                && taken
                    .iter()
                    .all(|other| of[2] <= other[0] || of[0] >= other[2] || of[3] <= other[1] || of[1] >= other[3])
        };
        if let Some(([x, y], class, area)) = places.into_iter().find(|(_, _, area)| free(area)) {
            svg.text(x, y, &format!("{class} c{}", point.colour % COLOURS), &text);
            taken.push(area);
        }
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
        let svg = scatter(&NAME, "x", "y", false, &points).unwrap();
        check(&svg, 4);
        assert!(svg.contains("frontier") && svg.matches(">a &amp; b</text>").count() == 4, "{svg}");
        assert!(scatter(&NAME, "x", "y", false, &[]).is_none());
        check(&scatter(&NAME, "x", "y", true, &[point(1.0, 1.0)]).unwrap(), 1);
    }

    #[test]
    fn names_without_room_are_left_out() {
        let crowd: Vec<Point> = (0..40).map(|k| point(1.0 + f64::from(k) / 1e3, 1.0)).collect();
        let svg = scatter(&NAME, "x", "y", false, &crowd).unwrap();
        assert!(svg.matches(">a &amp; b</text>").count() < 5, "{svg}");
    }
}
