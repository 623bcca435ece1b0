//! A picture as text for Graphviz.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Picture;

/// The text of a directed graph, with a cluster for each layer.
#[must_use]
pub fn dot(picture: &Picture) -> String {
    let mut text = "digraph model {\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n".to_owned();
    let mut groups: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
    for (index, shape) in picture.boxes.iter().enumerate() {
        groups.entry(shape.group.as_deref()).or_default().push(index);
    }
    for (number, (group, members)) in groups.iter().enumerate() {
        if let Some(name) = group {
            // Writing into a string does not fail; so below.
            let _ = writeln!(text, "  subgraph cluster_{number} {{\n  label=\"{}\";", escaped(name));
        }
        for &index in members {
            let shape = &picture.boxes[index];
            let style = if shape.port { ", style=rounded" } else { "" };
            let lines = [&shape.title, &shape.name, &shape.ty].map(|line| escaped(line)).join("\\n");
            let _ = writeln!(text, "  n{index} [label=\"{lines}\"{style}];");
        }
        if group.is_some() {
            text += "  }\n";
        }
    }
    for (from, to) in &picture.arrows {
        let _ = writeln!(text, "  n{from} -> n{to};");
    }
    text + "}\n"
}

fn escaped(text: &str) -> String {
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let text: String = text.chars().map(plain).collect();
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
