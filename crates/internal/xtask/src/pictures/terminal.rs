//! Pictures of a terminal with recorded output.
//!
//! The first line of the text is the command.

use anyhow::{Context, Result};

use super::svg::{Anchor, MONO, Svg};

/// Width of a character, as hundredths of a pixel, and height of a line.
const CHARACTER: u32 = 660;
const LINE: u32 = 17;
/// Space around the text, and height of the title bar.
const MARGIN: u32 = 18;
const BAR: u32 = 34;

/// Light text on a dark background with a border, on any page.
const STYLE: &str = "\
.window { fill: #0d1117; stroke: #3d444d; }
text { fill: #d1d7e0; font-size: 11px; }
.command { fill: #7ee787; }
.heading { fill: #79c0ff; }
.progress { fill: #8b949e; }
";

/// Colors of the buttons of the title bar.
const BUTTONS: [&str; 3] = ["#f85149", "#d29922", "#3fb950"];

/// Renders a recorded output.
pub(super) fn render(text: &str) -> Result<String> {
    let lines: Vec<&str> = text.lines().collect();
    let command = lines.first().context("the file is empty")?;
    let count = |number: usize| u32::try_from(number).context("too long");
    let columns = lines.iter().map(|line| line.chars().count()).max();
    let width = 2 * MARGIN + count(columns.unwrap_or(0))? * CHARACTER / 100;
    let height = BAR + count(lines.len())? * LINE + MARGIN;
    let style = format!("text {{ font-family: {MONO}; }}\n{STYLE}");
    let mut svg = Svg::new([width, height], &format!("Output of {command}"), &style);
    svg.rect("window", [0, 0, width, height], 10);
    for (x, color) in (MARGIN + 4..).step_by(18).zip(BUTTONS) {
        svg.circle(color, [x, BAR / 2], 5);
    }
    for (y, line) in (BAR + 10..).step_by(LINE as usize).zip(&lines) {
        // SVG collapses spaces, except no-break spaces.
        let text = line.replace(' ', "\u{a0}");
        svg.text(class(line), [MARGIN, y], Anchor::Start, &text);
    }
    Ok(svg.finish())
}

/// Returns the class of a line of the demo.
fn class(line: &str) -> &'static str {
    match line {
        _ if line.starts_with("$ ") => "command",
        _ if line.starts_with("mode ") => "heading",
        _ if line.starts_with("building ") || line.contains(": ") => "progress",
        _ => "output",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_escaped_and_the_widest_one_determines_the_width() {
        let svg = render("$ cat\na < b\n1234567890\n").unwrap();
        assert!(svg.contains(">a\u{a0}&lt;\u{a0}b</text>"), "{svg}");
        assert!(svg.contains("width=\"102\" height=\"103\""), "{svg}");
        assert!(render("").is_err());
    }
}
