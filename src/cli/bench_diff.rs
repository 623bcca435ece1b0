//! `planish bench diff`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use planish_measure::bench::{Diff, Document};

use super::{Slower, print, print_json, warn};

/// Compare two runs of bench: which cells became slower or faster
///
/// A cell of A.json is compared with the cell of B.json that has the same artifact name, runtime, precision, workload and
/// shape. `change` is the change of the median latency from A to B; a positive change is slower. `95% CI` is the
/// interval of the change. planish computes it from the intervals of the two medians, each of which includes the drift of
/// the machine during its run.
///
/// A change is significant if its interval leaves out zero. The exit code is 3 if a cell has a significant slowdown above
/// the threshold, or failed in B and not in A. Cells that only one file has are listed.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The run before, a file of bench --json
    #[arg(value_name = "A.json")]
    before: PathBuf,
    /// The run after
    #[arg(value_name = "B.json")]
    after: PathBuf,
    /// The smallest change that counts, such as 5%
    #[arg(long, default_value = "2%", value_name = "PERCENT", value_parser = percent)]
    threshold: f64,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

/// The value of `--threshold` as a share.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
    number
        .filter(|of| (0.0..=1000.0).contains(of))
        .map(|of| of / 100.0)
        .ok_or_else(|| format!("`{text}` is not a percentage from 0% to 1000%, such as 5%"))
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let [a, b] = [&arguments.before, &arguments.after].map(|path| (path.display().to_string(), Document::read(path)));
    let (a, b) = ((a.0, a.1?), (b.0, b.1?));
    let diff = Diff::of((&a.0, &a.1), (&b.0, &b.1), arguments.threshold);
    if arguments.json {
        print_json(&diff)?;
    } else {
        print(&diff.to_string())?;
        diff.warnings.iter().for_each(|warning| warn(warning));
    }
    if diff.cells.is_empty() {
        bail!("{} and {} have no cell in common, so nothing was compared", a.0, b.0);
    }
    let regressions = diff.regressions();
    if regressions.is_empty() { Ok(()) } else { Err(Slower(regressions).into()) }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn thresholds_are_percentages() {
        assert_eq!(["5%", "2.5 %", "0", "1000%"].map(percent), [Ok(0.05), Ok(0.025), Ok(0.0), Ok(10.0)]);
        for wrong in ["", "%", "-1%", "nan", "inf%", "1001%", "five"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
