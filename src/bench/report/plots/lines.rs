//! Lines through marks.

use super::super::axes::Axes;
use super::super::scale::Scale;
use super::super::svg::{COLOURS, Svg};
use super::{Name, Point, SMALL, words};

/// A line.
pub(in super::super) struct Series {
    /// What stands at its end.
    pub(in super::super) key: String,
    /// Lines of one number are dashed alike.
    pub(in super::super) dash: usize,
    pub(in super::super) points: Vec<Point>,
}

/// Lines through marks on logarithmic axes; `None` without a point.
pub(in super::super) fn lines(name: &Name<'_>, x: &str, y: &str, series: &[Series]) -> Option<String> {
    let all = || series.iter().flat_map(|of| &of.points);
    all().next()?;
    let scales = (Scale::logarithmic(all().map(|p| p.x)), Scale::logarithmic(all().map(|p| p.y)));
    let axes = Axes::new(SMALL, scales.0, scales.1);
    let mut svg = Svg::new(SMALL[0], SMALL[1]);
    axes.draw(&mut svg, x, y);
    let place = |point: &Point| axes.at(point.x, point.y);
    for of in series {
        let Some(first) = of.points.first() else { continue };
        let path: Vec<[f64; 2]> = of.points.iter().map(place).collect();
        svg.polyline(&format!("line d{} c{}", of.dash % 4, first.colour % COLOURS), &path);
    }
    for point in all() {
        svg.mark(point.shape, point.colour, place(point), &point.text, &point.tip);
    }
    // The keys at the ends keep off each other, the upper first.
    let ends = series.iter().filter_map(|of| Some((of, of.points.last()?)));
    let mut ends: Vec<(&Series, &Point, [f64; 2])> = ends.map(|(of, point)| (of, point, place(point))).collect();
    ends.sort_by(|a, b| a.2[1].total_cmp(&b.2[1]));
    let mut taken: Vec<[f64; 2]> = Vec::new();
    for (of, point, [x, y]) in ends {
        let (x, mut y) = ((x + 12.0).min(SMALL[0] - 10.0), y + 4.0);
        while let Some(other) = taken.iter().find(|[tx, ty]| (tx - x).abs() < 14.0 && (ty - y).abs() < 11.0) {
            y = other[1] + 11.0;
        }
        taken.push([x, y]);
        svg.text(x, y.min(axes.bottom - 2.0), &format!("key c{}", point.colour % COLOURS), &of.key);
    }
    Some(svg.finish(name.id, "lines", name.title, &words(all().map(|p| p.tip.as_str()))))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NAME, check, point};
    use super::*;

    #[test]
    fn lines_are_drawn_through_their_marks() {
        let series = |key: &str, dash, points| Series { key: key.to_owned(), dash, points };
        let of = [series("A", 0, vec![point(1.0, 1.0), point(10.0, 2.0)]), series("B", 5, vec![point(9.0, 2.0)])];
        let svg = lines(&NAME, "x", "y", &of).unwrap();
        check(&svg, 3);
        assert!(svg.contains("line d1 c0") && svg.contains("a &amp; b; 8. a &amp; b; 8"), "{svg}");
        assert!(lines(&NAME, "x", "y", &[series("A", 0, vec![])]).is_none());
        check(&lines(&NAME, "x", "y", &[series("A", 0, vec![point(0.0, 0.0)])]).unwrap(), 1);
    }
}
