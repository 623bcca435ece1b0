//! A picture as SVG: boxes in rows, each below all that it uses.

use std::fmt::Write;

use super::Picture;
use super::picture::Shape;

/// Pixels: the height of a box, between rows, between boxes, and at the edges.
const HEIGHT: f64 = 34.0;
const ROW_GAP: f64 = 26.0;
const GAP: f64 = 18.0;
const MARGIN: f64 = 16.0;

/// Pixels that a character takes, at the size that the text is set in.
const CHARACTER: f64 = 6.2;

/// The most characters of a name that are shown: its end tells more than its beginning.
const SHOWN: usize = 44;

/// Pixels that an arrow takes where it passes a row.
const LANE: f64 = 8.0;

/// Where a box is, or where an arrow passes a row.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Of its middle.
    x: f64,
    /// Of its top.
    y: f64,
    width: f64,
}

/// Where everything is.
struct Layout {
    /// The boxes, and after them where arrows pass rows.
    places: Vec<Place>,
    /// For each arrow the places that it goes through, both ends included.
    routes: Vec<Vec<usize>>,
    width: f64,
    height: f64,
}

/// A drawing in SVG. The same picture gives the same bytes.
#[must_use]
pub fn svg(picture: &Picture) -> String {
    let Layout { places, routes, width, height } = layout(picture);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} \
         {height:.0}\" font-family=\"sans-serif\" font-size=\"10\" text-anchor=\"middle\">\n<rect width=\"100%\" \
         height=\"100%\" fill=\"white\"/>\n"
    );
    for route in &routes {
        // Writing into a string does not fail; so below.
        text += "<path fill=\"none\" stroke=\"#999\" d=\"";
        for (at, pair) in route.windows(2).enumerate() {
            let (a, b) = (places[pair[0]], places[pair[1]]);
            let (top, bottom, bend) = (a.y + HEIGHT, b.y, ROW_GAP / 2.0);
            let begin = if at == 0 { 'M' } else { 'L' };
            let (first, second) = (top + bend, bottom - bend);
            let _ = write!(
                text,
                "{begin}{:.1} {top:.1} C{:.1} {first:.1} {:.1} {second:.1} {:.1} {bottom:.1}",
                a.x, a.x, b.x, b.x
            );
        }
        text += "\"/>\n";
    }
    for (shape, place) in picture.boxes.iter().zip(&places) {
        let (fill, round) = if shape.port { ("#e3f0e3", 12) } else { ("#eef2fa", 3) };
        let _ = writeln!(
            text,
            "<g><title>{}: {}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{HEIGHT}\" rx=\"{round}\" \
             fill=\"{fill}\" stroke=\"#446\"/><text x=\"{:.1}\" y=\"{:.1}\" font-weight=\"bold\">{}</text><text \
             x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
            escaped(&shape.name),
            escaped(&shape.ty),
            place.x - place.width / 2.0,
            place.y,
            place.width,
            place.x,
            place.y + 14.0,
            escaped(&shape.title),
            place.x,
            place.y + 27.0,
            escaped(&shown(&shape.name)),
        );
    }
    text + "</svg>\n"
}

/// Puts each box one row below the lowest that it uses, and gives arrows room in the rows that they pass.
fn layout(picture: &Picture) -> Layout {
    // Arrows to what a box uses come before those from the box.
    let mut ranks = vec![0; picture.boxes.len()];
    for &(from, to) in &picture.arrows {
        ranks[to] = ranks[to].max(ranks[from] + 1);
    }
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); ranks.iter().max().map_or(0, |last| last + 1)];
    ranks.iter().enumerate().for_each(|(index, &rank)| rows[rank].push(index));
    let mut places: Vec<Place> =
        picture.boxes.iter().map(|shape| Place { width: width(shape), ..Place::default() }).collect();
    let mut uses = vec![Vec::new(); places.len()];
    let mut routes = Vec::new();
    for &(from, to) in &picture.arrows {
        let mut route = vec![from];
        for row in &mut rows[ranks[from] + 1..ranks[to]] {
            let lane = places.len();
            row.push(lane);
            uses.push(route.last().copied().into_iter().collect());
            places.push(Place { width: LANE, ..Place::default() });
            route.push(lane);
        }
        uses[to].extend(route.last());
        route.push(to);
        routes.push(route);
    }

    let row_width = |row: &[usize], places: &[Place]| row.iter().map(|&i| places[i].width + GAP).sum::<f64>() - GAP;
    let widest = rows.iter().map(|row| row_width(row, &places)).fold(0.0, f64::max);
    for (rank, row) in rows.iter_mut().enumerate() {
        // Boxes are in the order of the middle of what they use.
        let middle = |index: usize| {
            let above = uses[index].iter().map(|&i: &usize| places[i].x);
            above.sum::<f64>() / uses[index].len().max(1) as f64
        };
        let mut keyed: Vec<(f64, usize)> = row.iter().map(|&index| (middle(index), index)).collect();
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        *row = keyed.into_iter().map(|(_, index)| index).collect();
        let mut left = MARGIN + (widest - row_width(row, &places)) / 2.0;
        for &index in row.iter() {
            let place = &mut places[index];
            place.x = left + place.width / 2.0;
            place.y = MARGIN + rank as f64 * (HEIGHT + ROW_GAP);
            left += place.width + GAP;
        }
    }
    let height = 2.0 * MARGIN + rows.len() as f64 * (HEIGHT + ROW_GAP);
    Layout { places, routes, width: widest + 2.0 * MARGIN, height }
}

fn width(shape: &Shape) -> f64 {
    let characters = shown(&shape.name).chars().count().max(shape.title.chars().count() + 1);
    characters as f64 * CHARACTER + 12.0
}

fn shown(name: &str) -> String {
    let count = name.chars().count();
    match count > SHOWN {
        true => std::iter::once('…').chain(name.chars().skip(count + 1 - SHOWN)).collect(),
        false => name.to_owned(),
    }
}

/// Text of XML, which has no control characters.
/// A text as it stands between tags.
pub(crate) fn escaped(text: &str) -> String {
    let legal = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let text: String = text.chars().map(legal).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(boxes: usize, arrows: &[(usize, usize)]) -> Picture {
        let shape = |index: usize| Shape {
            title: "add".to_owned(),
            name: format!("v<{index}>"),
            ty: "f32".to_owned(),
            port: false,
            group: None,
        };
        Picture { boxes: (0..boxes).map(shape).collect(), arrows: arrows.to_vec() }
    }

    #[test]
    fn boxes_are_below_what_they_use_and_do_not_overlap() {
        let picture = picture(6, &[(0, 2), (1, 2), (2, 3), (0, 4), (3, 5), (4, 5)]);
        let Layout { places, routes, width, height } = layout(&picture);
        for &(from, to) in &picture.arrows {
            assert!(places[from].y + HEIGHT < places[to].y);
        }
        // The arrow from 4 to 5 passes the row of 3.
        assert_eq!(routes.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2, 2, 2, 3]);
        for (i, a) in places.iter().enumerate() {
            assert!(a.x - a.width / 2.0 >= 0.0 && a.x + a.width / 2.0 <= width && a.y + HEIGHT <= height);
            for b in places.iter().skip(i + 1).filter(|b| b.y == a.y) {
                assert!((a.x - b.x).abs() >= (a.width + b.width) / 2.0);
            }
        }
        assert!(svg(&picture).contains("v&lt;5&gt;"));
    }

    #[test]
    fn an_empty_picture_is_a_drawing() {
        assert!(svg(&picture(0, &[])).ends_with("</svg>\n"));
    }
}
