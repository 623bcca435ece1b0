//! In what two documents differ besides the cells.

use super::CellId;
use crate::bench::document::Cell;
use crate::bench::environment::Environment;

/// What makes figures of two machines, which have names, hard to compare: another processor, other runtimes.
pub(in crate::bench) fn differences(a: (&str, &Environment), b: (&str, &Environment)) -> Vec<String> {
    let (before, after) = (a.1, b.1);
    let mut warnings = Vec::new();
    let mut differ = |what: &str, x: String, y: String| {
        if x != y {
            let [x, y] = [x, y].map(|of| if of.is_empty() { "unknown".to_owned() } else { of });
            warnings.push(format!("{what}: {} has {x}, and {} has {y}", a.0, b.0));
        }
    };
    differ("the machines differ in the processor", before.cpu.model.clone(), after.cpu.model.clone());
    differ("the machines differ in the number of cores", before.cpu.cores.to_string(), after.cpu.cores.to_string());
    let flags = |of: &[String]| of.join(" ");
    differ("the machines differ in the instruction sets", flags(&before.cpu.flags), flags(&after.cpu.flags));
    let governor = |of: &Option<String>| of.clone().unwrap_or_default();
    differ(
        "the machines differ in the frequency governor",
        governor(&before.cpu.governor),
        governor(&after.cpu.governor),
    );
    differ("the systems differ", before.os.clone(), after.os.clone());
    let both = before.runtimes.iter().filter_map(|(name, version)| Some((name, version, after.runtimes.get(name)?)));
    for (name, x, y) in both {
        differ(&format!("the versions of {name} differ"), x.clone(), y.clone());
    }
    warnings
}

/// What makes the two cells hard to compare.
pub(super) fn conditions(id: &CellId, a: &Cell, b: &Cell) -> Option<String> {
    let text = |cell: &Cell| {
        let threads = match cell.options.threads {
            0 => "as many threads as the runtime chooses".to_owned(),
            1 => "1 thread".to_owned(),
            threads => format!("{threads} threads"),
        };
        format!("{threads}, and idle threads {}", if cell.options.spin { "poll" } else { "sleep" })
    };
    let measured = a.latency_ms.is_some() && b.latency_ms.is_some();
    (measured && a.options != b.options)
        .then(|| format!("{}: it had {} before, now it has {}", id.text(), text(a), text(b)))
}
