//! A race as a page for people: one HTML file that needs nothing else, with what each contender did and how its lag fell.

use std::path::Path;

use spate_page::{Axes, Line, document, escaped, figures};

use crate::lag_samples::LagSample;
use crate::results::RaceResult;
use crate::{Error, Result, home};

/// Height of the graph in pixels of a screen.
const GRAPH_HEIGHT: u32 = 420;

/// Writes the report of a race that has ended.
///
/// # Errors
/// [`Error::File`], [`Error::Report`].
pub fn write(result: &RaceResult, path: &Path) -> Result<()> {
    home::write_whole(path, page(result, None)?.as_bytes())
}

/// Writes the report of a race that still runs: a browser loads it again every two seconds.
///
/// # Errors
/// As [`write()`].
pub fn write_live(result: &RaceResult, running: &str, samples: &[LagSample], path: &Path) -> Result<()> {
    home::write_whole(path, page(result, Some((running, samples)))?.as_bytes())
}

fn page(result: &RaceResult, running: Option<(&str, &[LagSample])>) -> Result<String> {
    let mut lines: Vec<(&str, &[LagSample])> =
        result.contenders.iter().map(|contender| (&*contender.name, &*contender.seconds_behind)).collect();
    lines.extend(running);
    let (refresh_seconds, state) = match running {
        Some((name, _)) => (Some(2), format!("{name} is catching up …")),
        None => match &result.failure {
            Some(failure) => (None, format!("The race ended early. {failure}")),
            None => (None, "All contenders have run.".to_owned()),
        },
    };
    let mut body = format!("<p>{}</p><p>{}</p>", escaped(&result.summary()), escaped(&state));
    body += &table(result);
    body += "<h2>Seconds behind the source</h2>\
             <p>Of native replication as the server says it (Seconds_Behind_Source), of Spate the age of the last transaction that its \
             checkpoint holds; both less the time for which the source has been idle since the backlog's end. Asked four times a second.</p>";
    body += &graph(&lines)?;
    body += &figures(result).map_err(Error::Report)?;
    Ok(document("Spate: a catch-up race", "A catch-up race", refresh_seconds, &body))
}

fn table(result: &RaceResult) -> String {
    let rows = result.contenders.iter().map(|contender| {
        let seconds = contender.seconds.map_or_else(|| "–".to_owned(), |seconds| format!("{seconds:.2}"));
        let ratio = result.ratio_vs_best_native.get(&contender.name);
        let ratio = ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        let tables = if contender.identical { "identical" } else { "DIFFERENT" };
        vec![contender.name.clone(), seconds, ratio, format!("{:.1}", contender.server_cpu_seconds), tables.to_owned()]
    });
    spate_page::table(&["contender", "seconds", "× best native", "replica CPU s", "tables"], rows)
}

/// The lag of each contender over its time.
fn graph(lines: &[(&str, &[LagSample])]) -> Result<String> {
    let point = |sample: &LagSample| (sample.seconds, sample.behind_seconds as f64);
    let lines: Vec<Line<'_>> =
        lines.iter().map(|&(name, samples)| (name, samples.iter().map(point).collect())).collect();
    let axes = Axes { height: GRAPH_HEIGHT, ..Axes::new("seconds of catching up", "seconds behind") };
    spate_page::graph(&lines, &axes).map_err(Error::Report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<LagSample> {
        (0..5).map(|number| LagSample { seconds: f64::from(number), behind_seconds: 40 - 10 * number as u64 }).collect()
    }

    #[test]
    fn graph_has_a_line_and_a_name_for_each_contender() {
        let samples = samples();
        let html = graph(&[("native:0", &samples), ("native:0+prefetch", &samples)]).unwrap();
        assert!(html.contains("\"name\":\"native:0+prefetch\"") && html.contains("[40.0,30.0,"), "{html}");
    }

    #[test]
    fn graph_of_nothing_is_empty() {
        assert!(graph(&[]).unwrap().contains("\"lines\":[]"));
    }
}
