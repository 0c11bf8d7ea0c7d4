//! Bars over time, a lane for each actor: a picture in the page itself. Only zooming needs the script.

use crate::{COLOURS, escaped};

/// Sizes in the picture's own units.
const WIDTH: f64 = 960.0;
const NAMES_WIDTH: f64 = 150.0;
/// Right of the last number.
const MARGIN: f64 = 30.0;
const LANE_HEIGHT: f64 = 22.0;
const SCALE_HEIGHT: f64 = 28.0;
/// A shorter bar could not be seen.
const BAR_WIDTH_MIN: f64 = 1.0;
/// What a page with timelines has in it.
pub(crate) const MARK: &str = "<figure class=\"timeline\">";
pub(crate) const SCRIPT: &str = include_str!("../assets/timelines.js");
/// Numbers along the lower edge.
const MARKS: u32 = 8;

/// Something that took some time.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// When it began, in seconds.
    pub begin: f64,
    /// When it ended, in seconds.
    pub end: f64,
    /// What it was, shown under the pointer.
    pub name: String,
    /// Bars of one kind have one colour.
    pub kind: usize,
}

/// The bars of one actor.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// The actor.
    pub name: String,
    /// What it did. Bars may overlap; the later one is drawn above.
    pub bars: Vec<Bar>,
}

/// Lanes as a picture, from zero to the end of the last bar.
pub fn timeline(lanes: &[Lane], across: &str) -> String {
    let bars = || lanes.iter().flat_map(|lane| &lane.bars);
    let last = bars().map(|bar| bar.end).filter(|end| end.is_finite()).fold(0.0, f64::max).max(1e-9);
    let width = WIDTH - NAMES_WIDTH - MARGIN;
    let place = |seconds: f64| seconds.clamp(0.0, last) / last * width;
    let lanes_height = LANE_HEIGHT * lanes.len() as f64;
    let height = lanes_height + SCALE_HEIGHT;
    let mut svg =
        format!("{MARK}<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" font-size=\"12\" fill=\"currentColor\">");
    for (number, lane) in lanes.iter().enumerate() {
        svg += &format!("<text x=\"0\" y=\"{:.1}\">{}</text>", LANE_HEIGHT * number as f64 + 15.0, escaped(&lane.name));
    }
    for mark in 0..=MARKS {
        let seconds = last * f64::from(mark) / f64::from(MARKS);
        let x = NAMES_WIDTH + place(seconds);
        svg += &format!(
            "<line x1=\"{x:.2}\" x2=\"{x:.2}\" y1=\"0\" y2=\"{lanes_height}\" stroke=\"currentColor\" stroke-opacity=\"0.2\"/>\
             <text class=\"mark\" x=\"{x:.2}\" y=\"{:.1}\" text-anchor=\"middle\">{seconds:.2}</text>",
            lanes_height + 14.0
        );
    }
    // A picture in the picture, of which a part can be shown.
    svg += &format!(
        "<svg class=\"bars\" x=\"{NAMES_WIDTH}\" y=\"0\" width=\"{width}\" height=\"{lanes_height}\" viewBox=\"0 0 {width} {lanes_height}\" \
         preserveAspectRatio=\"none\" data-last=\"{last}\"><rect class=\"ground\" width=\"{width}\" height=\"{lanes_height}\" fill-opacity=\"0\"/>"
    );
    for (number, lane) in lanes.iter().enumerate() {
        let top = LANE_HEIGHT * number as f64;
        for bar in &lane.bars {
            let (from, to) = (place(bar.begin), place(bar.end));
            svg += &format!(
                "<rect x=\"{from:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{:.1}\" fill=\"{}\" stroke=\"currentColor\" \
                 stroke-width=\"0.3\" vector-effect=\"non-scaling-stroke\"><title>{}: {:.3} to {:.3} s</title></rect>",
                top + 3.0,
                (to - from).max(BAR_WIDTH_MIN),
                LANE_HEIGHT - 6.0,
                COLOURS[bar.kind % COLOURS.len()],
                escaped(&bar.name),
                bar.begin,
                bar.end
            );
        }
    }
    svg + &format!(
        "</svg></svg><figcaption>{} (drag to zoom, double-click to see all)</figcaption></figure>",
        escaped(across)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_keep_their_order_and_their_lane() {
        let bar = |begin, end, name: &str, kind| Bar { begin, end, name: name.to_owned(), kind };
        let lanes = [
            Lane { name: "replica <1>".into(), bars: vec![bar(0.0, 1.0, "long", 1), bar(1.0, 1.0, "short", 0)] },
            Lane { name: "replica 2".into(), bars: vec![] },
        ];
        let svg = timeline(&lanes, "seconds");
        assert!(svg.contains("replica &lt;1&gt;") && svg.contains("<title>long: 0.000 to 1.000 s</title>"), "{svg}");
        assert_eq!(svg.matches("<rect x").count(), 2);
        assert!(svg.contains("width=\"1.00\""), "a bar without a length can be seen: {svg}");
    }

    #[test]
    fn timeline_of_nothing_is_a_picture() {
        assert!(timeline(&[], "seconds").contains("<svg"));
    }
}
