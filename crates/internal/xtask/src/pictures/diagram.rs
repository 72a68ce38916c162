//! Diagrams of boxes on a grid, connected by arrows.
//!
//! The comment in `docs/data-path.txt` describes the format.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use anyhow::{Context, Result, bail};

use super::svg::{Anchor, SANS, Svg};

/// Width and height of a cell of the grid.
const CELL: [u32; 2] = [190, 84];
/// Width and height of the space between cells.
const SPACE: [u32; 2] = [78, 52];
/// Position of the first cell. The space at the left is for feedback arrows.
const ORIGIN: [u32; 2] = [56, 16];
/// Space at the right and at the bottom.
const MARGIN: u32 = 16;
/// Space between a frame and its boxes, and height of the label of a frame.
const FRAME: [u32; 2] = [12, 22];
/// Height of the legend, and width of an entry.
const LEGEND: [u32; 2] = [40, 200];
/// Height of a line of text in a box.
const LINE: u32 = 19;

/// The colors are readable on light and on dark backgrounds.
const STYLE: &str = "\
.pure { fill: #1f6feb; }
.io { fill: #1a7f37; }
.outside { fill: #59636e; }
.frame { fill: #8b949e; fill-opacity: 0.16; }
.line { fill: none; stroke: #768390; stroke-width: 2; }
.feedback { fill: none; stroke: #cf5a0a; stroke-width: 2; stroke-dasharray: 6 4; }
.head-line { fill: #768390; }
.head-feedback { fill: #cf5a0a; }
.title { fill: #ffffff; font-size: 16px; font-weight: 600; }
.detail { fill: #ffffff; font-size: 13px; }
.label { fill: #768390; font-size: 13px; }
.warm { fill: #cf5a0a; font-size: 13px; }
";

/// Ranges of columns and rows.
type Area = [RangeInclusive<u32>; 2];

/// A diagram as read from its text.
#[derive(Default)]
struct Diagram {
    title: String,
    boxes: BTreeMap<String, Block>,
    frames: Vec<(Area, String)>,
    arrows: Vec<Arrow>,
    legend: Vec<(String, String)>,
}

/// A box. The first line of its text is its title.
struct Block {
    area: Area,
    kind: String,
    lines: Vec<String>,
}

/// An arrow between two boxes.
struct Arrow {
    from: String,
    to: String,
    label: String,
    is_feedback: bool,
}

/// Renders a diagram.
pub(super) fn render(text: &str) -> Result<String> {
    let diagram = Diagram::parse(text)?;
    let end = |axis: usize| {
        let ends = diagram.boxes.values().map(|block| *block.area[axis].end());
        ends.max().map_or(0, |last| stop(axis, last))
    };
    let height = end(1) + FRAME[0] + FRAME[1] + LEGEND[0] + MARGIN;
    let style = format!("text {{ font-family: {SANS}; }}\n{STYLE}");
    let mut svg = Svg::new([end(0) + MARGIN, height], &diagram.title, &style);
    for (area, label) in &diagram.frames {
        draw_frame(&mut svg, area, label);
    }
    for arrow in &diagram.arrows {
        diagram
            .draw(arrow, &mut svg)
            .with_context(|| format!("arrow from {} to {}", arrow.from, arrow.to))?;
    }
    for block in diagram.boxes.values() {
        block.draw(&mut svg);
    }
    draw_legend(&mut svg, &diagram.legend, height - MARGIN);
    Ok(svg.finish())
}

impl Diagram {
    fn parse(text: &str) -> Result<Self> {
        let mut diagram = Self::default();
        for line in text.lines() {
            if !line.is_empty() && !line.starts_with('#') {
                diagram
                    .add(line)
                    .with_context(|| format!("line {line:?}"))?;
            }
        }
        Ok(diagram)
    }

    /// Adds what a line describes.
    fn add(&mut self, line: &str) -> Result<()> {
        let (left, text) = line.split_once(':').unwrap_or((line, ""));
        let text = text.trim().to_owned();
        match *left.split_whitespace().collect::<Vec<_>>() {
            ["title"] => self.title = text,
            ["legend", kind] => self.legend.push((kind.to_owned(), text)),
            ["frame", columns, rows] => self.frames.push((area(columns, rows)?, text)),
            ["box", columns, rows, kind, name] => {
                let block = Block {
                    area: area(columns, rows)?,
                    kind: kind.to_owned(),
                    lines: text.split('/').map(|line| line.trim().to_owned()).collect(),
                };
                self.boxes.insert(name.to_owned(), block);
            }
            [kind @ ("arrow" | "feedback"), from, to] => self.arrows.push(Arrow {
                from: from.to_owned(),
                to: to.to_owned(),
                label: text,
                is_feedback: kind == "feedback",
            }),
            _ => bail!("unknown directive"),
        }
        Ok(())
    }

    fn draw(&self, arrow: &Arrow, svg: &mut Svg) -> Result<()> {
        let find = |name: &str| {
            let block = self.boxes.get(name);
            block.with_context(|| format!("no box is named {name}"))
        };
        let (from, to) = (find(&arrow.from)?, find(&arrow.to)?);
        if arrow.is_feedback {
            draw_feedback(svg, from, to, &arrow.label);
            return Ok(());
        }
        if let Some(row) = center_of_overlap(1, &from.area, &to.area) {
            let (start, end, middle) = between(0, &from.area, &to.area);
            svg.arrow("line", &[[start, row], [end, row]]);
            svg.text("label", [middle, row - 8], Anchor::Middle, &arrow.label);
        } else if let Some(column) = center_of_overlap(0, &from.area, &to.area) {
            let (start, end, middle) = between(1, &from.area, &to.area);
            svg.arrow("line", &[[column, start], [column, end]]);
            svg.text(
                "label",
                [column + 9, middle + 4],
                Anchor::Start,
                &arrow.label,
            );
        } else {
            bail!("the boxes share neither a row nor a column");
        }
        Ok(())
    }
}

impl Block {
    fn draw(&self, svg: &mut Svg) {
        let [x, y, width, height] = bounds(&self.area);
        svg.rect(&self.kind, [x, y, width, height], 8);
        let lines = u32::try_from(self.lines.len()).unwrap_or(u32::MAX);
        // Baselines are about a third of a line below the middle.
        let first = y + (height - (lines - 1) * LINE) / 2 + LINE / 4;
        for (baseline, line) in (first..).step_by(LINE as usize).zip(&self.lines) {
            let class = if baseline == first { "title" } else { "detail" };
            svg.text(class, [x + width / 2, baseline], Anchor::Middle, line);
        }
    }
}

fn draw_frame(svg: &mut Svg, area: &Area, label: &str) {
    let [x, y, width, height] = bounds(area);
    let [space, text] = FRAME;
    let height = height + 2 * space + text;
    svg.rect(
        "frame",
        [x - space, y - space, width + 2 * space, height],
        12,
    );
    let baseline = y - space + height - 12;
    svg.text("label", [x + width / 2, baseline], Anchor::Middle, label);
}

/// Draws an arrow from the left side of a box to the left side of a box above.
fn draw_feedback(svg: &mut Svg, from: &Block, to: &Block, label: &str) {
    let [from, to] = [from, to].map(|block| {
        let [x, y, _, height] = bounds(&block.area);
        [x, y + height / 2]
    });
    let x = ORIGIN[0] / 2;
    let corners = [[x, from[1]], [x, to[1]]];
    svg.arrow("feedback", &[from, corners[0], corners[1], to]);
    svg.upward_text("warm", [x - 8, (from[1] + to[1]) / 2], label);
}

fn draw_legend(svg: &mut Svg, entries: &[(String, String)], baseline: u32) {
    for (x, (kind, text)) in (ORIGIN[0]..).step_by(LEGEND[1] as usize).zip(entries) {
        svg.rect(kind, [x, baseline - 12, 14, 14], 3);
        svg.text("label", [x + 22, baseline], Anchor::Start, text);
    }
}

/// Parses columns and rows, each as `FIRST` or `FIRST-LAST`.
fn area(columns: &str, rows: &str) -> Result<Area> {
    let range = |text: &str| -> Result<_> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Ok(first.parse()?..=last.parse()?)
    };
    Ok([range(columns)?, range(rows)?])
}

/// Returns the coordinate at which a column (axis 0) or a row (axis 1) starts.
fn start(axis: usize, index: u32) -> u32 {
    ORIGIN[axis] + index * (CELL[axis] + SPACE[axis])
}

/// Returns the coordinate at which a column or a row stops.
fn stop(axis: usize, index: u32) -> u32 {
    start(axis, index) + CELL[axis]
}

/// Returns position, width and height of an area.
fn bounds([columns, rows]: &Area) -> [u32; 4] {
    let [x, y] = [start(0, *columns.start()), start(1, *rows.start())];
    [x, y, stop(0, *columns.end()) - x, stop(1, *rows.end()) - y]
}

/// Returns the center of the columns (axis 0) or rows (axis 1) that two areas share.
fn center_of_overlap(axis: usize, a: &Area, b: &Area) -> Option<u32> {
    let first = *a[axis].start().max(b[axis].start());
    let last = *a[axis].end().min(b[axis].end());
    (first <= last).then(|| u32::midpoint(start(axis, first), stop(axis, last)))
}

/// Returns where the space between two areas starts in the direction from `a` to `b`,
/// where it ends, and its middle.
fn between(axis: usize, a: &Area, b: &Area) -> (u32, u32, u32) {
    let (from, to) = match a[axis].start() < b[axis].start() {
        true => (stop(axis, *a[axis].end()), start(axis, *b[axis].start())),
        false => (start(axis, *a[axis].start()), stop(axis, *b[axis].end())),
    };
    (from, to, u32::midpoint(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_connect_the_sides_that_face_each_other() {
        let text = "box 0 0 pure a: A\nbox 1 0-1 io b: B\nbox 0 1 io c: C\narrow a b: x\narrow b c\narrow a c";
        let svg = render(text).unwrap();
        let row = start(1, 0) + CELL[1] / 2;
        assert!(svg.contains(&format!("M{} {row}L{} {row}", stop(0, 0), start(0, 1))));
        let row = start(1, 1) + CELL[1] / 2;
        assert!(svg.contains(&format!("M{} {row}L{} {row}", start(0, 1), stop(0, 0))));
        let column = start(0, 0) + CELL[0] / 2;
        assert!(svg.contains(&format!(
            "M{column} {}L{column} {}",
            stop(1, 0),
            start(1, 1)
        )));
    }

    #[test]
    fn errors_name_the_line_or_the_arrow() {
        let error = |text: &str| format!("{:#}", render(text).unwrap_err());
        assert_eq!(error("boxes 1"), "line \"boxes 1\": unknown directive");
        let boxes = "box 0 0 pure a: A\nbox 1 1 pure b: B\n";
        assert_eq!(
            error(&format!("{boxes}arrow a c")),
            "arrow from a to c: no box is named c"
        );
        assert_eq!(
            error(&format!("{boxes}arrow a b")),
            "arrow from a to b: the boxes share neither a row nor a column"
        );
    }
}
