//! Lines through marks.

use super::super::axes::Axes;
use super::super::scale::Scale;
use super::super::svg::{COLOURS, Svg, width};
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
    // The keys at the ends, each where it is on nothing else; boxes are left, top, right, bottom.
    let around = |[x, y]: [f64; 2], half: [f64; 2]| [x - half[0], y - half[1], x + half[0], y + half[1]];
    let mut taken: Vec<[f64; 4]> = all().map(|point| around(place(point), [10.0, 9.0])).collect();
    for (of, point) in series.iter().filter_map(|of| Some((of, of.points.last()?))) {
        let ([x, y], beside) = (place(point), 10.0 + width(&of.key) / 2.0);
        let free = |middle: &[f64; 2]| {
            let own = around(*middle, [width(&of.key) / 2.0, 5.0]);
            let inside = own[0] > 0.0 && own[1] > 14.0 && own[2] < SMALL[0] && own[3] < axes.bottom;
            inside && taken.iter().all(|of| own[2] <= of[0] || own[0] >= of[2] || own[3] <= of[1] || own[1] >= of[3])
        };
        let places = [[x + beside + 1.0, y], [x, y - 15.0], [x - beside - 1.0, y], [x, y + 15.0]];
        if let Some([x, y]) = places.into_iter().find(free) {
            svg.text(x, y + 4.2, &format!("key c{}", point.colour % COLOURS), &of.key);
            taken.push(around([x, y], [width(&of.key) / 2.0, 6.0]));
        }
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
