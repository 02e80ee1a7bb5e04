//! What was measured, for people and for programs.

use anyhow::{Context, Result};
use serde::Serialize;

use crate::terminal::Style;

/// Columns of the longest bar.
const BAR: usize = 40;

/// Times of passes over one number of rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PassTime {
    rows: usize,
    /// The median.
    #[serde(rename = "ms", serialize_with = "to_the_nanosecond")]
    median_ms: f64,
    #[serde(skip)]
    min_ms: f64,
}

impl PassTime {
    /// Sums up samples, of which there is at least one.
    pub(super) fn new(rows: usize, mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |index: usize| samples.get(index).copied().unwrap_or(f64::NAN);
        Self { rows, median_ms: at(samples.len() / 2), min_ms: at(0) }
    }
}

/// All passes behind one context on one number of threads.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// The model's name.
    pub(super) model: String,
    /// Where it ran.
    pub(super) device: String,
    /// Threads of a pass.
    pub(super) threads: usize,
    /// Positions in the cache before each pass.
    pub(super) context: usize,
    /// In rising order of rows.
    pub(super) passes: Vec<PassTime>,
    /// What a pass reads.
    pub(super) bytes_per_pass: u64,
    /// How fast as many threads read as many bytes.
    pub(super) stream_gb_per_s: f64,
}

impl Measured {
    /// The time in which the memory alone delivers what a pass reads.
    fn bound_ms(&self) -> f64 {
        self.bytes_per_pass as f64 / self.stream_gb_per_s / 1e6
    }

    /// The time that the others are told as multiples of: that of the fewest rows.
    fn base(&self) -> Option<&PassTime> {
        self.passes.first()
    }
}

/// The JSON form.
#[derive(Debug, Serialize)]
struct Record<'a> {
    model: &'a str,
    threads: usize,
    context: usize,
    passes: &'a [PassTime],
    bytes_per_pass: u64,
    #[serde(serialize_with = "to_the_nanosecond")]
    stream_gb_per_s: f64,
    #[serde(serialize_with = "to_the_nanosecond")]
    bound_ms: f64,
}

/// One object, or an array of them where several were measured.
pub(super) fn json(results: &[Measured]) -> Result<String> {
    let records: Vec<_> = results
        .iter()
        .map(|result| Record {
            model: &result.model,
            threads: result.threads,
            context: result.context,
            passes: &result.passes,
            bytes_per_pass: result.bytes_per_pass,
            stream_gb_per_s: result.stream_gb_per_s,
            bound_ms: result.bound_ms(),
        })
        .collect();
    let text = match records.as_slice() {
        [record] => serde_json::to_string(record),
        records => serde_json::to_string(records),
    };
    Ok(text.context("cannot write the record")? + "\n")
}

/// A table with bars.
pub(super) fn text(result: &Measured, color: bool) -> String {
    let Measured { model, device, threads, context, .. } = result;
    let threads = format!("{threads} thread{}", if *threads == 1 { "" } else { "s" });
    let (bytes, speed, bound) =
        (result.bytes_per_pass as f64 / 1e6, result.stream_gb_per_s, result.bound_ms());
    let mut text = format!(
        "{model} on {device}, {threads}, context {context}\n\
         a pass reads {bytes:.1} MB; the memory streams {speed:.1} GB/s: {bound:.2} ms at least\n"
    );
    let Some(base) = result.base() else { return text };
    let ratio = |pass: &PassTime| pass.median_ms / base.median_ms;
    let longest = result.passes.iter().map(ratio).fold(1.0, f64::max);
    let header = format!("{:>4} {:>9} {:>9} {:>7} {:>7}", "ROWS", "MS", "LEAST", "xT(1)", "xBOUND");
    let header = header.replace("T(1)", &format!("T({})", base.rows));
    text.push_str(&Style::Dim.paint(&header, color));
    text.push('\n');
    for pass in &result.passes {
        let PassTime { rows, median_ms, min_ms } = pass;
        let (ratio, of_bound) = (ratio(pass), median_ms / bound);
        let bar = Style::Green.paint(&bar(ratio / longest), color);
        text.push_str(&format!(
            "{rows:>4} {median_ms:>9.3} {min_ms:>9.3} {ratio:>7.2} {of_bound:>7.2}  {bar}\n"
        ));
    }
    text.push('\n');
    text
}

/// A bar of a share of the longest, to an eighth of a column.
fn bar(share: f64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    // Out of range, and NaN, become the ends of the range.
    let eighths = (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

/// Six digits behind the point: further ones are noise.
fn to_the_nanosecond<S: serde::Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((value * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn measured(context: usize) -> Measured {
        Measured {
            model: "m".to_owned(),
            device: "cpu".to_owned(),
            threads: 2,
            context,
            passes: vec![PassTime::new(1, vec![2.5, 2.0, 9.0]), PassTime::new(8, vec![5.0])],
            bytes_per_pass: 100_000_000,
            stream_gb_per_s: 50.0,
        }
    }

    #[test]
    fn one_result_is_an_object_and_several_an_array() {
        let one: Value = serde_json::from_str(&super::json(&[measured(128)]).unwrap()).unwrap();
        let expected = json!({
            "model": "m", "threads": 2, "context": 128,
            "passes": [{"rows": 1, "ms": 2.5}, {"rows": 8, "ms": 5.0}],
            "bytes_per_pass": 100_000_000, "stream_gb_per_s": 50.0, "bound_ms": 2.0,
        });
        assert_eq!(one, expected);
        let two: Value =
            serde_json::from_str(&super::json(&[measured(128), measured(512)]).unwrap()).unwrap();
        assert_eq!(two.as_array().map(Vec::len), Some(2));
        assert_eq!(two[1]["context"], 512);
    }

    #[test]
    fn the_table_tells_median_least_and_both_ratios() {
        let longest = "█".repeat(BAR);
        let half = "█".repeat(BAR / 2);
        assert_eq!(
            text(&measured(128), false),
            format!(
                "m on cpu, 2 threads, context 128
a pass reads 100.0 MB; the memory streams 50.0 GB/s: 2.00 ms at least
ROWS        MS     LEAST   xT(1)  xBOUND
   1     2.500     2.000    1.00    1.25  {half}
   8     5.000     5.000    2.00    2.50  {longest}

"
            )
        );
    }

    #[test]
    fn bars_have_eighths() {
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(1.0 / (BAR * 8) as f64), "▏");
        assert_eq!(bar(7.0 / (BAR * 8) as f64), "▉");
        assert_eq!(bar(f64::NAN), "");
        assert_eq!(bar(2.0).chars().count(), BAR);
    }
}
